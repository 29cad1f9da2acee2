//! Memory and streams that the library did not make.

use std::{
    ffi::c_void,
    ptr::{null, null_mut, without_provenance_mut},
    thread,
};

use convforge::{
    Buffer, Conv, Device, Error, Operands, RawOperands, Result, Stream, View, ViewMut, Workspace,
    gpu, with_host_copies,
};

use crate::{conv, devices, driver, problem};

/// CUDA's handles of default streams.
const LEGACY: [usize; 2] = [0, 1];
const PER_THREAD: usize = 2;

/// An address by which the driver knows memory of the right GPU makes a view; no other does.
pub fn memory_is_checked_and_serves() {
    let [right, other, _] = devices();
    let (here, there) = (
        right.upload(&[1f32; 8]).unwrap(),
        other.upload(&[1f32; 8]).unwrap(),
    );
    let host = [0f32; 8];
    let refused = |address: *const c_void| {
        // SAFETY: nothing is done with the view.
        match unsafe { View::<f32>::from_raw(&right, address, 4) } {
            Err(error @ Error::Memory { .. }) => convforge::chain(&error),
            other => panic!("{other:?}"),
        }
    };
    assert!(refused(std::ptr::null()).contains("null"));
    assert!(refused(here.as_ptr().wrapping_byte_add(2)).contains("4 bytes"));
    assert!(refused(there.as_ptr()).contains("memory of GPU 1"));
    assert!(refused(host.as_ptr().cast()).contains("cuPointerGetAttribute"));

    let problem = problem();
    let conv = conv(&right);
    let stream = right.stream().unwrap();
    let mut workspace = conv.workspace(&stream).unwrap();
    let x = right.upload(&vec![3f32; problem.x_len()]).unwrap();
    let w = right.upload(&vec![2f32; problem.w_len()]).unwrap();
    let mut y = right.upload(&vec![0f32; problem.y_len()]).unwrap();
    // SAFETY: the buffers outlive the views.
    let (x, y_view) = unsafe {
        (
            View::<f32>::from_raw(&right, x.as_ptr(), x.len()).unwrap(),
            ViewMut::<f32>::from_raw(&right, y.as_mut_ptr(), y.len()).unwrap(),
        )
    };
    let operands = Operands::new(x, &w, y_view);
    conv.run_with(operands, &mut workspace, &stream).unwrap();
    assert!(y.to_vec(&stream).unwrap().iter().all(|y| *y == 6.0));
}

pub fn streams_of_another_context() {
    let [right, other, _] = devices();
    let stream = |device: &Device| device.stream().unwrap();
    let gpu = right.as_gpu().unwrap();
    let (own, strange) = (stream(&right), stream(&other));
    // SAFETY: both streams are alive.
    let (own, strange) = unsafe {
        (
            gpu::Stream::from_raw(gpu, own.raw()),
            gpu::Stream::from_raw(gpu, strange.raw()),
        )
    };
    own.unwrap();
    let error = strange.unwrap_err();
    assert!(matches!(error, Error::WrongDevice { .. }), "{error}");
}

fn special(device: &Device, handle: usize) -> Stream {
    // SAFETY: CUDA's default streams are always there.
    let stream =
        unsafe { gpu::Stream::from_raw(device.as_gpu().unwrap(), without_provenance_mut(handle)) };
    stream.unwrap().into()
}

/// One layer's operands, and the workspace of a stream.
struct Lane {
    conv: Conv,
    x: Buffer<f32>,
    w: Buffer<f32>,
    y: Buffer<f32>,
    workspace: Workspace,
}

impl Lane {
    fn new(device: &Device, stream: &Stream) -> Self {
        let (problem, conv) = (problem(), conv(device));
        Lane {
            x: device.upload(&vec![3f32; problem.x_len()]).unwrap(),
            w: device.upload(&vec![2f32; problem.w_len()]).unwrap(),
            y: device.upload(&vec![0f32; problem.y_len()]).unwrap(),
            workspace: conv.workspace(stream).unwrap(),
            conv,
        }
    }

    fn run(&mut self, stream: &Stream) -> Result<()> {
        let operands = Operands::new(&self.x, &self.w, &mut self.y);
        self.conv.run_with(operands, &mut self.workspace, stream)
    }
}

/// The handle of the thread's own default stream names another queue on another thread, so what was
/// made of it here does nothing there; the fake driver gives both queues one number.
pub fn the_default_stream_of_another_thread() {
    let [device, ..] = devices();
    let ours = special(&device, PER_THREAD);
    let mut lane = Lane::new(&device, &ours);
    lane.run(&ours).unwrap();
    assert!(lane.y.to_vec(&ours).unwrap().iter().all(|y| *y == 6.0));
    assert!(ours == ours.clone() && ours == special(&device, PER_THREAD));

    let device = &device;
    thread::scope(|scope| {
        let there = scope.spawn(move || {
            nothing_happens(device, &ours, &mut lane);
            let theirs = special(device, PER_THREAD);
            assert_eq!(theirs.id(), ours.id());
            assert!(theirs != ours);
            // The workspace stays that of the other queue.
            assert!(matches!(lane.run(&theirs), Err(Error::WrongStream)));
            lane.workspace = lane.conv.workspace(&theirs).unwrap();
            lane.run(&theirs).unwrap();
            // The other thread's stream is dropped here, with all that was made for it.
        });
        there.join().unwrap();
    });
}

/// On a thread that `stream` is not of.
fn nothing_happens(device: &Device, stream: &Stream, lane: &mut Lane) {
    let wrong = |what: &str, answer: Result<()>| {
        let error = answer.expect_err(what);
        assert!(matches!(error, Error::WrongThread), "{what}: {error}");
        assert!(error.to_string().contains("handle 2"), "{error}");
    };
    let gpu = device.as_gpu().unwrap();
    let raw = stream.as_gpu().unwrap();
    let x = lane.x.as_ptr();
    let mut floats = gpu::DeviceBuffer::<f32>::alloc(gpu, 4).unwrap();
    let other = gpu::DeviceBuffer::<f32>::alloc(gpu, 4).unwrap();
    let pinned = || gpu::PinnedBuffer::<f32>::alloc(gpu, 4).unwrap();
    let event = gpu::Event::new(gpu).unwrap();
    let (copies, waits) = (*driver("fake_copies"), *driver("fake_waits"));

    wrong("run", lane.run(stream));
    // SAFETY: nothing is done with the addresses, as is shown here.
    unsafe {
        wrong("pack", lane.conv.pack_raw(x, stream).map(drop));
        wrong("pack_into", lane.conv.pack_into(x, null_mut(), stream));
    }
    wrong("reserve", lane.workspace.reserve(&lane.conv, stream));
    wrong("release", lane.workspace.release(stream));
    wrong("workspace", lane.conv.workspace(stream).map(drop));
    wrong("download", lane.y.to_vec(stream).map(drop));
    wrong("synchronize", stream.synchronize());
    wrong("mark", stream.mark().map(drop));
    wrong("query", raw.query().map(drop));
    wrong("record", raw.record(&event));
    wrong("wait", raw.wait(&event));
    wrong("memset", raw.memset(&mut floats, 1));
    wrong("copy", raw.copy(&mut floats, &other));
    wrong("upload", raw.upload_async(pinned(), &mut floats).map(drop));
    wrong("download", raw.download_async(&other, pinned()).map(drop));
    wrong(
        "capture",
        raw.capture(|_| panic!("nothing is recorded")).map(drop),
    );
    let host = [0f32; 4];
    let streams = [stream.clone()];
    let (upload, waited) =
        with_host_copies(&streams, |copies| copies.upload(0, &host, &mut lane.x, 0));
    wrong("host copy", upload);
    wrong("waiting for it", waited);
    assert_eq!(
        (*driver("fake_copies"), *driver("fake_waits")),
        (copies, waits)
    );
}

/// One queue for all threads, so such a stream serves them all.
pub fn the_legacy_default_stream() {
    let [device, ..] = devices();
    for handle in LEGACY {
        let stream = special(&device, handle);
        let mut lane = Lane::new(&device, &stream);
        let lane = thread::scope(|scope| {
            let stream = &stream;
            let there = scope.spawn(move || {
                lane.run(stream).unwrap();
                stream.synchronize().unwrap();
                lane
            });
            there.join().unwrap()
        });
        assert!(lane.y.to_vec(&stream).unwrap().iter().all(|y| *y == 6.0));
    }
}

/// Without the check the launch would read address 0.
pub fn operands_that_are_null() {
    let problem = problem();
    let [right, ..] = devices();
    let conv = conv(&right);
    let stream = right.stream().unwrap();
    let mut workspace = conv.workspace(&stream).unwrap();
    let x = right.alloc::<f32>(problem.x_len()).unwrap();
    let w = right.alloc::<f32>(problem.w_len()).unwrap();
    let mut y = right.alloc::<f32>(problem.y_len()).unwrap();
    let all = RawOperands::new(x.as_ptr(), w.as_ptr(), y.as_mut_ptr());
    let without = |lose: fn(&mut RawOperands)| {
        let mut operands = all;
        lose(&mut operands);
        operands
    };
    for (name, operands) in [
        ("input", without(|all| all.x = null())),
        ("filter", without(|all| all.w = null())),
        ("output", without(|all| all.y = null_mut())),
    ] {
        // SAFETY: what is not null is as large as the problem says.
        let error = unsafe { conv.run_raw(&operands, &mut workspace, &stream) }.unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains(name) && text.contains("null address"),
            "{text}"
        );
    }
}
