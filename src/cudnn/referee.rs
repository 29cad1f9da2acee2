//! Who measures plans, and says whether they are right.

use crate::{Conv, Result};

/// Who measures and judges plans. The library does neither: how a time is taken, and what counts as
/// right, is for the one who compares.
pub trait Referee {
    /// Microseconds of each of these convolutions of one problem on one device, measured with care,
    /// in turns; for each, why it cannot stand where it cannot.
    ///
    /// # Errors
    /// What keeps all of them from being measured.
    fn time(&mut self, convs: &[Conv]) -> Result<Vec<Result<f64, String>>>;

    /// Whether a convolution computes what it should.
    fn judge(&mut self, conv: &Conv) -> Judgement;
}

/// What a [`Referee`] thinks of a result; there is no fourth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It is right.
    Right,
    /// Whether it is right could not be found out here; why.
    Open(String),
    /// It is wrong; how.
    Wrong(String),
}
