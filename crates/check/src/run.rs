//! One variant on one problem.
//!
//! Per kind of data the variant runs from fresh poison: twice with the workspace it would like, and
//! once with the least it works with, where it may sum in another order. Afterwards
//!
//! - the fences around outputs, workspace, packed filter and inputs must be whole,
//! - the output must be right: poison that was left standing is NaN, and NaN is never right,
//! - the first two runs must agree in every bit,
//! - inputs and packed filter must be what they were.

use std::{fmt, ptr::null_mut, sync::Arc};

#[cfg(feature = "cuda")]
use super::oracle;
use super::{
    Bounds, Data, Expected, Recipe, Tensor, Verdict,
    data::widen,
    fence::{Fence, Fenced},
    judge::judge,
    stored::{Deviation, as_stored, rounds},
};
use crate::{
    Conv, Device, Error, Problem, RawOperands, Result, Stream, Workspace,
    reference::{Reference, Tensors, position},
    variant::{Arithmetic, Bytes, Variant},
};

/// How thorough a check is.
#[derive(Clone, Debug)]
pub struct Options {
    /// The kinds of data, in order; a problem is fed with those that fit it.
    pub data: Vec<Data>,
    /// On a GPU, problems with more floating-point operations are judged by csrc/oracle.cu instead
    /// of the CPU.
    pub cpu_flops: f64,
    /// Whether [`Measured::stored`] is found as well.
    pub stored: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            data: Data::ALL.to_vec(),
            cpu_flops: 3e7,
            stored: false,
        }
    }
}

/// How one case ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Right on every kind of data.
    Passed(Vec<Measured>),
    /// Wrong; what, where, and the command that shows it again.
    Failed(String),
    /// The variant says that it cannot do the problem, and why.
    Unsupported(String),
    /// It could not be tried here, and why. Not a pass.
    Skipped(String),
}

/// How right a result was.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// The data.
    pub data: Data,
    /// What the comparison found.
    pub verdict: Verdict,
    /// What the RMS of the error was allowed to be: 0 where every bit had to be right, infinite
    /// where only each element by itself was judged.
    pub rms_limit: f64,
    /// How far the result is from f64 of the operands as they are stored, where the options ask for
    /// it. The verdict takes them as the math rounds them, which is no fault of a variant.
    pub stored: Option<Deviation>,
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let (rms, worst) = (self.verdict.rms(), self.verdict.worst);
        match self.rms_limit {
            0.0 => write!(f, "{} data: exact", self.data),
            f64::INFINITY => write!(f, "{} data: worst {worst:.1e}", self.data),
            limit => write!(
                f,
                "{} data: rms {rms:.1e} of {limit:.1e} allowed, worst {worst:.1e}",
                self.data
            ),
        }
    }
}

/// Checks a variant with one of its configurations.
pub fn case(
    device: &Device,
    variant: &Arc<dyn Variant>,
    config: usize,
    problem: &Problem,
    seed: u64,
    options: &Options,
) -> Outcome {
    match Conv::with_variant(device, problem, variant.clone(), config) {
        Ok(made) => conv(&made, seed, options),
        Err(Error::Unsupported { why, .. }) => Outcome::Unsupported(why),
        Err(error) => Trouble::Error(error).outcome(variant.info().spelled(config), problem, seed),
    }
}

/// Checks a convolution that was already made.
pub fn conv(conv: &Conv, seed: u64, options: &Options) -> Outcome {
    let fitting = options.data.iter().filter(|data| data.fits(conv.problem()));
    let measured = fitting.map(|data| {
        check(conv, *data, seed, options).map_err(|trouble| trouble.about(format!("{data} data")))
    });
    match measured.collect::<Result<Vec<Measured>, Trouble>>() {
        Ok(measured) if measured.is_empty() => {
            Outcome::Skipped("none of the data asked for fits the problem".to_owned())
        }
        Ok(measured) => Outcome::Passed(measured),
        Err(trouble) => trouble.outcome(conv.name(), conv.problem(), seed),
    }
}

/// What ends a check early.
enum Trouble {
    Wrong(String),
    Error(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Trouble::Error(error)
    }
}

impl Trouble {
    fn about(self, what: String) -> Self {
        match self {
            Trouble::Wrong(why) => Trouble::Wrong(format!("{what}: {why}")),
            error => error,
        }
    }

    fn outcome(self, variant: String, problem: &Problem, seed: u64) -> Outcome {
        let why = match self {
            Trouble::Wrong(why) => why,
            Trouble::Error(
                error @ (Error::OutOfMemory { .. }
                | Error::Library { .. }
                | Error::NoGpu(_)
                | Error::Interrupted),
            ) => return Outcome::Skipped(error.to_string()),
            Trouble::Error(error) => error.to_string(),
        };
        Outcome::Failed(format!(
            "{why}\n    convforge check --variant {variant} --problem {problem} --seed {seed}"
        ))
    }
}

fn wrong<T>(why: String) -> Result<T, Trouble> {
    Err(Trouble::Wrong(why))
}

/// An operand that the variant only reads, and a copy to compare it with afterwards.
struct Input {
    what: &'static str,
    tensor: Fenced,
    copy: Fenced,
}

impl Input {
    fn new(
        device: &Device,
        recipe: &Recipe,
        tensor: Tensor,
        align: usize,
        stream: &Stream,
    ) -> Result<Self> {
        let bytes = recipe.bytes(tensor);
        let made = || {
            let mut fenced = Fenced::new(device, bytes.len(), align, Fence::Poison, stream)?;
            fenced.write(&bytes, stream)?;
            Result::Ok(fenced)
        };
        let what = match tensor {
            Tensor::X => "the input (x)",
            Tensor::W => "the filter (w)",
            Tensor::Bias => "the bias",
            Tensor::Residual => "the residual",
        };
        Ok(Input {
            what,
            tensor: made()?,
            copy: made()?,
        })
    }

    fn check(&self, stream: &Stream) -> Result<(), Trouble> {
        whole(self.what, &self.tensor, stream)?;
        match self.tensor.differences(&self.copy, stream)? {
            0 => Ok(()),
            count => wrong(format!("{} was changed in {count} words", self.what)),
        }
    }
}

fn whole(what: &str, memory: &Fenced, stream: &Stream) -> Result<(), Trouble> {
    match memory.breach(stream)? {
        None => Ok(()),
        Some(breach) => wrong(format!("the memory around {what} {breach}")),
    }
}

fn check(conv: &Conv, data: Data, seed: u64, options: &Options) -> Result<Measured, Trouble> {
    let (device, problem) = (conv.device(), conv.problem());
    let stream = device.stream()?;
    let recipe = Recipe::new(problem, data, seed);
    let align = problem.align;
    let mut x = Input::new(device, &recipe, Tensor::X, align, &stream)?;
    let mut w = Input::new(device, &recipe, Tensor::W, align, &stream)?;
    let mut bias = Input::new(device, &recipe, Tensor::Bias, align.max(4), &stream)?;
    let mut residual = Input::new(device, &recipe, Tensor::Residual, align, &stream)?;

    // Packed twice, used once: afterwards the other still tells what it was.
    let packed = || -> Result<Fenced> {
        Fenced::new(
            device,
            conv.packed_bytes(),
            Workspace::ALIGN,
            Fence::Pattern,
            &stream,
        )
    };
    let mut packed = [packed()?, packed()?];
    if conv.packed_bytes() > 0 {
        for packed in &mut packed {
            // SAFETY: both have the sizes that the problem and the plan say.
            unsafe { conv.pack_raw(w.tensor.address(), packed.address(), &stream)? };
        }
        stream.synchronize()?;
    }

    let y_bytes = problem.y_len() * problem.storage.bytes();
    let output = || Fenced::new(device, y_bytes, align, Fence::Pattern, &stream);
    let Bytes { least, preferred } = conv.workspace_bytes();
    // Twice the same, and once with the least workspace, which may sum in another order.
    let mut runs = vec![(output()?, preferred), (output()?, preferred)];
    if least < preferred {
        runs.push((output()?, least));
    }
    let given = |fenced: &mut Fenced, is: bool| if is { fenced.address() } else { null_mut() };
    let mut operands = RawOperands {
        bias: given(&mut bias.tensor, problem.epilogue.bias)
            .cast_const()
            .cast(),
        residual: given(&mut residual.tensor, problem.epilogue.residual),
        packed: given(&mut packed[0], conv.packed_bytes() > 0),
        ..RawOperands::new(x.tensor.address(), w.tensor.address(), null_mut())
    };
    for (y, bytes) in &mut runs {
        let mut memory = Fenced::new(device, *bytes, Workspace::ALIGN, Fence::Pattern, &stream)?;
        operands.y = y.address();
        // SAFETY: `memory` outlives the workspace, and nothing else uses it.
        let mut workspace =
            unsafe { Workspace::from_raw(&stream, memory.address(), memory.len())? };
        workspace.reserve(conv, &stream)?;
        // SAFETY: every operand has the size that the problem says and outlives the stream's work,
        // which is waited for here.
        unsafe { conv.run_raw(&operands, &mut workspace, &stream)? };
        stream.synchronize()?;
        whole("the output", y, &stream)?;
        whole(&format!("the workspace of {bytes} bytes"), &memory, &stream)?;
    }
    let inputs = [x, w, bias, residual];
    for input in &inputs {
        input.check(&stream)?;
    }
    whole("the packed filter", &packed[0], &stream)?;
    if packed[0].differences(&packed[1], &stream)? != 0 {
        return wrong("the packed filter was changed, or packing twice differs".to_owned());
    }

    let mut judged = |y: &mut Fenced| -> Result<Measured, Trouble> {
        operands.y = y.address();
        let judged = Judged {
            problem,
            data,
            arithmetic: conv.variant().info().arithmetic,
            y,
            stream: &stream,
        };
        let mut measured = match judged.by_gpu(&operands, options)? {
            Some(measured) => measured,
            None => judged.by_cpu(&recipe.tensors())?,
        };
        if options.stored && rounds(problem) {
            let problem = &as_stored(problem)?;
            let stored = Judged { problem, ..judged };
            measured.stored = Some(stored.deviation(&operands, &recipe, options)?);
        } else if options.stored {
            measured.stored = Some(Deviation::of(&measured.verdict));
        }
        Ok(measured)
    };
    let mut runs = runs.into_iter();
    let (Some((mut first, _)), Some((second, _))) = (runs.next(), runs.next()) else {
        return wrong("no run was made".to_owned());
    };
    let measured = judged(&mut first)?;
    match first.differences(&second, &stream)? {
        0 => {}
        words => {
            return wrong(format!(
                "the second run differs from the first in {words} words"
            ));
        }
    }
    for (mut y, bytes) in runs {
        if first.differences(&y, &stream)? != 0 {
            judged(&mut y)
                .map_err(|trouble| trouble.about(format!("with a workspace of {bytes} bytes")))?;
        }
    }
    Ok(measured)
}

/// An output to be judged.
struct Judged<'a> {
    problem: &'a Problem,
    data: Data,
    /// What the variant declares, which chooses the rule.
    arithmetic: Arithmetic,
    y: &'a Fenced,
    stream: &'a Stream,
}

impl Judged<'_> {
    fn by_cpu(&self, tensors: &Tensors) -> Result<Measured, Trouble> {
        let reference = Reference::new(self.problem, tensors);
        let y = self.y.read(self.stream)?;
        let bounds = Bounds::new(self.problem, self.data, self.arithmetic);
        let verdict = judge(self.problem, &reference, &y, &bounds);
        self.conclude(&bounds, verdict, |index| Ok(reference.output(index)))
    }

    /// How far the output is from the reference, whether or not that is within bounds.
    fn deviation(
        &self,
        operands: &RawOperands,
        recipe: &Recipe,
        options: &Options,
    ) -> Result<Deviation> {
        let bounds = Bounds::new(self.problem, self.data, self.arithmetic);
        #[cfg(feature = "cuda")]
        if oracle::judges(self.problem, self.stream, options) {
            // SAFETY: the operands are those that the variant was given, on this device.
            let verdict =
                unsafe { oracle::judge_on_gpu(self.problem, operands, &bounds, self.stream)? };
            return Ok(Deviation::of(&verdict));
        }
        let _ = (operands, options);
        let tensors = recipe.tensors();
        let reference = Reference::new(self.problem, &tensors);
        let y = self.y.read(self.stream)?;
        Ok(Deviation::of(&judge(self.problem, &reference, &y, &bounds)))
    }

    /// `None` where the CPU is to judge.
    #[cfg(feature = "cuda")]
    fn by_gpu(
        &self,
        operands: &RawOperands,
        options: &Options,
    ) -> Result<Option<Measured>, Trouble> {
        let (problem, stream) = (self.problem, self.stream);
        if !oracle::judges(problem, stream, options) {
            return Ok(None);
        }
        let bounds = Bounds::new(problem, self.data, self.arithmetic);
        // SAFETY: the operands are those that the variant was given, on this device.
        let verdict = unsafe { oracle::judge_on_gpu(problem, operands, &bounds, stream)? };
        let expected = |index| {
            // SAFETY: as above.
            let one = unsafe { oracle::expected_on_gpu(problem, operands, index, 1, stream)? };
            Ok(one[0])
        };
        self.conclude(&bounds, verdict, expected).map(Some)
    }

    #[cfg(not(feature = "cuda"))]
    fn by_gpu(&self, _: &RawOperands, _: &Options) -> Result<Option<Measured>, Trouble> {
        Ok(None)
    }

    /// What the verdict means; `expected` is asked about the first wrong output.
    fn conclude(
        &self,
        bounds: &Bounds,
        verdict: Verdict,
        expected: impl Fn(usize) -> Result<Expected>,
    ) -> Result<Measured, Trouble> {
        let problem = self.problem;
        if let Some(first) = verdict.first_bad {
            let first = first as usize;
            let bytes = problem.storage.bytes();
            let y = widen(
                problem.storage,
                &self.y.read_part(first * bytes, bytes, self.stream)?,
            )[0];
            let Expected { value, mag, .. } = expected(first)?;
            let allowed = if bounds.exact {
                "exactly".to_owned()
            } else {
                format!("within {:.3e} of", bounds.allowed(value, mag))
            };
            let [n, k, p, q] = position(problem, first);
            return wrong(format!(
                "{} of {} outputs are wrong, {} of them NaN; the first at n {n}, k {k}, p {p}, \
                 q {q} is {y:e} and should be {allowed} {value:e}",
                verdict.bad,
                problem.y_len(),
                verdict.nan,
            ));
        }
        // Nothing is learned from zeros that agree.
        if verdict.counted >= 64 && verdict.nonzero * 8 < verdict.counted {
            return wrong(format!(
                "only {} of {} outputs should be other than zero; such a comparison proves little",
                verdict.nonzero, verdict.counted
            ));
        }
        let rms_limit = if bounds.exact {
            0.0
        } else {
            bounds.rms_limit(&verdict)
        };
        // Not `>`: a NaN must fail.
        let within = verdict.rms() <= rms_limit;
        if !bounds.exact && !within {
            return wrong(format!(
                "the error is {:.3e} rms, where {rms_limit:.3e} is allowed (a sequential fp32 loop \
                 has {:.3e}); no single output is far off",
                verdict.rms(),
                verdict.rms_sequential()
            ));
        }
        Ok(Measured {
            data: self.data,
            verdict,
            rms_limit,
            stored: None,
        })
    }
}
