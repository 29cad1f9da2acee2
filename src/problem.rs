//! The problem: shapes, layout, storage, math, alignment and epilogue of one convolution, and the
//! text that names it everywhere.
//!
//! # Text form
//!
//! benchdnn's descriptor, then words joined by `+` for what differs from a plain f32 convolution:
//!
//! ```text
//! mb64ic64ih56oc64oh56kh3ph1+f16+nhwc+bias+relu
//! ```
//!
//! | part | meaning | left out |
//! | --- | --- | --- |
//! | `g` | groups | 1 |
//! | `mb` | images | 2 |
//! | `ic`, `oc` | input and output channels, over all groups | required |
//! | `ih`, `iw` | input height and width | one gives the other |
//! | `kh`, `kw` | filter height and width | one gives the other |
//! | `oh`, `ow` | output height and width | one gives the other; both: from the padding, the same on all sides |
//! | `sh`, `sw` | stride | one gives the other; both: 1 |
//! | `dh`, `dw` | dilation, counted from 0 | one gives the other; both: 0 |
//! | `ph`, `pw` | padding above and to the left | one gives the other; both: from `oh` and `ow`, else 0 |
//!
//! Padding below and to the right is what the output size needs, so it has no spelling of its own:
//! `oh` and `ph` together say it. More than that would never be read.
//!
//! | word | meaning |
//! | --- | --- |
//! | `f32` `f16` `bf16` | storage |
//! | `nchw` `nhwc` | layout |
//! | `math=fp32` `tf32` `f16` `bf16` `f16acc` | math; left out, the storage's own |
//! | `align=16` | bytes that every base address is a multiple of |
//! | `scale=0.5` | factor on the sum |
//! | `bias` `residual` | what is added |
//! | `relu` `relu6` `tanh` `sigmoid` `silu` | activation |
//! | `pool=2` `pool=3x2s2x1ceil` | maximum over windows, their stride, clipped windows at the edge |

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

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
#[derive(Clone, Copy, Debug, PartialEq)]
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
#[derive(Clone, Debug, PartialEq)]
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
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    shape: Shape,
    conv_out: [usize; 2],
    out: [usize; 2],
}

impl std::ops::Deref for Problem {
    type Target = Shape;

    fn deref(&self) -> &Shape {
        &self.shape
    }
}

/// Largest value of one dimension: kernels may count a single dimension in 32 bits.
const MAX_DIM: usize = i32::MAX as usize;
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
        if s.c / s.groups > MAX_DIM / s.r / s.s {
            return Err(invalid(format!(
                "one filter of {}x{}x{} has more than {MAX_DIM} weights",
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
        for (what, dims) in [
            ("input", [s.n, s.c, s.h, s.w]),
            ("filter", [s.k, s.c / s.groups, s.r, s.s]),
            ("output", [s.n, s.k, p, q]),
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
        self.n * self.c * self.h * self.w
    }

    /// Elements of the filter.
    pub fn w_len(&self) -> usize {
        self.k * (self.c / self.groups) * self.r * self.s
    }

    /// Elements of the output.
    pub fn y_len(&self) -> usize {
        self.n * self.k * self.out[0] * self.out[1]
    }

    /// Elements of the bias; 0 without one.
    pub fn bias_len(&self) -> usize {
        if self.epilogue.bias { self.k } else { 0 }
    }

    /// Elements of the residual; 0 without one.
    pub fn residual_len(&self) -> usize {
        if self.epilogue.residual {
            self.n * self.k * self.p() * self.q()
        } else {
            0
        }
    }

    /// Products that make one sum: channels of a group times taps.
    pub fn reduction(&self) -> usize {
        self.c / self.groups * self.r * self.s
    }

    /// Floating-point operations of the sums, a product and an addition counted as two.
    pub fn flops(&self) -> f64 {
        2.0 * (self.n * self.k) as f64 * (self.p() * self.q()) as f64 * self.reduction() as f64
    }

    /// Fewest bytes that must move: each operand read once and the output written once.
    pub fn bytes(&self) -> f64 {
        let elements = self.x_len() + self.w_len() + self.y_len() + self.residual_len();
        (elements * self.storage.bytes() + self.bias_len() * 4) as f64
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

/// Gives an enum its words: `Display`, `FromStr` and the list of all.
macro_rules! words {
    ($name:ident, $what:literal, $($variant:ident = $word:literal),+) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.pad(match self { $($name::$variant => $word),+ })
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self> {
                match text {
                    $($word => Ok($name::$variant),)+
                    _ => Err(Error::Parse {
                        text: text.to_owned(),
                        why: format!(concat!("a ", $what, " is one of {}"), [$($word),+].join(", ")),
                    }),
                }
            }
        }
    };
}

words!(Layout, "layout", Nchw = "nchw", Nhwc = "nhwc");
words!(Storage, "storage", F32 = "f32", F16 = "f16", Bf16 = "bf16");
words!(
    Math,
    "math",
    Fp32 = "fp32",
    Tf32 = "tf32",
    F16 = "f16",
    Bf16 = "bf16",
    F16Acc = "f16acc"
);
words!(
    Activation,
    "activation",
    None = "none",
    Relu = "relu",
    Relu6 = "relu6",
    Tanh = "tanh",
    Sigmoid = "sigmoid",
    Silu = "silu"
);

/// `3`, or `3x2` where the two differ.
fn pair([a, b]: [usize; 2]) -> String {
    if a == b {
        a.to_string()
    } else {
        format!("{a}x{b}")
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&pair(self.window))?;
        if self.stride != self.window {
            write!(f, "s{}", pair(self.stride))?;
        }
        if self.ceil {
            f.write_str("ceil")?;
        }
        Ok(())
    }
}

impl FromStr for Pool {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let error = || Error::Parse {
            text: text.to_owned(),
            why: "pooling reads `2`, `3x2`, `3s2` or `3x2s2x1ceil`: window, stride, clipping"
                .into(),
        };
        let sizes = |text: &str| -> Result<[usize; 2]> {
            let (a, b) = text.split_once('x').unwrap_or((text, text));
            Ok([
                a.parse().map_err(|_| error())?,
                b.parse().map_err(|_| error())?,
            ])
        };
        let (rest, ceil) = match text.strip_suffix("ceil") {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let (window, stride) = rest.split_once('s').unwrap_or((rest, rest));
        Ok(Pool {
            window: sizes(window)?,
            stride: sizes(stride)?,
            ceil,
        })
    }
}

/// `ih5`, or `ih5iw7` where the two differ, or nothing where both are what is understood anyway.
fn axes(name: &str, [a, b]: [usize; 2], default: Option<usize>) -> String {
    if a != b {
        format!("{name}h{a}{name}w{b}")
    } else if Some(a) != default {
        format!("{name}h{a}")
    } else {
        String::new()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let s = &self.shape;
        let mut text = String::new();
        if s.groups != 1 {
            text += &format!("g{}", s.groups);
        }
        text += &format!("mb{}ic{}", s.n, s.c);
        text += &axes("i", [s.h, s.w], None);
        text += &format!("oc{}", s.k);
        text += &axes("o", self.conv_out, None);
        text += &axes("k", [s.r, s.s], None);
        text += &axes("s", s.stride, Some(1));
        text += &axes("d", [s.dilation[0] - 1, s.dilation[1] - 1], Some(0));
        // Left out, padding would be derived from the output size.
        let centred = [
            centred_pad(self.conv_out[0], s.h, s.r, s.stride[0], s.dilation[0]),
            centred_pad(self.conv_out[1], s.w, s.s, s.stride[1], s.dilation[1]),
        ];
        let pads = [s.pad.top, s.pad.left];
        if pads != [0; 2] || centred != [0; 2] {
            text += &axes("p", pads, None);
        }

        if s.storage != Storage::F32 {
            text += &format!("+{}", s.storage);
        }
        if s.layout != Layout::Nchw {
            text += &format!("+{}", s.layout);
        }
        if s.math != s.storage.maths()[0] {
            text += &format!("+math={}", s.math);
        }
        if s.align != 16 {
            text += &format!("+align={}", s.align);
        }
        let e = &s.epilogue;
        if e.scale != 1.0 {
            text += &format!("+scale={}", e.scale);
        }
        if e.bias {
            text += "+bias";
        }
        if e.residual {
            text += "+residual";
        }
        if e.activation != Activation::None {
            text += &format!("+{}", e.activation);
        }
        if let Some(pool) = &e.pool {
            text += &format!("+pool={pool}");
        }
        f.pad(&text)
    }
}

/// benchdnn's rule for padding that is left out: what the output size needs, halved.
fn centred_pad(o: usize, i: usize, k: usize, stride: usize, dilation: usize) -> usize {
    ((o.saturating_sub(1))
        .saturating_mul(stride)
        .saturating_add(extent(k, dilation)))
    .saturating_sub(i)
        / 2
}

impl FromStr for Problem {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let error = |why: String| Error::Parse {
            text: text.to_owned(),
            why,
        };
        let mut parts = text.trim().split('+');
        let numbers = Numbers::read(parts.next().unwrap_or_default()).map_err(error)?;
        let mut shape = numbers.shape().map_err(error)?;
        let mut math = None;
        let mut given = Vec::new();
        for word in parts {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            let number = |what: &str| error(format!("`{word}`: {what}"));
            let slot = match key {
                "f32" | "f16" | "bf16" => "storage",
                "nchw" | "nhwc" => "layout",
                "relu" | "relu6" | "tanh" | "sigmoid" | "silu" => "activation",
                other => other,
            };
            if given.contains(&slot) {
                return Err(number(&format!("the {slot} is given twice")));
            }
            given.push(slot);
            match key {
                "f32" | "f16" | "bf16" if value.is_empty() => shape.storage = key.parse()?,
                "nchw" | "nhwc" if value.is_empty() => shape.layout = key.parse()?,
                "math" => math = Some(value.parse()?),
                "align" => {
                    shape.align = value
                        .parse()
                        .map_err(|_| number("an alignment is a number of bytes"))?;
                }
                "scale" => {
                    shape.epilogue.scale =
                        value.parse().map_err(|_| number("a scale is a number"))?;
                }
                "bias" if value.is_empty() => shape.epilogue.bias = true,
                "residual" if value.is_empty() => shape.epilogue.residual = true,
                "relu" | "relu6" | "tanh" | "sigmoid" | "silu" if value.is_empty() => {
                    shape.epilogue.activation = key.parse()?;
                }
                "pool" => shape.epilogue.pool = Some(value.parse()?),
                _ => {
                    return Err(error(format!(
                        "`{word}` is no word of a problem; they are f32 f16 bf16, nchw nhwc, \
                         math=, align=, scale=, bias, residual, relu relu6 tanh sigmoid silu, pool="
                    )));
                }
            }
        }
        shape.math = math.unwrap_or(shape.storage.maths()[0]);
        numbers.check_out(&Problem::new(shape)?).map_err(error)
    }
}

/// The numbers of a descriptor as they were written.
#[derive(Default)]
struct Numbers {
    given: Vec<(&'static str, usize)>,
}

impl Numbers {
    const KEYS: [&'static str; 16] = [
        "g", "mb", "ic", "ih", "iw", "oc", "oh", "ow", "kh", "kw", "sh", "sw", "ph", "pw", "dh",
        "dw",
    ];

    fn read(text: &str) -> Result<Self, String> {
        let mut numbers = Numbers::default();
        let mut rest = text;
        while !rest.is_empty() {
            rest = rest.trim_start_matches('_'); // benchdnn allows them for the eye
            let letters = rest
                .find(|c: char| !c.is_ascii_lowercase())
                .unwrap_or(rest.len());
            let (key, tail) = rest.split_at(letters);
            let Some(key) = Self::KEYS.into_iter().find(|k| *k == key) else {
                return Err(format!(
                    "`{rest}` should begin with one of {}",
                    Self::KEYS.join(" ")
                ));
            };
            let digits = tail
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(tail.len());
            let (number, tail) = tail.split_at(digits);
            if number.is_empty() {
                return Err(format!(
                    "`{key}` needs a number of 0 or more after it, found `{tail}`"
                ));
            }
            let value = number
                .parse()
                .map_err(|_| format!("{key}{number} is too large"))?;
            if numbers.get(key).is_some() {
                return Err(format!("`{key}` is given twice"));
            }
            numbers.given.push((key, value));
            rest = tail;
        }
        Ok(numbers)
    }

    fn get(&self, key: &str) -> Option<usize> {
        self.given
            .iter()
            .find(|(k, _)| *k == key)
            .map(|(_, value)| *value)
    }

    /// Both axes, where one gives the other.
    fn axes(&self, h: &str, w: &str) -> Option<[usize; 2]> {
        let (a, b) = (self.get(h), self.get(w));
        Some([a.or(b)?, b.or(a)?])
    }

    fn shape(&self) -> Result<Shape, String> {
        let need = |key| self.get(key).ok_or(format!("`{key}` is missing"));
        let [h, w] = self.axes("ih", "iw").ok_or("`ih` is missing")?;
        let [r, s] = self.axes("kh", "kw").ok_or("`kh` is missing")?;
        let mut shape = Shape::new(
            self.get("mb").unwrap_or(2),
            [need("ic")?, h, w],
            need("oc")?,
            [r, s],
        );
        shape.groups = self.get("g").unwrap_or(1);
        shape.stride = self.axes("sh", "sw").unwrap_or([1; 2]);
        shape.dilation = self
            .axes("dh", "dw")
            .unwrap_or([0; 2])
            .map(|from_zero| from_zero.saturating_add(1));
        let before = self.axes("ph", "pw");
        // Sizes that Problem::new will refuse must not be calculated with here.
        let dims = [
            h,
            w,
            r,
            s,
            shape.stride[0],
            shape.stride[1],
            shape.dilation[0],
            shape.dilation[1],
        ];
        if dims.iter().any(|d| *d == 0 || *d > MAX_DIM)
            || extent_overflows(r, shape.dilation[0])
            || extent_overflows(s, shape.dilation[1])
        {
            return Ok(shape);
        }
        let axis = |axis: usize, i: usize, k: usize| {
            let (stride, dilation) = (shape.stride[axis], shape.dilation[axis]);
            match (
                self.axes("oh", "ow").map(|o| o[axis]),
                before.map(|b| b[axis]),
            ) {
                (Some(o), pad) => {
                    let pad = pad.unwrap_or_else(|| centred_pad(o, i, k, stride, dilation));
                    let need = o.saturating_sub(1).saturating_mul(stride);
                    let need = need.saturating_add(extent(k, dilation));
                    (pad, need.saturating_sub(i).saturating_sub(pad))
                }
                (None, pad) => (pad.unwrap_or(0), pad.unwrap_or(0)),
            }
        };
        let ((top, bottom), (left, right)) = (axis(0, h, r), axis(1, w, s));
        shape.pad = Padding {
            top,
            left,
            bottom,
            right,
        };
        Ok(shape)
    }

    /// An output size that was given must be the one that follows.
    fn check_out(&self, problem: &Problem) -> Result<Problem, String> {
        match self.axes("oh", "ow") {
            Some([p, q]) if [p, q] != problem.conv_out => Err(format!(
                "the output cannot be {p}x{q}: with this input, filter, stride, dilation and \
                 padding it is {}x{} or, with more padding, larger",
                problem.p(),
                problem.q()
            )),
            _ => Ok(problem.clone()),
        }
    }
}

fn extent_overflows(k: usize, dilation: usize) -> bool {
    (k - 1)
        .checked_mul(dilation)
        .is_none_or(|span| span > MAX_DIM)
}

impl Serialize for Problem {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Problem {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}
