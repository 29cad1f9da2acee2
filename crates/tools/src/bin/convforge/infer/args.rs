//! What `convforge infer` is asked.

use std::path::PathBuf;

use convforge::{Math, Pick};

use crate::{
    args::{DeviceArgs, SearchArgs},
    data::DataArgs,
    numbers::positive,
};

/// Classifies Fashion-MNIST images, enlarged to 86x86, with a small LeNet whose two convolutions
/// any variant can do; everything stays on one device from pixels to classes.
#[derive(clap::Args)]
#[command(after_help = "For example:\n  convforge infer --count 100 --math f16 --json")]
pub struct Args {
    #[command(flatten)]
    pub data: DataArgs,
    /// Only the first COUNT images [default: all]
    #[arg(long, value_parser = positive::<usize>, allow_negative_numbers = true)]
    pub count: Option<usize>,
    /// The variant of both convolutions, or one configuration as in fused_shared:tile=24; `auto`,
    /// `rule`, `kernels` or a policy as in policy:per-layer choose one for each
    #[arg(long, default_value = "rule")]
    pub variant: Pick,
    #[command(flatten)]
    pub search: SearchArgs,
    /// How the convolutions multiply: fp32, tf32, f16, bf16 or f16acc
    #[arg(long, default_value = "fp32")]
    pub math: Math,
    /// Run the network with its layers fused, in fp32 accuracy, for a GPU of compute capability 9.0 or
    /// newer: whole time, kernels alone and copy in alone, medians of --runs
    #[arg(long, conflicts_with_all = ["variant", "batch"])]
    pub fused: bool,
    /// Timed runs of --fused
    #[arg(long, default_value_t = 30, requires = "fused")]
    #[arg(value_parser = positive::<usize>, allow_negative_numbers = true)]
    pub runs: usize,
    /// Images per batch [default: all of them on a GPU, 500 on the CPU]
    #[arg(long, value_parser = positive::<usize>, allow_negative_numbers = true)]
    pub batch: Option<usize>,
    /// Write the logits to a NumPy file
    #[arg(long, value_name = "OUT.npy")]
    pub logits: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub device: DeviceArgs,
}
