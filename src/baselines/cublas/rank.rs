//! What `cublas_gemm` should take, for the selection. `scripts/fit_estimates.py` fits the constants to the
//! committed results and reckons the same: what changes here changes there.

use super::product::{Form, Product};
use crate::{
    Limits, Math, Problem, Storage,
    baselines::estimate::{PASS, busy_us, input_bytes, memory_us, peak, together_us},
};

/// Of the memory's pins: to unroll into 16 bits and into f32, and by a product.
const UNROLL_HALF: f64 = 0.513;
const UNROLL_F32: f64 = 0.583;
const MEMORY: f64 = 0.759;
/// Microseconds for the launch of a product, and of a pass before or behind it.
const LAUNCH_US: f64 = 3.66;
const PASS_US: f64 = 6.17;
/// Of a chip's peak. With one output channel to a group there are no tensor cores: a share of that of
/// FMAs.
const FP32: f64 = 0.619;
const TF32: f64 = 0.58;
const HALF: f64 = 0.798;
const ONE_CHANNEL: f64 = 0.895;
/// Times as long, where lines of 16-bit sums do not begin on 16 bytes.
const UNALIGNED: f64 = 3.23;
/// Clocks for each product of a sum, however few sums there are: by FMAs, where a long sum is split, and
/// in 16 bits on tensor cores.
const FMA_STEP: f64 = 27.0;
const HALF_STEP: f64 = 1.85;
const MOST_FMA_STEPS: usize = 512;
/// What is read and written takes 1 + this / C R S times as long: short sums hide little of it. In fp32, and
/// in the other types.
const SHORT_FMA: f64 = 12.3;
const SHORT_HALF: f64 = 6.94;
/// Of a tile: fewer output channels take as long, and where each image has a product of its own, fewer
/// pixels.
const TILE: usize = 32;
const PLANE_TILE: usize = 64;

/// The unrolling, the product, and the pass that finishes it. None, which no rule takes, for lines off the
/// words of tensor cores: those of 98 bytes took four times what is reckoned for lines off 16 bytes.
pub(super) fn microseconds(problem: &Problem, product: &Product, limits: &Limits) -> Option<f64> {
    if product.misaligned {
        return None;
    }
    let images = problem.n() as f64;
    let unrolled = images
        * (problem.p() * problem.q() * problem.groups()) as f64
        * (product.depth * product.operand.bytes()) as f64;
    // What lies right is converted where the product takes another type.
    let unroll = match product.columns_bytes {
        0 => 0.0,
        _ => {
            let share = match product.operand {
                Storage::F32 => UNROLL_F32,
                Storage::F16 | Storage::Bf16 => UNROLL_HALF,
            };
            PASS_US + memory_us(limits, input_bytes(problem) + unrolled, share)
        }
    };
    // Sums are written, read again, and written as y.
    let finish = match product.in_place {
        true => 0.0,
        false => {
            let bytes = images * (2 * product.product_bytes + 2 * product.sums_bytes) as f64;
            PASS_US + memory_us(limits, bytes, PASS)
        }
    };
    let launches = calls(problem, product) * LAUNCH_US;
    Some(launches + unroll + gemm(problem, product, unrolled, limits) + finish)
}

/// A call takes all images, or all groups; of large problems, which come in chunks, those of one chunk.
fn calls(problem: &Problem, product: &Product) -> f64 {
    match product.form {
        Form::Batched => problem.n().min(problem.groups()).max(1) as f64,
        Form::Rows | Form::Wide => 1.0,
    }
}

/// The product of the unrolled matrix, or of x, of so many bytes.
fn gemm(problem: &Problem, product: &Product, operand: f64, limits: &Limits) -> f64 {
    let math = problem.math();
    let channels = problem.k() / problem.groups();
    let images = problem.n() as f64;
    let plane = problem.p() * problem.q();
    let columns = channels.next_multiple_of(TILE) * problem.groups();
    let rows = match product.form {
        Form::Batched => plane.next_multiple_of(PLANE_TILE),
        Form::Rows | Form::Wide => plane,
    };
    let flops = 2.0 * images * rows as f64 * columns as f64 * problem.reduction() as f64;
    let per_clock = match math {
        Math::Fp32 => FP32 * peak(limits, math),
        _ if channels == 1 => ONE_CHANNEL * peak(limits, Math::Fp32),
        Math::Tf32 => TF32 * peak(limits, math),
        Math::F16 | Math::Bf16 | Math::F16Acc => HALF * peak(limits, math),
    };
    // What was just unrolled is read from half of the L2 cache as far as it has room there.
    let read = match product.columns_bytes {
        0 => operand,
        _ => (operand - limits.l2_bytes as f64 / 2.0).max(0.0),
    };
    let weights = (problem.w_len() * product.operand.bytes()) as f64;
    let written = images * (plane * problem.k() * product.sum.bytes()) as f64;
    let steps = problem.reduction() as f64;
    let short = match math {
        Math::Fp32 => SHORT_FMA,
        _ => SHORT_HALF,
    };
    let memory = memory_us(limits, read + weights + written, MEMORY) * (1.0 + short / steps);
    let stream = together_us(busy_us(limits, flops, per_clock), memory);
    let slower = if is_unaligned(problem, product) {
        UNALIGNED
    } else {
        1.0
    };
    let clocks = match math {
        Math::Fp32 => FMA_STEP * steps.min(MOST_FMA_STEPS as f64),
        Math::Tf32 => 2.0 * HALF_STEP * steps,
        Math::F16 | Math::Bf16 | Math::F16Acc => HALF_STEP * steps,
    };
    together_us(slower * stream, clocks / limits.clocks_per_us())
}

/// Whether lines of 16-bit operands or sums begin where tensor cores do not read or write words of 16
/// bytes.
fn is_unaligned(problem: &Problem, product: &Product) -> bool {
    let pixels = problem.p() * problem.q();
    let line = match product.form {
        Form::Rows => problem.k(),
        Form::Batched => pixels,
        Form::Wide => return false,
    };
    let half = !matches!(problem.math(), Math::Fp32 | Math::Tf32);
    half && pixels > 1 && !(line * product.sum.bytes()).is_multiple_of(16)
}
