//! What a convolution reads and writes.

use std::{ffi::c_void, ptr::null};

use super::Packed;
#[cfg(doc)]
use crate::{Conv, Workspace};
use crate::{Element, View, ViewMut};

/// The tensors of one call: buffers, or [views](View). Build it with [`Operands::new`] and add what
/// the problem asks for.
#[derive(Debug)]
pub struct Operands<'a, T: Element> {
    pub(super) x: View<'a, T>,
    pub(super) w: View<'a, T>,
    pub(super) y: ViewMut<'a, T>,
    pub(super) bias: Option<View<'a, f32>>,
    pub(super) residual: Option<View<'a, T>>,
    pub(super) packed: Option<&'a Packed>,
}

impl<'a, T: Element> Operands<'a, T> {
    /// Input, filter and output.
    pub fn new(
        x: impl Into<View<'a, T>>,
        w: impl Into<View<'a, T>>,
        y: impl Into<ViewMut<'a, T>>,
    ) -> Self {
        Operands {
            x: x.into(),
            w: w.into(),
            y: y.into(),
            bias: None,
            residual: None,
            packed: None,
        }
    }

    /// One f32 per output channel.
    pub fn bias(self, bias: impl Into<View<'a, f32>>) -> Self {
        Operands {
            bias: Some(bias.into()),
            ..self
        }
    }

    /// A tensor of the convolution's output shape, before pooling.
    pub fn residual(self, residual: impl Into<View<'a, T>>) -> Self {
        Operands {
            residual: Some(residual.into()),
            ..self
        }
    }

    /// The filter as [`Conv::pack`] re-arranged it.
    pub fn packed(self, packed: &'a Packed) -> Self {
        Operands {
            packed: Some(packed),
            ..self
        }
    }
}

/// Plain addresses on the convolution's device, for buffers of other crates.
#[derive(Clone, Copy, Debug)]
pub struct RawOperands {
    /// Input.
    pub x: *const c_void,
    /// Filter.
    pub w: *const c_void,
    /// Output.
    pub y: *mut c_void,
    /// Bias, f32; null without one.
    pub bias: *const f32,
    /// Residual; null without one.
    pub residual: *const c_void,
    /// The filter re-arranged: that of a [`Packed`], or memory that [`Conv::pack_into`] filled, at a
    /// multiple of [`Workspace::ALIGN`] bytes; null where [`Conv::packing`] is none.
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
}
