//! Copies from and to the host on a stream that is being recorded.

use convforge::{
    Error, Result,
    gpu::{DeviceBuffer, PinnedBuffer},
    with_host_copies,
};

use crate::{devices, driver};

/// Waits that fail as long as the other thread records.
const WAITS: i32 = 3;

/// A copy that is queued already goes on while another thread records the stream, and the driver refuses
/// to wait for it. Its memory is not given back before.
pub fn of_another_thread_is_waited_for() {
    let [device, ..] = devices();
    let (host, mut buffer) = ([1f32; 4], device.upload(&[0f32; 4]).unwrap());
    let streams = [device.stream().unwrap()];
    let waits = *driver("fake_waits");
    let (copied, waited) = with_host_copies(&streams, |copies| {
        let copied = copies.upload(0, &host, &mut buffer, 0);
        *driver("fake_recorded_waits") = WAITS;
        copied
    });
    assert_eq!(*driver("fake_recorded_waits"), 0);
    assert!(*driver("fake_waits") > waits + WAITS);
    copied.unwrap();
    waited.unwrap();
    assert_eq!(buffer.to_vec(&streams[0]).unwrap(), host);
}

/// A graph could be launched after it is gone.
pub fn takes_no_host_memory() {
    let [device, ..] = devices();
    let gpu = device.as_gpu().unwrap();
    let stream = device.stream().unwrap();
    let raw = stream.as_gpu().unwrap();
    let mut buffer = DeviceBuffer::<u8>::alloc(gpu, 4).unwrap();
    let mut on_device = device.upload(&[0u8; 4]).unwrap();
    let pinned = || PinnedBuffer::<u8>::alloc(gpu, 4).unwrap();
    let copies = *driver("fake_copies");
    let refused = |what: &str, answer: Result<()>| {
        let error = answer.expect_err(what);
        assert!(
            matches!(error, Error::Gpu { code: 900, .. }),
            "{what}: {error}"
        );
        let text = error.to_string();
        assert!(
            text.contains("copy outside of the recording"),
            "{what}: {text}"
        );
    };
    *driver("fake_recorded_waits") = WAITS;
    refused("upload", raw.upload_async(pinned(), &mut buffer).map(drop));
    refused("download", raw.download_async(&buffer, pinned()).map(drop));
    let mut bytes = [0; 4];
    // SAFETY: the buffer has so many bytes.
    let downloaded = unsafe { raw.download_raw(buffer.address(), &mut bytes) };
    refused("download_raw", downloaded);
    let (streams, host) = ([stream.clone()], [0u8; 4]);
    // Of a recording that only this thread can end: nothing is under way that would be waited for.
    *driver("fake_recorded_waits") = i32::MAX;
    let (copied, waited) = with_host_copies(&streams, |copies| {
        copies.upload(0, &host, &mut on_device, 0)
    });
    *driver("fake_recorded_waits") = 0;
    refused("a host copy", copied);
    assert!(waited.is_err());
    assert_eq!(*driver("fake_copies"), copies);
}
