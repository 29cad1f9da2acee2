//! What cuDNN's best plan should take, for the selection. `scripts/fit_estimates.py` fits the constants to
//! the committed results and reckons the same: what changes here changes there.

use super::rules::Form;
use crate::{
    Layout, Limits, Math, Padding, Problem,
    baselines::estimate::{PASS, busy_us, input_bytes, memory_us, peak, together_us},
};

/// Of the memory's pins: where layers are dense and where they have groups, and in fp32 with channels
/// last.
const MEMORY: f64 = 0.68;
const GROUPED_MEMORY: f64 = 0.277;
const FP32_NHWC_MEMORY: f64 = 0.165;
/// Of a chip's peak.
const FP32: f64 = 0.477;
const FP32_NHWC: f64 = 0.462;
const TF32: f64 = 0.649;
const HALF: f64 = 0.595;
/// Microseconds for a launch, and clocks for each product of a sum, however few sums there are: by
/// FMAs, and in 16 bits on tensor cores.
const LAUNCH_US: f64 = 3.51;
const FMA_STEP: f64 = 67.9;
const HALF_STEP: f64 = 3.37;
/// The same in fp32 with channels last.
const FP32_NHWC_LAUNCH_US: f64 = 5.34;
const FP32_NHWC_STEP: f64 = 61.2;
/// Tensor cores want channels last: NCHW is transposed on the way in and out. Microseconds for the
/// launches, and the share of the memory's pins.
const TRANSPOSE_US: f64 = 6.79;
const TRANSPOSE: f64 = 0.56;
/// With few input channels its kernels are far from what they reach otherwise: shares of the chip's
/// peak, in NHWC with one channel, elsewhere by FMAs, and on tensor cores; of the memory's pins.
const FEW_ONE_NHWC: f64 = 0.202;
const FEW_FP32: f64 = 0.324;
const FEW_TF32: f64 = 0.103;
const FEW_HALF: f64 = 0.11;
const FEW_MEMORY: f64 = 0.295;
const FEW_HALF_NCHW_MEMORY: f64 = 0.114;
const FEW_HALF_NHWC_MEMORY: f64 = 0.22;
/// For depthwise layers it has kernels of their own, without tensor cores: shares of the peak of FMAs,
/// and of the memory's pins.
const DEPTHWISE_HALF_NHWC: f64 = 0.188;
const DEPTHWISE_NHWC: f64 = 0.117;
const DEPTHWISE_HALF_NCHW: f64 = 0.138;
const DEPTHWISE_NCHW: f64 = 0.051;
const DEPTHWISE_MEMORY: f64 = 0.855;
/// Clocks of a multiprocessor for each plane of x in NCHW, and for each pixel of it.
const DEPTHWISE_PLANE: f64 = 37.3;
const DEPTHWISE_PIXEL: f64 = 0.179;

/// Its tiles have at least so many output channels; fewer take as long.
const TILE: usize = 32;
/// Fewer input channels to a group are few.
const FEW: usize = 16;
/// Steps of a sum that count where its channels are few and multiplied by tensor cores, many at once.
const MOST_FEW_STEPS: usize = 300;
/// Clocks for each tap of a depthwise layer, however few outputs there are: of two layers of 7x7 with one
/// image on an H100, in f16 with channels last, 300 and 360.
const DEPTHWISE_STEP: usize = 330;

/// Bound by memory or by arithmetic, whichever is slower.
pub(super) fn microseconds(problem: &Problem, limits: &Limits) -> f64 {
    let us = if problem.groups() == 1 && problem.c() < FEW {
        let few = few_channels(problem, limits);
        match is_vectors(problem) {
            true => few.min(dense(problem, limits)),
            false => few,
        }
    } else if problem.groups() > 1 && problem.c() == problem.groups() {
        depthwise(problem, limits)
    } else {
        dense(problem, limits)
    };
    us + finishing(problem, limits)
}

fn dense(problem: &Problem, limits: &Limits) -> f64 {
    let math = problem.math();
    let nhwc = problem.layout() == Layout::Nhwc;
    let memory_of_tensor_cores = match problem.groups() {
        1 => MEMORY,
        _ => GROUPED_MEMORY,
    };
    let (share, memory) = match math {
        Math::Fp32 if nhwc => (FP32_NHWC, FP32_NHWC_MEMORY),
        Math::Fp32 => (FP32, MEMORY),
        Math::Tf32 => (TF32, memory_of_tensor_cores),
        Math::F16 | Math::Bf16 | Math::F16Acc => (HALF, memory_of_tensor_cores),
    };
    let channels = problem.k() / problem.groups();
    let padded = channels.next_multiple_of(TILE) as f64 / channels as f64;
    let stream = together_us(
        busy_us(limits, problem.flops() * padded, share * peak(limits, math)),
        memory_us(limits, tensor_bytes(problem), memory),
    );
    let (launch, clocks) = match math {
        Math::Fp32 if nhwc => (FP32_NHWC_LAUNCH_US, FP32_NHWC_STEP),
        Math::Fp32 => (LAUNCH_US, FMA_STEP),
        Math::Tf32 => (LAUNCH_US, 2.0 * HALF_STEP),
        Math::F16 | Math::Bf16 | Math::F16Acc => (LAUNCH_US, HALF_STEP),
    };
    let least = clocks * problem.reduction() as f64 / limits.clocks_per_us();
    let transposing = match math == Math::Fp32 || lies_right(problem) {
        true => 0.0,
        false => TRANSPOSE_US + 2.0 * memory_us(limits, all_bytes(problem), TRANSPOSE),
    };
    launch + together_us(stream, least) + transposing
}

/// Bytes of all tensors, of the input those that are read.
fn tensor_bytes(problem: &Problem) -> f64 {
    let fewest = (problem.elements_read() * problem.storage().bytes()) as f64;
    problem.bytes() - fewest + input_bytes(problem)
}

/// Bytes of all tensors, of the input with what no tap falls on.
fn all_bytes(problem: &Problem) -> f64 {
    let left_out = problem.x_len() - problem.elements_read();
    problem.bytes() + (left_out * problem.storage().bytes()) as f64
}

/// Whether tensor cores can read the tensors as they lie: channels last, or matrices whose lines begin
/// on 16 bytes, as pixels under a 1x1 filter or whole images are.
fn lies_right(problem: &Problem) -> bool {
    let unpadded = problem.pad() == Padding::default();
    let (filter, image) = ([problem.r(), problem.s()], [problem.h(), problem.w()]);
    let pixels = problem.p() * problem.q();
    let line = pixels * problem.storage().bytes();
    let point = filter == [1, 1] && image == [problem.p(), problem.q()] && line.is_multiple_of(16);
    problem.layout() == Layout::Nhwc || unpadded && (point || filter == image)
}

fn few_channels(problem: &Problem, limits: &Limits) -> f64 {
    let math = problem.math();
    let nhwc = problem.layout() == Layout::Nhwc;
    let half = matches!(math, Math::F16 | Math::Bf16 | Math::F16Acc);
    // One channel is no work for tensor cores.
    let is_one_nhwc = problem.c() == 1 && nhwc && math != Math::Bf16;
    // Operations on channels that fill up its tiles are counted.
    let (share, of, inputs, outputs) = match math {
        _ if is_one_nhwc => (FEW_ONE_NHWC, Math::Fp32, 1, 1),
        math if problem.c() == 1 || math == Math::Fp32 => (FEW_FP32, Math::Fp32, 1, TILE),
        Math::Tf32 => (FEW_TF32, math, 4, TILE),
        _ => (FEW_HALF, math, 8, TILE),
    };
    let padded = |count: usize, tile: usize| count.next_multiple_of(tile) as f64 / count as f64;
    let flops = problem.flops() * padded(problem.c(), inputs) * padded(problem.k(), outputs);
    let memory = match half {
        true if nhwc => FEW_HALF_NHWC_MEMORY,
        true => FEW_HALF_NCHW_MEMORY,
        false => FEW_MEMORY,
    };
    let products = problem.reduction();
    let (launch, clocks, steps) = match math {
        _ if is_one_nhwc => (LAUNCH_US, 0.0, 0),
        Math::Fp32 if nhwc => (FP32_NHWC_LAUNCH_US, FP32_NHWC_STEP, products),
        Math::Fp32 => (LAUNCH_US, FMA_STEP, products),
        _ => (LAUNCH_US, FMA_STEP, products.min(MOST_FEW_STEPS)),
    };
    let stream = together_us(
        busy_us(limits, flops, share * peak(limits, of)),
        memory_us(limits, tensor_bytes(problem), memory),
    );
    launch + clocks * steps as f64 / limits.clocks_per_us() + stream
}

fn depthwise(problem: &Problem, limits: &Limits) -> f64 {
    let half = problem.storage().bytes() == 2;
    let share = match problem.layout() {
        Layout::Nhwc if half => DEPTHWISE_HALF_NHWC,
        Layout::Nhwc => DEPTHWISE_NHWC,
        Layout::Nchw if half => DEPTHWISE_HALF_NCHW,
        Layout::Nchw => DEPTHWISE_NCHW,
    };
    let per_clock = share * peak(limits, Math::Fp32);
    let planes = match problem.layout() {
        Layout::Nhwc => 0.0,
        Layout::Nchw => {
            let clocks = DEPTHWISE_PLANE + DEPTHWISE_PIXEL * (problem.h() * problem.w()) as f64;
            busy_us(limits, (problem.n() * problem.c()) as f64 * clocks, 1.0)
        }
    };
    let arithmetic = busy_us(limits, problem.flops(), per_clock) + planes;
    let pass = memory_us(limits, tensor_bytes(problem), DEPTHWISE_MEMORY);
    let least = (DEPTHWISE_STEP * problem.r() * problem.s()) as f64 / limits.clocks_per_us();
    LAUNCH_US + together_us(together_us(arithmetic, pass), least)
}

/// Whether it is a product of a matrix and few vectors.
fn is_vectors(problem: &Problem) -> bool {
    problem.n() * problem.p() * problem.q() < TILE
}

/// What it cannot fuse: sums are written in f32 and read again.
fn finishing(problem: &Problem, limits: &Limits) -> f64 {
    if Form::of(problem).iter().all(|form| form.finishes()) {
        let sums = (problem.n() * problem.k() * problem.p() * problem.q()) as f64 * 4.0;
        memory_us(limits, 2.0 * sums, PASS)
    } else {
        0.0
    }
}
