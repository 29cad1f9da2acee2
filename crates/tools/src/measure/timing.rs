//! What timing a variant gives.

use serde::{Deserialize, Serialize};

use super::spread::{median, quantile};

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
    /// Why launches were not captured in a graph, in words, where they should have been.
    pub no_graph: Option<String>,
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
    /// What was wrong with the outputs of the launches that were timed, in words, where they were
    /// judged.
    pub wrong: Option<String>,
    /// Median of packing and calling together, where there is packing.
    pub with_pack_us: Option<f64>,
    /// Median where no kernel begins early, where any does.
    pub serial_us: Option<f64>,
    /// Clock of the multiprocessors in MHz, counted right behind each sample: the median. None on the CPU.
    pub sm_mhz: Option<f64>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples() {
        let timing = Timing {
            samples_us: (1..=11).map(f64::from).collect(),
            how: How::Cpu,
            no_graph: None,
            launches: 1,
            sets: 1,
            stages: Vec::new(),
            workspace_bytes: 0,
            pack_us: None,
            wrong: None,
            with_pack_us: None,
            serial_us: None,
            sm_mhz: None,
        };
        assert_eq!(timing.median_us(), 6.0);
        assert_eq!(
            [0.0, 0.1, 0.9, 1.0].map(|q| timing.quantile(q)),
            [1.0, 2.0, 10.0, 11.0]
        );
    }
}
