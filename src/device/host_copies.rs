//! Copies between a device and host memory that is only borrowed.
//!
//! The device reads and writes that memory while the host does something else, so it must not be
//! given back before the last copy is done. As with `std::thread::scope`, a function's frame sees to
//! that: copies are queued inside [`with_host_copies`], which does not return, or unwind, before it
//! has waited for them.

use std::{cell::Cell, marker::PhantomData, ops::Range};

use bytemuck::Pod;

use super::{Buffer, Stream, buffer::Memory, stream::Queue};
#[cfg(feature = "cuda")]
use crate::gpu::is_of_recording;
use crate::{Error, Result};

/// Queues copies on streams that are waited for.
///
/// `'host` is what host memory is borrowed for. It outlives the call of [`with_host_copies`] and,
/// being invariant, cannot be taken for something shorter.
#[derive(Debug)]
pub struct HostCopies<'streams, 'host> {
    streams: &'streams [Stream],
    /// Whether a copy may be under way, by stream.
    queued: Vec<Cell<bool>>,
    host: PhantomData<Cell<&'host ()>>,
}

/// Calls `work`, then waits for all streams, however `work` ends. Answers what `work` does, and
/// what came of waiting.
///
/// While another thread records a stream with a copy under way, that recording is waited for; one that
/// `work` begins after a copy has to end in it.
pub fn with_host_copies<'host, R>(
    streams: &[Stream],
    work: impl FnOnce(&HostCopies<'_, 'host>) -> R,
) -> (R, Result<()>) {
    let copies = HostCopies {
        streams,
        queued: streams.iter().map(|_| Cell::new(false)).collect(),
        host: PhantomData,
    };
    let answer = work(&copies);
    (answer, copies.wait())
}

impl<'host> HostCopies<'_, 'host> {
    /// Queues copying all of `from` to the elements of `to` that begin at `at`, on the stream of this
    /// index.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::WrongDevice`], or what the driver answers.
    ///
    /// # Panics
    /// Where there is no such stream.
    pub fn upload<T: Pod>(
        &self,
        stream: usize,
        from: &'host [T],
        to: &mut Buffer<T>,
        at: usize,
    ) -> Result<()> {
        match (&self.streams[stream].0, &mut to.0) {
            #[cfg(feature = "cuda")]
            (Queue::Gpu(queue), Memory::Gpu(to)) => {
                // SAFETY: `from` is borrowed beyond `with_host_copies`, which waits for the stream.
                let copied = unsafe { queue.upload_slice(from, to, at) };
                self.tell(stream, copied)
            }
            (Queue::Cpu(_), Memory::Cpu(to)) => {
                let range = range("upload", at, from.len(), to.as_slice().len())?;
                to.as_mut_slice()[range].copy_from_slice(from);
                Ok(())
            }
            #[cfg(feature = "cuda")]
            _ => self.streams[stream]
                .device()
                .expect("the buffer", &to.device()),
        }
    }

    /// Queues copying the elements of `from` that begin at `at` over all of `to`, on the stream of
    /// this index.
    ///
    /// # Errors
    /// As [`upload`](Self::upload).
    ///
    /// # Panics
    /// Where there is no such stream.
    pub fn download<T: Pod>(
        &self,
        stream: usize,
        from: &Buffer<T>,
        at: usize,
        to: &'host mut [T],
    ) -> Result<()> {
        match (&self.streams[stream].0, &from.0) {
            #[cfg(feature = "cuda")]
            (Queue::Gpu(queue), Memory::Gpu(from)) => {
                // SAFETY: as in `upload`; nobody else can touch what is borrowed mutably.
                let copied = unsafe { queue.download_slice(from, at, to) };
                self.tell(stream, copied)
            }
            (Queue::Cpu(_), Memory::Cpu(from)) => {
                let range = range("download", at, to.len(), from.as_slice().len())?;
                to.copy_from_slice(&from.as_slice()[range]);
                Ok(())
            }
            #[cfg(feature = "cuda")]
            _ => self.streams[stream]
                .device()
                .expect("the buffer", &from.device()),
        }
    }

    /// Notes that a copy may be under way, unless it was refused as the stream is recorded.
    #[cfg(feature = "cuda")]
    fn tell(&self, stream: usize, copied: Result<()>) -> Result<()> {
        let refused = matches!(&copied, Err(error) if is_of_recording(error));
        self.queued[stream].set(self.queued[stream].get() || !refused);
        copied
    }

    /// Waits for every stream, and answers the first failure. A stream that fails takes its context
    /// with it: the driver has ended all copies then. One that is another thread's has refused them:
    /// this type is not `Sync`, so that they were asked for on this thread. One that is recorded refuses
    /// to be waited for, whatever for; without a copy that is no reason to stay.
    fn wait(&self) -> Result<()> {
        let mut answer = Ok(());
        for (stream, queued) in self.streams.iter().zip(&self.queued) {
            let queued = queued.take();
            let waited = match &stream.0 {
                Queue::Cpu(_) => {
                    debug_assert!(!queued, "the CPU copies at once");
                    Ok(())
                }
                #[cfg(feature = "cuda")]
                Queue::Gpu(stream) if queued => stream.finish(),
                #[cfg(feature = "cuda")]
                Queue::Gpu(stream) => stream.synchronize(),
            };
            answer = answer.and(waited);
        }
        answer
    }
}

impl Drop for HostCopies<'_, '_> {
    /// For a panic on the way; otherwise there is nothing left to wait for.
    fn drop(&mut self) {
        let _ = self.wait();
    }
}

/// `count` elements from `at` on, if a buffer of `len` has them.
fn range(what: &'static str, at: usize, count: usize, len: usize) -> Result<Range<usize>> {
    let range = at..at.saturating_add(count);
    if range.end <= len {
        return Ok(range);
    }
    Err(Error::OutOfRange {
        what,
        start: range.start,
        end: range.end,
        len,
    })
}
