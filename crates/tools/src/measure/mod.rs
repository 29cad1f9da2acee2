//! Timing, shared by the command and the benches: checked first, then timed, side by side.
//!
//! A GPU's variant is captured once as a graph of many launches, so that the host's part vanishes,
//! and device events around the graph give the time. Inputs, filters and outputs rotate among sets
//! of buffers that together exceed twice the L2, so every launch reads device memory (`cold`);
//! with one set they may stay in the L2 (`warm`). Variants are interleaved round by round, each round
//! beginning with another one, so that a change of clocks touches all of them alike. A round is
//! queued as a whole: the GPU never waits for the host between two graphs.
//!
//! On the CPU the same rounds are timed by the host's clock, with fewer samples and one set.

pub(crate) mod canvas;
#[cfg(feature = "cuda")]
mod ceilings;
mod chart;
mod compare;
mod curve;
mod environment;
mod floor;
mod lane;
mod profile;
mod report;
mod stages;
mod sweep;
pub(crate) mod table;
mod trace;
mod view;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use convforge::{Conv, Device, Error, Problem, Result, Workspace};
use serde::{Deserialize, Serialize};

use lane::{Lane, Tensors};

#[cfg(feature = "cudnn")]
pub(crate) use compare::thoroughness;
pub(crate) use compare::{Ending, beside_cudnn, checked};
pub use compare::{Row, Status, compare};
pub use environment::{Clocks, Environment, Library, cpu_name, driver_version, libraries};
pub use floor::Ceilings;
pub use profile::profile;
pub use report::{ClockLog, Format, Report};
pub(crate) use report::{Entry, has, put};
pub(crate) use stages::stages;
pub(crate) use table::{Line, Lines, or_dash, rank, times};
pub use table::{bytes, duration};
pub use trace::{Event, write_trace};
pub use view::{Part, View};

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
    /// What floors are reckoned from; without them there are none.
    pub ceilings: Option<Ceilings>,
}

/// Samples of a variant however slow it is.
pub const LEAST_SAMPLES: usize = 5;

impl Options {
    /// Thirty samples on a GPU; on the CPU ten, within two seconds per problem.
    pub fn of(device: &Device) -> Self {
        let (samples, seconds) = if device.is_gpu() { (30, 60) } else { (10, 2) };
        Options {
            samples,
            budget: Duration::from_secs(seconds),
            warm: false,
            seed: 1,
            ceilings: None,
        }
    }
}

/// What a sample is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// A captured graph of launches between two events.
    Graph,
    /// Launches between two events: the variant could not be captured.
    Launches,
    /// Calls between two readings of the host's clock.
    Cpu,
}

/// One kernel, or step, of a variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// Its name.
    pub name: String,
    /// Its time by itself, in microseconds: with an event after it, outside a graph.
    pub us: f64,
}

/// Times of one variant on one problem.
#[derive(Clone, Debug)]
pub struct Timing {
    /// Microseconds per call, ascending; never empty.
    pub samples_us: Vec<f64>,
    /// What a sample is.
    pub how: How,
    /// Calls in one sample.
    pub launches: usize,
    /// Sets of buffers that they rotate among.
    pub sets: usize,
    /// Its stages; empty where there is only one.
    pub stages: Vec<Stage>,
    /// Bytes of workspace.
    pub workspace_bytes: usize,
    /// Microseconds to re-arrange the filter, once per filter; none where it is used as it is.
    pub pack_us: Option<f64>,
}

impl Timing {
    /// The sample that `share` of all samples do not exceed.
    pub fn quantile(&self, share: f64) -> f64 {
        quantile(&self.samples_us, share)
    }

    /// The median.
    pub fn median_us(&self) -> f64 {
        median(&self.samples_us)
    }
}

/// The one of ascending samples that `share` of them do not exceed; there is at least one.
pub(crate) fn quantile(samples: &[f64], share: f64) -> f64 {
    samples[(share * (samples.len() - 1) as f64).round() as usize]
}

/// The middle of ascending samples, of an even number the mean of both; there is at least one.
pub(crate) fn median(samples: &[f64]) -> f64 {
    let count = samples.len();
    (samples[(count - 1) / 2] + samples[count / 2]) / 2.0
}

/// Times several convolutions of one problem on one device, round by round. Once `stop` is set, what
/// has begun ends with [`LEAST_SAMPLES`].
///
/// # Errors
/// No memory for the operands. A convolution that fails has its own error in the list;
/// [`Error::Interrupted`] where it was stopped before it began.
pub fn time(
    device: &Device,
    problem: &Problem,
    convs: &[Conv],
    options: &Options,
    stop: &AtomicBool,
) -> Result<Vec<Result<Timing>>> {
    if convs.is_empty() {
        return Ok(Vec::new());
    }
    let stopped = || stop.load(Ordering::Relaxed);
    let stream = device.stream()?;
    let tensors = Tensors::new(device, problem, options)?;
    // One workspace serves all. It must have its final place before any address is captured.
    let mut workspace = Workspace::new(&stream)?;
    let reserved: Vec<Result<()>> = convs
        .iter()
        .map(|conv| workspace.reserve(conv, &stream))
        .collect();
    let mut lanes: Vec<Result<Lane>> = Vec::new();
    for (conv, reserved) in convs.iter().zip(reserved) {
        lanes.push(match reserved {
            _ if stopped() => Err(Error::Interrupted),
            Err(error) => Err(error),
            Ok(()) => Lane::new(conv, &tensors, &mut workspace, &stream),
        });
    }

    let share = options.budget.as_secs_f64() * 1e6 / convs.len().max(1) as f64;
    for round in 0.. {
        let wanted = if stopped() {
            LEAST_SAMPLES
        } else {
            options.samples
        };
        let mut running: Vec<&mut Result<Lane>> = lanes
            .iter_mut()
            .filter(|lane| {
                lane.as_ref()
                    .is_ok_and(|lane| lane.wants_more(wanted, share))
            })
            .collect();
        if running.is_empty() {
            break;
        }
        let first = round % running.len();
        running.rotate_left(first);
        for lane in &mut running {
            attempt(lane, |lane| lane.enqueue(&mut workspace, &stream));
        }
        for lane in &mut running {
            attempt(lane, Lane::collect);
        }
    }
    Ok(lanes
        .into_iter()
        .map(|lane| lane?.finish(&mut workspace, &stream))
        .collect())
}

/// Does the next step of a lane that has not failed; an error takes its place.
fn attempt<'a>(lane: &mut Result<Lane<'a>>, step: impl FnOnce(&mut Lane<'a>) -> Result<()>) {
    if let Ok(running) = lane
        && let Err(error) = step(running)
    {
        *lane = Err(error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples() {
        let timing = Timing {
            samples_us: (1..=11).map(f64::from).collect(),
            how: How::Cpu,
            launches: 1,
            sets: 1,
            stages: Vec::new(),
            workspace_bytes: 0,
            pack_us: None,
        };
        assert_eq!(timing.median_us(), 6.0);
        assert_eq!(
            [0.0, 0.1, 0.9, 1.0].map(|q| timing.quantile(q)),
            [1.0, 2.0, 10.0, 11.0]
        );
    }
}
