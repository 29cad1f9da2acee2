//! A queue of work.

use std::{ffi::c_void, ptr, sync::Arc};

use cuda_sys::{CUresult, CUstream};

use super::{
    Event, Gpu,
    call::{self, Unrecorded},
};
use crate::Result;

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
    /// [`Error::WrongDevice`](crate::Error::WrongDevice) for a stream of another context than `gpu`'s primary one, or what the
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
