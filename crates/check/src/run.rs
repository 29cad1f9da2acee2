//! One variant on one problem.
//!
//! Per kind of data the variant runs from fresh poison: twice with the workspace it would like, and
//! once with the least it works with, where it may sum in another order. Afterwards
//!
//! - the fences around outputs, workspace, packed filter and inputs must be whole,
//! - the output must be right: poison that was left standing is NaN, and NaN is never right,
//! - the first two runs must agree in every bit,
//! - inputs and packed filter must be what they were.

use std::{fmt, sync::Arc};

use convforge::{
    Conv, Device, Error, Problem,
    variant::{Bytes, Variant},
};

use crate::{Data, Deviation, Recipe, Verdict, judged::Judged, trial::Trial};

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
        Err(error) => Trouble::from(error).outcome(variant.info().spelled(config), problem, seed),
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
pub(crate) enum Trouble {
    Wrong(String),
    Error(crate::Error),
}

impl From<crate::Error> for Trouble {
    fn from(error: crate::Error) -> Self {
        Trouble::Error(error)
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Trouble::Error(error.into())
    }
}

pub(crate) fn wrong<T>(why: String) -> Result<T, Trouble> {
    Err(Trouble::Wrong(why))
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
            Trouble::Error(crate::Error::Library(
                error @ (Error::OutOfMemory { .. }
                | Error::ConstantMemory { .. }
                | Error::Library { .. }
                | Error::NoGpu(_)
                | Error::Interrupted),
            )) => return Outcome::Skipped(error.to_string()),
            Trouble::Error(error) => error.to_string(),
        };
        Outcome::Failed(format!(
            "{why}\n    convforge check --variant {variant} --problem {problem} --seed {seed}"
        ))
    }
}

fn check(conv: &Conv, data: Data, seed: u64, options: &Options) -> Result<Measured, Trouble> {
    let stream = &conv.device().stream()?;
    let recipe = &Recipe::new(conv.problem(), data, seed);
    let trial = Trial::new(conv, recipe, stream)?;
    let Bytes { least, preferred } = conv.workspace_bytes();
    let (first, second) = (trial.run(preferred)?, trial.run(preferred)?);
    let frugal = match least < preferred {
        true => Some(trial.run(least)?),
        false => None,
    };
    trial.check_inputs()?;

    let judged = |y| Judged {
        problem: conv.problem(),
        data,
        arithmetic: conv.variant().info().arithmetic,
        recipe,
        operands: trial.operands(),
        y,
        stream,
        options,
    };
    let measured = judged(&first).measure()?;
    match first.differences(&second, stream)? {
        0 => {}
        words => {
            return wrong(format!(
                "the second run differs from the first in {words} words"
            ));
        }
    }
    if let Some(frugal) = frugal
        && first.differences(&frugal, stream)? != 0
    {
        judged(&frugal)
            .measure()
            .map_err(|trouble| trouble.about(format!("with a workspace of {least} bytes")))?;
    }
    Ok(measured)
}
