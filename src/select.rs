//! Which variant does a problem: named by the caller, chosen by what was measured, or by a rule.
//!
//! A rule makes a list of candidates, best first. Most of what can go wrong with one is known only
//! when it is planned: a library that is missing on this machine, or that has no plan for the
//! problem. Such a candidate is passed over, with its reason kept, and the next one serves.

mod candidates;
pub(crate) mod tuned;

use std::{fmt, path::Path, str::FromStr};

use crate::{Device, Error, Limits, Problem, Result, policy::Policy, tuning::Store, variant::Kind};
#[cfg(doc)]
use crate::{variant, variants};

pub use candidates::Choice;
pub(crate) use candidates::{Candidate, Candidates, Place};
use candidates::{by_rank, find};

/// How the variant for a problem is found.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Pick {
    /// The fastest by the results of tuning: those of this user and those that come with the program for
    /// this very problem; else those for the same problem with the nearest number of images, at most
    /// [`NEAR`](crate::tuning::NEAR) times as many or as few; else, or where they have nothing of what
    /// the rule would take, [`Rule`](Self::Rule).
    ///
    /// It reads a file or two and never searches: [`Tuner`](crate::Tuner) does.
    #[default]
    Auto,
    /// As [`Auto`](Self::Auto), with the results of this store in place of the user's own.
    Tuned(Store),
    /// The least estimated time among all that can do the problem, libraries included where they
    /// can be opened. Where none has an estimate, the first that can, in the order of
    /// [`variants::all`], the CPU's fast one before its plain one.
    ///
    /// A variant that waits for its measurements ([`Info::ranked`](variant::Info::ranked)) does
    /// not take part. Nothing is searched by time: cuDNN serves with the plan that its own heuristics
    /// think best, which nobody checked ([`Info::judged`](variant::Info::judged)), and so only where all
    /// others are estimated to take twice as long, or the math is `f16acc`.
    /// Configurations that keep the filter in constant memory are not taken, as there is room for few
    /// filters.
    Rule,
    /// The same among handwritten kernels only.
    Kernels,
    /// By a [`Policy`], a list of which variant does which layer.
    Policy(String),
    /// This variant, with this configuration or its first one.
    Named {
        /// Name of the variant.
        variant: String,
        /// One of its configurations.
        config: Option<String>,
    },
}

impl Pick {
    /// The picks that choose by themselves.
    pub fn automatic() -> Vec<Pick> {
        let policies = Policy::names().map(|name| Pick::Policy(name.to_owned()));
        [Pick::Auto, Pick::Rule, Pick::Kernels]
            .into_iter()
            .chain(policies)
            .collect()
    }

    /// How it chooses, in words.
    ///
    /// # Errors
    /// [`Error::UnknownPolicy`].
    pub fn explain(&self) -> Result<String> {
        Ok(match self {
            Pick::Auto => {
                "the fastest by the results of tuning, yours and those that come with the \
                           program; where they say nothing, what `rule` takes"
                    .to_owned()
            }
            Pick::Tuned(store) => match store.folder() {
                Some(folder) => format!("as `auto`, by the results in {}", folder.display()),
                None => "as `auto`, without results of yours".to_owned(),
            },
            Pick::Rule => {
                "the least estimated time of all variants of the device, cuBLAS included \
                           where it can be opened; cuDNN, whose plan nobody checked, where all \
                           else takes twice as long"
                    .to_owned()
            }
            Pick::Kernels => "the least estimated time of the handwritten kernels".to_owned(),
            Pick::Policy(name) => {
                let policy = Policy::find(name)?;
                format!("{policy}, because {}", policy.about)
            }
            Pick::Named { .. } => "this variant and no other".to_owned(),
        })
    }

    /// The variant, its configuration and the reason. Nothing is readied: where a library that can
    /// be opened turns out to have no plan for the problem, [`Conv::new`](crate::Conv::new) goes on
    /// to the next best.
    ///
    /// # Errors
    /// [`Error::UnknownVariant`], [`Error::UnknownConfig`], [`Error::UnknownPolicy`], or
    /// [`Error::NoVariant`] with the commonest reasons.
    pub fn choose(&self, device: &Device, problem: &Problem) -> Result<Choice> {
        let mut candidates = self.candidates(&Place::Here(device), problem)?;
        for candidate in std::mem::take(&mut candidates.order) {
            match candidate.configured.variant.open() {
                Err(error) if candidates.passes_over(&candidate, &error) => {
                    candidates.pass(&candidate, error);
                }
                _ => return Ok(candidates.choice(candidate)),
            }
        }
        Err(candidates.none(&device.to_string(), problem))
    }

    /// What [`choose`](Self::choose) would answer on a device of these limits where every library can
    /// be opened: by numbers alone, without a device, a driver or a library.
    ///
    /// # Errors
    /// As [`choose`](Self::choose).
    pub fn choose_for(&self, limits: &Limits, problem: &Problem) -> Result<Choice> {
        let mut candidates = self.candidates(&Place::Elsewhere(limits), problem)?;
        let order = std::mem::take(&mut candidates.order);
        match order.into_iter().next() {
            Some(first) => Ok(candidates.choice(first)),
            None if limits.is_gpu() => {
                Err(candidates.none(&format!("a GPU of sm_{}", limits.arch), problem))
            }
            None => Err(candidates.none("a CPU", problem)),
        }
    }

    pub(crate) fn candidates(&self, place: &Place, problem: &Problem) -> Result<Candidates> {
        let limits = &place.limits();
        match self {
            Pick::Auto => Ok(tuned::candidates(place, limits, problem, &Store::of_user())),
            Pick::Tuned(store) => Ok(tuned::candidates(place, limits, problem, store)),
            Pick::Rule => Ok(by_rank(limits, problem, |_| true)),
            Pick::Kernels => Ok(by_rank(limits, problem, |kind| kind == Kind::Kernel)),
            Pick::Policy(name) => Ok(by_policy(limits, problem, &Policy::find(name)?)),
            Pick::Named { variant, config } => {
                let configured = find(variant, config.as_deref())?;
                Ok(Candidates {
                    order: vec![Candidate::new(configured, "by its name")],
                    refused: Vec::new(),
                    notes: Vec::new(),
                    lenient: false,
                })
            }
        }
    }
}

/// Those of the lines that fit, in their order, as far as they can do the problem.
fn by_policy(limits: &Limits, problem: &Problem, policy: &Policy) -> Candidates {
    let mut candidates = Candidates {
        order: Vec::new(),
        refused: Vec::new(),
        notes: Vec::new(),
        lenient: true,
    };
    for rule in policy.fitting(problem) {
        let configured = match find(&rule.variant, rule.config.as_deref()) {
            Ok(configured) => configured,
            // A build without CUDA has no kernels.
            Err(error) => {
                candidates.refused.push(error.to_string());
                continue;
            }
        };
        match configured.plan(limits, problem) {
            Ok(plan) => candidates.order.push(Candidate {
                plan: Some(plan),
                ..Candidate::new(configured, format!("by the policy: {rule}"))
            }),
            Err(why) => {
                let name = configured.name();
                candidates.refused.push(format!("{name} {why}"));
            }
        }
    }
    candidates
}

impl FromStr for Pick {
    type Err = Error;

    /// `auto`, `tuned:FOLDER`, `rule`, `kernels`, `policy:per-layer`, `direct_naive` or
    /// `fused_shared:tile=24`. Whether the variant or policy exists is seen when it is chosen.
    fn from_str(text: &str) -> Result<Self> {
        Ok(match text.split_once(':') {
            _ if text == "auto" => Pick::Auto,
            _ if text == "rule" => Pick::Rule,
            _ if text == "kernels" => Pick::Kernels,
            Some(("policy", name)) => Pick::Policy(name.to_owned()),
            Some(("tuned", "")) => {
                return Err(Error::Parse {
                    what: "a pick",
                    text: text.to_owned(),
                    why: "no folder is named; it reads `tuned:FOLDER`".to_owned(),
                });
            }
            Some(("tuned", folder)) => Pick::Tuned(Store::at(folder)),
            Some((variant, config)) => Pick::Named {
                variant: variant.to_owned(),
                config: Some(config.to_owned()),
            },
            None => Pick::Named {
                variant: text.to_owned(),
                config: None,
            },
        })
    }
}

impl fmt::Display for Pick {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Pick::Auto => f.write_str("auto"),
            Pick::Tuned(store) => {
                let folder = store.folder().unwrap_or(Path::new(""));
                write!(f, "tuned:{}", folder.display())
            }
            Pick::Rule => f.write_str("rule"),
            Pick::Kernels => f.write_str("kernels"),
            Pick::Policy(name) => write!(f, "policy:{name}"),
            Pick::Named {
                variant,
                config: None,
            } => f.write_str(variant),
            Pick::Named {
                variant,
                config: Some(config),
            } => write!(f, "{variant}:{config}"),
        }
    }
}

#[cfg(test)]
mod tests;
