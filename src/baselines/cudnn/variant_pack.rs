//! A variant pack: the addresses of a launch, as cuDNN's graph API takes them.

use std::{ffi::c_void, ptr::null_mut};

use cudnn_sys::{cudnnBackendAttributeName_t as Name, cudnnBackendDescriptorType_t as Kind};

use super::{call::Handle, descriptor::Descriptor, graph::Operand};
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

/// What launches on one stream need: a handle, and the variant pack of the last of them. Most launches
/// repeat the addresses of the one before, and a finalized descriptor cannot be changed.
pub(super) struct Launcher {
    pub(super) handle: Handle,
    last: Option<(Addresses, Descriptor)>,
}

// SAFETY: the addresses are only compared, and handed to launches whose callers vouch for them.
unsafe impl Send for Launcher {}

impl Launcher {
    pub(super) fn new(handle: Handle) -> Self {
        Launcher { handle, last: None }
    }

    /// The handle, and a descriptor of these addresses.
    pub(super) fn with(&mut self, addresses: Addresses) -> Result<(&Handle, &Descriptor)> {
        if self
            .last
            .as_ref()
            .is_some_and(|(made, _)| *made != addresses)
        {
            self.last = None;
        }
        let (_, descriptor) = match &mut self.last {
            Some(last) => last,
            none => none.insert((addresses, addresses.descriptor(self.handle.gpu())?)),
        };
        Ok((&self.handle, descriptor))
    }
}
