//! What cuDNN's best plan should take, for the selection. Shares fitted to measurements on an H200:
//! rates are floating-point operations of a multiprocessor in a clock.

use super::rules::Form;
use crate::{
    Layout, Limits, Math, Problem,
    baselines::estimate::{busy_us, memory_us},
};

/// What its kernels reach of the memory's pins.
const MEMORY: f64 = 0.508;
/// The same of grouped layers on tensor cores (suite grouped, benches/results/h200-suites-*.jsonl).
const GROUPED_MEMORY: f64 = 0.27;
/// The least that it takes: a launch in microseconds, and clocks for each product of a sum.
const LEAST: (f64, f64) = (4.0, 67.0);
/// The same in fp32 with channels last (the twelve layers of batch1 with more than a few channels,
/// 64 to 4608 products: 0.88 to 1.12 of what they take).
const LEAST_FP32_NHWC: (f64, f64) = (11.0, 52.0);
/// Its tiles have at least so many output channels; fewer take as long.
const TILE: usize = 32;

/// With fewer input channels to a group its kernels are far from what they reach otherwise.
const FEW: usize = 16;

/// Bound by memory or by arithmetic, whichever is slower.
pub(super) fn microseconds(problem: &Problem, limits: &Limits) -> f64 {
    if problem.groups() == 1 && problem.c() < FEW && !is_vectors(problem) {
        return few_channels(problem, limits);
    }
    if problem.groups() > 1 && problem.c() == problem.groups() {
        return depthwise(problem, limits);
    }
    let nhwc = problem.layout() == Layout::Nhwc;
    let memory_of_tensor_cores = match problem.groups() {
        1 => MEMORY,
        _ => GROUPED_MEMORY,
    };
    // 60 % of the chip's peak; in fp32 its kernels for channels last are slower, as measured.
    let (flops_per_clock, memory) = match problem.math() {
        Math::Fp32 if nhwc => (107.0, 0.152),
        Math::Fp32 => (138.0, MEMORY),
        Math::Tf32 => (918.0, memory_of_tensor_cores),
        Math::F16 | Math::Bf16 | Math::F16Acc => (1837.0, memory_of_tensor_cores),
    };
    let channels = problem.k() / problem.groups();
    let padded = channels.next_multiple_of(TILE) as f64 / channels as f64;
    let arithmetic = busy_us(limits, problem.flops() * padded, flops_per_clock);
    let pass = memory_us(limits, problem.bytes(), memory);
    // Tensor cores want channels last, so that NCHW is transposed on the way in and out.
    let transposed = !nhwc && problem.math() != Math::Fp32;
    let transposing = if transposed {
        2.0 * memory_us(limits, problem.bytes(), MEMORY)
    } else {
        0.0
    };
    // It has no matrix-vector product in fp32: 4096 x 1024 and 25088 x 4096 take 22 and 5 times a pass.
    let vectors = is_vectors(problem) && problem.math() == Math::Fp32;
    let reading = if vectors { 5.0 * pass } else { pass };
    let least = match problem.math() {
        // Fitted to batch1 in bf16.
        Math::Tf32 | Math::F16 | Math::Bf16 if nhwc => {
            LEAST.0 + 3.6 * problem.reduction() as f64 / limits.clocks_per_us()
        }
        Math::Fp32 if nhwc => {
            let (launch, clocks) = LEAST_FP32_NHWC;
            launch + clocks * problem.reduction() as f64 / limits.clocks_per_us()
        }
        _ => least(problem, limits),
    };
    arithmetic.max(reading).max(least) + transposing + finishing(problem, limits)
}

/// Fitted to the layers of the reports and the first layers of networks, 1 to 10000 images
/// (benches/results/h200-small-*.jsonl).
fn few_channels(problem: &Problem, limits: &Limits) -> f64 {
    let half = matches!(problem.math(), Math::F16 | Math::Bf16 | Math::F16Acc);
    let single_nhwc =
        problem.c() == 1 && problem.layout() == Layout::Nhwc && problem.math() != Math::Bf16;
    // Operations on channels that fill up its tiles are counted.
    let (flops_per_clock, inputs, outputs) = match problem.math() {
        // One channel is no work for tensor cores.
        _ if single_nhwc => (45.9, 1, 1),
        math if problem.c() == 1 || math == Math::Fp32 => (76.5, 1, TILE),
        Math::Tf32 => (191.0, 4, TILE),
        _ => (363.0, 8, TILE),
    };
    let padded = |count: usize, tile: usize| count.next_multiple_of(tile) as f64 / count as f64;
    let flops = problem.flops() * padded(problem.c(), inputs) * padded(problem.k(), outputs);
    let memory = match problem.layout() {
        Layout::Nchw if half => 0.112,
        Layout::Nhwc if half => 0.203,
        _ => 0.264,
    };
    let stream =
        busy_us(limits, flops, flops_per_clock).max(memory_us(limits, problem.bytes(), memory));
    least(problem, limits) + stream + finishing(problem, limits)
}

/// Fitted to depthwise layers (benches/results/h200-suites-*.jsonl): it has kernels for them, without
/// tensor cores.
fn depthwise(problem: &Problem, limits: &Limits) -> f64 {
    let half = problem.storage().bytes() == 2;
    let flops_per_clock = match problem.layout() {
        Layout::Nhwc if half => 38.3,
        Layout::Nhwc => 23.0,
        Layout::Nchw if half => 21.0,
        Layout::Nchw => 11.5,
    };
    let arithmetic = busy_us(limits, problem.flops(), flops_per_clock);
    let stream = arithmetic.max(memory_us(limits, problem.bytes(), MEMORY));
    LEAST.0 + stream + finishing(problem, limits)
}

fn least(problem: &Problem, limits: &Limits) -> f64 {
    let (launch, clocks) = LEAST;
    // Tensor cores take many products at once.
    let products = match problem.math() {
        Math::Fp32 => problem.reduction(),
        _ => problem.reduction().min(300),
    };
    launch + clocks * products as f64 / limits.clocks_per_us()
}

/// Whether it is a product of a matrix and few vectors.
fn is_vectors(problem: &Problem) -> bool {
    problem.n() * problem.p() * problem.q() < TILE
}

/// What it cannot fuse: sums are written in f32 and read again.
fn finishing(problem: &Problem, limits: &Limits) -> f64 {
    if Form::of(problem).iter().all(|form| form.finishes()) {
        let sums = (problem.n() * problem.k() * problem.p() * problem.q()) as f64 * 4.0;
        memory_us(limits, 2.0 * sums, MEMORY)
    } else {
        0.0
    }
}
