//! Plain addresses: the operands of a convolution, and all that one launch gets.

use std::{
    any::Any,
    ffi::{CStr, c_void},
    fmt,
    ptr::null,
};

/// Plain addresses on the convolution's device, for buffers of other crates. Build it with
/// [`RawOperands::new`] and add what the problem asks for.
///
/// Sizes and order of the elements are those of [`Operands`](crate::Operands).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RawOperands {
    /// Input.
    pub x: *const c_void,
    /// Filter; also where it is packed.
    pub w: *const c_void,
    /// Output.
    pub y: *mut c_void,
    /// Bias, one f32 per output channel; null without one.
    pub bias: *const f32,
    /// Residual; null without one.
    pub residual: *const c_void,
    /// The filter re-arranged: that of a [`Packed`](crate::Packed), or memory that
    /// [`Conv::pack_into`](crate::Conv::pack_into) filled, at a multiple of
    /// [`Workspace::ALIGN`](crate::Workspace::ALIGN) bytes; null where
    /// [`Conv::packing`](crate::Conv::packing) is none.
    pub packed: *const c_void,
}

impl RawOperands {
    /// Input, filter and output.
    pub fn new(x: *const c_void, w: *const c_void, y: *mut c_void) -> Self {
        RawOperands {
            x,
            w,
            y,
            bias: null(),
            residual: null(),
            packed: null(),
        }
    }

    /// One f32 per output channel; null for none.
    #[must_use]
    pub fn bias(self, bias: *const f32) -> Self {
        RawOperands { bias, ..self }
    }

    /// A tensor of the convolution's output shape, before pooling; null for none.
    #[must_use]
    pub fn residual(self, residual: *const c_void) -> Self {
        RawOperands { residual, ..self }
    }

    /// The filter re-arranged; null for none.
    #[must_use]
    pub fn packed(self, packed: *const c_void) -> Self {
        RawOperands { packed, ..self }
    }
}

/// Plain addresses for one launch, and what goes with them.
#[non_exhaustive]
pub struct Args<'a> {
    /// Input.
    pub x: *const c_void,
    /// Filter.
    pub w: *const c_void,
    /// The filter re-arranged; null where the plan packs nothing.
    pub packed: *const c_void,
    /// Output.
    pub y: *mut c_void,
    /// Bias, f32; null without one.
    pub bias: *const f32,
    /// Residual; null without one.
    pub residual: *const c_void,
    /// Workspace, aligned to 128 bytes.
    pub workspace: *mut c_void,
    /// Its size.
    pub workspace_bytes: usize,
    /// The `cudaStream_t`; null on the CPU.
    pub stream: *mut c_void,
    /// What [`Prepared::handle`](super::Prepared::handle) made for this stream; none where there is none.
    pub handle: Option<&'a mut (dyn Any + Send)>,
    /// Called after each kernel was enqueued, to time it. It may not panic, as C calls it.
    pub stage: Option<&'a mut dyn FnMut(&CStr)>,
}

impl fmt::Debug for Args<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Args")
            .field("x", &self.x)
            .field("w", &self.w)
            .field("packed", &self.packed)
            .field("y", &self.y)
            .field("bias", &self.bias)
            .field("residual", &self.residual)
            .field("workspace", &self.workspace)
            .field("workspace_bytes", &self.workspace_bytes)
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}

impl Args<'_> {
    /// Marks the end of a stage.
    pub fn stage(&mut self, name: &CStr) {
        if let Some(stage) = &mut self.stage {
            stage(name);
        }
    }
}
