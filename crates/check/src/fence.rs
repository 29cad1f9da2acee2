//! Device memory with fences on both sides.
//!
//! The tensor starts at exactly the alignment it is promised and no better, and ends where the rear
//! fence begins, so that one element too far is seen.

use std::{
    cell::RefCell,
    ffi::c_void,
    ops::{Deref, DerefMut, Range},
};

use convforge::{Buffer, Device, Error, Result, Stream};

#[cfg(feature = "cuda")]
use crate::oracle;
use crate::{
    Recipe,
    outcome::{Trouble, wrong},
};

/// Bytes of each fence.
const FENCE: usize = 512;
/// What outputs are filled with: NaN in every storage.
pub(crate) const POISON: u8 = 0xff;

/// What a fence is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fence {
    /// NaN in every storage: a kernel that reads beyond an input and uses it gives NaN.
    Poison = POISON as isize,
    /// A pattern that no kernel writes by chance; around what kernels may write.
    Pattern = 0x5a,
}

/// Memory that its thread keeps for the next tensor of the same size: the kinds of data of a case have
/// the same sizes, and for several threads at a time the driver allocates more slowly than kernels run.
struct Memory(Option<Buffer<u8>>);

thread_local! {
    /// The one given back last at the end.
    static SPARE: RefCell<Vec<Buffer<u8>>> = const { RefCell::new(Vec::new()) };
}
/// How many of them a thread keeps, and how many bytes of them.
const SPARES: usize = 24;
const SPARE_BYTES: usize = 1 << 30;

impl Memory {
    fn new(device: &Device, bytes: usize) -> Result<Self> {
        let spare = SPARE.with_borrow_mut(|spare| {
            let fits = |one: &Buffer<u8>| one.len() == bytes && one.device() == *device;
            spare.iter().rposition(fits).map(|at| spare.remove(at))
        });
        let memory = match spare {
            Some(memory) => memory,
            None => match device.alloc(bytes) {
                Err(Error::OutOfMemory { .. }) => {
                    forget_memory();
                    device.alloc(bytes)?
                }
                allocated => allocated?,
            },
        };
        Ok(Memory(Some(memory)))
    }
}

/// Gives back the device memory that this thread keeps from case to case.
pub fn forget_memory() {
    SPARE.take();
}

impl Deref for Memory {
    type Target = Buffer<u8>;

    fn deref(&self) -> &Buffer<u8> {
        self.0.as_ref().expect("there until it is dropped")
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut Buffer<u8> {
        self.0.as_mut().expect("there until it is dropped")
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let Some(memory) = self.0.take() else { return };
        SPARE.with_borrow_mut(|spare| {
            spare.push(memory);
            let bytes = |spare: &[Buffer<u8>]| spare.iter().map(Buffer::len).sum::<usize>();
            while spare.len() > SPARES || bytes(spare) > SPARE_BYTES {
                spare.remove(0);
            }
        });
    }
}

/// A tensor between two fences. What uses it has been waited for when it is dropped.
pub(crate) struct Fenced {
    memory: Memory,
    start: usize,
    len: usize,
    fence: Fence,
}

impl Fenced {
    /// `len` bytes of poison; the address is a multiple of `align` and not of twice that.
    pub(crate) fn new(
        device: &Device,
        len: usize,
        align: usize,
        fence: Fence,
        stream: &Stream,
    ) -> Result<Self> {
        let mut memory = Memory::new(device, FENCE + 2 * align + len + FENCE)?;
        let earliest = memory.as_mut_ptr() as usize + FENCE;
        // The first address from there on that is `align` past a multiple of twice `align`.
        let start = FENCE + (align + 2 * align - earliest % (2 * align)) % (2 * align);
        let mut fenced = Fenced {
            memory,
            start,
            len,
            fence,
        };
        fenced.poison(stream)?;
        Ok(fenced)
    }

    /// The tensor's address.
    pub(crate) fn address(&mut self) -> *mut c_void {
        self.memory.as_mut_ptr().wrapping_byte_add(self.start)
    }

    /// The tensor's address, for reading.
    pub(crate) fn as_ptr(&self) -> *const c_void {
        self.memory.as_ptr().wrapping_byte_add(self.start)
    }

    /// Bytes of the tensor.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Makes the tensor poison and the fences whole.
    pub(crate) fn poison(&mut self, stream: &Stream) -> Result<()> {
        let end = self.start + self.len;
        let rear = self.memory.len() - end;
        fill(&mut self.memory, POISON, stream)?;
        write(
            &mut self.memory,
            0,
            &vec![self.fence as u8; self.start],
            stream,
        )?;
        write(&mut self.memory, end, &vec![self.fence as u8; rear], stream)
    }

    /// Sets the tensor.
    pub(crate) fn write(&mut self, bytes: &[u8], stream: &Stream) -> Result<()> {
        write(&mut self.memory, self.start, bytes, stream)
    }

    /// The tensor.
    pub(crate) fn read(&self, stream: &Stream) -> Result<Vec<u8>> {
        self.read_part(0, self.len, stream)
    }

    /// Some bytes of the tensor.
    pub(crate) fn read_part(&self, from: usize, len: usize, stream: &Stream) -> Result<Vec<u8>> {
        read(
            &self.memory,
            self.start + from..self.start + from + len,
            stream,
        )
    }

    /// Where a fence was written over, in words.
    pub(crate) fn breach(&self, stream: &Stream) -> Result<Option<String>> {
        let changed = |byte: &u8| *byte != self.fence as u8;
        let front = read(&self.memory, 0..self.start, stream)?;
        if let Some(nearest) = front.iter().rposition(changed) {
            let before = self.start - nearest;
            return Ok(Some(format!(
                "was written to, up to {before} bytes before its start"
            )));
        }
        let end = self.start + self.len;
        let rear = read(&self.memory, end..self.memory.len(), stream)?;
        let past = rear.iter().position(changed);
        Ok(past.map(|past| format!("was written to, from {past} bytes past its end on")))
    }

    /// In how many 4-byte words two tensors of one length differ.
    pub(crate) fn differences(&self, other: &Fenced, stream: &Stream) -> Result<u64> {
        #[cfg(feature = "cuda")]
        if self.memory.device().is_gpu() {
            let (a, b) = (self.as_ptr(), other.as_ptr());
            // SAFETY: both tensors lie on this device and are as long.
            return unsafe { oracle::differences(a, b, self.len, stream) };
        }
        let (a, b) = (self.read(stream)?, other.read(stream)?);
        Ok(a.chunks(4).zip(b.chunks(4)).filter(|(a, b)| a != b).count() as u64)
    }
}

/// Sets every byte of a buffer.
pub(crate) fn fill(memory: &mut Buffer<u8>, byte: u8, stream: &Stream) -> Result<()> {
    #[cfg(feature = "cuda")]
    if let (Some(buffer), Some(stream)) = (memory.as_gpu_mut(), stream.as_gpu()) {
        return stream.memset(buffer, byte);
    }
    let _ = stream;
    memory.as_mut_slice().ok_or_else(elsewhere)?.fill(byte);
    Ok(())
}

fn write(memory: &mut Buffer<u8>, at: usize, bytes: &[u8], stream: &Stream) -> Result<()> {
    stream.synchronize()?;
    #[cfg(feature = "cuda")]
    if let Some(buffer) = memory.as_gpu_mut() {
        return buffer.upload_at(at, bytes);
    }
    let all = memory.as_mut_slice().ok_or_else(elsewhere)?;
    all[at..at + bytes.len()].copy_from_slice(bytes);
    Ok(())
}

fn read(memory: &Buffer<u8>, range: Range<usize>, stream: &Stream) -> Result<Vec<u8>> {
    Recipe::has_room(range.len())?;
    stream.synchronize()?;
    #[cfg(feature = "cuda")]
    if let Some(buffer) = memory.as_gpu() {
        return buffer.download_range(range);
    }
    Ok(memory.as_slice().ok_or_else(elsewhere)?[range].to_vec())
}

/// A GPU that the library knows of and this build of the judge does not.
pub(crate) fn elsewhere() -> Error {
    Error::no_gpu("the judge was built without the feature `cuda`")
}

/// That nothing was written around a tensor.
pub(crate) fn whole(what: &str, memory: &Fenced, stream: &Stream) -> Result<(), Trouble> {
    match memory.breach(stream)? {
        None => Ok(()),
        Some(breach) => wrong(format!("the memory around {what} {breach}")),
    }
}
