//! How much is measured, and on which data.

use std::time::Duration;

use convforge_tools::measure::Options;

use crate::numbers::{number, positive, seconds};

#[derive(clap::Args)]
pub struct SamplingArgs {
    /// Samples of each variant [default: 30 on a GPU, 10 on the CPU]
    #[arg(long, value_parser = positive::<u32>, allow_negative_numbers = true)]
    samples: Option<u32>,
    /// Use one set of buffers, so that operands may stay in the L2 cache; such times stand by
    /// themselves
    #[arg(long)]
    pub warm: bool,
    /// Time for all samples of one table, in `tune` of one problem; slow variants then take fewer, but
    /// at least 5 [default: 60 on a GPU, 2 on the CPU]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    seconds: Option<Duration>,
    /// Seed of the data
    #[arg(long, default_value_t = 1, value_parser = number::<u64>, allow_negative_numbers = true)]
    seed: u64,
}

impl SamplingArgs {
    /// Whether every call finds its operands in device memory alone.
    pub fn is_cold(&self, gpu: bool) -> bool {
        gpu && !self.warm
    }

    /// What was asked for, on a GPU or on the CPU.
    pub fn options(&self, gpu: bool) -> Options {
        let default = Options::on(gpu);
        Options {
            samples: self.samples.map_or(default.samples, |n| n as usize),
            budget: self.seconds.unwrap_or(default.budget),
            warm: self.warm,
            seed: self.seed,
            fastest_configs: false,
            ceilings: None,
        }
    }
}
