//! A mark in a queue of work.

use std::ptr;

use cuda_sys::{CUevent, CUresult};

use super::{Gpu, call};
use crate::Result;

/// A mark that [`Stream::record`](super::Stream::record) puts behind the work queued so far. One
/// that was never recorded counts as reached.
#[derive(Debug)]
pub struct Event {
    gpu: Gpu,
    event: CUevent,
}

// SAFETY: the driver's events may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// An event that also notes the time.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn new(gpu: &Gpu) -> Result<Self> {
        let _current = gpu.enter()?;
        let mut event = ptr::null_mut();
        // SAFETY: it writes one handle, which `drop` destroys. Flag 0 is an event with timing.
        unsafe { cu!(cuEventCreate(&mut event, 0)) }?;
        Ok(Event {
            gpu: gpu.clone(),
            event,
        })
    }

    /// The GPU it belongs to.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Waits until the mark is reached.
    ///
    /// # Errors
    /// A failure of work queued earlier shows here.
    pub fn synchronize(&self) -> Result<()> {
        let _current = self.gpu.enter()?;
        // SAFETY: the event is alive.
        unsafe { cu!(cuEventSynchronize(self.event)) }
    }

    /// Whether the mark is reached.
    ///
    /// # Errors
    /// A failure of work queued earlier shows here.
    pub fn query(&self) -> Result<bool> {
        let _current = self.gpu.enter()?;
        // SAFETY: the event is alive.
        match unsafe { cuda_sys::cuEventQuery(self.event) } {
            Ok(CUresult::CUDA_ERROR_NOT_READY) => Ok(false),
            answer => call::check("cuEventQuery", answer).map(|()| true),
        }
    }

    /// Microseconds from `since` to this event; both must have been reached.
    ///
    /// # Errors
    /// One of them was not recorded or not reached, or they are on different GPUs.
    pub fn elapsed_us(&self, since: &Event) -> Result<f64> {
        let _current = self.gpu.enter()?;
        let mut milliseconds = 0.0;
        // SAFETY: both events are alive; it writes one number.
        unsafe {
            cu!(cuEventElapsedTime(
                &mut milliseconds,
                since.event,
                self.event
            ))
        }?;
        Ok(f64::from(milliseconds) * 1e3)
    }

    pub(super) fn raw(&self) -> CUevent {
        self.event
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(_current) = self.gpu.enter() {
            // SAFETY: made in `new`, destroyed once; the driver waits for its use by itself.
            let _ = unsafe { cuda_sys::cuEventDestroy(self.event) };
        }
    }
}
