//! What `cublas_gemm` should take, for the selection: only the order of variants matters, so the
//! constants are one chip's (H200), fitted to measurements there.

use super::product::Product;
use crate::{Math, Problem};

/// One element of the unrolled matrix in f32 and in 16 bits, as measured: little more than memory
/// takes.
const US_PER_UNROLLED: (f64, f64) = (1.35e-6, 0.8e-6);
/// What passes over memory reach.
const BYTES_PER_US: f64 = 3.5e6;
/// The launches of a call, without and with passes of ours.
const LAUNCH_US: (f64, f64) = (5.0, 10.0);
/// Columns of a tile: fewer output channels take as long.
const TILE: usize = 32;

/// The unrolling, the product, and the pass that finishes it.
pub(super) fn microseconds(problem: &Problem, product: &Product) -> f64 {
    let images = problem.n as f64;
    let pixels = images * (problem.p() * problem.q()) as f64;
    let channels = (problem.k / problem.groups).next_multiple_of(TILE) * problem.groups;
    let reduction = problem.reduction() as f64;

    let elements = pixels * reduction * problem.groups as f64;
    let unroll = match product.operand.bytes() {
        _ if product.direct => LAUNCH_US.0,
        4 => LAUNCH_US.1 + elements * US_PER_UNROLLED.0,
        _ => LAUNCH_US.1 + elements * US_PER_UNROLLED.1,
    };
    let read = elements * product.operand.bytes() as f64 + (problem.w_len() * 4) as f64;
    // What products of an unrolled convolution reach, far under the chip's peak.
    let flops_per_us = match problem.math {
        Math::Fp32 => 31e6,
        Math::Tf32 => 150e6,
        Math::F16 | Math::Bf16 | Math::F16Acc => 300e6,
    };
    let flops = 2.0 * pixels * channels as f64 * reduction;
    let written = images * (problem.k * problem.p() * problem.q() * 4) as f64;
    let gemm = (flops / flops_per_us).max((read + written) / BYTES_PER_US);
    // Sums are written, read again, and written as y.
    let finish = images * (2 * product.product_bytes + 2 * product.sums_bytes) as f64;
    unroll + gemm + finish / BYTES_PER_US
}
