//! The numbers of a problem before they are checked, and in what order, type and math its tensors are.

use super::Epilogue;

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
    /// Operands truncated or rounded to TF32's 10 bits of mantissa, fp32 sum.
    Tf32,
    /// Operands rounded to f16, fp32 sum.
    F16,
    /// Operands rounded to bf16, fp32 sum.
    Bf16,
    /// Operands rounded to f16, f16 sum.
    F16Acc,
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

/// Rows and columns of zeros around each image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[allow(missing_docs)]
pub struct Padding {
    pub top: usize,
    pub left: usize,
    pub bottom: usize,
    pub right: usize,
}

/// The numbers of a problem before they were checked; [`Problem::new`](super::Problem::new) checks them.
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
