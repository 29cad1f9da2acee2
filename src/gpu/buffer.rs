//! Elements in device memory.

use std::{marker::PhantomData, ops::Range};

use bytemuck::Pod;
use cuda_sys::CUdeviceptr;

use super::{Gpu, call::Unrecorded};
use crate::{Error, Result};

/// Elements in the memory of one GPU.
///
/// Copies between it and plain slices happen at once and are done when the call returns. They do
/// not wait for what streams still have queued:
/// [`Stream::synchronize`](super::Stream::synchronize) first. A stream also has copies of its own,
/// which take their turn in the queue.
#[derive(Debug)]
pub struct DeviceBuffer<T: Pod> {
    gpu: Gpu,
    address: CUdeviceptr,
    len: usize,
    elements: PhantomData<T>,
}

impl<T: Pod> DeviceBuffer<T> {
    /// Memory for `len` elements, not initialised to anything in particular. It starts at a
    /// multiple of 256 bytes. None is taken for no element.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], also for a size that no address can express.
    pub fn alloc(gpu: &Gpu, len: usize) -> Result<Self> {
        let Some(bytes) = len.checked_mul(size_of::<T>()) else {
            return Err(out_of_memory(gpu, usize::MAX)?);
        };
        let mut buffer = DeviceBuffer {
            gpu: gpu.clone(),
            address: 0,
            len,
            elements: PhantomData,
        };
        if bytes == 0 {
            return Ok(buffer);
        }
        let _current = gpu.enter()?;
        // SAFETY: it writes one address, which `drop` frees.
        match unsafe { cu!(cuMemAlloc(&mut buffer.address, bytes)) } {
            Ok(()) => Ok(buffer),
            Err(Error::Gpu {
                code: OUT_OF_MEMORY,
                ..
            }) => Err(out_of_memory(gpu, bytes)?),
            // The driver has other names for what is beyond all memory.
            Err(_) if bytes as u64 > gpu.limits().memory_bytes => Err(out_of_memory(gpu, bytes)?),
            Err(error) => Err(error),
        }
    }

    /// Memory with a copy of `data`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn from_slice(gpu: &Gpu, data: &[T]) -> Result<Self> {
        let mut buffer = Self::alloc(gpu, data.len())?;
        buffer.upload(data)?;
        Ok(buffer)
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds no element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where it lies in the device's memory; 0 if it holds no element.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The GPU whose memory it is.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Replaces all elements.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if `data` has another length.
    pub fn upload(&mut self, data: &[T]) -> Result<()> {
        same_length("upload", data.len(), self.len)?;
        self.upload_at(0, data)
    }

    /// Replaces the elements from `start` on.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if `data` reaches past the end.
    pub fn upload_at(&mut self, start: usize, data: &[T]) -> Result<()> {
        let range = start..start.saturating_add(data.len());
        let (address, bytes) = self.bytes("upload", &range)?;
        if bytes == 0 {
            return Ok(());
        }
        let source = data.as_ptr().cast();
        // SAFETY: `data` has so many bytes, and so has the buffer from `address` on; `copy` waits.
        self.gpu
            .copy(|queue| unsafe { cu!(cuMemcpyHtoDAsync(address, source, bytes, queue)) })
    }

    /// A copy of all elements.
    ///
    /// # Errors
    /// A failure of work queued earlier shows here.
    pub fn download(&self) -> Result<Vec<T>> {
        self.download_range(0..self.len)
    }

    /// A copy of some elements.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]; otherwise as [`download`](Self::download).
    pub fn download_range(&self, range: Range<usize>) -> Result<Vec<T>> {
        self.bytes("download", &range)?;
        let mut data = vec![T::zeroed(); range.len()];
        self.download_at(range.start, &mut data)?;
        Ok(data)
    }

    /// Copies all elements into `data`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if `data` has another length; otherwise as
    /// [`download`](Self::download).
    pub fn download_into(&self, data: &mut [T]) -> Result<()> {
        same_length("download", data.len(), self.len)?;
        self.download_at(0, data)
    }

    fn download_at(&self, start: usize, data: &mut [T]) -> Result<()> {
        let (address, bytes) = self.bytes("download", &(start..start + data.len()))?;
        if bytes == 0 {
            return Ok(());
        }
        let target = data.as_mut_ptr().cast();
        // SAFETY: `data` has so many bytes, and so has the buffer from `address` on; any bytes are
        // a valid `T`; `copy` waits.
        self.gpu
            .copy(|queue| unsafe { cu!(cuMemcpyDtoHAsync(target, address, bytes, queue)) })
    }

    /// Address and size of some elements.
    pub(super) fn bytes(
        &self,
        what: &'static str,
        range: &Range<usize>,
    ) -> Result<(CUdeviceptr, usize)> {
        in_range(what, range, self.len)?;
        // No overflow: the whole buffer's size was computed when it was allocated.
        let size = size_of::<T>();
        Ok((
            self.address + (range.start * size) as u64,
            range.len() * size,
        ))
    }
}

impl<T: Pod> Drop for DeviceBuffer<T> {
    fn drop(&mut self) {
        if self.address == 0 {
            return;
        }
        if let Ok(_current) = self.gpu.enter() {
            let _unrecorded = Unrecorded::new();
            // SAFETY: allocated in `alloc` and freed once. Work in flight may still use it, and
            // cuMemFree waits for that (unlike cuMemFreeAsync); only work on this same device can,
            // since streams refuse the buffers of another. That no recorded graph uses it later is
            // promised to `Graph::launch`.
            let _ = unsafe { cuda_sys::cuMemFree(self.address) };
        }
    }
}

/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: i32 = 2;

fn out_of_memory(gpu: &Gpu, asked: usize) -> Result<Error> {
    let (free, total) = gpu.memory_info()?;
    Ok(Error::OutOfMemory {
        device: title(gpu),
        asked,
        free,
        total,
    })
}

/// Refuses a buffer of another device: dropping it would not wait for work on this one.
pub(super) fn same_gpu(what: &'static str, found: &Gpu, expected: &Gpu) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(Error::WrongDevice {
        what,
        expected: title(expected),
        found: title(found),
    })
}

fn title(gpu: &Gpu) -> String {
    format!("GPU {} ({})", gpu.ordinal(), gpu.name())
}

/// Refuses what is not wholly inside a buffer of `len` elements.
pub(super) fn in_range(what: &'static str, range: &Range<usize>, len: usize) -> Result<()> {
    if range.start <= range.end && range.end <= len {
        return Ok(());
    }
    Err(Error::OutOfRange {
        what,
        start: range.start,
        end: range.end,
        len,
    })
}

/// Refuses to copy all of one buffer over all of another that is not as long.
pub(super) fn same_length(what: &'static str, from: usize, to: usize) -> Result<()> {
    if from == to {
        return Ok(());
    }
    Err(Error::OutOfRange {
        what,
        start: 0,
        end: from,
        len: to,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_checked() {
        assert!(in_range("copy", &(0..0), 0).is_ok());
        assert!(in_range("copy", &(2..5), 5).is_ok());
        assert!(in_range("copy", &(2..6), 5).is_err());
        assert!(in_range("copy", &(6..6), 5).is_err());
        #[allow(clippy::reversed_empty_ranges)]
        let backwards = 3..2;
        assert!(in_range("copy", &backwards, 5).is_err());
        let text = same_length("upload", 3, 4).unwrap_err().to_string();
        assert!(
            text.contains("upload") && text.contains("0..3") && text.contains('4'),
            "{text}"
        );
    }
}
