//! A variant pack: the addresses of a launch, as cuDNN's graph API takes them.

use std::{ffi::c_void, ptr::null_mut};

use cudnn_sys::{cudnnBackendAttributeName_t as Name, cudnnBackendDescriptorType_t as Kind};

use super::{call::Handle, descriptor::Descriptor, graph::Operand, recent::Recent};
use crate::{Result, gpu::Gpu};

/// There are no more operands than these.
const MOST: usize = Operand::Scale as usize;

/// What a launch gives addresses of, and which.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Addresses {
    // Compared first, as most differ here.
    addresses: [*mut c_void; MOST],
    count: usize,
    ids: [i64; MOST],
    workspace: *mut c_void,
}

impl Addresses {
    pub(super) fn new(
        operands: &[Operand],
        address: impl Fn(Operand) -> *mut c_void,
        workspace: *mut c_void,
    ) -> Self {
        let mut all = Addresses {
            addresses: [null_mut(); MOST],
            count: operands.len(),
            ids: [0; MOST],
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

/// Sets of addresses that a stream's launches go round without a descriptor being made: layers of a network
/// times the buffers that each of them takes in turns.
const PACKS: usize = 32;

/// What launches on one stream need: a handle, and the variant packs of the last of them. A finalized
/// descriptor cannot be changed, so each set of addresses has its own, which the first launch with it makes.
pub(super) struct Launcher {
    pub(super) handle: Handle,
    packs: Recent<Addresses, Descriptor, PACKS>,
}

// SAFETY: the addresses are only compared, and handed to launches whose callers vouch for them.
unsafe impl Send for Launcher {}

impl Launcher {
    pub(super) fn new(handle: Handle) -> Self {
        let packs = Recent::new();
        Launcher { handle, packs }
    }

    /// The handle, and a descriptor of these addresses.
    pub(super) fn with(&mut self, addresses: Addresses) -> Result<(&Handle, &Descriptor)> {
        let handle = &self.handle;
        let make = |addresses: &Addresses| addresses.descriptor(handle.gpu());
        Ok((handle, self.packs.get(addresses, make)?))
    }
}
