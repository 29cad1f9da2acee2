//! What became of one plan in a search.

use super::plan::Choice;

/// A plan and what became of it.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Trial {
    /// Which it is.
    pub plan: Choice,
    /// What became of it.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub fate: Fate,
}

/// What became of a plan. Times are microseconds of one call.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "fate", rename_all = "lowercase"))]
#[non_exhaustive]
pub enum Fate {
    /// The first round saw that it is far from the fastest, perhaps on fewer images: its time is
    /// then scaled to all of them.
    Far {
        /// Its time there.
        us: f64,
    },
    /// It ran in the first round.
    Timed {
        /// Its time there.
        us: f64,
    },
    /// The referee measured it.
    Final {
        /// Its time by the referee's measuring.
        us: f64,
    },
    /// It ran, but is no baseline.
    Wrong {
        /// Its time.
        us: f64,
        /// What is wrong with it.
        why: String,
    },
    /// cuDNN refused it, or it did not run.
    Failed {
        /// During what, and the error's name.
        why: String,
    },
    /// It was not tried.
    Left {
        /// Why.
        why: String,
    },
}

impl Fate {
    /// Its time, if it ran.
    pub fn us(&self) -> Option<f64> {
        match self {
            Fate::Far { us } | Fate::Timed { us } | Fate::Final { us } | Fate::Wrong { us, .. } => {
                Some(*us)
            }
            Fate::Failed { .. } | Fate::Left { .. } => None,
        }
    }
}
