//! Streams and threads of GPUs, on the fake driver of the library's tests, whose memory is the host's, and
//! its variant that launches nothing.

mod common;
#[path = "../../../tests/fake_driver/scale.rs"]
mod scale;

use std::{
    env,
    ffi::c_void,
    fs,
    process::Command,
    ptr::{null_mut, without_provenance_mut},
    thread,
};

use common::{Made, Shared, device, last_error, operands, output, refused, workspace};
use convforge::Conv;
use convforge_c::*;

const DRIVER: &str = include_str!("../../../tests/fake_driver/driver.c");
/// CUDA's special streams.
const DEFAULT: [*mut c_void; 3] = [
    null_mut(),
    without_provenance_mut(1),
    without_provenance_mut(2),
];
const PER_THREAD: *mut c_void = DEFAULT[2];

fn plan(ordinal: usize) -> *mut Plan {
    let device = convforge::Device::gpu(ordinal).unwrap();
    let problem = common::SMALL.parse().unwrap();
    let conv = Conv::with_variant(&device, &problem, scale::variant()).unwrap();
    plan_of(conv, "for a test")
}

#[track_caller]
fn failed(answer: Status, status: Status, part: &str) {
    assert_eq!(answer, last_error().0);
    refused(Made::<Device>::Err(last_error()), status, part);
}

/// One test, as the driver is opened once.
#[test]
fn streams_and_threads() {
    let folder = tempfile::tempdir().unwrap();
    let (source, library) = (
        folder.path().join("driver.c"),
        folder.path().join("libcuda.so.1"),
    );
    fs::write(&source, DRIVER).unwrap();
    let mut compiler = Command::new("cc");
    output(
        compiler
            .args(["-shared", "-fPIC", "-o"])
            .args([&library, &source]),
    );
    // SAFETY: no other thread runs yet but the one that waits for this test.
    unsafe { env::set_var("CONVFORGE_CUDA_LIB", &library) };

    refused(device(2), Status::NoGpu, "0 to 1");
    let [here, elsewhere] = [0, 1].map(plan);
    let (x, w) = ([3f32], [2f32]);
    for stream in DEFAULT {
        let mut y = [0f32];
        let lane = workspace(here, stream).unwrap();
        // SAFETY: the handles are alive, the operands as large as the problem says.
        unsafe {
            assert_eq!(
                convforge_run(here, lane, &operands(&x, &w, &mut y)),
                Status::Ok
            );
            assert_eq!(convforge_workspace_destroy(lane), Status::Ok);
        }
        assert_eq!(y, [6.0]);
    }

    let mut y = [0f32];
    let lane = workspace(here, PER_THREAD).unwrap();
    let operands = operands(&x, &w, &mut y);
    // SAFETY: the handles are alive, and nothing is done with the operands: each call is refused.
    unsafe {
        failed(
            convforge_run(elsewhere, lane, &operands),
            Status::Device,
            "Fake B",
        );
        failed(
            convforge_workspace_reserve(lane, elsewhere),
            Status::Device,
            "Fake B",
        );
    }
    let (plan, lane, operands) = (
        Shared(here),
        Shared(lane),
        Shared(&raw const operands as *mut _),
    );
    thread::scope(|scope| {
        // SAFETY: as above; the handles are destroyed on any thread.
        scope.spawn(|| unsafe {
            let (plan, lane) = (plan.get(), lane.get());
            failed(
                convforge_run(plan, lane, operands.get()),
                Status::Thread,
                "handle 2",
            );
            failed(
                convforge_workspace_reserve(lane, plan),
                Status::Thread,
                "handle 2",
            );
            let pack = convforge_pack(plan, lane, null_mut(), null_mut());
            failed(pack, Status::Thread, "handle 2");
            assert_eq!(convforge_workspace_destroy(lane), Status::Ok);
            assert_eq!(convforge_plan_destroy(plan), Status::Ok);
        });
    });
    assert_eq!(y, [0.0]);
}
