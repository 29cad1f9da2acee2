//! The door from outside: what it computes, what it refuses, threads that share it, and that it keeps
//! nothing.

mod common;

use std::{
    ffi::{CStr, c_int, c_void},
    mem::MaybeUninit,
    panic::AssertUnwindSafe,
    ptr::{null, null_mut, without_provenance_mut},
    sync::{Arc, Barrier},
    thread,
};

use common::{
    Aligned, CPU, PLAIN, Ready, SMALL, Shared, bytes, device, last_error, odd::Odd, operands, plan,
    refused, workspace, workspace_in,
};
use convforge::{
    Error,
    variant::{Packing, Space},
};
use convforge_c::*;

/// The last failure has this code, and says this.
#[track_caller]
fn failed(answer: Status, status: Status, part: &str) {
    assert_eq!(answer, status, "{:?}", last_error());
    let (code, text) = last_error();
    assert_eq!(code, status);
    assert!(text.contains(part), "`{part}` is not in: {text}");
}

#[test]
fn bias_and_residual_arrive_where_they_belong() {
    let ready = Ready::new("mb1ic1ih2oc2oh2kh1+bias+residual+align=4", Some(PLAIN));
    let sizes = [
        What::X,
        What::W,
        What::Y,
        What::Bias,
        What::Residual,
        What::Packed,
    ];
    assert_eq!(
        sizes.map(|what| bytes(ready.plan, what)),
        [16, 8, 32, 8, 32, 0]
    );
    let (x, w, bias) = ([1f32, 2., 3., 4.], [10f32, 100.], [0.5f32, 0.25]);
    let residual: Vec<f32> = (1..=8).map(|i| i as f32 * 1000.).collect();
    let mut y = [f32::NAN; 8];
    let mut operands = operands(&x, &w, &mut y);
    operands.bias = bias.as_ptr();
    operands.residual = residual.as_ptr().cast();
    assert_eq!(ready.run(&operands), Status::Ok);
    let expected = [
        1010.5, 2020.5, 3030.5, 4040.5, 5100.25, 6200.25, 7300.25, 8400.25,
    ];
    assert_eq!(y, expected);
    // SAFETY: the texts stay as long as the plan.
    let (name, reason) = unsafe {
        (
            CStr::from_ptr(convforge_plan_name(ready.plan)),
            CStr::from_ptr(convforge_plan_reason(ready.plan)),
        )
    };
    assert_eq!(name.to_str().unwrap(), PLAIN);
    assert_eq!(reason.to_str().unwrap(), "cpu_direct: by its name");
}

#[test]
fn what_cannot_be_opened_or_planned() {
    refused(device(-2), Status::Argument, "-2");
    refused(device(1 << 20), Status::NoGpu, "no GPU");
    let cpu = device(CPU).unwrap();
    refused(plan(null(), SMALL, None), Status::Handle, "null");
    refused(plan(cpu, "mb1ic1", None), Status::Text, "mb1ic1");
    refused(
        plan(cpu, SMALL, Some("policy:none")),
        Status::Unknown,
        "policy",
    );
    refused(plan(cpu, SMALL, Some("cpu_dirct")), Status::Unknown, PLAIN);
    refused(
        plan(cpu, SMALL, Some("kernels")),
        Status::Unsupported,
        "the CPU",
    );
    refused(
        plan(cpu, "g2mb1ic3ih1oc2kh1", None),
        Status::Problem,
        "groups",
    );
    // SAFETY: the handle is alive, and nothing is written to null.
    unsafe {
        let text = c"mb1ic1ih1oc1kh1".as_ptr();
        let mut out = null_mut();
        let answer = convforge_plan_create(cpu, text, null(), null_mut());
        failed(answer, Status::Argument, "out is null");
        let answer = convforge_plan_create(cpu, null(), null(), &mut out);
        failed(answer, Status::Argument, "problem is null");
        let answer = convforge_plan_create(cpu, c"mb1\xff".as_ptr(), null(), &mut out);
        failed(answer, Status::Text, "UTF-8");
        let answer = convforge_plan_create(cpu, text, c"\xff".as_ptr(), &mut out);
        failed(answer, Status::Text, "UTF-8");
        failed(
            convforge_device_open(CPU, null_mut()),
            Status::Argument,
            "out is null",
        );
        assert_eq!(convforge_device_close(cpu), Status::Ok);
    }
}

#[test]
fn handles_of_another_kind_and_none() {
    let ready = Ready::new(SMALL, Some(PLAIN));
    let (cpu, plan, space) = (ready.device, ready.plan, ready.workspace);
    let mut size = 0;
    // SAFETY: the handles are alive; each call refuses the one of another kind.
    unsafe {
        let needs = |answer, name: &str| failed(answer, Status::Handle, name);
        needs(convforge_device_close(plan.cast()), "convforge_device");
        needs(convforge_plan_destroy(cpu.cast()), "convforge_plan");
        needs(
            convforge_workspace_destroy(plan.cast()),
            "convforge_workspace",
        );
        needs(
            convforge_plan_bytes(space.cast(), 0, &mut size),
            "convforge_plan",
        );
        needs(
            convforge_workspace_reserve(plan.cast(), plan),
            "convforge_workspace",
        );
        needs(
            convforge_workspace_reserve(space, cpu.cast()),
            "convforge_plan",
        );
        needs(
            convforge_pack(cpu.cast(), space, null(), null_mut()),
            "convforge_plan",
        );
        needs(
            convforge_run(plan, cpu.cast(), null()),
            "convforge_workspace",
        );
        needs(convforge_run(null(), space, null()), "null");
        needs(convforge_plan_destroy(plan.byte_add(1)), "convforge_plan");
        assert!(convforge_plan_name(space.cast()).is_null());
        assert!(convforge_plan_reason(null()).is_null());
        assert_eq!(last_error().0, Status::Handle);
        // Nothing is destroyed where there is nothing.
        assert_eq!(convforge_device_close(null_mut()), Status::Ok);
        assert_eq!(convforge_plan_destroy(null_mut()), Status::Ok);
        assert_eq!(convforge_workspace_destroy(null_mut()), Status::Ok);
        for what in [-1, 8, c_int::MAX] {
            let answer = convforge_plan_bytes(plan, what, &mut size);
            failed(answer, Status::Argument, "no such operand");
        }
        let answer = convforge_plan_bytes(plan, 0, null_mut());
        failed(answer, Status::Argument, "bytes is null");
    }
}

#[test]
fn operands_that_are_wrong() {
    let ready = Ready::new("mb1ic1ih2oc1oh2kh1+bias", Some(PLAIN));
    let (x, w, bias) = (vec![1f32; 8], vec![1f32; 4], [1f32; 4]);
    let mut y = vec![0f32; 8];
    let right = Operands {
        bias: bias.as_ptr(),
        ..operands(&x, &w, &mut y)
    };
    let wrong = |lose: fn(&mut Operands), status, part: &str| {
        let mut operands = right;
        lose(&mut operands);
        failed(ready.run(&operands), status, part);
    };
    wrong(|o| o.x = null(), Status::Operand, "input");
    wrong(|o| o.w = null(), Status::Operand, "filter");
    wrong(|o| o.y = null_mut(), Status::Operand, "output");
    wrong(|o| o.bias = null(), Status::Operand, "bias");
    wrong(|o| o.residual = o.x, Status::Operand, "residual");
    wrong(
        |o| o.y = o.y.wrapping_byte_add(4),
        Status::Misaligned,
        "output",
    );
    // SAFETY: the handles are alive.
    let answer = unsafe { convforge_run(ready.plan, ready.workspace, null()) };
    failed(answer, Status::Argument, "operands is null");
    assert_eq!(y, [0.0; 8]);
}

#[test]
fn workspaces_that_are_wrong() {
    let ready = Ready::new(SMALL, Some(PLAIN));
    let mut memory = Aligned::new();
    let begin: *mut c_void = memory.address();
    let aside = begin.wrapping_byte_add(64);
    refused(
        workspace_in(ready.plan, aside, 1 << 10),
        Status::Misaligned,
        "128",
    );
    refused(
        workspace_in(ready.plan, null_mut(), 1),
        Status::Argument,
        "memory is null",
    );
    let stream = without_provenance_mut(1 << 12);
    refused(
        workspace(ready.plan, stream),
        Status::Argument,
        "no streams",
    );
    let given = workspace_in(ready.plan, begin, Aligned::BYTES).unwrap();
    // SAFETY: the handles are alive.
    unsafe {
        assert_eq!(convforge_workspace_reserve(given, ready.plan), Status::Ok);
        assert_eq!(convforge_workspace_destroy(given), Status::Ok);
    }
}

#[test]
fn eight_threads_share_a_plan() {
    let problem = "mb1ic3ih8oc4oh8kh3ph1";
    let ready = Ready::new(problem, None);
    let plan = Shared(ready.plan);
    let sums: Vec<Vec<f32>> = thread::scope(|scope| {
        let lanes = (1..=8).map(|number| {
            let plan = &plan;
            scope.spawn(move || {
                let plan = plan.get();
                let own = workspace(plan, null_mut()).unwrap();
                let w = vec![number as f32; bytes(plan, What::W) / 4];
                let x = vec![1f32; bytes(plan, What::X) / 4];
                let mut packed = Aligned::new();
                let packed = packed.address();
                let mut y = vec![0f32; bytes(plan, What::Y) / 4];
                // SAFETY: the handles are alive, and everything is as large as it must be.
                unsafe {
                    let packs = bytes(plan, What::Packed) > 0;
                    assert!(bytes(plan, What::Packed) <= Aligned::BYTES);
                    assert_eq!(
                        convforge_pack(plan, own, w.as_ptr().cast(), packed),
                        Status::Ok
                    );
                    for _ in 0..200 {
                        let mut operands = operands(&x, &w, &mut y);
                        operands.packed = if packs { packed } else { null() };
                        assert_eq!(convforge_run(plan, own, &operands), Status::Ok);
                    }
                    assert_eq!(convforge_workspace_destroy(own), Status::Ok);
                }
                y
            })
        });
        let lanes: Vec<_> = lanes.collect();
        lanes.into_iter().map(|lane| lane.join().unwrap()).collect()
    });
    // In the middle of an image all 27 weights count.
    for (number, sums) in sums.iter().enumerate() {
        assert_eq!(sums[9], 27.0 * (number + 1) as f32);
    }
}

#[test]
fn a_workspace_serves_one_thread_at_a_time() {
    let began = Arc::new(Barrier::new(2));
    let ends = began.clone();
    let ready = Ready::odd(Odd::new(move || {
        // The run has begun; the other thread has been refused.
        ends.wait();
        ends.wait();
        Ok(())
    }));
    let (plan, space) = (Shared(ready.plan), Shared(ready.workspace));
    thread::scope(|scope| {
        let first = scope.spawn(|| {
            let (x, w, mut y) = ([1f32], [1f32], [1f32]);
            // SAFETY: the handles are alive, the operands as large as the problem says.
            unsafe { convforge_run(plan.get(), space.get(), &operands(&x, &w, &mut y)) }
        });
        began.wait();
        // SAFETY: the handles are alive, and nothing is destroyed that is refused.
        unsafe {
            let busy = |answer| failed(answer, Status::Busy, "another thread");
            busy(convforge_workspace_reserve(space.get(), plan.get()));
            busy(convforge_run(
                plan.get(),
                space.get(),
                &operands(&[], &[], &mut []),
            ));
            busy(convforge_workspace_destroy(space.get()));
        }
        began.wait();
        assert_eq!(first.join().unwrap(), Status::Ok);
    });
}

#[test]
fn failures_and_panics_of_a_launch() {
    let missing = || {
        Err(Error::Library {
            library: "cuBLAS",
            why: "install it".to_owned(),
            source: Some(AssertUnwindSafe("it was looked for".into())),
        })
    };
    let fault = || {
        Err(Error::Gpu {
            call: "cuLaunchKernel",
            code: 700,
            name: "CUDA_ERROR_ILLEGAL_ADDRESS".to_owned(),
            text: "an illegal memory access".to_owned(),
        })
    };
    let (x, w, mut y) = ([1f32; 4], [1f32; 4], [1f32; 4]);
    let operands = operands(&x, &w, &mut y);
    let ready = Ready::odd(Odd::new(missing));
    failed(ready.run(&operands), Status::Library, "looked for");
    let ready = Ready::odd(Odd::new(fault));
    failed(ready.run(&operands), Status::Gpu, "illegal memory access");
    let ready = Ready::odd(Odd::new(|| panic!("on purpose")));
    for _ in 0..2 {
        failed(ready.run(&operands), Status::Internal, "on purpose");
    }
}

#[test]
fn workspaces_and_filters_that_do_not_fit() {
    let large = plan_of(Odd::new(|| Ok(())).workspace(1 << 60).conv(SMALL), "");
    refused(workspace(large, null_mut()), Status::Memory, "CPU");
    let mut memory = Aligned::new();
    let given = workspace_in(large, memory.address(), Aligned::BYTES);
    refused(
        given,
        Status::Workspace,
        "at least 1152921504606846976 bytes",
    );

    let packing = Packing::new(256, 1);
    let ready = Ready::odd(Odd::new(|| Ok(())).packing(packing));
    let (plan, space, w) = (ready.plan, ready.workspace, memory.address());
    assert_eq!(bytes(plan, What::Packed), 256);
    let (x, filter, mut y) = ([1f32; 4], [1f32; 4], [1f32; 4]);
    failed(
        ready.run(&operands(&x, &filter, &mut y)),
        Status::Operand,
        "packed",
    );
    let constant = Ready::odd(Odd::new(|| Ok(())).packing(packing.space(Space::Constant)));
    // SAFETY: the handles are alive, and nothing is written: each call is refused.
    unsafe {
        failed(
            convforge_pack(plan, space, w, null_mut()),
            Status::Argument,
            "null",
        );
        failed(
            convforge_pack(plan, space, null(), w),
            Status::Argument,
            "null",
        );
        let aside = w.wrapping_byte_add(64);
        failed(
            convforge_pack(plan, space, w, aside),
            Status::Misaligned,
            "128",
        );
        let answer = convforge_pack(constant.plan, constant.workspace, w, w);
        failed(answer, Status::Unsupported, "constant memory");
        assert_eq!(convforge_plan_destroy(large), Status::Ok);
    }
}

/// An `out` that was never written to is given null where there is nothing.
#[test]
fn a_failure_leaves_null() {
    let mut out = MaybeUninit::<*mut Device>::uninit();
    // SAFETY: it is written to.
    unsafe {
        assert_eq!(
            convforge_device_open(-5, out.as_mut_ptr()),
            Status::Argument
        );
        assert!(out.assume_init().is_null());
    }
}
