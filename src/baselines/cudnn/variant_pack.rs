//! A variant pack: the addresses of a launch, as cuDNN's graph API takes them.

use std::{ffi::c_void, ptr::null_mut};

use cudnn_sys::{cudnnBackendAttributeName_t as Name, cudnnBackendDescriptorType_t as Kind};

use super::{descriptor::Descriptor, graph::Operand};
use crate::{Result, gpu::Gpu};

/// There are no more operands than these.
const MOST: usize = Operand::Scale as usize;

/// What a launch gives addresses of, and which.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Addresses {
    count: usize,
    ids: [i64; MOST],
    addresses: [*mut c_void; MOST],
    workspace: *mut c_void,
}

impl Addresses {
    pub(super) fn new(
        operands: &[Operand],
        address: impl Fn(Operand) -> *mut c_void,
        workspace: *mut c_void,
    ) -> Self {
        let mut all = Addresses {
            count: operands.len(),
            ids: [0; MOST],
            addresses: [null_mut(); MOST],
            workspace,
        };
        for (at, operand) in operands.iter().enumerate() {
            (all.ids[at], all.addresses[at]) = (*operand as i64, address(*operand));
        }
        all
    }

    fn descriptor(&self, gpu: &Gpu) -> Result<Descriptor> {
        let (addresses, ids) = (&self.addresses[..self.count], &self.ids[..self.count]);
        Descriptor::new(gpu, Kind::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?
            .set(Name::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, addresses)?
            .set(Name::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids)?
            .set(Name::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, &[self.workspace])?
            .finalize()
    }
}

/// The last one that was made: most launches repeat the addresses of the one before, and a finalized
/// descriptor cannot be changed.
#[derive(Default)]
pub(super) struct VariantPack(Option<(Addresses, Descriptor)>);

impl VariantPack {
    /// The descriptor of these addresses.
    pub(super) fn of(&mut self, addresses: Addresses, gpu: &Gpu) -> Result<&Descriptor> {
        if self.0.as_ref().is_none_or(|(made, _)| *made != addresses) {
            self.0 = None;
        }
        match &mut self.0 {
            Some((_, descriptor)) => Ok(descriptor),
            none => Ok(&none.insert((addresses, addresses.descriptor(gpu)?)).1),
        }
    }
}
