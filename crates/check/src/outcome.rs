//! How a check ends.

use std::fmt;

use convforge::{Error, Problem, chain};

use crate::{Data, Deviation, Verdict};

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
    pub(crate) fn about(self, what: String) -> Self {
        match self {
            Trouble::Wrong(why) => Trouble::Wrong(format!("{what}: {why}")),
            error => error,
        }
    }

    pub(crate) fn outcome(self, variant: String, problem: &Problem, seed: u64) -> Outcome {
        let why = match self {
            Trouble::Wrong(why) => why,
            Trouble::Error(crate::Error::Library(
                error @ (Error::OutOfMemory { .. }
                | Error::ConstantMemory { .. }
                | Error::Library { .. }
                | Error::NoGpu { .. }
                | Error::Interrupted),
            )) => return Outcome::Skipped(chain(&error)),
            Trouble::Error(error) => chain(&error),
        };
        Outcome::Failed(format!(
            "{why}\n    convforge check --variant {variant} --problem {problem} --seed {seed}"
        ))
    }
}
