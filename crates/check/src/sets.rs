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

impl Sets<'_> {
    /// Bytes up to the end of the last one's gap; none where no memory has so many.
    pub(crate) fn end(&self) -> Option<usize> {
        let elements = self.count.checked_mul(self.stride)?;
        let bytes = elements.checked_mul(self.problem.storage().bytes())?;
        self.start.checked_add(bytes)
    }
}
