//! The rows of the study, as they stand in its file.

use convforge::Problem;
pub use convforge::pipeline::{Span, Work};
use serde::{Deserialize, Serialize};

use crate::measure::{Spread, Stage, Status};

/// One variant running the network of the accuracy study on one batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NetworkRow {
    /// The variant or the pick, with its configuration: `fused_shared:tile=24`, `policy:per-layer`.
    pub variant: String,
    /// How it multiplies.
    pub math: String,
    /// Images in the batch.
    pub images: usize,
    /// What became of it. It passed if each layer's convolution passed its check in this run and, on
    /// real data, the logits are within the math's bound.
    pub status: Status,
    /// Why it did not pass.
    pub reason: Option<String>,
    /// The two convolutions; empty where it did not pass.
    pub layers: Vec<LayerTimes>,
    /// From pixels in host memory to logits in host memory, everything allocated before.
    pub total: Option<Spread>,
    /// The share of images classified right; none for made-up images or weights.
    pub accuracy: Option<f64>,
    /// Largest difference from the expected logits, relative to the largest of its row.
    pub logit_deviation: Option<f64>,
    /// How often it was run.
    pub runs: usize,
}

/// Times of one convolution of the network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayerTimes {
    /// The convolution.
    pub problem: Problem,
    /// The variant that did it, which a pick chose.
    pub chose: String,
    /// "Op Time": its kernels alone, without copies.
    pub op: Spread,
    /// The time of each of its kernels; empty where there is one.
    pub stages: Vec<Stage>,
    /// "Layer Time": device memory allocated, input and filter copied from pageable host memory,
    /// kernels, output copied back, memory freed.
    pub layer: Spread,
}

/// Whether the host's memory can be copied from by the device itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostMemory {
    /// Page-locked.
    Pinned,
    /// Ordinary.
    Pageable,
}

impl HostMemory {
    /// The word in the tables and files.
    pub fn word(self) -> &'static str {
        match self {
            HostMemory::Pinned => "pinned",
            HostMemory::Pageable => "pageable",
        }
    }
}

/// One variant on one problem, its batch split over streams: copies in, kernels, copies out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OverlapRow {
    /// The suite's name.
    pub suite: String,
    /// The layer's name in the suite.
    pub layer: String,
    /// The whole batch.
    pub problem: Problem,
    /// The variant with its configuration, or the pick.
    pub variant: String,
    /// What a pick chose.
    #[serde(default)]
    pub chose: Option<String>,
    /// Streams.
    pub streams: usize,
    /// Images in a chunk, but for the last.
    pub chunk: usize,
    /// The host's memory.
    pub memory: HostMemory,
    /// What became of it. It passed if the output is that of the unpipelined run, bit for bit.
    pub status: Status,
    /// Why it did not pass.
    pub reason: Option<String>,
    /// From the first copy to the last, by events.
    pub time: Option<Spread>,
    /// How often it was run.
    pub runs: usize,
    /// Microseconds for copying all inputs in, and nothing else, from the same memory.
    pub copy_in_us: Option<f64>,
    /// For copying all outputs back, and nothing else.
    pub copy_out_us: Option<f64>,
    /// For the kernels alone on the whole batch.
    pub kernel_us: Option<f64>,
    /// What each engine did in one run, kept for few rows only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<Span>,
}

impl OverlapRow {
    /// What no overlap can beat: the slowest of copying in, copying out and the kernels.
    pub fn bound_us(&self) -> Option<f64> {
        let parts = [self.copy_in_us?, self.copy_out_us?, self.kernel_us?];
        Some(parts.into_iter().fold(0.0, f64::max))
    }

    /// The share of the time that the slowest part alone needs: 1 is perfect overlap.
    pub fn reached(&self) -> Option<f64> {
        Some(self.bound_us()? / self.time?.median_us)
    }
}
