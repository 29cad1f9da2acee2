//! A tensor in several copies, so that the L2 cache holds none of them when its turn comes.

use std::ffi::c_void;

use crate::{Buffer, Device, Problem, Result, Stream, device::host_buffer::out_of_memory};

/// The same tensor some times in one buffer, each aligned as the problem says.
#[derive(Debug)]
pub struct Copies {
    memory: Buffer<u8>,
    start: usize,
    stride: usize,
    bytes: usize,
    count: usize,
}

impl Copies {
    /// Room for `count` tensors of so many bytes.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub fn new(device: &Device, problem: &Problem, bytes: usize, count: usize) -> Result<Self> {
        let align = problem.align().max(256);
        let stride = bytes.next_multiple_of(align);
        // The base of an allocation is aligned to less than some problems guarantee.
        let memory = device.alloc::<u8>(stride * count + align)?;
        let base = memory.as_ptr() as usize;
        Ok(Copies {
            start: base.next_multiple_of(align) - base,
            memory,
            stride,
            bytes,
            count,
        })
    }

    /// Writes every copy, each of which `write` makes of zeros, and zeros around them.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) where the host has no room for all of them; what copying to
    /// the device answers.
    pub fn fill(&mut self, stream: &Stream, mut write: impl FnMut(usize, &mut [u8])) -> Result<()> {
        let mut host = on_host(self.memory.len(), 0)?;
        for copy in 0..self.count {
            write(copy, &mut host[self.offset(copy)..][..self.bytes]);
        }
        self.memory.copy_from(&host, stream)
    }

    /// The same where all copies are alike.
    pub(super) fn fill_alike(
        &mut self,
        stream: &Stream,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        let mut host = on_host(self.memory.len(), 0)?;
        let first = self.start..self.start + self.bytes;
        write(&mut host[first.clone()]);
        for copy in 1..self.count {
            host.copy_within(first.clone(), self.offset(copy));
        }
        self.memory.copy_from(&host, stream)
    }

    /// Where a copy is.
    pub fn at(&self, copy: usize) -> *const c_void {
        self.memory.as_ptr().wrapping_byte_add(self.offset(copy))
    }

    /// Where a copy is that is written to.
    pub fn at_mut(&mut self, copy: usize) -> *mut c_void {
        let offset = self.offset(copy);
        self.memory.as_mut_ptr().wrapping_byte_add(offset)
    }

    /// Bytes of the buffer before a copy.
    pub fn offset(&self, copy: usize) -> usize {
        self.start + copy * self.stride
    }

    /// Bytes from one copy to the next.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// All of the buffer.
    pub fn memory(&self) -> &Buffer<u8> {
        &self.memory
    }

    /// All of the buffer, to write to.
    pub fn memory_mut(&mut self) -> &mut Buffer<u8> {
        &mut self.memory
    }
}

/// So many of these bytes on the host, which may have less memory than its GPU.
pub(super) fn on_host(bytes: usize, byte: u8) -> Result<Vec<u8>> {
    let mut host = Vec::new();
    let reserved = host.try_reserve_exact(bytes);
    reserved.map_err(|_| out_of_memory(bytes))?;
    host.resize(bytes, byte);
    Ok(host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn what_the_host_has_no_room_for_is_an_error() {
        assert_eq!(on_host(3, 0xff).unwrap(), [0xff; 3]);
        for bytes in [isize::MAX as usize, usize::MAX] {
            let error = on_host(bytes, 0).unwrap_err();
            assert!(
                matches!(error, Error::OutOfMemory { asked, .. } if asked == bytes),
                "{error}"
            );
        }
    }

    #[test]
    fn every_copy_has_its_content_and_room_around_it() {
        let (cpu, problem) = (Device::cpu(), "mb1ic1ih3oc1kh1+align=512".parse().unwrap());
        let stream = cpu.stream().unwrap();
        let mut copies = Copies::new(&cpu, &problem, 700, 3).unwrap();
        for copy in 0..3 {
            assert_eq!(copies.at(copy) as usize % 512, 0);
            assert_eq!(copies.at(copy), copies.at_mut(copy).cast_const());
        }
        let hold = |copies: &Copies, content: [u8; 3]| {
            let all = copies.memory().as_slice().unwrap();
            for (copy, byte) in content.into_iter().enumerate() {
                let found = &all[copies.offset(copy)..][..1024];
                assert_eq!(found, [vec![byte; 700], vec![0; 324]].concat());
            }
        };
        let write = |copy: usize, to: &mut [u8]| to.fill(copy as u8 + 1);
        copies.fill(&stream, write).unwrap();
        hold(&copies, [1, 2, 3]);
        copies.fill_alike(&stream, |to| to.fill(9)).unwrap();
        hold(&copies, [9; 3]);
    }
}
