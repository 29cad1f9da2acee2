//! What keeps a check from being made.

use convforge::Problem;

use crate::Data;

/// Why there is no answer. That a variant is wrong is no error: it is an
/// [`Outcome`](crate::Outcome).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What the library answers.
    #[error(transparent)]
    Library(#[from] convforge::Error),
    /// A tensor is longer or shorter than the problem says.
    #[error("{found} {what} were given, and {problem} has {expected}")]
    Length {
        /// Of which tensor, and in what it is counted.
        what: &'static str,
        /// How many the problem has.
        expected: usize,
        /// How many were given.
        found: usize,
        /// The problem.
        problem: Box<Problem>,
    },
    /// The oracle on the GPU is not that of the CPU.
    #[error("{problem}, {data} data: {why}")]
    Oracle {
        /// The problem.
        problem: Box<Problem>,
        /// The data.
        data: Data,
        /// What differs.
        why: String,
    },
}

/// Results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Refuses a tensor of another length than the problem says.
pub(crate) fn same_length(
    problem: &Problem,
    what: &'static str,
    found: usize,
    expected: usize,
) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(Error::Length {
        what,
        expected,
        found,
        problem: Box::new(problem.clone()),
    })
}
