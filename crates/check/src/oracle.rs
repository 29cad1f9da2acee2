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
        return Err(Error::no_gpu(why));
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
    let (problem, args) = (CProblem::new(problem), CArgs::new(operands, stream));
    found("cf_judge", stream, |verdict| {
        // SAFETY: the caller vouches for the operands, and `verdict` has the size.
        unsafe { ffi::cf_judge(&problem, &args, &bounds.in_c(), verdict) }
    })
}

/// What `judge`, a function of csrc/oracle.h, finds.
fn found(
    call: &'static str,
    stream: &Stream,
    judge: impl FnOnce(*mut ffi::cf_verdict) -> i32,
) -> Result<Verdict> {
    let words = size_of::<ffi::cf_verdict>() / 8;
    let mut verdict = stream.device().alloc::<u64>(words)?;
    let target = verdict.as_mut_ptr().cast();
    on(stream, call, || judge(target))?;
    let words = verdict.to_vec(stream)?;
    // SAFETY: eight-byte fields without padding, written by the function.
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

/// What some outputs should be, on the GPU.
#[derive(Debug)]
pub(crate) struct Written {
    value: Buffer<f64>,
    mag: Buffer<f64>,
    sequential: Buffer<f32>,
}

impl Written {
    /// Bytes of so many outputs.
    pub(crate) fn bytes(count: usize) -> usize {
        count * (2 * size_of::<f64>() + size_of::<f32>())
    }

    /// Works out `count` outputs from `first` on.
    ///
    /// # Safety
    /// As [`judge_on_gpu`].
    pub(crate) unsafe fn new(
        problem: &Problem,
        operands: &RawOperands,
        first: usize,
        count: usize,
        stream: &Stream,
    ) -> Result<Self> {
        let device = stream.device();
        let (problem, args) = (CProblem::new(problem), CArgs::new(operands, stream));
        let mut written = Written {
            value: device.alloc(count)?,
            mag: device.alloc(count)?,
            sequential: device.alloc(count)?,
        };
        // SAFETY: the caller vouches for the operands; the three results hold `count` elements.
        on(stream, "cf_oracle", || unsafe {
            ffi::cf_oracle(
                &problem,
                &args,
                first as i64,
                count as i64,
                written.value.as_mut_ptr().cast(),
                written.mag.as_mut_ptr().cast(),
                written.sequential.as_mut_ptr().cast(),
            )
        })?;
        Ok(written)
    }

    /// Judges an output, all of which is written.
    ///
    /// # Safety
    /// `y` is of `stream`'s device and as large as the problem says.
    pub(crate) unsafe fn judge(
        &self,
        problem: &Problem,
        y: *const c_void,
        bounds: &Bounds,
        stream: &Stream,
    ) -> Result<Verdict> {
        assert_eq!(self.value.len(), problem.y_len());
        let problem = CProblem::new(problem);
        found("cf_judge_by", stream, |verdict| {
            // SAFETY: the caller vouches for y; the others have its length, and `verdict` the size.
            unsafe {
                ffi::cf_judge_by(
                    &problem,
                    self.value.as_ptr().cast(),
                    self.mag.as_ptr().cast(),
                    self.sequential.as_ptr().cast(),
                    y,
                    &bounds.in_c(),
                    verdict,
                    stream.raw(),
                )
            }
        })
    }
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
    // SAFETY: the caller vouches for the operands.
    let written = unsafe { Written::new(problem, operands, first, count, stream)? };
    let (value, mag) = (written.value.to_vec(stream)?, written.mag.to_vec(stream)?);
    let parts = value
        .into_iter()
        .zip(mag)
        .zip(written.sequential.to_vec(stream)?);
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
