//! Copies between a stream and memory of two devices: dropping a buffer waits for its own device, not for
//! work that another one does with it.

use convforge::{
    Device, Error, Result,
    gpu::{self, DeviceBuffer, PinnedBuffer},
    with_host_copies,
};

use crate::{devices, driver};

/// Each function refuses memory of the other device, on either side, and copies nothing.
pub fn memory_of_another_device() {
    let [here, there, _] = devices();
    let stream = here.stream().unwrap();
    let queue = stream.as_gpu().unwrap();
    let mut near = buffer(&here);
    let mut far = buffer(&there);
    let copies = *driver("fake_copies");
    refused("memset", "the buffer", queue.memset(&mut far, 1));
    refused("copy", "the source", queue.copy(&mut near, &far));
    refused("copy", "the target", queue.copy(&mut far, &near));
    from_and_to_pinned(queue, &mut far);
    let (mut host, data) = ([0u8; 4], [0u8; 4]);
    let mut strange = there.upload(&data).unwrap();
    let uploaded = *driver("fake_copies");
    let streams = [stream.clone()];
    let (answers, waited) = with_host_copies(&streams, |copies| {
        let uploaded = copies.upload(0, &data, &mut strange, 0);
        (uploaded, copies.download(0, &strange, 0, &mut host))
    });
    refused("a host copy", "the target", answers.0);
    refused("a host copy", "the source", answers.1);
    waited.unwrap();
    assert_eq!(*driver("fake_copies"), uploaded);
    assert_eq!(uploaded, copies + 1);
    // What is of the stream's device serves.
    queue.memset(&mut near, 1).unwrap();
    assert_eq!(near.download().unwrap(), [1; 4]);
}

/// Whole buffers and parts of them.
fn from_and_to_pinned(queue: &gpu::Stream, far: &mut DeviceBuffer<u8>) {
    let pinned = || PinnedBuffer::<u8>::alloc(queue.gpu(), 4).unwrap();
    let uploaded = queue.upload_async(pinned(), far);
    refused("upload_async", "the target", uploaded.map(drop));
    let uploaded = queue.upload_part_async(pinned(), 0..2, far, 1);
    refused("upload_part_async", "the target", uploaded.map(drop));
    let downloaded = queue.download_async(far, pinned());
    refused("download_async", "the source", downloaded.map(drop));
    let downloaded = queue.download_part_async(far, 0..2, pinned(), 1);
    refused("download_part_async", "the source", downloaded.map(drop));
}

fn buffer(device: &Device) -> DeviceBuffer<u8> {
    DeviceBuffer::alloc(device.as_gpu().unwrap(), 4).unwrap()
}

/// `side` is of the other device.
fn refused(function: &str, side: &str, answer: Result<()>) {
    let error = answer.expect_err(function);
    let named = matches!(&error, Error::WrongDevice { what, expected, found }
        if *what == side && expected.contains("GPU 0") && found.contains("GPU 1"));
    assert!(named, "{function}, {side}: {error}");
}
