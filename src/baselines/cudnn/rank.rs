//! What cuDNN's best plan should take, for the selection: only the order of variants matters, so the
//! constants are one chip's (H200).

use super::rules::Form;
use crate::{Layout, Math, Problem};

/// What its kernels reach of the memory's bandwidth.
const BYTES_PER_US: f64 = 2.5e6;
/// The least that it takes: a launch, and for each product of a sum.
const LEAST_US: (f64, f64) = (4.0, 0.034);
/// Its tiles have at least so many output channels; fewer take as long.
const TILE: usize = 32;

/// With fewer input channels to a group its kernels are far from what they reach otherwise.
const FEW: usize = 16;

/// Bound by memory or by arithmetic, whichever is slower.
pub(super) fn microseconds(problem: &Problem) -> f64 {
    if problem.groups == 1 && problem.c < FEW && !is_vectors(problem) {
        return few_channels(problem);
    }
    if problem.groups > 1 && problem.c == problem.groups {
        return depthwise(problem);
    }
    let nhwc = problem.layout == Layout::Nhwc;
    // 60 % of the chip's peak; in fp32 its kernels for channels last are slower, as measured.
    let (flops_per_us, bytes_per_us) = match problem.math {
        Math::Fp32 if nhwc => (28e6, 0.75e6),
        Math::Fp32 => (36e6, BYTES_PER_US),
        Math::Tf32 => (240e6, BYTES_PER_US),
        Math::F16 | Math::Bf16 | Math::F16Acc => (480e6, BYTES_PER_US),
    };
    let channels = problem.k / problem.groups;
    let padded = channels.next_multiple_of(TILE) as f64 / channels as f64;
    let arithmetic = problem.flops() * padded / flops_per_us;
    let pass = problem.bytes() / bytes_per_us;
    // Tensor cores want channels last, so that NCHW is transposed on the way in and out.
    let transposed = !nhwc && problem.math != Math::Fp32;
    let transposing = if transposed { 2.0 * pass } else { 0.0 };
    // It has no matrix-vector product in fp32: 4096 x 1024 and 25088 x 4096 take 22 and 5 times a pass.
    let vectors = is_vectors(problem) && problem.math == Math::Fp32;
    let reading = if vectors { 5.0 * pass } else { pass };
    let least = match problem.math {
        // Fitted to batch1 in bf16.
        Math::Tf32 | Math::F16 | Math::Bf16 if nhwc => {
            LEAST_US.0 + 0.0018 * problem.reduction() as f64
        }
        _ => least(problem),
    };
    arithmetic.max(reading).max(least) + transposing + finishing(problem)
}

/// Fitted to the layers of the reports and the first layers of networks, 1 to 10000 images
/// (benches/results/h200-small-*.json).
fn few_channels(problem: &Problem) -> f64 {
    let half = matches!(problem.math, Math::F16 | Math::Bf16 | Math::F16Acc);
    let single_nhwc =
        problem.c == 1 && problem.layout == Layout::Nhwc && problem.math != Math::Bf16;
    // Operations per microsecond, those on channels that fill up its tiles counted.
    let (flops_per_us, inputs, outputs) = match problem.math {
        // One channel is no work for tensor cores.
        _ if single_nhwc => (12e6, 1, 1),
        math if problem.c == 1 || math == Math::Fp32 => (20e6, 1, TILE),
        Math::Tf32 => (50e6, 4, TILE),
        _ => (95e6, 8, TILE),
    };
    let padded = |count: usize, tile: usize| count.next_multiple_of(tile) as f64 / count as f64;
    let flops = problem.flops() * padded(problem.c, inputs) * padded(problem.k, outputs);
    let bytes_per_us = match problem.layout {
        Layout::Nchw if half => 0.55e6,
        Layout::Nhwc if half => 1.0e6,
        _ => 1.3e6,
    };
    let stream = (flops / flops_per_us).max(problem.bytes() / bytes_per_us);
    least(problem) + stream + finishing(problem)
}

/// Fitted to depthwise layers (benches/results/h200-suites-*.json): it has kernels for them, without
/// tensor cores.
fn depthwise(problem: &Problem) -> f64 {
    let half = problem.storage.bytes() == 2;
    let flops_per_us = match problem.layout {
        Layout::Nhwc if half => 10e6,
        Layout::Nhwc => 6e6,
        Layout::Nchw if half => 5.5e6,
        Layout::Nchw => 3e6,
    };
    let stream = (problem.flops() / flops_per_us).max(problem.bytes() / BYTES_PER_US);
    LEAST_US.0 + stream + finishing(problem)
}

fn least(problem: &Problem) -> f64 {
    let (launch, product) = LEAST_US;
    // Tensor cores take many products at once.
    let products = match problem.math {
        Math::Fp32 => problem.reduction(),
        _ => problem.reduction().min(300),
    };
    launch + product * products as f64
}

/// Whether it is a product of a matrix and few vectors.
fn is_vectors(problem: &Problem) -> bool {
    problem.n * problem.p() * problem.q() < TILE
}

/// What it cannot fuse: sums are written in f32 and read again.
fn finishing(problem: &Problem) -> f64 {
    if Form::of(problem).iter().all(|form| form.finishes()) {
        let sums = (problem.n * problem.k * problem.p() * problem.q()) as f64 * 4.0;
        2.0 * sums / BYTES_PER_US
    } else {
        0.0
    }
}
