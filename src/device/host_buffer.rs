//! Host memory as aligned as a device's.

use std::marker::PhantomData;

use bytemuck::Pod;

use super::Device;
use crate::{Error, Result};

/// Host memory whose start is a multiple of 128 bytes, as device memory's is of 256.
#[derive(Debug)]
pub(super) struct HostBuffer<T: Pod> {
    blocks: Vec<Block>,
    bytes: usize,
    elements: PhantomData<T>,
}

#[derive(Clone, Copy, Debug)]
#[repr(C, align(128))]
struct Block([u8; 128]);

// SAFETY: a plain array of bytes without padding, valid for every bit pattern.
unsafe impl bytemuck::Zeroable for Block {}
// SAFETY: as above.
unsafe impl Pod for Block {}

/// That so many bytes were asked for in vain.
pub(crate) fn out_of_memory(asked: usize) -> Error {
    Error::OutOfMemory {
        device: Device::cpu().to_string(),
        asked,
        free: 0,
        total: 0,
    }
}

impl<T: Pod> HostBuffer<T> {
    /// `len` elements of zero bytes.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::Unavailable`] for elements of a larger alignment, or of no bytes.
    pub(super) fn zeroed(len: usize) -> Result<Self> {
        if size_of::<T>() == 0 {
            return Err(Error::Unavailable(
                "buffer of elements of 0 bytes".to_owned(),
            ));
        }
        let align = align_of::<T>();
        if align > align_of::<Block>() {
            return Err(Error::Unavailable(format!(
                "buffer of elements aligned to {align} bytes: they may have {}",
                align_of::<Block>()
            )));
        }
        let out_of_memory = || out_of_memory(len.saturating_mul(size_of::<T>()));
        let bytes = len.checked_mul(size_of::<T>()).ok_or_else(out_of_memory)?;
        let count = bytes.div_ceil(size_of::<Block>());
        let mut blocks = Vec::new();
        blocks
            .try_reserve_exact(count)
            .map_err(|_| out_of_memory())?;
        blocks.resize(count, Block([0; 128]));
        Ok(HostBuffer {
            blocks,
            bytes,
            elements: PhantomData,
        })
    }

    /// The elements.
    pub(super) fn as_slice(&self) -> &[T] {
        let all: &[u8] = bytemuck::cast_slice(&self.blocks);
        bytemuck::cast_slice(&all[..self.bytes])
    }

    /// The elements.
    pub(super) fn as_mut_slice(&mut self) -> &mut [T] {
        let all: &mut [u8] = bytemuck::cast_slice_mut(&mut self.blocks);
        bytemuck::cast_slice_mut(&mut all[..self.bytes])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_any_size_have_their_place() {
        let mut odd = HostBuffer::<[u8; 3]>::zeroed(50).unwrap();
        odd.as_mut_slice()[49] = [1, 2, 3];
        assert_eq!(odd.as_slice().len(), 50);
        assert_eq!(odd.as_slice()[48..], [[0; 3], [1, 2, 3]]);
        let none = HostBuffer::<f32>::zeroed(0).unwrap();
        assert!(none.as_slice().is_empty());
        let words = HostBuffer::<u64>::zeroed(17).unwrap();
        assert_eq!(words.as_slice().as_ptr() as usize % 128, 0);
    }

    #[test]
    fn what_cannot_be_had_is_an_error() {
        for len in [usize::MAX, usize::MAX / 8, usize::MAX / 16] {
            let error = HostBuffer::<u64>::zeroed(len).unwrap_err();
            assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
        }

        #[derive(Clone, Copy, Debug)]
        #[repr(C, align(256))]
        struct Page([u8; 256]);
        // SAFETY: bytes without padding, valid for every bit pattern.
        unsafe impl bytemuck::Zeroable for Page {}
        // SAFETY: as above.
        unsafe impl Pod for Page {}
        let error = HostBuffer::<Page>::zeroed(1).unwrap_err();
        assert!(error.to_string().contains("256 bytes"), "{error}");
        let error = HostBuffer::<[f32; 0]>::zeroed(1).unwrap_err();
        assert!(error.to_string().contains("0 bytes"), "{error}");
    }
}
