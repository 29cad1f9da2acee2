//! How much to measure.

use std::time::Duration;

use convforge::Device;

use super::Ceilings;

/// How much to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Samples of each variant.
    pub samples: usize,
    /// A variant that has used up its share of this, for one problem, stops at [`LEAST_SAMPLES`].
    pub budget: Duration,
    /// One set of buffers, so that they may stay in the cache.
    pub warm: bool,
    /// Seed of the data.
    pub seed: u64,
    /// Beside the first configuration of a variant, the one that a few samples find to be the fastest.
    pub fastest_configs: bool,
    /// What floors are reckoned from; without them there are none.
    pub ceilings: Option<Ceilings>,
}

/// Samples of a variant however slow it is.
pub const LEAST_SAMPLES: usize = 5;

impl Options {
    /// Thirty samples on a GPU; on the CPU ten, within two seconds per problem.
    pub fn of(device: &Device) -> Self {
        Options::on(device.is_gpu())
    }

    /// The same for a device that need not be here.
    pub fn on(gpu: bool) -> Self {
        let (samples, seconds) = if gpu { (30, 60) } else { (10, 2) };
        Options {
            samples,
            budget: Duration::from_secs(seconds),
            warm: false,
            seed: 1,
            fastest_configs: false,
            ceilings: None,
        }
    }
}
