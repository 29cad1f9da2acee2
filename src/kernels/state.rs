//! The memory that a row's plan lies in: bytes that only the row understands.

use std::ffi::c_void;

use super::ffi;

/// As many bytes as a row asks for, at a multiple of CF_STATE_ALIGN. Rows keep numbers in it, no
/// addresses within it, so it may be moved.
pub(super) struct State(Box<[Block]>);

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Block([u8; 64]);

const _: () = assert!(align_of::<Block>() == ffi::CF_STATE_ALIGN as usize);

impl State {
    pub(super) fn new(bytes: usize) -> Self {
        State(vec![Block([0; 64]); bytes.div_ceil(size_of::<Block>())].into())
    }

    pub(super) fn as_ptr(&self) -> *const c_void {
        self.0.as_ptr().cast()
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut c_void {
        self.0.as_mut_ptr().cast()
    }
}
