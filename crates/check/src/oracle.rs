//! The Rust side of csrc/oracle.cu, which judges on the GPU what is too large for the CPU.

use std::{ffi::c_void, ops::Range, ptr::null_mut};

use convforge::{
    Buffer, Error, Problem, RawOperands, Result, Stream,
    kernels::{CArgs, CProblem, checked},
};

use crate::{Bounds, Expected, Options, Recipe, Sets, Tensor, Verdict, ffi};

/// Whether it judges a problem, and not the CPU.
pub(crate) fn judges(problem: &Problem, stream: &Stream, options: &Options) -> bool {
    stream.device().is_gpu() && problem.flops() > options.cpu_flops
}

/// Runs `enqueue` with `stream`'s context current, and checks its answer.
fn on(stream: &Stream, call: &'static str, enqueue: impl FnOnce() -> i32) -> Result<()> {
    let Some(stream) = stream.as_gpu() else {
        let why = "the oracle of csrc was asked on the CPU";
        return Err(Error::NoGpu(why.to_owned()));
    };
    let _current = stream.gpu().enter()?;
    checked(call, enqueue())
}

/// Judges `operands.y`.
///
/// # Safety
/// The addresses are of `stream`'s device and as large as the problem says.
pub(crate) unsafe fn judge_on_gpu(
    problem: &Problem,
    operands: &RawOperands,
    bounds: &Bounds,
    stream: &Stream,
) -> Result<Verdict> {
    let bounds = ffi::cf_bounds {
        exact: bounds.exact.into(),
        per_mag: bounds.per_mag,
        per_ref: bounds.per_ref,
        floor: bounds.floor,
        rounding: bounds.rounding,
    };
    let (problem, args) = (CProblem::new(problem), CArgs::new(operands, stream));
    let mut verdict = stream
        .device()
        .alloc::<u64>(size_of::<ffi::cf_verdict>() / 8)?;
    let target = verdict.as_mut_ptr().cast();
    // SAFETY: the caller vouches for the operands, and `verdict` has the size.
    on(stream, "cf_judge", || unsafe {
        ffi::cf_judge(&problem, &args, &bounds, target)
    })?;
    let words = verdict.to_vec(stream)?;
    // SAFETY: eight-byte fields without padding, written by cf_judge.
    let found: ffi::cf_verdict = unsafe { std::ptr::read(words.as_ptr().cast()) };
    Ok(Verdict {
        bad: found.bad as u64,
        nan: found.nan as u64,
        first_bad: (found.bad > 0).then_some(found.first_bad as u64),
        nonzero: found.nonzero as u64,
        counted: found.counted as u64,
        sum_sq: found.sum_sq,
        sum_sq_sequential: found.sum_sq_sequential,
        worst: found.worst,
    })
}

/// What some outputs should be.
///
/// # Safety
/// As [`judge_on_gpu`].
pub(crate) unsafe fn expected_on_gpu(
    problem: &Problem,
    operands: &RawOperands,
    first: usize,
    count: usize,
    stream: &Stream,
) -> Result<Vec<Expected>> {
    let device = stream.device();
    let (problem, args) = (CProblem::new(problem), CArgs::new(operands, stream));
    let mut value: Buffer<f64> = device.alloc(count)?;
    let mut mag: Buffer<f64> = device.alloc(count)?;
    let mut sequential: Buffer<f32> = device.alloc(count)?;
    // SAFETY: the caller vouches for the operands; the three results hold `count` elements.
    on(stream, "cf_oracle", || unsafe {
        ffi::cf_oracle(
            &problem,
            &args,
            first as i64,
            count as i64,
            value.as_mut_ptr().cast(),
            mag.as_mut_ptr().cast(),
            sequential.as_mut_ptr().cast(),
        )
    })?;
    let (value, mag) = (value.to_vec(stream)?, mag.to_vec(stream)?);
    let parts = value.into_iter().zip(mag).zip(sequential.to_vec(stream)?);
    Ok(parts
        .map(|((value, mag), sequential)| Expected {
            value,
            mag,
            sequential,
        })
        .collect())
}

/// What some outputs of a problem should be, with the operands that a recipe makes.
pub(crate) struct Oracle<'a> {
    problem: &'a Problem,
    stream: &'a Stream,
    /// Input, filter, bias, residual.
    operands: [Buffer<u8>; 4],
}

impl<'a> Oracle<'a> {
    pub(crate) fn new(problem: &'a Problem, recipe: &Recipe, stream: &'a Stream) -> Result<Self> {
        let upload = |tensor| stream.device().upload(&recipe.bytes(tensor));
        Ok(Oracle {
            problem,
            stream,
            operands: [
                upload(Tensor::X)?,
                upload(Tensor::W)?,
                upload(Tensor::Bias)?,
                upload(Tensor::Residual)?,
            ],
        })
    }

    pub(crate) fn expected(&self, outputs: Range<usize>) -> Result<Vec<Expected>> {
        let [x, w, bias, residual] = &self.operands;
        let operands = RawOperands::new(x.as_ptr().cast(), w.as_ptr().cast(), null_mut())
            .bias(bias.as_ptr().cast())
            .residual(residual.as_ptr());
        // SAFETY: the operands were uploaded to this device with the lengths of the problem.
        unsafe {
            expected_on_gpu(
                self.problem,
                &operands,
                outputs.start,
                outputs.len(),
                self.stream,
            )
        }
    }
}

/// In how many 4-byte words `bytes` bytes at two addresses of `stream`'s device differ.
///
/// # Safety
/// Both are readable over `bytes` bytes.
pub(crate) unsafe fn differences(
    a: *const c_void,
    b: *const c_void,
    bytes: usize,
    stream: &Stream,
) -> Result<u64> {
    let mut count = stream.device().alloc::<u64>(1)?;
    let target = count.as_mut_ptr().cast();
    // SAFETY: the caller vouches for a and b; `count` has one element.
    on(stream, "cf_count_differences", || unsafe {
        ffi::cf_count_differences(a, b, bytes as u64, target, stream.raw())
    })?;
    Ok(count.to_vec(stream)?[0])
}

/// The first element, counted from `outputs` on, where launches left poison in an output or wrote to a
/// gap.
///
/// # Safety
/// The sets are readable from `outputs` on, and of `stream`'s device.
pub(crate) unsafe fn find_poison(
    outputs: *const c_void,
    sets: &Sets,
    stream: &Stream,
) -> Result<Option<usize>> {
    let mut first = stream.device().alloc::<u64>(1)?;
    let target = first.as_mut_ptr().cast();
    let (problem, len) = (CProblem::new(sets.problem), sets.problem.y_len());
    // SAFETY: the caller vouches for the outputs; `first` has one element.
    on(stream, "cf_find_poison", || unsafe {
        let [len, stride, count] = [len, sets.stride, sets.count].map(|size| size as i64);
        ffi::cf_find_poison(&problem, outputs, len, stride, count, target, stream.raw())
    })?;
    let first = first.to_vec(stream)?[0];
    Ok((first != u64::MAX).then_some(first as usize))
}

/// Makes a tensor as [`Recipe::bytes`] does, where it is needed.
///
/// # Safety
/// `tensor` is of `stream`'s device and as large as the recipe says.
pub(crate) unsafe fn make_tensor(
    recipe: &Recipe,
    which: Tensor,
    tensor: *mut c_void,
    stream: &Stream,
) -> Result<()> {
    let recipe = recipe.in_c(which);
    // SAFETY: the caller vouches for the tensor.
    on(stream, "cf_make_tensor", || unsafe {
        ffi::cf_make_tensor(&recipe, tensor, stream.raw())
    })
}
