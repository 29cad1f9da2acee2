//! One variant on one problem.

use convforge::{Problem, variant::Arithmetic};
use serde::{Deserialize, Serialize};

use super::{
    entry::{Entry, Status},
    timing::{How, Stage},
};
use crate::suite::Layer;

/// One variant on one problem: one line of a table, one object of a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The suite; empty for a problem by itself.
    pub suite: String,
    /// The layer's name in the suite.
    pub layer: String,
    /// The problem that was run.
    pub problem: Problem,
    /// Its math.
    pub math: String,
    /// The variant, or the pick that chose one.
    pub variant: String,
    /// Its configuration.
    pub config: Option<String>,
    /// Whether the comparison found this configuration to be the fastest of its variant; the next one may find
    /// another.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub found: bool,
    /// Of a default: how many configurations of its variant the comparison tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tried: Option<usize>,
    /// What a pick chose: `fused_shared:tile=24`.
    #[serde(default)]
    pub chose: Option<String>,
    /// How it comes to its sums; a report of a time before transforms has exact ones only.
    #[serde(default)]
    pub arithmetic: Arithmetic,
    /// What became of it.
    pub status: Status,
    /// Why it did not pass.
    pub reason: Option<String>,
    /// Median time of a call.
    pub median_us: Option<f64>,
    /// A tenth of the samples are faster.
    pub p10_us: Option<f64>,
    /// A tenth of the samples are slower.
    pub p90_us: Option<f64>,
    /// Number of samples; the CPU takes fewer.
    pub samples: usize,
    /// What a sample is: `graph`, `launches` or `cpu`.
    pub how: Option<How>,
    /// Whether buffers rotated so that the L2 held none of them.
    pub cold: bool,
    /// Times of the single kernels; empty where there is one.
    pub stages: Vec<Stage>,
    /// The least time that the ceilings measured in this run allow.
    pub floor_us: Option<f64>,
    /// Operations of the problem over the median, in 10^12 per second.
    pub tflops: Option<f64>,
    /// Fewest bytes of the problem over the median, in 10^9 per second.
    pub gbs: Option<f64>,
    /// Bytes of workspace.
    pub workspace_bytes: Option<usize>,
    /// Time to re-arrange the filter, once per filter, where the variant wants that.
    pub pack_us: Option<f64>,
    /// What the variant chose inside: the name of a library's plan, or what a kernel's is made of.
    pub plan: Option<String>,
    /// Which variant of cuDNN's was the fastest that passed on this problem in the same run.
    pub cudnn_variant: Option<String>,
    /// Its median.
    pub cudnn_us: Option<f64>,
    /// The plan it used.
    pub cudnn_plan: Option<String>,
    /// Times faster than that; none where the search of cuDNN's plans was not complete.
    pub speedup_vs_cudnn: Option<f64>,
    /// How far that search went: [`COMPLETE`], or which plans were not tried. A report of a time before
    /// this was kept does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cudnn_search: Option<String>,
    /// In cuDNN's own rows, where its fastest plan that runs is no baseline: that one's time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cudnn_any_us: Option<f64>,
    /// Which plan that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cudnn_any_plan: Option<String>,
    /// What is wrong with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cudnn_any_why: Option<String>,
    /// Hash of what the variant is made of, `Info::hash`; a report of a time before has that of all of
    /// csrc only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Median time of packing the filter and the call together, where the variant wants a packed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with_pack_us: Option<f64>,
    /// Median time where no kernel begins before the one ahead of it has ended, for a variant whose
    /// kernels otherwise do so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial_us: Option<f64>,
    /// Clock of the multiprocessors in MHz, counted by a kernel right behind each sample: the median. A
    /// report of a time before has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_mhz: Option<f64>,
    /// Where the math is fp32: the least time by three products on tensor cores for each of fp32;
    /// `floor_us` is the one by FMAs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_split_us: Option<f64>,
    /// What `floor_us` is bound by: `memory`, `FMA` or `tensor cores`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_by: Option<String>,
    /// The median that this row had when it was last kept, before it was measured again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_us: Option<f64>,
    /// Seconds that it took to make and check it, a search of cuDNN's plans among them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_s: Option<f64>,
}

/// What [`Row::cudnn_search`] says of a search that tried every plan.
pub const COMPLETE: &str = "complete";

impl Row {
    /// `fused_shared:tile=24`, or `policy:per-layer`.
    pub fn name(&self) -> String {
        match &self.config {
            Some(config) => format!("{}:{config}", self.variant),
            None => self.variant.clone(),
        }
    }

    /// The name, and what a pick chose: `policy:per-layer (direct_naive)`.
    pub(crate) fn label(&self) -> String {
        match &self.chose {
            Some(chose) => format!("{} ({chose})", self.name()),
            None => self.name(),
        }
    }

    /// The first word of the name of the variant, or of what a pick chose: `cudnn` for both of
    /// cuDNN's.
    pub(crate) fn family(&self) -> &str {
        let variant = self.chose.as_ref().unwrap_or(&self.variant);
        variant.split(['_', ':']).next().unwrap_or_default()
    }

    /// Whether it says all that it would in a run that was not interrupted.
    pub fn is_whole(&self) -> bool {
        Entry::is_whole(self)
    }

    /// Whether it is of this layer.
    pub(crate) fn is_of(&self, layer: &Layer) -> bool {
        self.suite == layer.suite && self.layer == layer.layer && self.problem == layer.problem
    }

    /// Whether cuDNN may have a faster plan than the one it stands beside.
    pub(crate) fn is_search_incomplete(&self) -> bool {
        self.cudnn_search
            .as_ref()
            .is_some_and(|how| how != COMPLETE)
    }

    /// What follows from the median: operations and bytes per second.
    pub(crate) fn find_rates(&mut self) {
        let rate = |amount: f64, unit: f64| Some(amount / self.median_us? * unit);
        let rates = (
            rate(self.problem.flops(), 1e-6),
            rate(self.problem.bytes(), 1e-3),
        );
        (self.tflops, self.gbs) = rates;
    }
}

impl Row {
    /// Whether it is of the same variant on the same problem, in whatever configuration.
    fn is_beside(&self, other: &Self) -> bool {
        (&self.suite, &self.layer, &self.problem, self.cold)
            == (&other.suite, &other.layer, &other.problem, other.cold)
            && self.variant == other.variant
    }

    /// Whether rows are of a comparison that has decided again which configuration is the fastest of its variant.
    pub(crate) fn is_outdated_by(&self, rows: &[Row]) -> bool {
        let decides = |row: &Row| row.tried.is_some() && row.is_whole() && row.is_beside(self);
        self.found && rows.iter().any(decides)
    }
}

impl Entry for Row {
    fn is_same(&self, other: &Self) -> bool {
        self.config == other.config && self.is_beside(other)
    }

    fn status(&self) -> Status {
        self.status
    }

    fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }
}
