//! A filter re-arranged once for a variant.

use std::{ffi::c_void, fmt};

use crate::{
    Buffer, Device, Layout, Math, Problem, Storage,
    variant::{ConstantPart, Packing},
};

/// A filter as a variant re-arranged it, in memory of its own. Every convolution takes it whose
/// variant arranges filters of these sizes in the same order: other numbers of images, and mostly
/// other image sizes, share it.
pub struct Packed {
    pub(super) device: Device,
    pub(super) key: Key,
    memory: Memory,
}

enum Memory {
    Own(Buffer<u8>),
    Constant(Box<dyn ConstantPart>),
}

/// What a packed filter was made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    variant: String,
    packing: Packing,
    /// k, c of a group, r, s, groups.
    filter: [usize; 5],
    order: Layout,
    storage: Storage,
    math: Math,
}

impl Key {
    pub(super) fn new(variant: &str, problem: &Problem, packing: Packing) -> Self {
        let p = problem;
        Key {
            variant: variant.to_owned(),
            packing,
            filter: [p.k(), p.c() / p.groups(), p.r(), p.s(), p.groups()],
            order: p.layout(),
            storage: p.storage(),
            math: p.math(),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let [k, c, r, s, groups] = self.filter;
        write!(f, "{k} filters of {c}x{r}x{s} in {}", self.storage)?;
        if groups > 1 {
            write!(f, ", {groups} groups")?;
        }
        write!(
            f,
            ", {} order, math {}, by {} (arrangement {:#x}, {} bytes)",
            self.order, self.math, self.variant, self.packing.layout, self.packing.bytes
        )
    }
}

impl Packed {
    pub(super) fn own(device: Device, key: Key, memory: Buffer<u8>) -> Self {
        Packed {
            device,
            key,
            memory: Memory::Own(memory),
        }
    }

    pub(super) fn constant(device: Device, key: Key, part: Box<dyn ConstantPart>) -> Self {
        Packed {
            device,
            key,
            memory: Memory::Constant(part),
        }
    }

    /// Whether this is what a convolution with this key takes.
    pub(super) fn fits(&self, device: &Device, key: &Key) -> bool {
        self.device == *device && self.key == *key
    }

    /// The device that it lies on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Bytes of it.
    pub fn bytes(&self) -> usize {
        self.key.packing.bytes
    }

    /// Where it begins, for [`RawOperands::packed`](crate::RawOperands::packed).
    pub fn as_ptr(&self) -> *const c_void {
        match &self.memory {
            Memory::Own(buffer) => buffer.as_ptr(),
            Memory::Constant(part) => part.address(),
        }
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut c_void {
        match &mut self.memory {
            Memory::Own(buffer) => buffer.as_mut_ptr(),
            Memory::Constant(part) => part.address(),
        }
    }
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Packed({} on {})", self.key, self.device)
    }
}
