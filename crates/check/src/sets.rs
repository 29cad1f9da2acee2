//! Where the outputs of timed launches lie.

use convforge::Problem;

/// Where outputs of a problem lie in several sets, each followed by a gap.
#[derive(Clone, Copy, Debug)]
pub struct Sets<'a> {
    /// Whose outputs they are.
    pub problem: &'a Problem,
    /// Bytes before the first one.
    pub start: usize,
    /// Elements from one set to the next.
    pub stride: usize,
    /// How many there are.
    pub count: usize,
}
