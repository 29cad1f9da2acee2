//! What cuDNN's best plan should take, for the selection: only the order of variants matters, so the
//! constants are one chip's (H200).

use super::rules::Form;
use crate::{Layout, Math, Problem};

/// What its kernels reach of the memory's bandwidth.
const BYTES_PER_US: f64 = 2.5e6;
/// The least a launch of it takes.
const LEAST_US: f64 = 5.0;
/// Its tiles have at least so many output channels; fewer take as long.
const TILE: usize = 32;

/// Bound by memory or by arithmetic, whichever is slower.
pub(super) fn microseconds(problem: &Problem) -> f64 {
    // 60 % of the chip's peak.
    let flops_per_us = match problem.math {
        Math::Fp32 => 36e6,
        Math::Tf32 => 240e6,
        Math::F16 | Math::Bf16 | Math::F16Acc => 480e6,
    };
    let channels = problem.k / problem.groups;
    let padded = channels.next_multiple_of(TILE) as f64 / channels as f64;
    let arithmetic = problem.flops() * padded / flops_per_us;
    let pass = problem.bytes() / BYTES_PER_US;
    // Tensor cores want channels last, so that NCHW is transposed on the way in and out.
    let transposed = problem.layout == Layout::Nchw && problem.math != Math::Fp32;
    let transposing = if transposed { 2.0 * pass } else { 0.0 };
    // What it cannot fuse: sums are written in f32 and read again.
    let finishing = if Form::of(problem).iter().all(|form| form.finishes()) {
        let sums = (problem.n * problem.k * problem.p() * problem.q()) as f64 * 4.0;
        2.0 * sums / BYTES_PER_US
    } else {
        0.0
    };
    // It has no matrix-vector product in fp32: 4096 x 1024 and 25088 x 4096 take 22 and 5 times a pass.
    let vectors = problem.n * problem.p() * problem.q() < TILE && problem.math == Math::Fp32;
    let reading = if vectors { 5.0 * pass } else { pass };
    arithmetic.max(reading).max(LEAST_US) + transposing + finishing
}
