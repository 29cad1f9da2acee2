//! What a variant is asked, and what it would do.

use std::any::Any;

use crate::{Limits, Problem};

/// What a variant is asked about.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Query<'a> {
    /// The problem.
    pub problem: &'a Problem,
    /// Index into the variant's configurations; 0 where it has none.
    pub config: usize,
    /// The device it would run on.
    pub limits: &'a Limits,
}

impl<'a> Query<'a> {
    /// This problem, in the configuration of this index, on a device of these limits.
    pub fn new(problem: &'a Problem, config: usize, limits: &'a Limits) -> Self {
        Query {
            problem,
            config,
            limits,
        }
    }
}

/// Bytes of workspace, from the least to the most that serve; there is nothing else to say of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bytes {
    /// Works with this much.
    pub least: usize,
    /// Gains nothing from more than this.
    pub preferred: usize,
}

/// Where a re-arranged filter lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Space {
    /// In the device's memory.
    Global,
    /// In the 64 KB of constant memory that a row's kernels have on a device. A rule never picks
    /// such a configuration by itself: there is room for few filters.
    Constant,
}

/// How a variant re-arranges a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Packing {
    /// Bytes of it.
    pub bytes: usize,
    /// Tells arrangements of a variant apart. It depends on filter, configuration and device, not
    /// on the number of images: one packed filter serves every batch, and every configuration with
    /// the same one.
    pub layout: u64,
    /// Where it lies.
    pub space: Space,
}

impl Packing {
    /// So many bytes in this arrangement, in the device's memory.
    pub fn new(bytes: usize, layout: u64) -> Self {
        Packing {
            bytes,
            layout,
            space: Space::Global,
        }
    }

    /// The same elsewhere.
    #[must_use]
    pub fn space(self, space: Space) -> Self {
        Packing { space, ..self }
    }
}

/// What a variant would do with a problem, as far as numbers say it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Plan {
    /// Workspace that a launch may use, as far as it is known without the device.
    pub workspace: Bytes,
    /// Of the filter; none where it is used as it is.
    pub packing: Option<Packing>,
    /// Estimated microseconds, for the selection; none for no opinion.
    pub us: Option<f64>,
    /// What it is made of, in words, where that is chosen: tiles, stages, blocks.
    pub note: Option<String>,
    /// What [`Variant::prepare`](super::Variant::prepare) goes on from: the variant's own.
    pub state: Box<dyn Any + Send + Sync>,
}

impl Default for Plan {
    /// No workspace, no packing, no estimate.
    fn default() -> Self {
        Plan {
            workspace: Bytes::default(),
            packing: None,
            us: None,
            note: None,
            state: Box::new(()),
        }
    }
}

impl Plan {
    /// What preparing goes on from, no workspace, no packing, no estimate.
    pub fn new(state: impl Any + Send + Sync) -> Self {
        Plan {
            state: Box::new(state),
            ..Plan::default()
        }
    }

    /// Whether the filter is re-arranged into constant memory, where there is room for few.
    pub(crate) fn is_in_constant_memory(&self) -> bool {
        self.packing
            .is_some_and(|packing| packing.space == Space::Constant)
    }

    /// The workspace that a launch may use.
    #[must_use]
    pub fn workspace(self, workspace: Bytes) -> Self {
        Plan { workspace, ..self }
    }

    /// How the filter is re-arranged, if it is.
    #[must_use]
    pub fn packing(self, packing: impl Into<Option<Packing>>) -> Self {
        Plan {
            packing: packing.into(),
            ..self
        }
    }

    /// The estimated microseconds, if there is an estimate.
    #[must_use]
    pub fn us(self, us: impl Into<Option<f64>>) -> Self {
        Plan {
            us: us.into(),
            ..self
        }
    }
}
