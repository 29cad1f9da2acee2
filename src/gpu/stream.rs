//! A queue of work.

use std::{
    ffi::c_void,
    ptr,
    sync::Arc,
    thread::{self, ThreadId},
    time::Duration,
};

use cuda_sys::{CUresult, CUstream};

use super::{
    Event, Gpu,
    call::{self, Entered, Unrecorded, is_of_recording},
};
use crate::{Error, Result};

/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: usize = 2;
/// Until it is asked again whether another thread's recording has ended.
const RECORDING: Duration = Duration::from_millis(1);

/// A queue of work on one GPU: in order within itself, beside other queues unless an [`Event`]
/// says otherwise. One from [`new`](Self::new) does not wait for CUDA's default stream, nor that for
/// it.
///
/// Clones are the same queue, and equal; the last one destroys it.
#[derive(Clone, Debug)]
pub struct Stream(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    gpu: Gpu,
    stream: CUstream,
    id: u64,
    owned: bool,
    /// Who alone may use it; none for all but the per-thread default stream.
    thread: Option<ThreadId>,
}

// SAFETY: the driver's streams may be used from any thread, and where the handle names another queue
// on another thread, `enter` refuses that.
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
            thread: None,
        })
    }

    /// A queue that someone else made, as a `CUstream` or `cudaStream_t`; it is not destroyed
    /// here.
    ///
    /// CUDA's special handles name queues of `gpu`'s primary context, whichever is current:
    ///
    /// | handle | queue |
    /// | --- | --- |
    /// | null, 1 (`CU_STREAM_LEGACY`) | the legacy default stream, however the caller was compiled; it cannot be captured |
    /// | 2 (`CU_STREAM_PER_THREAD`) | this thread's default stream |
    ///
    /// On another thread handle 2 names another queue. So such a stream is bound to the thread that
    /// made it here: whatever would queue work on it or ask about it from another one answers
    /// [`Error::WrongThread`], and does nothing. Each thread takes the handle anew, and is given a
    /// stream that is not equal to the others and needs a workspace of its own. To share one
    /// queue, create it. A stream, and what was made for it, may be dropped on any thread: freeing memory
    /// and destroying library handles waits for the whole device.
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
            thread: (stream.addr() == PER_THREAD).then(|| thread::current().id()),
        })
    }

    fn with_id(mut inner: Inner) -> Result<Self> {
        // SAFETY: the stream is alive; it writes one number.
        unsafe { cu!(cuStreamGetId(inner.stream, &mut inner.id)) }?;
        Ok(Stream(Arc::new(inner)))
    }

    /// The `CUstream`, which is also the `cudaStream_t`. Where it is 2, it is this queue on one thread
    /// only: [`from_raw`](Self::from_raw).
    pub fn raw(&self) -> *mut c_void {
        self.0.stream.cast()
    }

    /// The driver's number of it, which no later stream of this program gets. Whether two are the same
    /// queue, `==` says.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// The GPU it belongs to.
    pub fn gpu(&self) -> &Gpu {
        &self.0.gpu
    }

    /// Refuses the per-thread default stream of another thread.
    pub(crate) fn check_thread(&self) -> Result<()> {
        match self.0.thread {
            Some(owner) if owner != thread::current().id() => Err(Error::WrongThread),
            _ => Ok(()),
        }
    }

    /// Makes its context current, for calls that use the stream.
    pub(super) fn enter(&self) -> Result<Entered<'_>> {
        self.check_thread()?;
        self.0.gpu.enter()
    }

    /// Waits until everything queued is done.
    ///
    /// # Errors
    /// A failure of work queued earlier shows here.
    pub fn synchronize(&self) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: the stream is alive.
        unsafe { cu!(cuStreamSynchronize(self.0.stream)) }
    }

    /// Whether everything queued is done.
    ///
    /// # Errors
    /// A failure of work queued earlier shows here.
    pub fn query(&self) -> Result<bool> {
        let _current = self.enter()?;
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
        let _current = self.enter()?;
        // SAFETY: stream and event are alive.
        unsafe { cu!(cuEventRecord(event.raw(), self.0.stream)) }
    }

    /// Work queued from now on starts when the mark of `event` is reached.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn wait(&self, event: &Event) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: stream and event are alive.
        unsafe { cu!(cuStreamWaitEvent(self.0.stream, event.raw(), 0)) }
    }

    /// Waits until everything queued is done, also while this thread records another stream. While another
    /// thread records this one the driver refuses to wait, though earlier work is still running; that
    /// recording, which the refusal has spoilt, is waited for as well.
    ///
    /// # Errors
    /// A failure of work queued earlier shows here.
    pub(crate) fn finish(&self) -> Result<()> {
        let _unrecorded = Unrecorded::new();
        loop {
            match self.synchronize() {
                Err(error) if is_of_recording(&error) => thread::sleep(RECORDING),
                waited => return waited,
            }
        }
    }

    pub(super) fn handle(&self) -> CUstream {
        self.0.stream
    }
}

impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        // The driver does not promise each thread's default stream a number of its own.
        (self.0.id, self.0.thread) == (other.0.id, other.0.thread)
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
