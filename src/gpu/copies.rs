//! What a queue copies and sets: device memory, and host memory beside it.

use std::ops::Range;

use bytemuck::Pod;

use super::{
    DeviceBuffer, Pending, PinnedBuffer, Stream,
    buffer::{in_range, same_gpu, same_length},
    call::Unrecorded,
};
use crate::{Error, Result};

impl Stream {
    /// Queues setting every byte of `buffer`.
    ///
    /// # Errors
    /// [`Error::WrongDevice`].
    pub fn memset<T: Pod>(&self, buffer: &mut DeviceBuffer<T>, byte: u8) -> Result<()> {
        same_gpu("the buffer", buffer.gpu(), self.gpu())?;
        let (address, bytes) = buffer.bytes("memset", &(0..buffer.len()))?;
        if bytes == 0 {
            return Ok(());
        }
        let _current = self.enter()?;
        // SAFETY: the buffer has so many bytes; work that is queued when it is dropped is waited
        // for by its `drop`.
        unsafe { cu!(cuMemsetD8Async(address, byte, bytes, self.handle())) }
    }

    /// Queues copying all of `from` over all of `to`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if their lengths differ, [`Error::WrongDevice`].
    pub fn copy<T: Pod>(&self, to: &mut DeviceBuffer<T>, from: &DeviceBuffer<T>) -> Result<()> {
        same_gpu("the source", from.gpu(), self.gpu())?;
        same_gpu("the target", to.gpu(), self.gpu())?;
        same_length("copy", from.len(), to.len())?;
        let (source, bytes) = from.bytes("copy", &(0..from.len()))?;
        if bytes == 0 {
            return Ok(());
        }
        let _current = self.enter()?;
        // SAFETY: both buffers have so many bytes, and are waited for as in `memset`.
        unsafe {
            cu!(cuMemcpyDtoDAsync(
                to.address(),
                source,
                bytes,
                self.handle()
            ))
        }
    }

    /// Copies bytes of device memory that is no buffer's into `to`, behind what was queued before, and
    /// waits.
    ///
    /// # Errors
    /// What the driver answers; while the stream is being recorded it is refused.
    ///
    /// # Safety
    /// From the address `from` on there are so many bytes in the device's memory.
    pub unsafe fn download_raw(&self, from: u64, to: &mut [u8]) -> Result<()> {
        if !to.is_empty() {
            let (target, bytes) = (to.as_mut_ptr().cast(), to.len());
            let _current = self.enter()?;
            self.refuse_recording()?;
            // SAFETY: as the caller promised; `to` is borrowed until the copy is done.
            unsafe { cu!(cuMemcpyDtoHAsync(target, from, bytes, self.handle())) }?;
        }
        self.synchronize()
    }

    /// Queues copying all of `from` over all of `to`; the answer holds `from` until it is done.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if their lengths differ, [`Error::WrongDevice`]. `from` is lost with any error.
    pub fn upload_async<T: Pod>(
        &self,
        from: PinnedBuffer<T>,
        to: &mut DeviceBuffer<T>,
    ) -> Result<Pending<PinnedBuffer<T>>> {
        same_length("upload", from.len(), to.len())?;
        let all = 0..from.len();
        self.upload_part_async(from, all, to, 0)
    }

    /// Queues copying some elements of `from` to those of `to` that begin at `at`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if either side is too short, [`Error::WrongDevice`]. `from` is lost with any error.
    pub fn upload_part_async<T: Pod>(
        &self,
        from: PinnedBuffer<T>,
        range: Range<usize>,
        to: &mut DeviceBuffer<T>,
        at: usize,
    ) -> Result<Pending<PinnedBuffer<T>>> {
        same_gpu("the target", to.gpu(), self.gpu())?;
        in_range("upload", &range, from.len())?;
        let (address, bytes) = to.bytes("upload", &(at..at.saturating_add(range.len())))?;
        self.host_copy(from, bytes, |from| {
            let source = from.address_of(range.start).cast();
            // SAFETY: both sides have so many bytes; `Pending` keeps the host's, and the device's
            // is waited for as in `memset`.
            unsafe { cu!(cuMemcpyHtoDAsync(address, source, bytes, self.handle())) }
        })
    }

    /// Queues copying all of `from` over all of `to`; the answer holds `to` until it is done.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if their lengths differ, [`Error::WrongDevice`]. `to` is lost with any error.
    pub fn download_async<T: Pod>(
        &self,
        from: &DeviceBuffer<T>,
        to: PinnedBuffer<T>,
    ) -> Result<Pending<PinnedBuffer<T>>> {
        same_length("download", from.len(), to.len())?;
        self.download_part_async(from, 0..from.len(), to, 0)
    }

    /// Queues copying some elements of `from` to those of `to` that begin at `at`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if either side is too short, [`Error::WrongDevice`]. `to` is lost with any error.
    pub fn download_part_async<T: Pod>(
        &self,
        from: &DeviceBuffer<T>,
        range: Range<usize>,
        to: PinnedBuffer<T>,
        at: usize,
    ) -> Result<Pending<PinnedBuffer<T>>> {
        same_gpu("the source", from.gpu(), self.gpu())?;
        in_range("download", &(at..at.saturating_add(range.len())), to.len())?;
        let (address, bytes) = from.bytes("download", &range)?;
        self.host_copy(to, bytes, |to| {
            let target = to.address_of(at).cast();
            // SAFETY: as in `upload_part_async`; any bytes are a valid `T`.
            unsafe { cu!(cuMemcpyDtoHAsync(target, address, bytes, self.handle())) }
        })
    }

    /// Starts a copy that uses `buffer`, unless the stream is being recorded: the graph could be
    /// launched after the buffer is gone.
    fn host_copy<T: Pod>(
        &self,
        buffer: PinnedBuffer<T>,
        bytes: usize,
        enqueue: impl FnOnce(&PinnedBuffer<T>) -> Result<()>,
    ) -> Result<Pending<PinnedBuffer<T>>> {
        let _current = self.enter()?;
        self.refuse_recording()?;
        Pending::start(self, buffer, |buffer| {
            if bytes == 0 { Ok(()) } else { enqueue(buffer) }
        })
    }

    /// Refuses to copy from or to the host while the stream is being recorded.
    fn refuse_recording(&self) -> Result<()> {
        let mut status = cuda_sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the stream is alive; it writes one number.
        unsafe { cu!(cuStreamIsCapturing(self.handle(), &mut status)) }?;
        if status == cuda_sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE {
            return Ok(());
        }
        Err(Error::Gpu {
            call: "cuMemcpyAsync",
            code: 900,
            name: "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED".into(),
            text: "a graph cannot hold a copy from or to host memory that may be freed before it \
                   is launched; copy outside of the recording"
                .into(),
        })
    }

    /// Queues copying all of `from`, pinned or not, to the elements of `to` that begin at `at`.
    ///
    /// # Errors
    /// As [`upload_part_async`](Self::upload_part_async).
    ///
    /// # Safety
    /// `from` is neither freed nor written to before [`finish`](Self::finish) has returned.
    pub(crate) unsafe fn upload_slice<T: Pod>(
        &self,
        from: &[T],
        to: &mut DeviceBuffer<T>,
        at: usize,
    ) -> Result<()> {
        same_gpu("the target", to.gpu(), self.gpu())?;
        let (address, bytes) = to.bytes("upload", &(at..at.saturating_add(from.len())))?;
        self.slice_copy(bytes, || {
            let source = from.as_ptr().cast();
            // SAFETY: both sides have so many bytes; the caller keeps the host's, and the device's
            // is waited for as in `memset`.
            unsafe { cu!(cuMemcpyHtoDAsync(address, source, bytes, self.handle())) }
        })
    }

    /// Queues copying the elements of `from` that begin at `at` over all of `to`, pinned or not.
    ///
    /// # Errors
    /// As [`download_part_async`](Self::download_part_async).
    ///
    /// # Safety
    /// `to` is neither freed nor touched before [`finish`](Self::finish) has returned.
    pub(crate) unsafe fn download_slice<T: Pod>(
        &self,
        from: &DeviceBuffer<T>,
        at: usize,
        to: &mut [T],
    ) -> Result<()> {
        same_gpu("the source", from.gpu(), self.gpu())?;
        let (address, bytes) = from.bytes("download", &(at..at.saturating_add(to.len())))?;
        self.slice_copy(bytes, || {
            let target = to.as_mut_ptr().cast();
            // SAFETY: as in `upload_slice`; any bytes are a valid `T`.
            unsafe { cu!(cuMemcpyDtoHAsync(target, address, bytes, self.handle())) }
        })
    }

    fn slice_copy(&self, bytes: usize, enqueue: impl FnOnce() -> Result<()>) -> Result<()> {
        let _current = self.enter()?;
        self.refuse_recording()?;
        // A copy of memory that is not pinned waits, which this thread may not do in a recording
        // of another stream.
        let _unrecorded = Unrecorded::new();
        if bytes == 0 { Ok(()) } else { enqueue() }
    }
}
