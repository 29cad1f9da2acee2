//! Rows of files that are written piece by piece, and what became of what they tell of.

use convforge::Error::Interrupted;
use serde::{Deserialize, Serialize};

/// What became of a variant on a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The check passed; if it has times, they are of the same run.
    Passed,
    /// A wrong result, or an error.
    Failed,
    /// The variant says that it cannot do the problem.
    Unsupported,
    /// It was not tried.
    Skipped,
}

impl Status {
    /// The word in the tables and files.
    pub fn word(self) -> &'static str {
        match self {
            Status::Passed => "passed",
            Status::Failed => "failed",
            Status::Unsupported => "unsupported",
            Status::Skipped => "skipped",
        }
    }
}

/// A row of a file that is written piece by piece.
pub(crate) trait Entry: Clone {
    /// Whether the other one is of the same work.
    fn is_same(&self, other: &Self) -> bool;

    fn status(&self) -> Status;

    /// Why it did not pass.
    fn reason(&self) -> Option<&str>;

    /// Whether it says all that it would in a run that was not interrupted.
    fn is_whole(&self) -> bool {
        self.reason() != Some(&Interrupted.to_string())
    }

    /// Whether later rows of the same work say no more than it does: one was interrupted, or all of
    /// them were skipped, and it was not.
    fn outlasts<'a>(&self, later: impl Iterator<Item = &'a Self> + Clone) -> bool
    where
        Self: 'a,
    {
        let skipped = |row: &Self| row.status() == Status::Skipped;
        self.is_whole()
            && (!later.clone().all(Self::is_whole) || !skipped(self) && later.clone().all(skipped))
    }
}

/// Puts rows in the places of those of the same work, or at the end. What was interrupted or skipped
/// does not take the place of what was not.
pub(crate) fn put<E: Entry>(all: &mut Vec<E>, rows: &[E]) {
    for row in rows {
        match all.iter_mut().find(|other| row.is_same(other)) {
            Some(other) if other.outlasts([row].into_iter()) => {}
            Some(other) => *other = row.clone(),
            None => all.push(row.clone()),
        }
    }
}
