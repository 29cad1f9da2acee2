//! What a convolution reads and writes.

use super::Packed;
use crate::{Element, View, ViewMut};

/// The tensors of one call: buffers, or [views](View). Build it with [`Operands::new`] and add what
/// the problem asks for.
///
/// All are contiguous, in the order of the problem's layout, and of its storage but for the bias.
///
/// | tensor | elements |
/// | --- | --- |
/// | `x` | n, c, h, w |
/// | `w` | k, c / groups, r, s |
/// | `y` | n, k, p, q, or what pooling leaves of p and q |
/// | bias | k, f32 |
/// | residual | n, k, p, q, before pooling |
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
    #[must_use]
    pub fn bias(self, bias: impl Into<View<'a, f32>>) -> Self {
        Operands {
            bias: Some(bias.into()),
            ..self
        }
    }

    /// A tensor of the convolution's output shape, before pooling.
    #[must_use]
    pub fn residual(self, residual: impl Into<View<'a, T>>) -> Self {
        Operands {
            residual: Some(residual.into()),
            ..self
        }
    }

    /// The filter as [`Conv::pack`](crate::Conv::pack) re-arranged it: of its answer `as_ref()`, or
    /// where there is one, a reference to it.
    #[must_use]
    pub fn packed(self, packed: impl Into<Option<&'a Packed>>) -> Self {
        Operands {
            packed: packed.into(),
            ..self
        }
    }
}
