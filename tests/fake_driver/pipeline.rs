//! A pipeline's copies: how many there are, what is allocated for them, and what becomes of one that
//! fails.

use std::{
    error::Error as _,
    ffi::c_int,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::AtomicBool,
};

use convforge::{
    Device, Error, Pipeline,
    gpu::{Gpu, PinnedBuffer},
    pipeline::Options,
};

use crate::{driver, scale};

/// Ten images of 16 pixels, doubled; in chunks of 3, the last chunk is one image.
const PROBLEM: &str = "mb10ic1ih4oc1kh1";
const LEN: usize = 160;
const CHUNKS: c_int = 4;

/// Over two streams, with this weight.
fn pipeline(weight: f32, timeline: bool) -> Pipeline<f32> {
    let options = Options::default().streams(2).chunk(3).timeline(timeline);
    let (device, problem) = (Device::gpu(0).unwrap(), PROBLEM.parse().unwrap());
    let variant = scale::variant();
    Pipeline::with_variant(&device, &problem, variant, &[weight], &[], &options).unwrap()
}

fn input() -> Vec<f32> {
    (0..LEN).map(|i| i as f32).collect()
}

pub fn nothing_is_allocated_per_chunk() {
    let gpu = Gpu::new(0).unwrap();
    let x = input();
    let doubled: Vec<f32> = x.iter().map(|x| 2.0 * x).collect();
    for timeline in [false, true] {
        let mut pipeline = pipeline(2.0, timeline);
        let mut pageable = vec![f32::NAN; LEN];
        let mut pinned_x = PinnedBuffer::alloc(&gpu, LEN).unwrap();
        let mut pinned = PinnedBuffer::alloc(&gpu, LEN).unwrap();
        pinned_x.copy_from_slice(&x);
        let (allocations, copies) = (*driver("fake_allocations"), *driver("fake_copies"));
        pipeline.run(&x, &mut pageable).unwrap();
        pipeline.run(&pinned_x, &mut pinned).unwrap();
        assert_eq!(*driver("fake_allocations"), allocations);
        assert_eq!(*driver("fake_copies"), copies + 2 * 2 * CHUNKS);
        assert_eq!(pageable, doubled);
        assert_eq!(pinned[..], doubled[..]);
    }
}

/// Each copy of a run fails in turn.
pub fn a_failing_copy_stops_the_rest() {
    // In, in, out, in, out, in, out, out: a copy out comes after the next copy in.
    let chunks = [0, 1, 0, 2, 1, 3, 2, 3];
    let places = ["0 to 2", "3 to 5", "6 to 8", "9"];
    for (nth, chunk) in chunks.into_iter().enumerate() {
        let mut pipeline = pipeline(2.0, false);
        let mut y = vec![f32::NAN; LEN];
        let failing = *driver("fake_copies") + nth as c_int + 1;
        *driver("fake_failing_copy") = failing;
        let error = pipeline.run(&input(), &mut y).unwrap_err();
        assert_eq!(
            *driver("fake_copies"),
            failing,
            "a copy was begun after that"
        );
        let images = if chunk == 3 { "image" } else { "images" };
        let place = format!("chunk {chunk} of 4 ({images} {})", places[chunk]);
        assert_eq!(error.to_string(), place);
        let why = error.source().expect("what failed").to_string();
        assert!(why.starts_with("cuMemcpy"), "{why}");
        let Error::Chunk { source, .. } = error else {
            panic!("{error}")
        };
        assert!(matches!(*source, Error::Gpu { code: 700, .. }), "{source}");
        // A later run is as good as any.
        pipeline.run(&input(), &mut y).unwrap();
        assert_eq!(y[LEN - 1], 2.0 * (LEN - 1) as f32);
    }
}

/// What shows only when it is waited for may have been any chunk.
pub fn a_failure_while_waiting_names_all_chunks() {
    let mut pipeline = pipeline(2.0, false);
    *driver("fake_failing_waits") = 1;
    let error = pipeline.run(&input(), &mut [0.0; LEN]).unwrap_err();
    *driver("fake_failing_waits") = 0;
    let text = error.to_string();
    assert_eq!(text, "chunks 0 to 3 of 4 (images 0 to 9)");
    let why = error.source().expect("what failed").to_string();
    assert!(why.starts_with("cuStreamSynchronize"), "{why}");
}

/// That the caller stopped says nothing of what failed.
pub fn a_failure_is_told_though_the_run_was_stopped() {
    let mut pipeline = pipeline(2.0, false);
    let stop = AtomicBool::new(true);
    let mut run = || pipeline.run_until(&input(), &mut [0.0; LEN], &stop);
    *driver("fake_failing_waits") = 1;
    let error = run().unwrap_err();
    *driver("fake_failing_waits") = 0;
    let Error::Chunk { source, .. } = error else {
        panic!("{error}")
    };
    assert!(matches!(*source, Error::Gpu { code: 700, .. }), "{source}");
    let error = run().unwrap_err();
    assert!(matches!(error, Error::Interrupted), "{error}");
}

/// What unwinds past a run may free the memory that its copies use.
pub fn a_panic_waits_for_every_stream() {
    let mut pipeline = pipeline(f32::NAN, false);
    let (copies, waits) = (*driver("fake_copies"), *driver("fake_waits"));
    let run = || drop(pipeline.run(&input(), &mut [0.0; LEN]));
    assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
    assert_eq!(*driver("fake_copies"), copies + 1);
    assert_eq!(*driver("fake_waits"), waits + 2);
}
