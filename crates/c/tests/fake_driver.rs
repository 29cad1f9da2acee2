//! What only GPUs can make go wrong, on the fake driver of the library's tests and a cuBLAS of six lines.
//! Nothing is launched.

mod common;

use std::{
    env,
    ffi::{CStr, c_void},
    fs,
    path::Path,
    process::Command,
    ptr::{null, null_mut, without_provenance_mut},
    thread,
};

use common::{Shared, bytes, device, last_error, output, plan, workspace};
use convforge_c::*;

const DRIVER: &str = include_str!("../../../tests/fake_driver/driver.c");
/// It refuses CUDA's stream 1, and has no function to multiply with, nor one to be told of scratch memory.
const CUBLAS: &str = "
    int cublasCreate_v2(void **handle) { return *handle = (void *)64, 0; }
    int cublasDestroy_v2(void *handle) { return !handle; }
    int cublasSetStream_v2(void *handle, void *stream) { return !handle || stream == (void *)1 ? 13 : 0; }
    int cublasSetMathMode(void *handle, int mode) { return !handle || !mode; }
    int cublasSetPointerMode_v2(void *handle, int mode) { return !handle || mode; }
    const char *cublasGetStatusName(int status) { return status == 13 ? \"refused\" : \"\"; }
";
const LEGACY: *mut c_void = without_provenance_mut(1);
const PER_THREAD: *mut c_void = without_provenance_mut(2);

fn stand_in(variable: &str, source: &str, library: &Path) {
    let file = library.with_extension("c");
    fs::write(&file, source).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]);
    output(compiler.args([library, &file]));
    // SAFETY: no other thread runs yet but the one that waits for this test.
    unsafe { env::set_var(variable, library) };
}

#[track_caller]
fn is(answer: Status, status: Status, part: &str) {
    assert_eq!(answer, status, "{:?}", last_error());
    let (code, text) = last_error();
    assert!(code == status && text.contains(part), "{part}: {text}");
}

/// Addresses of nothing.
fn operands() -> Operands {
    let memory: *mut c_void = without_provenance_mut(4096);
    Operands {
        x: memory,
        w: memory,
        y: memory,
        packed: null(),
        bias: null(),
        residual: null(),
    }
}

/// One test, as libraries are opened once.
#[test]
fn what_a_gpu_answers() {
    let folder = tempfile::tempdir().unwrap();
    let [driver, cublas] = ["libcuda.so.1", "libcublas.so.13"].map(|name| folder.path().join(name));
    stand_in("CONVFORGE_CUDA_LIB", DRIVER, &driver);
    stand_in("CONVFORGE_CUBLAS_LIB", CUBLAS, &cublas);

    is(device(2).unwrap_err(), Status::NoGpu, "0 to 1");
    let [a, b] = [0, 1].map(|ordinal| device(ordinal).unwrap());
    let on = |device, problem| plan(device, problem, Some("cublas_gemm")).unwrap();
    let [small, elsewhere] = [a, b].map(|device| on(device, "mb1ic8ih8oc8kh1"));
    let large = on(a, "mb64ic64ih512oc64kh3ph1");
    // SAFETY: a text of the plan's.
    let name = unsafe { CStr::from_ptr(convforge_plan_name(small)) };
    assert_eq!(name, c"cublas_gemm:auto");

    // Of 1 GiB.
    assert!(bytes(large, What::WorkspaceLeast) < 1 << 31);
    is(
        workspace(large, null_mut()).unwrap_err(),
        Status::Memory,
        "Fake A",
    );
    is(
        workspace(small, LEGACY).unwrap_err(),
        Status::Gpu,
        "refused",
    );

    let lane = workspace(small, PER_THREAD).unwrap();
    // SAFETY: the handles are alive, and nothing is done with the operands: each call is refused, or
    // ends where cuBLAS lacks a function.
    unsafe {
        is(
            convforge_run(small, lane, &operands()),
            Status::Library,
            "cublasSetWorkspace",
        );
        is(
            convforge_workspace_reserve(lane, elsewhere),
            Status::Device,
            "Fake B",
        );
        is(
            convforge_run(elsewhere, lane, &operands()),
            Status::Device,
            "Fake B",
        );
    }
    let (small, lane) = (Shared(small), Shared(lane));
    let there = thread::spawn(move || {
        let (plan, lane) = (small.get(), lane.get());
        // SAFETY: as above; a workspace is destroyed on any thread.
        unsafe {
            is(
                convforge_run(plan, lane, &operands()),
                Status::Thread,
                "handle 2",
            );
            is(
                convforge_workspace_reserve(lane, plan),
                Status::Thread,
                "handle 2",
            );
            is(
                convforge_pack(plan, lane, null(), null_mut()),
                Status::Thread,
                "handle 2",
            );
            assert_eq!(convforge_workspace_destroy(lane), Status::Ok);
        }
    });
    there.join().unwrap();
}
