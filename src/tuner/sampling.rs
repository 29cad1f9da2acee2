//! How samples are taken, by the tuner and by `convforge compare` alike.

use std::time::Duration;

use crate::{Limits, Problem};

/// Microseconds: a sample is made no longer than this for the sake of rotating through all sets of operands, as a
/// launch that lasts so long takes no notice of what the cache still holds.
pub const LONGEST_SAMPLE_US: f64 = 20_000.0;
/// How many times the time of the fastest one is so far behind that nobody asks for more precision.
pub const FAR: f64 = 5.0;
/// Samples of a variant that is [`FAR`] behind.
pub const FEW_SAMPLES: usize = 3;
/// Sets of operands at most, so that a graph stays small.
const MOST_SETS: usize = 1024;
/// How long a GPU rests after a sample, in lengths of the sample.
const REST: u32 = 3;
/// The longest rest: samples that last are of slow kernels, which draw little.
pub const LONGEST_REST: Duration = Duration::from_millis(100);

/// Sets of operands that calls rotate among: more than the L2 holds, unless it may hold them.
pub fn sets(problem: &Problem, limits: &Limits, warm: bool) -> usize {
    let twice_l2 = 2 * limits.l2_bytes as usize;
    match warm {
        true => 1,
        false => (twice_l2 / (problem.bytes() as usize).max(1) + 1).min(MOST_SETS),
    }
}

/// How long a GPU should rest after so long a sample, before the next one. In a row large products draw all
/// the power there is: cuDNN took 246 us for 234, and 176 for 163, on layers of VGG-16 in bf16 NHWC
/// (benches/results/evidence/h200-rests.csv).
pub fn rest_after(busy: Duration) -> Duration {
    LONGEST_REST.min(busy.saturating_mul(REST))
}
