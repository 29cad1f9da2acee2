//! A queue of work.

use std::{ffi::c_void, ops::Range, ptr, sync::Arc};

use bytemuck::Pod;
use cuda_sys::{CUgraph, CUresult, CUstream};

use super::{
    DeviceBuffer, Event, Gpu, Graph, Pending, PinnedBuffer,
    buffer::{in_range, same_gpu, same_length},
    call::{self, Unrecorded},
};
use crate::{Error, Result};

/// A queue of work on one GPU: in order within itself, beside other queues unless an [`Event`]
/// says otherwise. It does not wait for CUDA's default stream, nor that for it.
///
/// Clones are the same queue; the last one destroys it.
#[derive(Clone, Debug)]
pub struct Stream(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    gpu: Gpu,
    stream: CUstream,
    id: u64,
    owned: bool,
}

// SAFETY: the driver's streams may be used from any thread.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Stream {
    /// A new queue.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn new(gpu: &Gpu) -> Result<Self> {
        let _current = gpu.enter()?;
        let mut stream = ptr::null_mut();
        // SAFETY: it writes one handle, which `drop` destroys.
        unsafe { cu!(cuStreamCreate(&mut stream, Gpu::NON_BLOCKING)) }?;
        Self::with_id(Inner {
            gpu: gpu.clone(),
            stream,
            id: 0,
            owned: true,
        })
    }

    /// A queue that someone else made, as a `CUstream` or `cudaStream_t`; it is not destroyed
    /// here.
    ///
    /// # Errors
    /// [`Error::WrongDevice`] for a stream of another context than `gpu`'s primary one, or what the
    /// driver answers.
    ///
    /// # Safety
    /// It is a stream, and lives as long as the answer, its clones, and
    /// the workspaces made for it, which hold one.
    pub unsafe fn from_raw(gpu: &Gpu, stream: *mut c_void) -> Result<Self> {
        let _current = gpu.enter()?;
        gpu.check_context(stream.cast())?;
        Self::with_id(Inner {
            gpu: gpu.clone(),
            stream: stream.cast(),
            id: 0,
            owned: false,
        })
    }

    fn with_id(mut inner: Inner) -> Result<Self> {
        // SAFETY: the stream is alive; it writes one number.
        unsafe { cu!(cuStreamGetId(inner.stream, &mut inner.id)) }?;
        Ok(Stream(Arc::new(inner)))
    }

    /// The `CUstream`, which is also the `cudaStream_t`.
    pub fn raw(&self) -> *mut c_void {
        self.0.stream.cast()
    }

    /// Tells streams apart; no later stream of this program gets the same one.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// The GPU it belongs to.
    pub fn gpu(&self) -> &Gpu {
        &self.0.gpu
    }

    /// Waits until everything queued is done.
    ///
    /// # Errors
    /// A failure of work queued earlier shows here.
    pub fn synchronize(&self) -> Result<()> {
        let _current = self.0.gpu.enter()?;
        // SAFETY: the stream is alive.
        unsafe { cu!(cuStreamSynchronize(self.0.stream)) }
    }

    /// Whether everything queued is done.
    ///
    /// # Errors
    /// A failure of work queued earlier shows here.
    pub fn query(&self) -> Result<bool> {
        let _current = self.0.gpu.enter()?;
        // SAFETY: the stream is alive.
        match unsafe { cuda_sys::cuStreamQuery(self.0.stream) } {
            Ok(CUresult::CUDA_ERROR_NOT_READY) => Ok(false),
            answer => call::check("cuStreamQuery", answer).map(|()| true),
        }
    }

    /// Moves the mark of `event` behind the work queued so far.
    ///
    /// # Errors
    /// What the driver answers; the event must be of the same GPU.
    pub fn record(&self, event: &Event) -> Result<()> {
        let _current = self.0.gpu.enter()?;
        // SAFETY: stream and event are alive.
        unsafe { cu!(cuEventRecord(event.raw(), self.0.stream)) }
    }

    /// Work queued from now on starts when the mark of `event` is reached.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn wait(&self, event: &Event) -> Result<()> {
        let _current = self.0.gpu.enter()?;
        // SAFETY: stream and event are alive.
        unsafe { cu!(cuStreamWaitEvent(self.0.stream, event.raw(), 0)) }
    }

    /// Records what `work` queues on this stream, without running it.
    ///
    /// Whatever `work` answers, and also if it panics, the stream is an ordinary queue again
    /// afterwards. Inside, on this thread, allocating and waiting for the stream are errors that
    /// spoil the recording; this stream's copies from and to the host are refused, since a graph
    /// could outlive their memory. A buffer's plain copies happen at once and are not recorded.
    ///
    /// # Errors
    /// What `work` answers, or the driver.
    pub fn capture(&self, work: impl FnOnce(&Stream) -> Result<()>) -> Result<Graph> {
        let _current = self.0.gpu.enter()?;
        let recording = Recording::begin(self)?;
        work(self)?;
        let recorded = recording.end()?;
        let graph = Graph::instantiate(&self.0.gpu, recorded);
        // SAFETY: the recorded graph is this function's, and is no longer needed.
        let _ = unsafe { cuda_sys::cuGraphDestroy(recorded) };
        graph
    }

    /// Queues setting every byte of `buffer`.
    ///
    /// # Errors
    /// [`Error::WrongDevice`].
    pub fn memset<T: Pod>(&self, buffer: &mut DeviceBuffer<T>, byte: u8) -> Result<()> {
        same_gpu("the buffer", buffer.gpu(), &self.0.gpu)?;
        let (address, bytes) = buffer.bytes("memset", &(0..buffer.len()))?;
        if bytes == 0 {
            return Ok(());
        }
        let _current = self.0.gpu.enter()?;
        // SAFETY: the buffer has so many bytes; work that is queued when it is dropped is waited
        // for by its `drop`.
        unsafe { cu!(cuMemsetD8Async(address, byte, bytes, self.0.stream)) }
    }

    /// Queues copying all of `from` over all of `to`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if their lengths differ, [`Error::WrongDevice`].
    pub fn copy<T: Pod>(&self, to: &mut DeviceBuffer<T>, from: &DeviceBuffer<T>) -> Result<()> {
        same_gpu("the source", from.gpu(), &self.0.gpu)?;
        same_gpu("the target", to.gpu(), &self.0.gpu)?;
        same_length("copy", from.len(), to.len())?;
        let (source, bytes) = from.bytes("copy", &(0..from.len()))?;
        if bytes == 0 {
            return Ok(());
        }
        let _current = self.0.gpu.enter()?;
        // SAFETY: both buffers have so many bytes, and are waited for as in `memset`.
        unsafe {
            cu!(cuMemcpyDtoDAsync(
                to.address(),
                source,
                bytes,
                self.0.stream
            ))
        }
    }

    /// Copies bytes of device memory that is no buffer's into `to`, behind what was queued before, and
    /// waits.
    ///
    /// # Errors
    /// What the driver answers.
    ///
    /// # Safety
    /// From the address `from` on there are so many bytes in the device's memory.
    pub unsafe fn download_raw(&self, from: u64, to: &mut [u8]) -> Result<()> {
        if !to.is_empty() {
            let (target, bytes) = (to.as_mut_ptr().cast(), to.len());
            let _current = self.0.gpu.enter()?;
            // SAFETY: as the caller promised; `to` is borrowed until the copy is done.
            unsafe { cu!(cuMemcpyDtoHAsync(target, from, bytes, self.0.stream)) }?;
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
        same_gpu("the target", to.gpu(), &self.0.gpu)?;
        in_range("upload", &range, from.len())?;
        let (address, bytes) = to.bytes("upload", &(at..at.saturating_add(range.len())))?;
        self.host_copy(from, bytes, |from| {
            let source = from.address_of(range.start).cast();
            // SAFETY: both sides have so many bytes; `Pending` keeps the host's, and the device's
            // is waited for as in `memset`.
            unsafe { cu!(cuMemcpyHtoDAsync(address, source, bytes, self.0.stream)) }
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
        same_gpu("the source", from.gpu(), &self.0.gpu)?;
        in_range("download", &(at..at.saturating_add(range.len())), to.len())?;
        let (address, bytes) = from.bytes("download", &range)?;
        self.host_copy(to, bytes, |to| {
            let target = to.address_of(at).cast();
            // SAFETY: as in `upload_part_async`; any bytes are a valid `T`.
            unsafe { cu!(cuMemcpyDtoHAsync(target, address, bytes, self.0.stream)) }
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
        let _current = self.0.gpu.enter()?;
        self.refuse_recording()?;
        Pending::start(self, buffer, |buffer| {
            if bytes == 0 { Ok(()) } else { enqueue(buffer) }
        })
    }

    /// Refuses to copy from or to the host while the stream is being recorded.
    fn refuse_recording(&self) -> Result<()> {
        let mut status = cuda_sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the stream is alive; it writes one number.
        unsafe { cu!(cuStreamIsCapturing(self.0.stream, &mut status)) }?;
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
        same_gpu("the target", to.gpu(), &self.0.gpu)?;
        let (address, bytes) = to.bytes("upload", &(at..at.saturating_add(from.len())))?;
        self.slice_copy(bytes, || {
            let source = from.as_ptr().cast();
            // SAFETY: both sides have so many bytes; the caller keeps the host's, and the device's
            // is waited for as in `memset`.
            unsafe { cu!(cuMemcpyHtoDAsync(address, source, bytes, self.0.stream)) }
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
        same_gpu("the source", from.gpu(), &self.0.gpu)?;
        let (address, bytes) = from.bytes("download", &(at..at.saturating_add(to.len())))?;
        self.slice_copy(bytes, || {
            let target = to.as_mut_ptr().cast();
            // SAFETY: as in `upload_slice`; any bytes are a valid `T`.
            unsafe { cu!(cuMemcpyDtoHAsync(target, address, bytes, self.0.stream)) }
        })
    }

    fn slice_copy(&self, bytes: usize, enqueue: impl FnOnce() -> Result<()>) -> Result<()> {
        let _current = self.0.gpu.enter()?;
        self.refuse_recording()?;
        // A copy of memory that is not pinned waits, which this thread may not do in a recording
        // of another stream.
        let _unrecorded = Unrecorded::new();
        if bytes == 0 { Ok(()) } else { enqueue() }
    }

    /// Waits until everything queued is done, also while this thread records another stream.
    ///
    /// # Errors
    /// A failure of work queued earlier shows here.
    pub(crate) fn finish(&self) -> Result<()> {
        let _unrecorded = Unrecorded::new();
        self.synchronize()
    }

    pub(super) fn handle(&self) -> CUstream {
        self.0.stream
    }
}

impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        self.0.id == other.0.id
    }
}

impl Eq for Stream {}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        if let Ok(_current) = self.gpu.enter() {
            // SAFETY: made in `new`, destroyed once; what is queued is still done.
            let _ = unsafe { cuda_sys::cuStreamDestroy(self.stream) };
        }
    }
}

/// A stream that is being recorded; dropping it ends the recording and throws it away.
struct Recording<'a> {
    stream: &'a Stream,
}

impl<'a> Recording<'a> {
    fn begin(stream: &'a Stream) -> Result<Self> {
        // Other threads may allocate and wait meanwhile; only this one may not.
        let mode = cuda_sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is alive; `drop` or `end` ends the recording on this same thread.
        unsafe { cu!(cuStreamBeginCapture(stream.0.stream, mode)) }?;
        Ok(Recording { stream })
    }

    /// What was recorded; the caller destroys it.
    fn end(self) -> Result<CUgraph> {
        let this = std::mem::ManuallyDrop::new(self);
        let mut graph = ptr::null_mut();
        // SAFETY: the stream is being recorded; it writes one handle.
        unsafe { cu!(cuStreamEndCapture(this.stream.0.stream, &mut graph)) }?;
        Ok(graph)
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        let mut graph = ptr::null_mut();
        // SAFETY: as in `end`; a spoiled recording leaves no graph.
        unsafe {
            let _ = cuda_sys::cuStreamEndCapture(self.stream.0.stream, &mut graph);
            if !graph.is_null() {
                let _ = cuda_sys::cuGraphDestroy(graph);
            }
        }
    }
}
