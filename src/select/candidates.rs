//! What may serve for a problem, best first, and what a rule takes.

use std::{cmp::Reverse, fmt, sync::Arc};

use crate::{
    Device, Error, Limits, Problem, Result, chain,
    tuning::shipped::Shipped,
    variant::{Configured, Kind, Plan, Variant},
    variants,
};

/// What a pick comes to.
#[derive(Clone)]
#[non_exhaustive]
pub struct Choice {
    /// The variant in its configuration.
    pub configured: Configured,
    /// Why it was chosen, and what was passed over.
    pub reason: String,
}

impl Choice {
    /// The variant with its configuration: `fused_shared:tile=24`.
    pub fn name(&self) -> String {
        self.configured.name()
    }
}

impl fmt::Debug for Choice {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Choice({}: {})", self.name(), self.reason)
    }
}

/// One that may serve.
pub(crate) struct Candidate {
    pub configured: Configured,
    /// What it would do; nothing for one that was named, which is asked when its turn comes.
    pub plan: Option<Plan>,
    /// Why it stands where it does.
    pub reason: String,
    /// Whether results of another time put it there: whatever is wrong with it now, the next one serves.
    pub remembered: bool,
}

impl Candidate {
    pub(super) fn new(configured: Configured, reason: impl Into<String>) -> Self {
        Candidate {
            configured,
            plan: None,
            reason: reason.into(),
            remembered: false,
        }
    }

    pub fn name(&self) -> String {
        self.configured.name()
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
    pub(super) fn limits(&self) -> Limits {
        match self {
            Place::Here(device) => device.limits(),
            Place::Elsewhere(limits) => Limits::clone(limits),
        }
    }

    /// What results are kept under, where that is known.
    pub(super) fn model(&self) -> Option<String> {
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

impl Candidates {
    /// Whether this failure is a reason to go on to the next one.
    pub fn passes_over(&self, candidate: &Candidate, error: &Error) -> bool {
        let is_usual = matches!(error, Error::Library { .. } | Error::Unsupported { .. });
        candidate.remembered || self.lenient && is_usual
    }

    /// Keeps the reason of a candidate that failed, before those of all that could not do it anyway.
    pub fn pass(&mut self, candidate: &Candidate, error: Error) {
        let why = chain(&error);
        self.notes
            .push(format!("{} was passed over: {why}", candidate.name()));
        self.refused.insert(0, why);
    }

    /// What a candidate is as a choice.
    pub(super) fn choice(&self, candidate: Candidate) -> Choice {
        Choice {
            reason: self.reason(&candidate),
            configured: candidate.configured,
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

pub(super) fn find(variant: &str, config: Option<&str>) -> Result<Configured> {
    Configured::named(variants::find(variant)?, config)
}

/// Those of some kinds that can do the problem, each with the configuration that it estimates best,
/// the least estimated time first, as [`Info::rule_factor`](crate::variant::Info::rule_factor) counts it.
pub(super) fn by_rank(
    limits: &Limits,
    problem: &Problem,
    kinds: impl Fn(Kind) -> bool,
) -> Candidates {
    let mut refused: Vec<(&str, String)> = Vec::new();
    let mut timed = Vec::new();
    for variant in variants::all() {
        let info = variant.info();
        if !kinds(info.kind) {
            continue;
        }
        match best_config(variant, limits, problem) {
            Ok((us, candidate)) => timed.push(Timed {
                us,
                counted: us * info.rule_factor(),
                candidate,
            }),
            Err(why) => refused.push((&info.name, why)),
        }
    }
    let mut refused = by_reason(refused);
    if refused.is_empty() && timed.is_empty() {
        refused.push("this build has no such variant".to_owned());
    }
    // Equals stay in the order of the list.
    timed.sort_by(|a, b| a.counted.total_cmp(&b.counted));
    tell_of_unchecked(&mut timed);
    Candidates {
        order: timed.into_iter().map(|timed| timed.candidate).collect(),
        refused,
        notes: Vec::new(),
        lenient: true,
    }
}

/// A candidate with its estimate, and that as a rule counts it.
struct Timed {
    us: f64,
    counted: f64,
    candidate: Candidate,
}

/// The first one's reason names who is estimated to be faster and stands behind.
fn tell_of_unchecked(timed: &mut [Timed]) {
    let Some((first, others)) = timed.split_first_mut() else {
        return;
    };
    for other in others.iter().filter(|other| other.us < first.us) {
        first.candidate.reason += &format!(
            "; {} is estimated at {:.1} us, by a plan that nobody checked",
            other.candidate.name(),
            other.us
        );
    }
}

/// Reasons that an error tells.
const MOST_REASONS: usize = 4;
/// Variants of one reason that it names.
const MOST_NAMES: usize = 3;

/// What variants say no with, those that say the same together, the commonest first.
pub(super) fn by_reason(refused: Vec<(&str, String)>) -> Vec<String> {
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
pub(super) fn best_config(
    variant: &Arc<dyn Variant>,
    limits: &Limits,
    problem: &Problem,
) -> Result<(f64, Candidate), String> {
    if !variant.info().ranked {
        // What it cannot do by its name either is told first.
        Configured::from(variant.clone()).plan(limits, problem)?;
        return Err(
            "waits for measurements that back its estimates; it runs by its name".to_owned(),
        );
    }
    let mut best: Option<(f64, Candidate)> = None;
    let mut first_refusal = None;
    let count = match variant.info().first_is_best() {
        true => 1,
        false => usize::MAX,
    };
    for configured in Configured::all_of(variant).take(count) {
        let plan = match configured.plan(limits, problem) {
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
            let candidate = Candidate::new(configured, reason);
            let plan = Some(plan);
            best = Some((us, Candidate { plan, ..candidate }));
        }
    }
    best.ok_or_else(|| first_refusal.unwrap_or_default())
}
