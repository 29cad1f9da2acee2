//! Host memory that copies can run over while the host does something else.

use std::{
    fmt,
    mem::{self, ManuallyDrop},
    ops::{Deref, DerefMut},
    ptr::{self, NonNull},
    slice,
};

use bytemuck::Pod;

use super::{Event, Gpu, Stream, call::Unrecorded};
use crate::{Error, Result};

/// Host memory that stays where it is, so that the device can copy from and to it by itself.
pub struct PinnedBuffer<T: Pod> {
    gpu: Gpu,
    start: NonNull<T>,
    len: usize,
}

// SAFETY: it owns its elements as a `Vec` does, and the driver frees it from any thread.
unsafe impl<T: Pod + Send> Send for PinnedBuffer<T> {}
// SAFETY: as above.
unsafe impl<T: Pod + Sync> Sync for PinnedBuffer<T> {}

impl<T: Pod> PinnedBuffer<T> {
    /// `len` elements of zero bytes.
    ///
    /// # Errors
    /// What the driver answers; the machine's memory for such buffers is limited.
    pub fn alloc(gpu: &Gpu, len: usize) -> Result<Self> {
        let bytes = len
            .checked_mul(size_of::<T>())
            .filter(|&bytes| bytes <= isize::MAX as usize);
        let bytes = bytes.ok_or_else(|| Error::Gpu {
            call: "cuMemHostAlloc",
            code: 2,
            name: "CUDA_ERROR_OUT_OF_MEMORY".into(),
            text: format!(
                "{len} elements of {} bytes are more than any memory",
                size_of::<T>()
            ),
        })?;
        let mut start = NonNull::dangling();
        if bytes != 0 {
            let _current = gpu.enter()?;
            let mut address = ptr::null_mut();
            // SAFETY: it writes one address, which `drop` frees. The driver aligns to pages.
            unsafe { cu!(cuMemHostAlloc(&mut address, bytes, PORTABLE)) }?;
            // SAFETY: so many bytes were allocated, and zeros are a valid `T`.
            unsafe { address.cast::<u8>().write_bytes(0, bytes) };
            start = NonNull::new(address.cast()).unwrap_or(start);
        }
        Ok(PinnedBuffer {
            gpu: gpu.clone(),
            start,
            len,
        })
    }

    /// Where element `index`, at most the length, lies.
    pub(super) fn address_of(&self, index: usize) -> *mut T {
        self.start.as_ptr().wrapping_add(index)
    }
}

/// Pinned for every device, not only for the one that asked.
const PORTABLE: u32 = 1;

impl<T: Pod> Deref for PinnedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: so many elements were allocated and initialised, and nobody writes to them: a
        // copy that does holds the buffer in a `Pending`.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Pod> DerefMut for PinnedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and nobody reads them either.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T: Pod> Drop for PinnedBuffer<T> {
    fn drop(&mut self) {
        if self.len * size_of::<T>() == 0 {
            return;
        }
        if let Ok(_current) = self.gpu.enter() {
            let _unrecorded = Unrecorded::new();
            // SAFETY: allocated in `alloc`, freed once; no copy uses it, as above.
            let _ = unsafe { cuda_sys::cuMemFreeHost(self.start.as_ptr().cast()) };
        }
    }
}

impl<T: Pod + fmt::Debug> fmt::Debug for PinnedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A copy that may still be running, and the host memory it uses.
///
/// The copy owns that memory until it is done: [`wait`](Self::wait) gives it back, dropping waits
/// too, and forgetting this leaks it. So there is no way to free or touch it too early.
#[must_use = "dropping it waits for the copy"]
pub struct Pending<B> {
    buffer: ManuallyDrop<B>,
    done: Event,
}

impl<B> Pending<B> {
    /// Queues on `stream` what `enqueue` does with the addresses in `buffer`.
    pub(super) fn start(
        stream: &Stream,
        buffer: B,
        enqueue: impl FnOnce(&B) -> Result<()>,
    ) -> Result<Self> {
        let done = Event::new(stream.gpu())?;
        match enqueue(&buffer).and_then(|()| stream.record(&done)) {
            Ok(()) => Ok(Pending {
                buffer: ManuallyDrop::new(buffer),
                done,
            }),
            Err(error) => {
                // The copy may be running all the same.
                if stream.synchronize().is_err() {
                    mem::forget(buffer);
                }
                Err(error)
            }
        }
    }

    /// Whether the copy is done, so that [`wait`](Self::wait) will not.
    ///
    /// # Errors
    /// A failure of work queued earlier shows here.
    pub fn is_done(&self) -> Result<bool> {
        self.done.query()
    }

    /// Waits until the copy is done, and gives the memory back.
    ///
    /// # Errors
    /// A failure of work queued earlier shows here; the memory is then leaked, because nobody
    /// knows whether the device has let go of it.
    pub fn wait(self) -> Result<B> {
        let mut this = ManuallyDrop::new(self);
        let _unrecorded = Unrecorded::new();
        let done = this.done.synchronize();
        // SAFETY: `this` is not dropped as a whole, so each field is taken from it once.
        unsafe { ptr::drop_in_place(&mut this.done) };
        // SAFETY: as above.
        done.map(|()| unsafe { ManuallyDrop::take(&mut this.buffer) })
    }
}

impl<B> Drop for Pending<B> {
    fn drop(&mut self) {
        let _unrecorded = Unrecorded::new();
        if self.done.synchronize().is_ok() {
            // SAFETY: nobody has taken it, and it is not used again.
            unsafe { ManuallyDrop::drop(&mut self.buffer) };
        } // Otherwise it leaks, as in `wait`.
    }
}

impl<B> fmt::Debug for Pending<B> {
    // Not the buffer: the copy may be writing to it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending")
            .field("done", &self.done)
            .finish_non_exhaustive()
    }
}
