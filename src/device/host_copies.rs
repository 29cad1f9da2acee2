//! Copies between a device and host memory that is only borrowed.
//!
//! The device reads and writes that memory while the host does something else, so it must not be
//! given back before the last copy is done. As with `std::thread::scope`, a function's frame sees to
//! that: copies are queued inside [`with_host_copies`], which does not return, or unwind, before it
//! has waited for them.

use std::{cell::Cell, marker::PhantomData};

use bytemuck::Pod;

use super::{Buffer, Stream};
use crate::{Error, Result};

/// Queues copies on streams that are waited for.
///
/// `'host` is what host memory is borrowed for. It outlives the call of [`with_host_copies`] and,
/// being invariant, cannot be taken for something shorter.
pub(crate) struct HostCopies<'streams, 'host> {
    streams: &'streams [Stream],
    host: PhantomData<Cell<&'host ()>>,
}

/// Calls `work`, then waits for all streams, however `work` ends. Answers what `work` does, and
/// what came of waiting.
pub(crate) fn with_host_copies<'host, R>(
    streams: &[Stream],
    work: impl FnOnce(&HostCopies<'_, 'host>) -> R,
) -> (R, Result<()>) {
    let copies = HostCopies {
        streams,
        host: PhantomData,
    };
    let answer = work(&copies);
    (answer, copies.wait())
}

impl<'host> HostCopies<'_, 'host> {
    /// Queues copying all of `from` over all of `to`, on the stream of this index.
    pub fn upload<T: Pod>(
        &self,
        stream: usize,
        from: &'host [T],
        to: &mut Buffer<T>,
    ) -> Result<()> {
        match (&self.streams[stream], to) {
            #[cfg(feature = "cuda")]
            // SAFETY: `from` is borrowed beyond `with_host_copies`, which waits for the stream.
            (Stream::Gpu(stream), Buffer::Gpu(to)) => unsafe { stream.upload_slice(from, to) },
            (stream, to) => {
                stream.device().expect("the buffer", &to.device())?;
                to.copy_from(from, stream)
            }
        }
    }

    /// Queues copying all of `from` over all of `to`, on the stream of this index.
    pub fn download<T: Pod>(
        &self,
        stream: usize,
        from: &Buffer<T>,
        to: &'host mut [T],
    ) -> Result<()> {
        match (&self.streams[stream], from) {
            #[cfg(feature = "cuda")]
            // SAFETY: as in `upload`; nobody else can touch what is borrowed mutably.
            (Stream::Gpu(stream), Buffer::Gpu(from)) => unsafe { stream.download_slice(from, to) },
            (_, Buffer::Cpu(from)) if from.as_slice().len() == to.len() => {
                to.copy_from_slice(from.as_slice());
                Ok(())
            }
            (stream, from) => {
                stream.device().expect("the buffer", &from.device())?;
                Err(Error::Check(format!(
                    "{} elements cannot be copied into {}",
                    from.len(),
                    to.len()
                )))
            }
        }
    }

    /// Waits for every stream, and answers the first failure. A stream that fails takes its context
    /// with it: the driver has ended all copies then.
    fn wait(&self) -> Result<()> {
        let mut answer = Ok(());
        for stream in self.streams {
            let waited = match stream {
                Stream::Cpu(_) => Ok(()),
                #[cfg(feature = "cuda")]
                Stream::Gpu(stream) => stream.finish(),
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
