//! The descriptors of cuDNN's graph API: opaque things with named attributes.
//!
//! cuDNN compares the type and count of every value with what the attribute's name asks for, and
//! copies it. So setting and getting are safe; addresses set as attributes are followed by
//! `cudnnBackendExecute` alone.

use std::{ffi::c_void, ptr};

use cudnn_sys::{
    cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Type,
    cudnnBackendDescriptor_t, cudnnBackendDescriptorType_t as Kind,
};

use super::call::Handle;
use crate::{Result, gpu::Gpu};

/// A descriptor, and the GPU whose context it is made, used and destroyed in.
pub(super) struct Descriptor {
    raw: cudnnBackendDescriptor_t,
    gpu: Gpu,
}

// SAFETY: descriptors belong to no thread.
unsafe impl Send for Descriptor {}
// SAFETY: whoever shares one has finalized it, and only reads it. Execution plans, which not every
// engine lets two threads execute at once, are shared behind a mutex.
unsafe impl Sync for Descriptor {}

/// A type that attributes are made of.
pub(super) trait Value: Copy {
    /// cuDNN's name for it.
    fn kind() -> Type;
}

macro_rules! values {
    ($($rust:ty = $kind:ident),+ $(,)?) => {$(
        impl Value for $rust {
            fn kind() -> Type {
                Type::$kind
            }
        }
    )+};
}

values! {
    i64 = CUDNN_TYPE_INT64,
    f32 = CUDNN_TYPE_FLOAT,
    f64 = CUDNN_TYPE_DOUBLE,
    bool = CUDNN_TYPE_BOOLEAN,
    *mut c_void = CUDNN_TYPE_VOID_PTR,
}

impl Descriptor {
    /// An empty descriptor.
    pub(super) fn new(gpu: &Gpu, kind: Kind) -> Result<Self> {
        let mut descriptor = Descriptor {
            raw: ptr::null_mut(),
            gpu: gpu.clone(),
        };
        // SAFETY: it writes one descriptor, which `drop` destroys.
        unsafe { cudnn!(cudnnBackendCreateDescriptor(kind, &mut descriptor.raw)) }?;
        Ok(descriptor)
    }

    /// Sets an attribute of numbers or addresses.
    pub(super) fn set<T: Value>(self, name: Name, values: &[T]) -> Result<Self> {
        self.put(name, T::kind(), values)
    }

    /// Sets an attribute whose type is one of cuDNN's enums.
    pub(super) fn set_enum(self, name: Name, kind: Type, value: u32) -> Result<Self> {
        self.put(name, kind, &[value])
    }

    /// Sets an attribute of other descriptors, which must outlive this one.
    pub(super) fn link<'a>(
        self,
        name: Name,
        others: impl IntoIterator<Item = &'a Descriptor>,
    ) -> Result<Self> {
        let raw: Vec<_> = others.into_iter().map(|other| other.raw).collect();
        self.put(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &raw)
    }

    /// Sets an attribute to a handle, which must outlive this descriptor.
    pub(super) fn handle(self, name: Name, handle: &Handle) -> Result<Self> {
        self.put(name, Type::CUDNN_TYPE_HANDLE, &[handle.raw()])
    }

    fn put<T: Copy>(self, name: Name, kind: Type, values: &[T]) -> Result<Self> {
        let (count, address) = (values.len() as i64, values.as_ptr().cast());
        // SAFETY: the descriptor is alive; there are `count` values of this type at the address.
        unsafe {
            cudnn!(cudnnBackendSetAttribute(
                self.raw, name, kind, count, address
            ))
        }?;
        Ok(self)
    }

    /// Ends the setting of attributes: cuDNN checks them together, and here refuses what it cannot
    /// do.
    pub(super) fn finalize(self) -> Result<Self> {
        // SAFETY: the descriptor is alive.
        unsafe { cudnn!(cudnnBackendFinalize(self.raw)) }?;
        Ok(self)
    }

    /// An attribute that is one number.
    pub(super) fn integer(&self, name: Name) -> Result<i64> {
        let mut room = [0_i64];
        let values = self.read(name, Type::CUDNN_TYPE_INT64, &mut room)?;
        Ok(values.first().copied().unwrap_or(0))
    }

    /// An attribute of up to `most` values of one of cuDNN's enums.
    pub(super) fn enums(&self, name: Name, kind: Type, most: usize) -> Result<Vec<u32>> {
        Ok(self.read(name, kind, &mut vec![0_u32; most])?.to_vec())
    }

    /// How many descriptors an attribute holds.
    pub(super) fn count(&self, name: Name) -> Result<usize> {
        let kind = Type::CUDNN_TYPE_BACKEND_DESCRIPTOR;
        let mut count = 0;
        let none = ptr::null_mut();
        // SAFETY: no value is asked for; it writes the count.
        unsafe {
            cudnn!(cudnnBackendGetAttribute(
                self.raw, name, kind, 0, &mut count, none
            ))
        }?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// An attribute of up to `most` descriptors: cuDNN fills in ones that are made beforehand.
    pub(super) fn children(&self, name: Name, kind: Kind, most: usize) -> Result<Vec<Descriptor>> {
        let new = |_| Descriptor::new(&self.gpu, kind);
        let mut children = (0..most).map(new).collect::<Result<Vec<_>>>()?;
        let mut raw: Vec<_> = children.iter().map(|child| child.raw).collect();
        let found = self
            .read(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &mut raw)?
            .len();
        children.truncate(found);
        Ok(children)
    }

    /// Reads at most as many values as there is room for.
    fn read<'a, T: Copy>(&self, name: Name, kind: Type, room: &'a mut [T]) -> Result<&'a [T]> {
        let (most, address) = (room.len() as i64, room.as_mut_ptr().cast());
        let mut count = 0;
        // SAFETY: the descriptor is alive; it writes at most `most` values of this type, of which
        // every bit pattern is valid, and their count.
        unsafe {
            cudnn!(cudnnBackendGetAttribute(
                self.raw, name, kind, most, &mut count, address
            ))
        }?;
        Ok(&room[..usize::try_from(count).unwrap_or(0).min(room.len())])
    }

    pub(super) fn raw(&self) -> cudnnBackendDescriptor_t {
        self.raw
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // An execution plan may unload its kernels.
        if !self.raw.is_null()
            && let Ok(_current) = self.gpu.enter()
        {
            // SAFETY: made in `new`, destroyed once.
            let _ = unsafe { cudnn_sys::cudnnBackendDestroyDescriptor(self.raw) };
        }
    }
}
