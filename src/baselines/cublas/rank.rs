//! What `cublas_gemm` should take, for the selection. Shares fitted to measurements on an H200
//! (benches/results/h200-suites-*).

use super::product::Product;
use crate::{
    Limits, Math, Problem,
    baselines::estimate::{PASS, busy_us, memory_us},
};

/// Bytes for one element of the unrolled matrix in f32 and in 16 bits: little more than it has.
const UNROLLED_BYTES: (f64, f64) = (4.7, 2.8);
/// The launches of a call, without and with passes of ours.
const LAUNCH_US: (f64, f64) = (5.0, 10.0);
/// Columns of a tile: fewer output channels take as long.
const TILE: usize = 32;

/// The unrolling, the product, and the pass that finishes it.
pub(super) fn microseconds(problem: &Problem, product: &Product, limits: &Limits) -> f64 {
    let images = problem.n() as f64;
    let pixels = images * (problem.p() * problem.q()) as f64;
    let channels = (problem.k() / problem.groups()).next_multiple_of(TILE) * problem.groups();
    let reduction = problem.reduction() as f64;

    let elements = pixels * reduction * problem.groups() as f64;
    let pass = |bytes: f64| memory_us(limits, bytes, PASS);
    let unroll = match product.operand.bytes() {
        _ if product.direct => LAUNCH_US.0,
        4 => LAUNCH_US.1 + pass(elements * UNROLLED_BYTES.0),
        _ => LAUNCH_US.1 + pass(elements * UNROLLED_BYTES.1),
    };
    let read = elements * product.operand.bytes() as f64 + (problem.w_len() * 4) as f64;
    // Of a multiprocessor in a clock: what products of an unrolled convolution reach, far under the
    // chip's peak.
    let flops_per_clock = match problem.math() {
        Math::Fp32 => 119.0,
        Math::Tf32 => 574.0,
        Math::F16 | Math::Bf16 | Math::F16Acc => 1148.0,
    };
    let flops = 2.0 * pixels * channels as f64 * reduction;
    let written = images * (problem.k() * problem.p() * problem.q() * 4) as f64;
    let gemm = busy_us(limits, flops, flops_per_clock).max(pass(read + written));
    // Sums are written, read again, and written as y.
    let finish = images * (2 * product.product_bytes + 2 * product.sums_bytes) as f64;
    unroll + gemm + pass(finish)
}
