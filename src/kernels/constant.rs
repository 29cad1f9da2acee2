//! Who has which part of a row's constant memory: 64 KB for each device, one symbol for the whole
//! process, whoever links it.
//!
//! A part belongs to one packed filter from [`ConstantMemory::take`] until it is dropped, and
//! launches only read it. So convolutions on different streams, and graphs of them, cannot meet: a
//! filter that finds no room is refused when it is packed.

use std::{
    collections::BTreeMap,
    ffi::c_void,
    ops::Range,
    ptr::null_mut,
    sync::{Arc, Mutex, PoisonError},
};

use super::{checked, ffi};
use crate::{
    Error, Result,
    gpu::{DeviceBuffer, Gpu},
    variant::ConstantPart,
};

const BYTES: usize = ffi::CF_CONSTANT_BYTES as usize;
const ALIGN: usize = ffi::CF_CONSTANT_ALIGN as usize;

type Address = unsafe extern "C" fn(*mut *mut c_void) -> i32;

/// The constant memory of one row, on every device.
pub(super) struct ConstantMemory {
    address: Address,
    /// Taken bytes from the symbol's beginning, by the device's ordinal.
    taken: Mutex<BTreeMap<usize, Taken>>,
}

#[derive(Default)]
struct Taken(Vec<Range<usize>>);

impl Taken {
    /// The first stretch of so many bytes that nobody has.
    fn take(&mut self, bytes: usize) -> Option<Range<usize>> {
        let bytes = bytes.checked_next_multiple_of(ALIGN)?;
        let ends = self.0.iter().map(|part| part.end);
        let fits = |begin: usize| {
            let part = begin..begin.checked_add(bytes)?;
            let free = self
                .0
                .iter()
                .all(|other| part.end <= other.start || other.end <= part.start);
            (part.end <= BYTES && free).then_some(part)
        };
        let part = std::iter::once(0)
            .chain(ends)
            .filter_map(fits)
            .min_by_key(|part| part.start)?;
        self.0.push(part.clone());
        Some(part)
    }

    fn free(&self) -> usize {
        BYTES - self.0.iter().map(|part| part.len()).sum::<usize>()
    }

    fn give_back(&mut self, part: &Range<usize>) {
        self.0.retain(|other| other != part);
    }
}

impl ConstantMemory {
    pub(super) fn new(address: Address) -> Self {
        ConstantMemory {
            address,
            taken: Mutex::default(),
        }
    }

    /// A part of so many bytes.
    pub(super) fn take(self: &Arc<Self>, gpu: &Gpu, bytes: usize) -> Result<Box<dyn ConstantPart>> {
        // Something that the driver frees with the part: see `Part::drop`.
        let waits = DeviceBuffer::alloc(gpu, 1)?;
        let mut begin = null_mut();
        {
            let _current = gpu.enter()?;
            // SAFETY: it writes one address.
            checked("constant memory", unsafe { (self.address)(&mut begin) })?;
        }
        let mut all = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = all.entry(gpu.ordinal()).or_default();
        let part = taken.take(bytes).ok_or_else(|| Error::ConstantMemory {
            asked: bytes,
            free: taken.free(),
            total: BYTES,
        })?;
        Ok(Box::new(Part {
            memory: self.clone(),
            address: begin.wrapping_byte_add(part.start) as usize,
            part,
            ordinal: gpu.ordinal(),
            waits: Some(waits),
        }))
    }
}

struct Part {
    memory: Arc<ConstantMemory>,
    address: usize,
    part: Range<usize>,
    ordinal: usize,
    /// Holds the context, without which the symbol would be another, and waits when it is freed.
    waits: Option<DeviceBuffer<u8>>,
}

// SAFETY: `Taken` gives out no byte twice, and `drop` waits before it gives a part back.
unsafe impl ConstantPart for Part {
    fn address(&self) -> *mut c_void {
        self.address as *mut c_void
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // The next filter may be packed here on another stream. Freeing device memory waits for all
        // work of the device that was queued before, and unlike a synchronisation does not spoil
        // what other threads record.
        drop(self.waits.take());
        let mut all = self
            .memory
            .taken
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(taken) = all.get_mut(&self.ordinal) {
            taken.give_back(&self.part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_overlap_and_are_used_again() {
        let mut taken = Taken::default();
        let first = taken.take(100).unwrap();
        let second = taken.take(1000).unwrap();
        let third = taken.take(1).unwrap();
        assert_eq!((first.clone(), second.clone()), (0..256, 256..1280));
        assert_eq!(third, 1280..1536);
        assert_eq!(taken.free(), BYTES - 1536);
        taken.give_back(&second);
        assert_eq!(taken.take(2000), Some(1536..3584));
        assert_eq!(taken.take(1024), Some(256..1280));
        assert_eq!(taken.take(BYTES), None);
        assert_eq!(taken.take(usize::MAX - ALIGN), None);
        taken.give_back(&first);
        assert_eq!(taken.take(1), Some(0..256));
    }

    #[test]
    fn all_of_it_can_be_had_at_once() {
        let mut taken = Taken::default();
        assert_eq!(taken.take(BYTES), Some(0..BYTES));
        assert_eq!((taken.take(1), taken.free()), (None, 0));
    }
}
