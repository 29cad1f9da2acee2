//! Which variant does a problem: named by the caller, chosen by what was measured, or by a rule.
//!
//! A rule makes a list of candidates, best first. Most of what can go wrong with one is known only
//! when it is planned: a library that is missing on this machine, or that has no plan for the
//! problem. Such a candidate is passed over, with its reason kept, and the next one serves.

pub(crate) mod tuned;

use std::{cmp::Reverse, fmt, path::Path, str::FromStr, sync::Arc};

use crate::{
    Device, Error, Limits, Problem, Result,
    policy::Policy,
    tuning::{Store, shipped::Shipped},
    variant::{self, Kind, Plan, Query, Variant},
    variants,
};

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
    /// think best.
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

/// What a pick comes to.
#[derive(Clone)]
#[non_exhaustive]
pub struct Choice {
    /// The variant.
    pub variant: Arc<dyn Variant>,
    /// Index of its configuration; 0 where it has none.
    pub config: usize,
    /// Why it was chosen, and what was passed over.
    pub reason: String,
}

impl Choice {
    /// The variant with its configuration: `fused_shared:tile=24`.
    pub fn name(&self) -> String {
        self.variant.info().spelled(self.config)
    }
}

impl fmt::Debug for Choice {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Choice({}: {})", self.name(), self.reason)
    }
}

/// One that may serve.
pub(crate) struct Candidate {
    pub variant: Arc<dyn Variant>,
    pub config: usize,
    /// What it would do; nothing for one that was named, which is asked when its turn comes.
    pub plan: Option<Plan>,
    /// Why it stands where it does.
    pub reason: String,
    /// Whether results of another time put it there: whatever is wrong with it now, the next one serves.
    pub remembered: bool,
}

impl Candidate {
    fn new(variant: Arc<dyn Variant>, config: usize, reason: impl Into<String>) -> Self {
        Candidate {
            variant,
            config,
            plan: None,
            reason: reason.into(),
            remembered: false,
        }
    }

    pub fn name(&self) -> String {
        self.variant.info().spelled(self.config)
    }
}

/// Where a convolution is to run.
pub(crate) enum Place<'a> {
    /// On a device that is here.
    Here(&'a Device),
    /// On one of these limits, where every library can be opened.
    Elsewhere(&'a Limits),
}

impl Place<'_> {
    fn limits(&self) -> Limits {
        match self {
            Place::Here(device) => device.limits(),
            Place::Elsewhere(limits) => Limits::clone(limits),
        }
    }

    /// What results are kept under, where that is known.
    fn model(&self) -> Option<String> {
        match self {
            Place::Here(device) => Some(device.model()),
            Place::Elsewhere(limits) => Shipped::model_of(limits).map(str::to_owned),
        }
    }
}

/// What a pick comes to for one problem.
pub(crate) struct Candidates {
    /// Best first.
    pub order: Vec<Candidate>,
    /// Why the others were not considered, one clause each.
    pub refused: Vec<String>,
    /// What is to be said of results that did not serve, and of candidates that were passed over.
    pub notes: Vec<String>,
    /// Whether the next one may serve where one fails.
    pub lenient: bool,
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
            Pick::Rule => "the least estimated time of all variants of the device, cuBLAS and \
                           cuDNN included where they can be opened"
                .to_owned(),
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
            match candidate.variant.open() {
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
                let (variant, config) = find(variant, config.as_deref())?;
                Ok(Candidates {
                    order: vec![Candidate::new(variant, config, "by its name")],
                    refused: Vec::new(),
                    notes: Vec::new(),
                    lenient: false,
                })
            }
        }
    }
}

impl Candidates {
    /// Whether this failure is a reason to go on to the next one.
    pub fn passes_over(&self, candidate: &Candidate, error: &Error) -> bool {
        let is_usual = matches!(error, Error::Library { .. } | Error::Unsupported { .. });
        candidate.remembered || self.lenient && is_usual
    }

    /// Keeps the reason of a candidate that failed, before those of all that could not do it anyway.
    pub fn pass(&mut self, candidate: &Candidate, error: Error) {
        self.notes
            .push(format!("{} was passed over: {error}", candidate.name()));
        self.refused.insert(0, error.to_string());
    }

    /// What a candidate is as a choice.
    fn choice(&self, candidate: Candidate) -> Choice {
        Choice {
            reason: self.reason(&candidate),
            variant: candidate.variant,
            config: candidate.config,
        }
    }

    /// Why this one serves, and what was passed over.
    pub fn reason(&self, candidate: &Candidate) -> String {
        let parts = [&candidate.reason].into_iter().chain(&self.notes);
        parts.cloned().collect::<Vec<_>>().join("; ")
    }

    /// That none is left, and why: as much as is read.
    pub fn none(self, device: &str, problem: &Problem) -> Error {
        let mut why = self.refused;
        let more = why.len().saturating_sub(MOST_REASONS);
        why.truncate(MOST_REASONS);
        if more > 0 {
            why.push(format!("others say no for {more} more reasons"));
        }
        Error::NoVariant {
            device: device.to_owned(),
            problem: problem.to_string(),
            why: why.join("; "),
        }
    }
}

fn find(variant: &str, config: Option<&str>) -> Result<(Arc<dyn Variant>, usize)> {
    let variant = variants::find(variant)?;
    let index = match config {
        Some(config) => variant.info().config(config)?,
        None => 0,
    };
    Ok((variant, index))
}

/// Those of some kinds that can do the problem, each with the configuration that it estimates best,
/// the least estimated time first.
fn by_rank(limits: &Limits, problem: &Problem, kinds: impl Fn(Kind) -> bool) -> Candidates {
    let mut refused: Vec<(&str, String)> = Vec::new();
    let mut timed = Vec::new();
    for variant in variants::all() {
        let info = variant.info();
        if !kinds(info.kind) {
            continue;
        }
        match best_config(variant, limits, problem) {
            Ok(best) => timed.push(best),
            Err(why) => refused.push((&info.name, why)),
        }
    }
    let mut refused = by_reason(refused);
    if refused.is_empty() && timed.is_empty() {
        refused.push("this build has no such variant".to_owned());
    }
    // Equals stay in the order of the list.
    timed.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    Candidates {
        order: timed.into_iter().map(|(_, candidate)| candidate).collect(),
        refused,
        notes: Vec::new(),
        lenient: true,
    }
}

/// Reasons that an error tells.
const MOST_REASONS: usize = 4;
/// Variants of one reason that it names.
const MOST_NAMES: usize = 3;

/// What variants say no with, those that say the same together, the commonest first.
fn by_reason(refused: Vec<(&str, String)>) -> Vec<String> {
    let mut reasons: Vec<(String, Vec<&str>)> = Vec::new();
    for (name, why) in refused {
        match reasons.iter_mut().find(|(known, _)| *known == why) {
            Some((_, names)) => names.push(name),
            None => reasons.push((why, vec![name])),
        }
    }
    reasons.sort_by_key(|(_, names)| Reverse(names.len()));
    let told = reasons.into_iter().map(|(why, names)| match &names[..] {
        [name] => format!("{name} {why}"),
        [first, .., _] if names.len() > MOST_NAMES => {
            format!("{first} and {} others: each {why}", names.len() - 1)
        }
        names => format!("{}: each {why}", names.join(", ")),
    });
    told.collect()
}

/// A variant's best configuration by its estimated time, the first of equals; why not where it has
/// none for the problem.
fn best_config(
    variant: &Arc<dyn Variant>,
    limits: &Limits,
    problem: &Problem,
) -> Result<(f64, Candidate), String> {
    if !variant.info().ranked {
        // What it cannot do by its name either is told first.
        variant::plan(&**variant, limits.is_gpu(), &Query::new(problem, 0, limits))?;
        return Err(
            "waits for measurements that back its estimates; it runs by its name".to_owned(),
        );
    }
    let mut best: Option<(f64, Candidate)> = None;
    let mut first_refusal = None;
    for config in 0..variant.info().configs.len().max(1) {
        let query = Query::new(problem, config, limits);
        let plan = match variant::plan(&**variant, limits.is_gpu(), &query) {
            Ok(plan) if plan.is_in_constant_memory() => {
                let why = "keeps its filter in constant memory, which a rule does not take";
                first_refusal.get_or_insert(why.to_owned());
                continue;
            }
            Ok(plan) => plan,
            Err(why) => {
                first_refusal.get_or_insert(why);
                continue;
            }
        };
        let us = plan.us.unwrap_or(f64::INFINITY);
        if best.as_ref().is_none_or(|(least, _)| us < *least) {
            let reason = match us.is_finite() {
                true => format!("by its estimate, {us:.1} us"),
                false => "as the first that can, without an estimate".to_owned(),
            };
            let candidate = Candidate::new(variant.clone(), config, reason);
            let plan = Some(plan);
            best = Some((us, Candidate { plan, ..candidate }));
        }
    }
    best.ok_or_else(|| first_refusal.unwrap_or_default())
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
        let (variant, config) = match find(&rule.variant, rule.config.as_deref()) {
            Ok(choice) => choice,
            // A build without CUDA has no kernels.
            Err(error) => {
                candidates.refused.push(error.to_string());
                continue;
            }
        };
        let query = Query::new(problem, config, limits);
        match variant::plan(&*variant, limits.is_gpu(), &query) {
            Ok(plan) => candidates.order.push(Candidate {
                plan: Some(plan),
                ..Candidate::new(variant, config, format!("by the policy: {rule}"))
            }),
            Err(why) => {
                let name = variant.info().spelled(config);
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
