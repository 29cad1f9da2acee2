//! The CPU as a device: plain loops that anyone can check by reading, and unroll + GEMM for users
//! who have no GPU.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `direct` | `cpu_direct`: the nested loops |
//! | `gemm` | `cpu_gemm`: unrolled blocks times the filter, tiles finished while they are in cache |
//! | `tile` | the tiles that an output is split into |
//! | `unroll` | what a tile reads of the input, as a matrix |
//! | `depthwise` | the sums of a tile where a matrix would have one column |
//! | `epilogue` | what happens to one sum |
//! | `finish` | what happens to the sums of a tile |
//! | `number` | stored elements, and the rounding of operands |

#[cfg(feature = "cpu")]
mod depthwise;
mod direct;
mod epilogue;
#[cfg(feature = "cpu")]
mod finish;
#[cfg(feature = "cpu")]
mod gemm;
#[cfg_attr(
    not(feature = "cpu"),
    expect(dead_code, reason = "most of it is for tiles")
)]
mod number;
#[cfg(all(test, feature = "cpu"))]
mod tests;
#[cfg(feature = "cpu")]
mod tile;
#[cfg(feature = "cpu")]
mod unroll;

use std::{ops::Range, slice};

pub(crate) use self::direct::{Direct, Reads};
#[cfg(feature = "cpu")]
pub(crate) use self::gemm::Gemm;
use self::number::Stored;
use crate::{
    Layout, Problem,
    variant::{Args, Info, Kind},
};

fn info(name: &str, idea: &str, source: &str) -> Info {
    Info::new(name, "cpu", idea, source, Kind::Cpu)
}

/// The tensors of one launch.
struct Tensors<'a, T> {
    x: &'a [T],
    w: &'a [T],
    y: &'a mut [T],
    bias: Option<&'a [f32]>,
    residual: Option<&'a [T]>,
    #[cfg_attr(not(feature = "cpu"), expect(dead_code, reason = "loops need none"))]
    scratch: &'a mut [f32],
}

impl<'a, T: Stored> Tensors<'a, T> {
    /// # Safety
    /// As [`Prepared::launch`](crate::variant::Prepared::launch); `T` is what the problem stores.
    unsafe fn new(problem: &Problem, args: &Args<'a>) -> Self {
        let scratch_len = args.workspace_bytes / size_of::<f32>();
        // SAFETY: the caller vouches for addresses, sizes and alignment, and that nothing else
        // writes to them meanwhile.
        unsafe {
            Tensors {
                x: slice::from_raw_parts(args.x.cast(), problem.x_len()),
                w: slice::from_raw_parts(args.w.cast(), problem.w_len()),
                y: slice::from_raw_parts_mut(args.y.cast(), problem.y_len()),
                bias: (!args.bias.is_null())
                    .then(|| slice::from_raw_parts(args.bias, problem.bias_len())),
                residual: (!args.residual.is_null())
                    .then(|| slice::from_raw_parts(args.residual.cast(), problem.residual_len())),
                scratch: match scratch_len {
                    0 => &mut [],
                    len => slice::from_raw_parts_mut(args.workspace.cast(), len),
                },
            }
        }
    }
}

/// Distance in elements between neighbours along each dimension of a tensor.
#[derive(Clone, Copy)]
struct Strides {
    n: usize,
    c: usize,
    h: usize,
    w: usize,
}

impl Strides {
    fn of(layout: Layout, [c, h, w]: [usize; 3]) -> Self {
        match layout {
            Layout::Nchw => Strides {
                n: c * h * w,
                c: h * w,
                h: w,
                w: 1,
            },
            Layout::Nhwc => Strides {
                n: h * w * c,
                c: 1,
                h: w * c,
                w: c,
            },
        }
    }

    fn at(&self, n: usize, c: usize, h: usize, w: usize) -> usize {
        n * self.n + c * self.c + h * self.h + w * self.w
    }
}

/// The `i` of `0..count` for which `base + i * step` lies `pad` or more, and less than `pad + size`:
/// the taps or pixels along one axis that read the image and not the zeros around it.
#[inline]
fn inside(count: usize, step: usize, base: usize, pad: usize, size: usize) -> Range<usize> {
    let first = pad.saturating_sub(base).div_ceil(step).min(count);
    let last = (pad + size).saturating_sub(base).div_ceil(step).min(count);
    first..last.max(first)
}

/// Runs an expression with `T` standing for the type that the problem stores.
macro_rules! with_storage {
    ($problem:expr, $T:ident => $body:expr) => {
        match $problem.storage() {
            crate::Storage::F32 => {
                type $T = f32;
                $body
            }
            crate::Storage::F16 => {
                type $T = half::f16;
                $body
            }
            crate::Storage::Bf16 => {
                type $T = half::bf16;
                $body
            }
        }
    };
}
use with_storage;
