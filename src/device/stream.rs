//! Queues of work, and points in their time.

use std::{ffi::c_void, sync::Arc, time::Instant};

use super::{Device, Place};
#[cfg(feature = "cuda")]
use crate::Error;
use crate::Result;
#[cfg(feature = "cuda")]
use crate::gpu;

/// A queue of work on a device. Clones are the same queue, and equal.
#[derive(Clone, Debug)]
pub struct Stream(pub(super) Queue);

#[derive(Clone, Debug)]
pub(super) enum Queue {
    /// Work is done when it is queued; the value tells streams apart.
    Cpu(Arc<()>),
    #[cfg(feature = "cuda")]
    Gpu(gpu::Stream),
}

impl Device {
    /// A queue of work. On the CPU work is done when it is queued.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn stream(&self) -> Result<Stream> {
        match &self.0 {
            Place::Cpu => Ok(Stream::cpu()),
            #[cfg(feature = "cuda")]
            Place::Gpu(gpu) => Ok(gpu::Stream::new(gpu)?.into()),
        }
    }
}

impl Stream {
    pub(super) fn cpu() -> Self {
        Stream(Queue::Cpu(Arc::default()))
    }

    /// The CUDA stream, if it is one.
    #[cfg(feature = "cuda")]
    pub fn as_gpu(&self) -> Option<&gpu::Stream> {
        match &self.0 {
            Queue::Cpu(_) => None,
            Queue::Gpu(stream) => Some(stream),
        }
    }

    /// Waits until everything queued is done.
    ///
    /// # Errors
    /// A failure of work queued earlier shows here.
    pub fn synchronize(&self) -> Result<()> {
        match &self.0 {
            Queue::Cpu(_) => Ok(()),
            #[cfg(feature = "cuda")]
            Queue::Gpu(stream) => stream.synchronize(),
        }
    }

    /// The device it belongs to.
    pub fn device(&self) -> Device {
        match &self.0 {
            Queue::Cpu(_) => Device::cpu(),
            #[cfg(feature = "cuda")]
            Queue::Gpu(stream) => stream.gpu().clone().into(),
        }
    }

    /// The `cudaStream_t`; null on the CPU.
    pub fn raw(&self) -> *mut c_void {
        match &self.0 {
            Queue::Cpu(_) => std::ptr::null_mut(),
            #[cfg(feature = "cuda")]
            Queue::Gpu(stream) => stream.raw(),
        }
    }

    /// A point in the stream's time.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn mark(&self) -> Result<Mark> {
        match &self.0 {
            Queue::Cpu(_) => Ok(Mark(Moment::Cpu(Instant::now()))),
            #[cfg(feature = "cuda")]
            Queue::Gpu(stream) => {
                let event = gpu::Event::new(stream.gpu())?;
                stream.record(&event)?;
                Ok(Mark(Moment::Gpu(event)))
            }
        }
    }

    /// Moves a mark of this device to here; unlike [`mark`](Self::mark) it allocates nothing.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn move_mark(&self, mark: &mut Mark) -> Result<()> {
        match (&self.0, &mut mark.0) {
            #[cfg(feature = "cuda")]
            (Queue::Gpu(stream), Moment::Gpu(event)) => stream.record(event),
            _ => {
                *mark = self.mark()?;
                Ok(())
            }
        }
    }

    /// Lets what is queued from here on begin when a mark is reached.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn wait_for(&self, mark: &Mark) -> Result<()> {
        match (&self.0, &mark.0) {
            #[cfg(feature = "cuda")]
            (Queue::Gpu(stream), Moment::Gpu(event)) => stream.wait(event),
            #[cfg(feature = "cuda")]
            (Queue::Cpu(_), Moment::Gpu(event)) => event.synchronize(),
            (_, Moment::Cpu(_)) => Ok(()),
        }
    }

    /// Refuses the per-thread default stream of another thread.
    pub(crate) fn check_thread(&self) -> Result<()> {
        match &self.0 {
            Queue::Cpu(_) => Ok(()),
            #[cfg(feature = "cuda")]
            Queue::Gpu(stream) => stream.check_thread(),
        }
    }

    /// A number of it, which no other has while it lives. Whether two are the same queue, `==` says.
    pub fn id(&self) -> u64 {
        match &self.0 {
            Queue::Cpu(id) => Arc::as_ptr(id) as u64,
            #[cfg(feature = "cuda")]
            Queue::Gpu(stream) => stream.id(),
        }
    }
}

impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Queue::Cpu(a), Queue::Cpu(b)) => Arc::ptr_eq(a, b),
            #[cfg(feature = "cuda")]
            (Queue::Gpu(a), Queue::Gpu(b)) => a == b,
            #[cfg(feature = "cuda")]
            _ => false,
        }
    }
}

impl Eq for Stream {}

#[cfg(feature = "cuda")]
impl From<gpu::Stream> for Stream {
    fn from(stream: gpu::Stream) -> Self {
        Stream(Queue::Gpu(stream))
    }
}

/// A point in a stream's time, to measure what was queued between two of them.
#[derive(Debug)]
pub struct Mark(Moment);

#[derive(Debug)]
enum Moment {
    /// Work is done when it is queued, so wall time serves.
    Cpu(Instant),
    #[cfg(feature = "cuda")]
    Gpu(gpu::Event),
}

impl Mark {
    /// Microseconds from `earlier` to this mark; waits until it is reached.
    ///
    /// # Errors
    /// Marks of two devices, or a failure of work queued between them.
    pub fn us_since(&self, earlier: &Mark) -> Result<f64> {
        match (&self.0, &earlier.0) {
            (Moment::Cpu(now), Moment::Cpu(then)) => Ok((*now - *then).as_secs_f64() * 1e6),
            #[cfg(feature = "cuda")]
            (Moment::Gpu(now), Moment::Gpu(then)) => {
                now.synchronize()?;
                now.elapsed_us(then)
            }
            #[cfg(feature = "cuda")]
            _ => Err(Error::NoCommonClock),
        }
    }
}
