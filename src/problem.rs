//! The problem: shapes, layout, storage, math, alignment and epilogue of one convolution, and the
//! text that names it everywhere.
//!
//! Layouts, storages, maths and activations can be matched to the last one: whoever computes or judges
//! must know them all, and one more is a new version.

mod text;

use std::hash::{Hash, Hasher};

use crate::{Error, Result};

/// Order of the dimensions in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Layout {
    /// Input n c h w, filter k c r s, output n k p q.
    #[default]
    Nchw,
    /// Input n h w c, filter k r s c, output n p q k.
    Nhwc,
}

/// Type of the stored elements of input, filter, residual and output. A bias is always f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Storage {
    /// IEEE single precision.
    #[default]
    F32,
    /// IEEE half precision.
    F16,
    /// bfloat16.
    Bf16,
}

/// How products are made and summed, apart from how the elements are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Math {
    /// fp32 products, fp32 sum.
    Fp32,
    /// Operands cut or rounded to TF32's 10 bits of mantissa, fp32 sum.
    Tf32,
    /// Operands rounded to f16, fp32 sum.
    F16,
    /// Operands rounded to bf16, fp32 sum.
    Bf16,
    /// Operands rounded to f16, f16 sum.
    F16Acc,
}

/// What is applied to the sum, the bias and the residual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Activation {
    /// Nothing.
    #[default]
    None,
    /// max(v, 0)
    Relu,
    /// min(max(v, 0), 6)
    Relu6,
    /// tanh(v)
    Tanh,
    /// 1 / (1 + exp(-v))
    Sigmoid,
    /// v / (1 + exp(-v))
    Silu,
}

impl Activation {
    /// Whether it is computed with an exponential, which nobody rounds correctly.
    pub fn is_exponential(self) -> bool {
        matches!(
            self,
            Activation::Tanh | Activation::Sigmoid | Activation::Silu
        )
    }
}

/// A maximum over windows of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pool {
    /// Height and width of a window.
    pub window: [usize; 2],
    /// Distance between windows, down and across.
    pub stride: [usize; 2],
    /// Whether windows that hang over the lower or right edge are kept, clipped.
    pub ceil: bool,
}

/// What happens to a sum before it is stored:
/// `y = pool(activation(scale * sum + bias[k] + residual))`.
///
/// Scales are equal whose bits are: 0 and -0 are two.
#[derive(Clone, Copy, Debug)]
pub struct Epilogue {
    /// Factor on the sum, 1 by default.
    pub scale: f32,
    /// Whether one f32 per output channel is added.
    pub bias: bool,
    /// Whether a tensor of the convolution's own output shape (before pooling) is added.
    pub residual: bool,
    /// The activation.
    pub activation: Activation,
    /// The pooling.
    pub pool: Option<Pool>,
}

impl Default for Epilogue {
    fn default() -> Self {
        Epilogue {
            scale: 1.0,
            bias: false,
            residual: false,
            activation: Activation::None,
            pool: None,
        }
    }
}

impl Epilogue {
    /// Whether the sums are stored as they are.
    pub fn is_none(&self) -> bool {
        *self == Epilogue::default()
    }

    /// What two equal ones have in common.
    fn identity(&self) -> impl Eq + Hash {
        let scale = self.scale.to_bits();
        let adds = (self.bias, self.residual);
        (scale, adds, self.activation, self.pool)
    }
}

impl PartialEq for Epilogue {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for Epilogue {}

impl Hash for Epilogue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

/// Rows and columns of zeros around each image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[allow(missing_docs)]
pub struct Padding {
    pub top: usize,
    pub left: usize,
    pub bottom: usize,
    pub right: usize,
}

/// The numbers of a problem before they were checked; [`Problem::new`] checks them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Images.
    pub n: usize,
    /// Input channels, over all groups.
    pub c: usize,
    /// Input height.
    pub h: usize,
    /// Input width.
    pub w: usize,
    /// Output channels, over all groups.
    pub k: usize,
    /// Filter height.
    pub r: usize,
    /// Filter width.
    pub s: usize,
    /// Steps down and across.
    pub stride: [usize; 2],
    /// Distance between filter taps, 1 for a dense filter.
    pub dilation: [usize; 2],
    /// Zeros around the image.
    pub pad: Padding,
    /// Groups; both channel counts are multiples of it.
    pub groups: usize,
    /// Order of the dimensions.
    pub layout: Layout,
    /// Type of the elements.
    pub storage: Storage,
    /// How products are made and summed.
    pub math: Math,
    /// Bytes that every base address is a multiple of.
    pub align: usize,
    /// What happens to a sum before it is stored.
    pub epilogue: Epilogue,
}

impl Shape {
    /// A plain f32 convolution of `n` images of `c` x `h` x `w` with `k` filters of `r` x `s`.
    pub fn new(n: usize, [c, h, w]: [usize; 3], k: usize, [r, s]: [usize; 2]) -> Self {
        Shape {
            n,
            c,
            h,
            w,
            k,
            r,
            s,
            stride: [1; 2],
            dilation: [1; 2],
            pad: Padding::default(),
            groups: 1,
            layout: Layout::Nchw,
            storage: Storage::F32,
            math: Math::Fp32,
            align: 16,
            epilogue: Epilogue::default(),
        }
    }
}

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

/// Largest value of one dimension: kernels may count a single dimension in 32 bits.
const MAX_DIM: usize = i32::MAX as usize;
/// Most products of a sum: kernels count them in 32 bits, in steps that may end behind the last.
const MAX_SUM: usize = MAX_DIM - 0xffff;
/// Most channels, for the same reason: blocks walk them in steps of up to a grid.
const MAX_CHANNELS: usize = MAX_SUM;
/// Largest number of elements of one tensor.
const MAX_ELEMENTS: usize = 1 << 46;

fn invalid(why: String) -> Error {
    Error::InvalidProblem(why)
}

/// Output size along one axis, or `None` where the filter does not fit.
fn out_size(i: usize, pad: usize, k: usize, stride: usize, dilation: usize) -> Option<usize> {
    Some((i + pad).checked_sub(extent(k, dilation))? / stride + 1)
}

/// Pixels that a filter spans along one axis.
fn extent(k: usize, dilation: usize) -> usize {
    (k - 1) * dilation + 1
}

impl Problem {
    /// Checks the shape. Padding below and to the right that no filter position reaches is dropped,
    /// so equal convolutions compare equal.
    ///
    /// # Errors
    /// [`Error::InvalidProblem`], naming the shapes.
    pub fn new(mut shape: Shape) -> Result<Self> {
        let s = &shape;
        for (name, value) in [
            ("input channels (ic)", s.c),
            ("input height (ih)", s.h),
            ("input width (iw)", s.w),
            ("output channels (oc)", s.k),
            ("filter height (kh)", s.r),
            ("filter width (kw)", s.s),
            ("vertical stride (sh)", s.stride[0]),
            ("horizontal stride (sw)", s.stride[1]),
            ("vertical dilation", s.dilation[0]),
            ("horizontal dilation", s.dilation[1]),
            ("groups (g)", s.groups),
        ] {
            if value == 0 {
                return Err(invalid(format!("{name} is 0; it must be at least 1")));
            }
            if value > MAX_DIM {
                return Err(invalid(format!(
                    "{name} is {value}; the limit is {MAX_DIM}"
                )));
            }
        }
        for (name, value) in [("input channels (ic)", s.c), ("output channels (oc)", s.k)] {
            if value > MAX_CHANNELS {
                return Err(invalid(format!(
                    "{name} is {value}; the limit is {MAX_CHANNELS}"
                )));
            }
        }
        let pad = s.pad;
        for (name, value) in [
            ("padding above", pad.top),
            ("padding to the left", pad.left),
            ("padding below", pad.bottom),
            ("padding to the right", pad.right),
        ] {
            if value > MAX_DIM / 4 {
                return Err(invalid(format!(
                    "{name} is {value}; the limit is {}",
                    MAX_DIM / 4
                )));
            }
        }
        if s.h + pad.top + pad.bottom > MAX_DIM || s.w + pad.left + pad.right > MAX_DIM {
            return Err(invalid(format!(
                "the padded image of {}x{} exceeds {MAX_DIM} rows or columns",
                s.h, s.w
            )));
        }
        if !s.c.is_multiple_of(s.groups) || !s.k.is_multiple_of(s.groups) {
            return Err(invalid(format!(
                "{} input and {} output channels cannot be cut into {} groups: both must be \
                 multiples of it",
                s.c, s.k, s.groups
            )));
        }
        let fits = |i: usize, pad: usize, k: usize, stride: usize, dilation: usize| {
            (k - 1)
                .checked_mul(dilation)
                .filter(|span| *span < MAX_DIM)
                .and_then(|_| out_size(i, pad, k, stride, dilation))
        };
        let p = fits(s.h, pad.top + pad.bottom, s.r, s.stride[0], s.dilation[0]);
        let q = fits(s.w, pad.left + pad.right, s.s, s.stride[1], s.dilation[1]);
        let (Some(p), Some(q)) = (p, q) else {
            return Err(invalid(format!(
                "the {}x{} filter with dilation {}x{} is larger than the padded image of {}x{}",
                s.r,
                s.s,
                s.dilation[0],
                s.dilation[1],
                s.h + pad.top + pad.bottom,
                s.w + pad.left + pad.right
            )));
        };
        if s.c / s.groups > MAX_SUM / s.r / s.s {
            return Err(invalid(format!(
                "one filter of {}x{}x{} has more than {MAX_SUM} weights",
                s.c / s.groups,
                s.r,
                s.s
            )));
        }
        if !s.align.is_power_of_two() || s.align < s.storage.bytes() || s.align > 4096 {
            return Err(invalid(format!(
                "an alignment of {} bytes: it must be a power of two from {} (one {} element) to \
                 4096",
                s.align,
                s.storage.bytes(),
                s.storage
            )));
        }
        if !s.storage.maths().contains(&s.math) {
            return Err(invalid(format!(
                "{} storage with {} math; {} storage goes with {}",
                s.storage,
                s.math,
                s.storage,
                s.storage
                    .maths()
                    .iter()
                    .map(|m| m.to_string())
                    .collect::<Vec<_>>()
                    .join(", ")
            )));
        }
        if !s.epilogue.scale.is_finite() {
            return Err(invalid(format!(
                "a scale of {}: it must be finite",
                s.epilogue.scale
            )));
        }
        let out = match &s.epilogue.pool {
            None => [p, q],
            Some(pool) => pool.out([p, q])?,
        };

        let used = |out: usize, stride: usize, i: usize, k, dilation, before| {
            ((out - 1) * stride + extent(k, dilation)).saturating_sub(i + before)
        };
        let bottom = used(p, s.stride[0], s.h, s.r, s.dilation[0], pad.top);
        let right = used(q, s.stride[1], s.w, s.s, s.dilation[1], pad.left);
        shape.pad = Padding {
            bottom,
            right,
            ..pad
        };

        let problem = Problem {
            shape,
            conv_out: [p, q],
            out,
        };
        let s = &problem.shape;
        // Without an image no tensor has an element, but what is planned counts those of one.
        let images = s.n.max(1);
        for (what, dims) in [
            ("input", [images, s.c, s.h, s.w]),
            ("filter", [s.k, s.c / s.groups, s.r, s.s]),
            ("output", [images, s.k, p, q]),
        ] {
            let count = dims.iter().try_fold(1usize, |a, d| a.checked_mul(*d));
            if count.is_none_or(|count| count > MAX_ELEMENTS) {
                let [a, b, c, d] = dims;
                return Err(invalid(format!(
                    "the {what} of {a} x {b} x {c} x {d} has more than {MAX_ELEMENTS} elements"
                )));
            }
        }
        Ok(problem)
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
        let read = self.n() * self.c() * self.lines_read(0) * self.lines_read(1);
        let elements = read + self.w_len() + self.y_len() + self.residual_len();
        (elements * self.storage().bytes() + self.bias_len() * 4) as f64
    }

    /// Rows (axis 0) or columns (axis 1) of the input that a tap falls on: those of each output's
    /// taps, where none falls on another's, or else all.
    fn lines_read(&self, axis: usize) -> usize {
        let size = [self.h(), self.w()][axis];
        let taps = [self.r(), self.s()][axis];
        match taps < self.shape.stride[axis] {
            true => size.min(self.conv_out[axis] * taps),
            false => size,
        }
    }
}

impl Pool {
    /// Number of windows down and across an output of the given size.
    fn out(&self, size: [usize; 2]) -> Result<[usize; 2]> {
        let mut out = [0; 2];
        for axis in 0..2 {
            let (i, window, stride) = (size[axis], self.window[axis], self.stride[axis]);
            if window == 0 || stride == 0 || window > MAX_DIM || stride > MAX_DIM {
                return Err(invalid(format!(
                    "pooling with a window of {window} and a stride of {stride}"
                )));
            }
            out[axis] = if self.ceil {
                let windows = i.saturating_sub(window).div_ceil(stride) + 1;
                // A window must start inside the image.
                windows.min((i - 1) / stride + 1)
            } else if window <= i {
                (i - window) / stride + 1
            } else {
                return Err(invalid(format!(
                    "a pooling window of {}x{} is larger than the {}x{} output; `ceil` clips it",
                    self.window[0], self.window[1], size[0], size[1]
                )));
            };
        }
        Ok(out)
    }
}

impl Storage {
    /// Every storage.
    pub const ALL: [Storage; 3] = [Storage::F32, Storage::F16, Storage::Bf16];

    /// Bytes of one element.
    pub fn bytes(self) -> usize {
        match self {
            Storage::F32 => 4,
            Storage::F16 | Storage::Bf16 => 2,
        }
    }

    /// The math that goes with this storage; the first is the default.
    pub fn maths(self) -> &'static [Math] {
        match self {
            Storage::F32 => &[Math::Fp32, Math::Tf32, Math::F16, Math::Bf16, Math::F16Acc],
            Storage::F16 => &[Math::F16, Math::F16Acc, Math::Fp32],
            Storage::Bf16 => &[Math::Bf16, Math::Fp32],
        }
    }
}
