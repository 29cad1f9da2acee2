//! Two devices, memory that runs out and copies that fail, on any machine: the library on a CUDA
//! driver made of a page of C (`driver.c`), which launches nothing. Everything here ends before a
//! launch, or has a variant of its own that launches nothing.

mod contexts;
mod copies;
#[cfg(feature = "cudnn")]
mod cudnn;
mod foreign;
mod pipeline;
mod plans;
mod recording;
mod scale;
mod set_up;

use std::{
    env,
    ffi::c_int,
    fs,
    path::Path,
    process::{Command, ExitCode},
};

use convforge::{
    Conv, Device, Error, Problem,
    gpu::{DeviceBuffer, Gpu},
};
use convforge_check::{Sets, find_poison};
use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let folder = tempfile::tempdir().unwrap();
    stand_in(
        "CONVFORGE_CUDA_LIB",
        include_str!("driver.c"),
        &folder.path().join("libcuda.so.1"),
    );
    #[cfg(feature = "cudnn")]
    stand_in(
        "CONVFORGE_CUDNN_LIB",
        include_str!("cudnn.c"),
        &folder.path().join("libcudnn.so.9"),
    );
    // It is only looked for: without one no search would be complete.
    #[cfg(feature = "cudnn")]
    stand_in(
        "CONVFORGE_NVRTC_LIB",
        "",
        &folder.path().join("libnvrtc.so.13"),
    );

    let case = |name: &str, test: fn()| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    };
    let trials = vec![
        case("two_gpus_are_two_devices", two_gpus_are_two_devices),
        case("buffers_of_another_device", buffers_of_another_device),
        case(
            "streams_and_workspaces",
            streams_and_workspaces_of_another_device,
        ),
        case("a_workspace_keeps_its_stream", a_workspace_keeps_its_stream),
        case(
            "what_a_workspace_held_stays",
            set_up::what_a_workspace_held_stays,
        ),
        case("sets_of_another_device", sets_of_another_device),
        case("copies_of_another_device", copies::memory_of_another_device),
        case("guards_end_in_any_order", contexts::guards_end_in_any_order),
        case(
            "a_context_that_somebody_set_goes_with_the_guard",
            contexts::a_context_that_somebody_set_goes_with_the_guard,
        ),
        case(
            "a_context_that_stands_further_down_is_left",
            contexts::a_context_that_stands_further_down_is_left,
        ),
        case("an_ordinal_too_many", an_ordinal_too_many),
        case("memory_runs_out", memory_runs_out),
        case("data_comes_back", data_comes_back),
        case("foreign_memory", foreign::memory_is_checked_and_serves),
        case("foreign_streams", foreign::streams_of_another_context),
        case(
            "the_default_stream_of_another_thread",
            foreign::the_default_stream_of_another_thread,
        ),
        case(
            "the_legacy_default_stream",
            foreign::the_legacy_default_stream,
        ),
        case("null_operands", foreign::operands_that_are_null),
        case(
            "set_up_asks_whose_memory_it_is",
            set_up::set_up_asks_whose_memory_it_is,
        ),
        case(
            "nothing_is_allocated_per_chunk",
            pipeline::nothing_is_allocated_per_chunk,
        ),
        case(
            "a_failing_copy_stops_the_rest",
            pipeline::a_failing_copy_stops_the_rest,
        ),
        case(
            "a_failure_while_waiting_names_all_chunks",
            pipeline::a_failure_while_waiting_names_all_chunks,
        ),
        case(
            "a_failure_is_told_though_the_run_was_stopped",
            pipeline::a_failure_is_told_though_the_run_was_stopped,
        ),
        case(
            "a_panic_waits_for_every_stream",
            pipeline::a_panic_waits_for_every_stream,
        ),
        case(
            "a_recording_of_another_thread_is_waited_for",
            recording::of_another_thread_is_waited_for,
        ),
        case(
            "a_recording_takes_no_host_memory",
            recording::takes_no_host_memory,
        ),
        case(
            "a_plan_serves_its_own_question",
            plans::a_plan_serves_its_own_question,
        ),
        #[cfg(feature = "cudnn")]
        case("cudnn", cudnn::all),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Compiles a library that takes another's place.
fn stand_in(variable: &str, source: &str, library: &Path) {
    let file = library.with_extension("c");
    fs::write(&file, source).unwrap();
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([library, &file])
        .status()
        .unwrap();
    assert!(compiled.success());
    // SAFETY: no other thread runs yet.
    unsafe { env::set_var(variable, library) };
}

/// A count or setting of the fake driver's, for this thread.
fn driver(name: &str) -> &'static mut c_int {
    let path = env::var_os("CONVFORGE_CUDA_LIB").unwrap();
    // SAFETY: the driver is loaded already and stays so. Each function answers the address of its
    // own integer, which lives as long as the thread.
    unsafe {
        let library = libloading::Library::new(path).unwrap();
        let integer = library.get::<unsafe extern "C" fn() -> *mut c_int>(name);
        &mut *integer.unwrap()()
    }
}

fn devices() -> [Device; 3] {
    [
        Device::gpu(0).unwrap(),
        Device::gpu(1).unwrap(),
        Device::cpu(),
    ]
}

fn problem() -> Problem {
    "mb2ic3ih8oc4oh6kh3".parse().unwrap()
}

fn conv(device: &Device) -> Conv {
    Conv::with_variant(device, &problem(), scale::variant()).unwrap()
}

fn two_gpus_are_two_devices() {
    let [a, b, cpu] = devices();
    assert_ne!(a, b);
    assert_ne!(a, cpu);
    assert_eq!(a, Device::gpu(0).unwrap());
    assert_eq!(b.to_string(), "GPU 1 (Fake B)");
    assert_eq!(a.limits().arch, 90);
}

/// Every operand in turn is on the wrong device, be that the other GPU or the CPU.
fn buffers_of_another_device() {
    let problem = problem();
    let [right, other_gpu, cpu] = devices();
    let conv = conv(&right);
    let stream = right.stream().unwrap();
    let mut workspace = conv.workspace(&stream).unwrap();
    for wrong in [other_gpu, cpu] {
        for misplaced in 0..3 {
            let on = |operand| if operand == misplaced { &wrong } else { &right };
            let x = on(0).alloc::<f32>(problem.x_len()).unwrap();
            let w = on(1).alloc::<f32>(problem.w_len()).unwrap();
            let mut y = on(2).alloc::<f32>(problem.y_len()).unwrap();
            let error = conv
                .run(&x, &w, &mut y, &mut workspace, &stream)
                .unwrap_err();
            assert!(matches!(error, Error::WrongDevice { .. }), "{error}");
            let text = error.to_string();
            let name = ["input", "filter", "output"][misplaced];
            for part in [name, &wrong.to_string(), "GPU 0 (Fake A)"] {
                assert!(text.contains(part), "`{part}` is not in: {text}");
            }
        }
        let w = wrong.alloc::<f32>(problem.w_len()).unwrap();
        assert!(matches!(
            conv.pack(&w, &stream),
            Err(Error::WrongDevice { .. })
        ));
    }
}

fn streams_and_workspaces_of_another_device() {
    let problem = problem();
    let [right, other_gpu, cpu] = devices();
    let conv = conv(&right);
    let x = right.alloc::<f32>(problem.x_len()).unwrap();
    let w = right.alloc::<f32>(problem.w_len()).unwrap();
    let mut y = right.alloc::<f32>(problem.y_len()).unwrap();
    let stream = right.stream().unwrap();
    for wrong in [other_gpu, cpu] {
        let strange = wrong.stream().unwrap();
        assert!(matches!(
            conv.workspace(&strange),
            Err(Error::WrongDevice { .. })
        ));
        let mut workspace = conv.workspace(&stream).unwrap();
        let error = conv
            .run(&x, &w, &mut y, &mut workspace, &strange)
            .unwrap_err();
        assert!(matches!(error, Error::WrongDevice { .. }), "{error}");
        let mut workspace = convforge::Workspace::new(&strange).unwrap();
        let error = conv
            .run(&x, &w, &mut y, &mut workspace, &stream)
            .unwrap_err();
        assert!(matches!(error, Error::WrongDevice { .. }), "{error}");
    }
    // Another stream of the same device.
    let mut workspace = conv.workspace(&right.stream().unwrap()).unwrap();
    let error = conv
        .run(&x, &w, &mut y, &mut workspace, &stream)
        .unwrap_err();
    assert!(matches!(error, Error::WrongStream), "{error}");
}

/// The judge's kernels could not read them.
fn sets_of_another_device() {
    let [right, other, _] = devices();
    let problem = problem();
    let sets = Sets {
        problem: &problem,
        start: 0,
        stride: problem.y_len(),
        count: 1,
    };
    let memory = right.alloc::<u8>(4 * problem.y_len()).unwrap();
    let error = find_poison(&memory, &sets, &other.stream().unwrap()).unwrap_err();
    assert!(matches!(error, Error::WrongDevice { .. }), "{error}");
}

/// Its handles queue work there.
fn a_workspace_keeps_its_stream() {
    let [device, ..] = devices();
    let conv = conv(&device);
    let stream = device.stream().unwrap();
    let workspace = conv.workspace(&stream).unwrap();
    let destroyed = *driver("fake_destroyed_streams");
    drop(stream);
    assert_eq!(*driver("fake_destroyed_streams"), destroyed);
    drop(workspace);
    assert_eq!(*driver("fake_destroyed_streams"), destroyed + 1);
}

fn an_ordinal_too_many() {
    let error = Device::gpu(2).unwrap_err().to_string();
    assert_eq!(error, "no GPU: GPU 2 was asked for, but there are 0 to 1");
}

/// On a GPU that no other case takes memory of.
fn memory_runs_out() {
    let gpu = Gpu::new(1).unwrap();
    let most = 1usize << 30;
    let error = DeviceBuffer::<f32>::alloc(&gpu, most).unwrap_err();
    let Error::OutOfMemory {
        asked,
        free,
        total,
        device,
    } = error
    else {
        panic!("{error}")
    };
    assert_eq!((asked, total), (4 * most, most));
    assert!(free <= total && device.contains("Fake B"));
    let error = DeviceBuffer::<f32>::alloc(&gpu, usize::MAX).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
    // What was given back can be had again.
    for _ in 0..5 {
        DeviceBuffer::<u8>::alloc(&gpu, most / 2).unwrap();
    }
}

fn data_comes_back() {
    let [a, ..] = devices();
    let stream = a.stream().unwrap();
    let data: Vec<f32> = (0..1000).map(|i| i as f32).collect();
    let mut buffer = a.upload(&data).unwrap();
    assert_eq!(buffer.to_vec(&stream).unwrap(), data);
    assert!(buffer.copy_from(&data[1..], &stream).is_err());
}
