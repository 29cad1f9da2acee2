//! The problem: shapes, layout, storage, math, alignment and epilogue of one convolution, and the
//! text that names it everywhere.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `problem` | [`Problem`]: a convolution that makes sense, and its sizes |
//! | `shape` | [`Shape`]: its numbers before they are checked; [`Layout`], [`Storage`], [`Math`], [`Padding`] |
//! | `epilogue` | [`Epilogue`]: what happens to a sum; [`Activation`], [`Pool`] |
//! | `check` | which numbers describe a convolution |
//! | `text` | its text, read and written |

mod check;
mod epilogue;
mod shape;
mod text;

#[cfg(doc)]
use crate::Error;
use crate::Result;

pub use epilogue::{Activation, Epilogue, Pool};
pub use shape::{Layout, Math, Padding, Shape, Storage};

/// A convolution that makes sense: checked once, then read everywhere.
///
/// Cross-correlation, as in every deep-learning library: the filter is not flipped.
///
/// # Text form
///
/// benchdnn's descriptor, then words joined by `+` for what differs from a plain f32 convolution:
///
/// ```text
/// mb64ic64ih56oc64oh56kh3ph1+f16+nhwc+bias+relu
/// ```
///
/// | part | meaning | left out |
/// | --- | --- | --- |
/// | `g` | groups | 1 |
/// | `mb` | images | 2 |
/// | `ic`, `oc` | input and output channels, over all groups | required |
/// | `ih`, `iw` | input height and width | one gives the other |
/// | `kh`, `kw` | filter height and width | one gives the other |
/// | `oh`, `ow` | output height and width | one gives the other; both: from the padding, the same on all sides |
/// | `sh`, `sw` | stride | one gives the other; both: 1 |
/// | `dh`, `dw` | dilation, counted from 0 | one gives the other; both: 0 |
/// | `ph`, `pw` | padding above and to the left | one gives the other; both: from `oh` and `ow`, else 0 |
///
/// Padding below and to the right is what the output size needs, so it has no spelling of its own:
/// `oh` and `ph` together say it. More than that would never be read.
///
/// | word | meaning |
/// | --- | --- |
/// | `f32` `f16` `bf16` | storage |
/// | `nchw` `nhwc` | layout |
/// | `math=fp32` `tf32` `f16` `bf16` `f16acc` | math; left out, the storage's own |
/// | `align=16` | bytes that every base address is a multiple of |
/// | `scale=0.5` | factor on the sum |
/// | `bias` `residual` | what is added |
/// | `relu` `relu6` `tanh` `sigmoid` `silu` | activation |
/// | `pool=2` `pool=3x2s2x1ceil` | maximum over windows, their stride, clipped windows at the edge |
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Problem {
    shape: Shape,
    conv_out: [usize; 2],
    out: [usize; 2],
}

/// Reads of a problem's shape.
macro_rules! reads {
    ($($(#[$doc:meta])* $name:ident: $type:ty,)+) => {
        impl Problem {
            $($(#[$doc])*
            pub fn $name(&self) -> $type {
                self.shape.$name
            })+
        }
    };
}

reads! {
    /// Images.
    n: usize,
    /// Input channels, over all groups.
    c: usize,
    /// Input height.
    h: usize,
    /// Input width.
    w: usize,
    /// Output channels, over all groups.
    k: usize,
    /// Filter height.
    r: usize,
    /// Filter width.
    s: usize,
    /// Steps down and across.
    stride: [usize; 2],
    /// Distance between filter taps, 1 for a dense filter.
    dilation: [usize; 2],
    /// Zeros around the image, as far as a filter reaches them.
    pad: Padding,
    /// Groups; both channel counts are multiples of it.
    groups: usize,
    /// Order of the dimensions.
    layout: Layout,
    /// Type of the elements.
    storage: Storage,
    /// How products are made and summed.
    math: Math,
    /// Bytes that every base address is a multiple of.
    align: usize,
}

impl Problem {
    /// Checks the shape. Padding below and to the right that no filter position reaches is dropped,
    /// so equal convolutions compare equal.
    ///
    /// # Errors
    /// [`Error::InvalidProblem`], naming the shapes.
    pub fn new(shape: Shape) -> Result<Self> {
        let (shape, conv_out, out) = check::checked(shape)?;
        Ok(Problem {
            shape,
            conv_out,
            out,
        })
    }

    /// What happens to a sum before it is stored.
    pub fn epilogue(&self) -> &Epilogue {
        &self.shape.epilogue
    }

    /// All of the numbers; [`with`](Self::with) changes them.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The same convolution, changed by `edit` and checked again.
    ///
    /// # Errors
    /// [`Error::InvalidProblem`].
    pub fn with(&self, edit: impl FnOnce(&mut Shape)) -> Result<Self> {
        let mut shape = self.shape.clone();
        edit(&mut shape);
        Problem::new(shape)
    }

    /// Height of the convolution's output, before pooling.
    pub fn p(&self) -> usize {
        self.conv_out[0]
    }

    /// Width of the convolution's output, before pooling.
    pub fn q(&self) -> usize {
        self.conv_out[1]
    }

    /// Height and width of what is stored: p x q, or what pooling leaves of it.
    pub fn out(&self) -> [usize; 2] {
        self.out
    }

    /// Elements of the input.
    pub fn x_len(&self) -> usize {
        self.n() * self.c() * self.h() * self.w()
    }

    /// Elements of the filter.
    pub fn w_len(&self) -> usize {
        self.k() * (self.c() / self.groups()) * self.r() * self.s()
    }

    /// Elements of the output.
    pub fn y_len(&self) -> usize {
        self.n() * self.k() * self.out[0] * self.out[1]
    }

    /// Elements of the bias; 0 without one.
    pub fn bias_len(&self) -> usize {
        if self.epilogue().bias { self.k() } else { 0 }
    }

    /// Elements of the residual; 0 without one.
    pub fn residual_len(&self) -> usize {
        if self.epilogue().residual {
            self.n() * self.k() * self.p() * self.q()
        } else {
            0
        }
    }

    /// Products that make one sum: channels of a group times taps.
    pub fn reduction(&self) -> usize {
        self.c() / self.groups() * self.r() * self.s()
    }

    /// Floating-point operations of the sums, a product and an addition counted as two.
    pub fn flops(&self) -> f64 {
        2.0 * (self.n() * self.k()) as f64 * (self.p() * self.q()) as f64 * self.reduction() as f64
    }

    /// Fewest bytes that must move: each operand read once and the output written once. Of the input
    /// only what a tap falls on: a 1x1 filter with a stride of 2 reads a quarter of it.
    pub fn bytes(&self) -> f64 {
        let elements = self.elements_read() + self.w_len() + self.y_len() + self.residual_len();
        (elements * self.storage().bytes() + self.bias_len() * 4) as f64
    }

    /// Elements of the input that a tap falls on.
    pub(crate) fn elements_read(&self) -> usize {
        self.n() * self.c() * self.lines_read(0) * self.lines_read(1)
    }

    /// Rows (axis 0) or columns (axis 1) of the input that a tap falls on: those of each output's
    /// taps, where none falls on another's, or else all.
    pub(crate) fn lines_read(&self, axis: usize) -> usize {
        let size = [self.h(), self.w()][axis];
        let taps = [self.r(), self.s()][axis];
        match taps < self.shape.stride[axis] {
            true => size.min(self.conv_out[axis] * taps),
            false => size,
        }
    }
}
