//! What a convolution reads and writes.

use std::fmt;

use convforge::{Element, Packed};
use cudarc::driver::{DevicePtr, DevicePtrMut};

/// The tensors of one call, in any memory of cudarc's. Build it with [`Operands::new`] and add what
/// the problem asks for.
pub struct Operands<'a, T: Element> {
    pub(crate) x: &'a dyn DevicePtr<T>,
    pub(crate) w: &'a dyn DevicePtr<T>,
    pub(crate) y: &'a mut dyn DevicePtrMut<T>,
    pub(crate) bias: Option<&'a dyn DevicePtr<f32>>,
    pub(crate) residual: Option<&'a dyn DevicePtr<T>>,
    pub(crate) packed: Option<&'a Packed>,
}

impl<'a, T: Element> Operands<'a, T> {
    /// Input, filter and output.
    pub fn new(
        x: &'a impl DevicePtr<T>,
        w: &'a impl DevicePtr<T>,
        y: &'a mut impl DevicePtrMut<T>,
    ) -> Self {
        Operands {
            x,
            w,
            y,
            bias: None,
            residual: None,
            packed: None,
        }
    }

    /// One f32 per output channel.
    pub fn bias(self, bias: &'a impl DevicePtr<f32>) -> Self {
        Operands {
            bias: Some(bias),
            ..self
        }
    }

    /// A tensor of the convolution's output shape, before pooling.
    pub fn residual(self, residual: &'a impl DevicePtr<T>) -> Self {
        Operands {
            residual: Some(residual),
            ..self
        }
    }

    /// The filter as [`Queue::pack`](crate::Queue::pack) re-arranged it: of its answer `as_ref()`, or
    /// where there is one, a reference to it.
    pub fn packed(self, packed: impl Into<Option<&'a Packed>>) -> Self {
        Operands {
            packed: packed.into(),
            ..self
        }
    }
}

impl<T: Element> fmt::Debug for Operands<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Operands")
            .field("x", &self.x.len())
            .field("w", &self.w.len())
            .field("y", &self.y.len())
            .field("bias", &self.bias.map(|bias| bias.len()))
            .field("residual", &self.residual.map(|residual| residual.len()))
            .field("packed", &self.packed)
            .finish()
    }
}
