//! Tuning results from comparisons: those of this machine's user, and those that ship with the library.

mod exchange;
mod ship;

use convforge::{
    tuner::Entrant,
    tuning::{Line, Outcome},
};

use crate::{
    Contender,
    measure::{How, Row, Status},
};

pub use exchange::{Exchanged, read};
pub use ship::shipped;

/// Those who are to be measured, as who takes part in a comparison.
pub fn contenders(missing: &[Entrant]) -> Vec<Contender> {
    let variants = missing.iter().map(|entrant| entrant.configured.clone());
    variants.map(Contender::Variant).collect()
}

/// What a comparison's row tells of who took part. Nothing where it was skipped or interrupted: another
/// time it may be measured.
pub fn line(entrant: &Entrant, row: &Row) -> Option<Line> {
    let outcome = match row.status {
        Status::Passed if row.is_whole() && row.how == Some(How::Launches) => Outcome::Wrong,
        Status::Passed if row.is_whole() => took(row)?,
        Status::Failed | Status::Unsupported => Outcome::Wrong,
        Status::Passed | Status::Skipped => return None,
    };
    Some(entrant.line(outcome))
}

/// Median and spread of a row, if it was timed.
fn took(row: &Row) -> Option<Outcome> {
    let (us, low, high) = (row.median_us?, row.p10_us?, row.p90_us?);
    Some(Outcome::took(us, (high - low) / us))
}

#[cfg(test)]
mod tests;
