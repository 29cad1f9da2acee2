//! The types that tensors are stored in.

use bytemuck::Pod;

use crate::Storage;

/// An element type that tensors are stored in: f32, or f16 and bf16 of the crate half.
pub trait Element: Pod + Send + Sync + sealed::Sealed {
    /// Its name among the storages.
    const STORAGE: Storage;
}

/// Buffers' lengths are checked in elements, so nobody else may say how large one is.
mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for half::f16 {}
    impl Sealed for half::bf16 {}
}

impl Element for f32 {
    const STORAGE: Storage = Storage::F32;
}

impl Element for half::f16 {
    const STORAGE: Storage = Storage::F16;
}

impl Element for half::bf16 {
    const STORAGE: Storage = Storage::Bf16;
}
