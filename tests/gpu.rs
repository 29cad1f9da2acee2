//! The wrappers over the CUDA driver, on a real GPU.
//!
//! Without one every case is `ignored`, with the reason; `CONVFORGE_REQUIRE_GPU=1` makes that a
//! failure.

#[cfg(not(feature = "cuda"))]
fn main() {
    println!("built without the feature `cuda`: nothing to test");
}

#[cfg(feature = "cuda")]
fn main() -> std::process::ExitCode {
    cases::run()
}

#[cfg(feature = "cuda")]
mod common;

#[cfg(feature = "cuda")]
mod cases {
    use super::common::gpu_is_required;
    use std::{
        mem,
        panic::{AssertUnwindSafe, catch_unwind},
        process::ExitCode,
        ptr,
        sync::{OnceLock, mpsc},
        thread,
    };

    use convforge::{
        Error,
        gpu::{DeviceBuffer, Event, Gpu, Pending, PinnedBuffer, Stream},
    };
    use half::{bf16, f16};
    use libtest_mimic::{Arguments, Completion, Trial};

    type Case = fn(&Gpu) -> Result<(), Error>;

    const CASES: &[(&str, Case)] = &[
        ("round_trips", round_trips),
        ("parts_of_a_buffer", parts_of_a_buffer),
        ("empty_buffers", empty_buffers),
        ("ranges_outside_are_errors", ranges_outside_are_errors),
        ("too_much_memory_is_an_error", too_much_memory_is_an_error),
        ("a_gpu_that_is_not_there", a_gpu_that_is_not_there),
        ("what_the_gpu_says_of_itself", what_the_gpu_says_of_itself),
        (
            "the_current_context_is_restored",
            the_current_context_is_restored,
        ),
        ("events_order_and_measure", events_order_and_measure),
        (
            "borrowed_streams_are_not_destroyed",
            borrowed_streams_are_not_destroyed,
        ),
        (
            "the_default_stream_of_another_thread",
            the_default_stream_of_another_thread,
        ),
        ("capture_and_replay", capture_and_replay),
        ("an_error_inside_a_capture", an_error_inside_a_capture),
        ("a_panic_inside_a_capture", a_panic_inside_a_capture),
        (
            "a_spoiled_capture_is_an_error",
            a_spoiled_capture_is_an_error,
        ),
        (
            "dropping_does_not_spoil_a_capture",
            dropping_does_not_spoil_a_capture,
        ),
        (
            "host_copies_are_refused_in_a_capture",
            host_copies_are_refused_in_a_capture,
        ),
        (
            "others_copy_while_one_captures",
            others_copy_while_one_captures,
        ),
        ("two_threads", two_threads),
        ("pending_copies", pending_copies),
        (
            "a_pending_copy_is_dropped_or_forgotten",
            a_pending_copy_is_dropped_or_forgotten,
        ),
        (
            "buffers_dropped_with_work_in_flight",
            buffers_dropped_with_work_in_flight,
        ),
        (
            "everything_outlives_its_gpu_value",
            everything_outlives_its_gpu_value,
        ),
    ];

    pub fn run() -> ExitCode {
        let trials = CASES.iter().map(|&(name, case)| {
            Trial::ignorable_test(name, move || match gpu()? {
                Ok(gpu) => {
                    case(&gpu).map_err(|error| convforge::chain(&error))?;
                    Ok(Completion::Completed)
                }
                Err(reason) => Ok(Completion::ignored_with(reason)),
            })
        });
        // One at a time: `Gpu::synchronize` in one case would spoil a recording in another.
        let arguments = Arguments {
            test_threads: Some(1),
            ..Arguments::from_args()
        };
        libtest_mimic::run(&arguments, trials.collect()).exit_code()
    }

    /// The first GPU, or the reason to ignore a case, or to fail it.
    fn gpu() -> Result<Result<Gpu, String>, String> {
        static GPU: OnceLock<Result<Gpu, String>> = OnceLock::new();
        let gpu = GPU.get_or_init(|| Gpu::new(0).map_err(|error| convforge::chain(&error)));
        match gpu {
            Err(reason) if gpu_is_required() => Err(reason.clone()),
            gpu => Ok(gpu.clone()),
        }
    }

    fn round_trips(gpu: &Gpu) -> Result<(), Error> {
        fn check<T: bytemuck::Pod + PartialEq + std::fmt::Debug>(
            gpu: &Gpu,
            data: Vec<T>,
        ) -> Result<(), Error> {
            let buffer = DeviceBuffer::from_slice(gpu, &data)?;
            assert_eq!(buffer.len(), data.len());
            assert_eq!(buffer.address() % 256, 0);
            assert_eq!(buffer.download()?, data);
            Ok(())
        }
        check(gpu, (0..100_001).map(|i| i as f32).collect())?;
        check(gpu, (0..1001).map(|i| f16::from_f32(i as f32)).collect())?;
        check(gpu, (0..257).map(|i| bf16::from_f32(i as f32)).collect())?;
        check(gpu, vec![7_u8])
    }

    fn parts_of_a_buffer(gpu: &Gpu) -> Result<(), Error> {
        let mut buffer = DeviceBuffer::from_slice(gpu, &[0_i32, 1, 2, 3, 4])?;
        buffer.upload_at(3, &[30, 40])?;
        buffer.upload_at(5, &[])?;
        assert_eq!(buffer.download_range(2..4)?, [2, 30]);
        let mut all = [0; 5];
        buffer.download_into(&mut all)?;
        assert_eq!(all, [0, 1, 2, 30, 40]);
        Ok(())
    }

    fn empty_buffers(gpu: &Gpu) -> Result<(), Error> {
        let stream = Stream::new(gpu)?;
        let mut buffer = DeviceBuffer::<f32>::alloc(gpu, 0)?;
        assert!(buffer.is_empty() && buffer.address() == 0);
        buffer.upload(&[])?;
        assert!(buffer.download()?.is_empty());
        stream.memset(&mut buffer, 1)?;
        let pinned = PinnedBuffer::<f32>::alloc(gpu, 0)?;
        assert!(stream.upload_async(pinned, &mut buffer)?.wait()?.is_empty());
        Ok(())
    }

    fn ranges_outside_are_errors(gpu: &Gpu) -> Result<(), Error> {
        let outside = |result: Result<(), Error>| match result {
            Err(Error::OutOfRange { .. }) => (),
            other => panic!("{other:?}"),
        };
        let stream = Stream::new(gpu)?;
        let mut buffer = DeviceBuffer::<u8>::alloc(gpu, 4)?;
        let other = DeviceBuffer::<u8>::alloc(gpu, 5)?;
        outside(buffer.upload(&[0; 3]));
        outside(buffer.upload_at(2, &[0; 3]));
        outside(buffer.upload_at(usize::MAX, &[0]));
        outside(buffer.download_range(4..5).map(drop));
        outside(buffer.download_into(&mut [0; 5]));
        outside(stream.copy(&mut buffer, &other));
        let pinned = || PinnedBuffer::<u8>::alloc(gpu, 8);
        outside(stream.upload_async(pinned()?, &mut buffer).map(drop));
        outside(
            stream
                .upload_part_async(pinned()?, 6..9, &mut buffer, 0)
                .map(drop),
        );
        outside(
            stream
                .upload_part_async(pinned()?, 0..4, &mut buffer, 1)
                .map(drop),
        );
        outside(
            stream
                .download_part_async(&buffer, 0..2, pinned()?, usize::MAX)
                .map(drop),
        );
        Ok(())
    }

    fn too_much_memory_is_an_error(gpu: &Gpu) -> Result<(), Error> {
        let (_, all) = gpu.memory_info()?;
        for len in [2 * all, usize::MAX / 4, usize::MAX] {
            match DeviceBuffer::<f32>::alloc(gpu, len) {
                Err(Error::OutOfMemory {
                    asked, free, total, ..
                }) => {
                    assert_eq!(asked, len.saturating_mul(4));
                    assert!(free <= total && total == all);
                }
                other => panic!("{len} elements: {other:?}"),
            }
            assert!(PinnedBuffer::<u64>::alloc(gpu, len.max(1 << 56)).is_err());
        }
        Ok(())
    }

    fn a_gpu_that_is_not_there(_: &Gpu) -> Result<(), Error> {
        let count = Gpu::count()?;
        match Gpu::new(count) {
            Err(Error::NoGpu { why, .. }) => {
                assert!(why.contains(&format!("GPU {count} was asked for")), "{why}");
                Ok(())
            }
            other => panic!("{other:?}"),
        }
    }

    fn what_the_gpu_says_of_itself(gpu: &Gpu) -> Result<(), Error> {
        assert_eq!(gpu.ordinal(), 0);
        assert_eq!(*gpu, Gpu::new(0)?);
        assert!(!gpu.name().is_empty() && gpu.arch() >= 50);
        let limits = gpu.limits();
        assert!(limits.sm_count > 0 && limits.memory_bytes > 1 << 30);
        assert!(limits.shared_per_block >= 48 << 10 && limits.registers_per_sm >= 1 << 15);
        assert!(Gpu::driver_version()?.contains('.'));
        let (free, total) = gpu.memory_info()?;
        assert!(free <= total && total as u64 <= limits.memory_bytes);
        gpu.synchronize()
    }

    fn current_context() -> *mut std::ffi::c_void {
        let mut context = ptr::null_mut();
        // SAFETY: it writes one handle.
        let result = unsafe { cuda_sys::cuCtxGetCurrent(&mut context) }.unwrap();
        assert_eq!(result, cuda_sys::CUresult::CUDA_SUCCESS);
        context.cast()
    }

    fn the_current_context_is_restored(gpu: &Gpu) -> Result<(), Error> {
        let before = current_context();
        let stream = Stream::new(gpu)?;
        let mut buffer = DeviceBuffer::from_slice(gpu, &[1_u8; 64])?;
        let graph = stream.capture(|stream| stream.memset(&mut buffer, 3))?;
        // SAFETY: the buffer is alive.
        unsafe { graph.launch(&stream) }?;
        stream.synchronize()?;
        assert_eq!(buffer.download()?, [3; 64]);
        assert!(DeviceBuffer::<u8>::alloc(gpu, usize::MAX).is_err());
        let work = AssertUnwindSafe(|| stream.capture(|_| panic!("on purpose")));
        assert!(catch_unwind(work).is_err());
        drop((stream, buffer, graph));
        assert_eq!(current_context(), before);
        Ok(())
    }

    fn events_order_and_measure(gpu: &Gpu) -> Result<(), Error> {
        let (first, second) = (Stream::new(gpu)?, Stream::new(gpu)?);
        assert_ne!(first, second);
        let mut buffer = DeviceBuffer::<u8>::alloc(gpu, 64 << 20)?;
        let (start, end) = (Event::new(gpu)?, Event::new(gpu)?);
        assert!(end.elapsed_us(&start).is_err(), "neither was recorded");
        first.record(&start)?;
        first.memset(&mut buffer, 1)?;
        first.record(&end)?;
        second.wait(&end)?;
        second.memset(&mut buffer, 2)?;
        second.synchronize()?;
        assert!(end.query()? && first.query()?);
        end.synchronize()?;
        assert!(end.elapsed_us(&start)? > 0.0);
        assert!(buffer.download()?.iter().all(|&byte| byte == 2));
        Ok(())
    }

    fn borrowed_streams_are_not_destroyed(gpu: &Gpu) -> Result<(), Error> {
        let stream = Stream::new(gpu)?;
        // SAFETY: the stream lives on.
        let borrowed = unsafe { Stream::from_raw(gpu, stream.raw()) }?;
        assert_eq!(borrowed, stream);
        drop(borrowed);
        stream.synchronize()?;
        // SAFETY: null is the default stream, which always is.
        let default = unsafe { Stream::from_raw(gpu, ptr::null_mut()) }?;
        assert_ne!(default, stream);
        default.synchronize()
    }

    /// Each thread's own queue by one handle, which can be captured as well.
    fn the_default_stream_of_another_thread(gpu: &Gpu) -> Result<(), Error> {
        // SAFETY: each thread has its default stream.
        let take = || unsafe { Stream::from_raw(gpu, ptr::without_provenance_mut(2)) };
        let ours = take()?;
        usable(gpu, &ours)?;
        let mut buffer = DeviceBuffer::<u8>::alloc(gpu, 10)?;
        let graph = ours.capture(|ours| ours.memset(&mut buffer, 3))?;
        // SAFETY: the buffer is alive.
        unsafe { graph.launch(&ours) }?;
        ours.synchronize()?;
        assert_eq!(buffer.download()?, [3; 10]);
        thread::scope(|scope| {
            let there = scope.spawn(|| {
                assert!(matches!(ours.synchronize(), Err(Error::WrongThread)));
                let recorded = ours.capture(|_| panic!("nothing is recorded"));
                assert!(matches!(recorded, Err(Error::WrongThread)));
                let theirs = take()?;
                assert_ne!(theirs, ours);
                usable(gpu, &theirs)
            });
            there.join().unwrap()
        })
    }

    fn capture_and_replay(gpu: &Gpu) -> Result<(), Error> {
        let stream = Stream::new(gpu)?;
        let source = DeviceBuffer::from_slice(gpu, &[5_u8; 1000])?;
        let mut target = DeviceBuffer::from_slice(gpu, &[0_u8; 1000])?;
        let graph = stream.capture(|stream| stream.copy(&mut target, &source))?;
        assert_eq!(target.download()?, [0; 1000], "recording runs nothing");
        graph.upload(&stream)?;
        for _ in 0..2 {
            stream.memset(&mut target, 1)?;
            // SAFETY: both buffers are alive.
            unsafe { graph.launch(&stream) }?;
            stream.synchronize()?;
            assert_eq!(target.download()?, [5; 1000]);
        }
        Ok(())
    }

    fn usable(gpu: &Gpu, stream: &Stream) -> Result<(), Error> {
        let mut buffer = DeviceBuffer::<u8>::alloc(gpu, 10)?;
        stream.memset(&mut buffer, 9)?;
        stream.synchronize()?;
        assert_eq!(buffer.download()?, [9; 10]);
        Ok(())
    }

    fn an_error_inside_a_capture(gpu: &Gpu) -> Result<(), Error> {
        let stream = Stream::new(gpu)?;
        let mut buffer = DeviceBuffer::<u8>::alloc(gpu, 10)?;
        let result = stream.capture(|stream| {
            stream.memset(&mut buffer, 1)?;
            Err(Error::Interrupted)
        });
        assert!(matches!(result, Err(Error::Interrupted)));
        usable(gpu, &stream)
    }

    fn a_panic_inside_a_capture(gpu: &Gpu) -> Result<(), Error> {
        let stream = Stream::new(gpu)?;
        let mut buffer = DeviceBuffer::<u8>::alloc(gpu, 10)?;
        let result = catch_unwind(AssertUnwindSafe(|| {
            stream.capture(|stream| {
                stream.memset(&mut buffer, 1)?;
                panic!("on purpose");
            })
        }));
        assert!(result.is_err());
        usable(gpu, &stream)
    }

    fn a_spoiled_capture_is_an_error(gpu: &Gpu) -> Result<(), Error> {
        let stream = Stream::new(gpu)?;
        let result = stream.capture(|stream| {
            // What it answers is passed over here; the end of the recording must tell.
            let _ = stream.synchronize();
            Ok(())
        });
        assert!(matches!(result, Err(Error::Gpu { .. })), "{result:?}");
        usable(gpu, &stream)
    }

    fn dropping_does_not_spoil_a_capture(gpu: &Gpu) -> Result<(), Error> {
        let (stream, other) = (Stream::new(gpu)?, Stream::new(gpu)?);
        let mut buffer = DeviceBuffer::from_slice(gpu, &[0_u8; 100])?;
        let mut unrelated = DeviceBuffer::<u8>::alloc(gpu, 100)?;
        let pinned = PinnedBuffer::<u8>::alloc(gpu, 100)?;
        let pending = other.upload_async(PinnedBuffer::alloc(gpu, 100)?, &mut unrelated)?;
        let graph = stream.capture(|stream| {
            stream.memset(&mut buffer, 4)?;
            drop(pinned);
            drop(pending);
            drop(unrelated);
            drop(other);
            Ok(())
        })?;
        // SAFETY: the buffer is alive.
        unsafe { graph.launch(&stream) }?;
        stream.synchronize()?;
        assert_eq!(buffer.download()?, [4; 100]);
        Ok(())
    }

    fn host_copies_are_refused_in_a_capture(gpu: &Gpu) -> Result<(), Error> {
        let stream = Stream::new(gpu)?;
        let mut buffer = DeviceBuffer::<u8>::alloc(gpu, 100)?;
        let (up, down) = (
            PinnedBuffer::alloc(gpu, 100)?,
            PinnedBuffer::alloc(gpu, 100)?,
        );
        let graph = stream.capture(|stream| {
            assert!(stream.upload_async(up, &mut buffer).is_err());
            assert!(stream.download_async(&buffer, down).is_err());
            stream.memset(&mut buffer, 6)?;
            // A plain copy is no part of the recording: it happens now.
            buffer.upload(&[1; 100])?;
            assert_eq!(buffer.download()?, [1; 100]);
            Ok(())
        })?;
        // SAFETY: the buffer is alive.
        unsafe { graph.launch(&stream) }?;
        stream.synchronize()?;
        assert_eq!(buffer.download()?, [6; 100]);
        Ok(())
    }

    fn others_copy_while_one_captures(gpu: &Gpu) -> Result<(), Error> {
        let stream = Stream::new(gpu)?;
        let mut buffer = DeviceBuffer::<u8>::alloc(gpu, 100)?;
        let elsewhere = gpu.clone();
        let graph = stream.capture(|stream| {
            stream.memset(&mut buffer, 7)?;
            let copied = thread::spawn(move || round_trips(&elsewhere))
                .join()
                .unwrap();
            copied?;
            stream.memset(&mut buffer, 8)
        })?;
        // SAFETY: the buffer is alive.
        unsafe { graph.launch(&stream) }?;
        stream.synchronize()?;
        assert_eq!(buffer.download()?, [8; 100]);
        Ok(())
    }

    fn two_threads(gpu: &Gpu) -> Result<(), Error> {
        let (sender, receiver) = mpsc::channel();
        let shared = Stream::new(gpu)?;
        let mut buffer = DeviceBuffer::<u8>::alloc(gpu, 1 << 20)?;
        shared.memset(&mut buffer, 1)?;
        thread::scope(|scope| {
            let shared = &shared;
            for value in 2..4 {
                let sender = sender.clone();
                scope.spawn(move || {
                    let work = || -> Result<(), Error> {
                        for _ in 0..20 {
                            let own = Stream::new(gpu)?;
                            let mut buffer = DeviceBuffer::<u8>::alloc(gpu, 1 << 20)?;
                            own.memset(&mut buffer, value)?;
                            shared.synchronize()?;
                            own.synchronize()?;
                            assert!(buffer.download()?.iter().all(|&byte| byte == value));
                        }
                        Ok(())
                    };
                    sender.send(work()).unwrap();
                });
            }
        });
        // A value made on one thread and dropped on another.
        thread::spawn(move || drop(buffer)).join().unwrap();
        receiver.try_iter().collect()
    }

    fn filled(gpu: &Gpu, len: usize) -> Result<PinnedBuffer<u32>, Error> {
        let mut pinned = PinnedBuffer::alloc(gpu, len)?;
        assert!(pinned.iter().all(|&value| value == 0));
        pinned.iter_mut().zip(0..).for_each(|(value, i)| *value = i);
        Ok(pinned)
    }

    fn pending_copies(gpu: &Gpu) -> Result<(), Error> {
        let len = 1 << 20;
        let stream = Stream::new(gpu)?;
        let mut buffer = DeviceBuffer::<u32>::alloc(gpu, len)?;
        let up = stream.upload_async(filled(gpu, len)?, &mut buffer)?;
        let down = stream.download_async(&buffer, PinnedBuffer::alloc(gpu, len)?)?;
        let (source, result) = (up.wait()?, down.wait()?);
        assert!(source[..] == result[..]);
        let part = stream.upload_part_async(source, 10..20, &mut buffer, 100)?;
        let source = part.wait()?;
        let part = stream.download_part_async(&buffer, 100..110, source, 5)?;
        assert_eq!(
            part.wait()?[5..15],
            [10, 11, 12, 13, 14, 15, 16, 17, 18, 19]
        );
        let done = stream.upload_async(result, &mut buffer)?;
        stream.synchronize()?;
        assert!(done.is_done()?);
        Ok(())
    }

    fn a_pending_copy_is_dropped_or_forgotten(gpu: &Gpu) -> Result<(), Error> {
        let len = 4 << 20;
        let stream = Stream::new(gpu)?;
        let mut buffer = DeviceBuffer::<u32>::alloc(gpu, len)?;
        let endings: [fn(Pending<PinnedBuffer<u32>>); 2] = [drop, mem::forget];
        for ending in endings {
            stream.memset(&mut buffer, 0)?;
            ending(stream.upload_async(filled(gpu, len)?, &mut buffer)?);
            stream.synchronize()?;
            assert!(
                buffer
                    .download()?
                    .iter()
                    .zip(0..)
                    .all(|(&value, i)| value == i)
            );
        }
        Ok(())
    }

    fn buffers_dropped_with_work_in_flight(gpu: &Gpu) -> Result<(), Error> {
        let stream = Stream::new(gpu)?;
        for round in 0..20 {
            let mut buffer = DeviceBuffer::<u8>::alloc(gpu, 64 << 20)?;
            stream.memset(&mut buffer, round)?;
            drop(buffer);
            let other = DeviceBuffer::from_slice(gpu, &vec![0xaa_u8; 64 << 20])?;
            stream.synchronize()?;
            assert!(other.download()?.iter().all(|&byte| byte == 0xaa));
        }
        Ok(())
    }

    fn everything_outlives_its_gpu_value(_: &Gpu) -> Result<(), Error> {
        let gpu = Gpu::new(0)?;
        let stream = Stream::new(&gpu)?;
        let mut buffer = DeviceBuffer::<u8>::alloc(&gpu, 10)?;
        drop(gpu);
        stream.memset(&mut buffer, 2)?;
        stream.synchronize()?;
        assert_eq!(buffer.download()?, [2; 10]);
        Ok(())
    }
}
