//! Where elements lie: what numbers depend on beside their index.

use convforge::{Layout, Problem};

/// Where elements lie, as far as their numbers depend on it.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// Elements between two channels of the input, and of the filter.
    pub(super) between: [usize; 2],
    /// All channels, and those that a group sees.
    pub(super) all: usize,
    pub(super) channels: usize,
    /// Filters of a group, and weights of a filter.
    pub(super) filters: usize,
    pub(super) row: usize,
}

impl Places {
    pub(super) fn new(problem: &Problem) -> Self {
        let pixels = problem.h() * problem.w();
        Places {
            between: match problem.layout() {
                Layout::Nchw => [pixels, problem.r() * problem.s()],
                Layout::Nhwc => [1, 1],
            },
            all: problem.c(),
            channels: problem.c() / problem.groups(),
            filters: problem.k() / problem.groups(),
            row: problem.reduction(),
        }
    }

    /// The channel, and the pixel among those of all images.
    pub(super) fn of_x(&self, index: usize) -> [usize; 2] {
        let between = self.between[0];
        let (inner, outer) = (index % between, index / between);
        [outer % self.all, outer / self.all * between + inner]
    }

    /// The channel of the input that it meets, and the filter.
    pub(super) fn of_w(&self, index: usize) -> [usize; 2] {
        let filter = index / self.row;
        let first = filter / self.filters * self.channels;
        [first + index / self.between[1] % self.channels, filter]
    }
}
