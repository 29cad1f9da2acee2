//! The fastest of all plans that cuDNN has for a problem.
//!
//! Timing happens twice. All plans run in a first round, those of a large batch on a part of it before,
//! which tells the slow ones apart; the fastest are measured by the caller's [`Referee`]. The fastest
//! must then be right by his judgement, or the next one has its place. A plan that is far from the
//! fastest has lost; none is left out because others took long, unless the caller wants so.

use std::{
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
    time::Duration,
};

use super::{
    race::{Race, Runner},
    referee::Referee,
};
use crate::{
    Device, Error, Problem, Result,
    baselines::cudnn::{
        Candidate, Choice, Fate, Proposal, Tally, Trial, every_plan, note, version,
    },
    variant::Arithmetic,
};

/// How long and how far a search goes.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long building plans may take, and running them for the first time, where that is limited;
    /// plans that come later are left out and counted, and the search is not complete. With many
    /// images both happen twice.
    pub budget: Option<Duration>,
    /// Most bytes of workspace that a plan may ask for.
    pub workspace_cap: usize,
    /// Once it is set time is up, as if the budget were spent.
    pub stop: Option<&'static AtomicBool>,
}

impl Default for Options {
    /// All plans, any workspace.
    fn default() -> Self {
        Options {
            budget: None,
            workspace_cap: usize::MAX,
            stop: None,
        }
    }
}

/// A search for the fastest plans of one problem.
#[derive(Clone, Copy, Debug)]
pub struct Search<'a> {
    /// Where.
    pub device: &'a Device,
    /// Of what.
    pub problem: &'a Problem,
    /// How far.
    pub options: Options,
    /// What an earlier search of the same found, with the same version of cuDNN: plans that it knows
    /// to be far from the fastest are not run again.
    pub known: Option<&'a Found>,
}

/// What a search found.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Found {
    /// The fastest plan that adds up products, and is right.
    pub exact: Option<Winner>,
    /// The fastest of all plans that are right, if that is a transform.
    pub transform: Option<Winner>,
    /// The fastest of all plans that ran, if that is none of those.
    pub wrong: Option<Rejected>,
    /// Why a faster plan may be among those that were not tried; none where all were.
    pub incomplete: Option<String>,
    /// What became of each plan.
    pub trials: Vec<Trial>,
    /// What became of all of them, for the reports.
    pub report: String,
}

impl Found {
    /// The winner among plans of this arithmetic.
    pub fn winner(&self, arithmetic: Arithmetic) -> Option<&Winner> {
        match arithmetic {
            Arithmetic::Exact => self.exact.as_ref(),
            Arithmetic::Transform => self.transform.as_ref(),
        }
    }

    /// What is known of a plan that need not run again: that it takes far longer than the winner.
    fn far(&self, plan: &Choice) -> Option<&Fate> {
        let limit = self.exact.as_ref()?.us * KNOWN_FAR.0 + KNOWN_FAR.1;
        let trial = self.trials.iter().find(|trial| trial.plan == *plan)?;
        let us = trial.fate.us()?;
        (us > limit).then_some(&trial.fate)
    }
}

/// A plan that took longer than the winner by this factor and these microseconds does not run again.
const KNOWN_FAR: (f64, f64) = (2.0, 20.0);

/// A plan that won.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Winner {
    /// Which it is.
    pub choice: Choice,
    /// Its time by the referee's measuring, microseconds.
    pub us: f64,
    /// Its name, version and workspace, in words.
    pub note: String,
}

/// A plan that is faster than the winners, and no baseline.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Rejected {
    /// Which it is.
    pub choice: Choice,
    /// Its time, microseconds.
    pub us: f64,
    /// What is wrong with it.
    pub why: String,
}

impl Search<'_> {
    /// The fastest plans that are right, and what was found on the way. A process makes one search at a
    /// time, others wait.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where there are plans that add up products and all are wrong;
    /// [`Error::Interrupted`] where it was stopped before a plan had won; [`Error::NoGpu`], a missing
    /// library, or what the device answers.
    pub fn run(&self, referee: &mut dyn Referee) -> Result<Found> {
        // Times of two searches at once would be of neither.
        static SEARCHING: Mutex<()> = Mutex::new(());
        let _alone = SEARCHING.lock().unwrap_or_else(PoisonError::into_inner);
        let race = Race {
            device: self.device,
            problem: self.problem,
            budget: self.options.budget,
            stop: self.options.stop,
            cap: self.options.workspace_cap,
        };
        let stopped = || race.until().is_stopped();
        if stopped() {
            return Err(Error::Interrupted);
        }
        let mut tally = Tally::default();
        let plans = every_plan(self.device, self.problem, &mut tally)?;
        let (plans, mut far) = self.without_known(plans, &mut tally);
        let (plans, slow) = race.preview(plans, &mut tally)?;
        far.extend(slow);
        let (mut exact, mut tried, mut transforms) = (None, false, Vec::new());
        // What the far ones are far from may be wrong: they have their turn where nothing is right.
        for plans in [plans, far] {
            if exact.is_some() || plans.is_empty() {
                continue;
            }
            let runners = race.start(plans, &mut tally)?;
            let (sums, others): (Vec<_>, Vec<_>) = runners.into_iter().partition(Runner::is_exact);
            tried |= !sums.is_empty();
            transforms.extend(others);
            exact = race.winner(sums, f64::INFINITY, referee, &mut tally)?;
        }
        if exact.is_none() && stopped() {
            return Err(Error::Interrupted);
        }
        if tried && exact.is_none() {
            return Err(Error::Unsupported {
                variant: "cudnn".to_owned(),
                problem: self.problem.to_string(),
                why: format!("no plan of cuDNN is right: {tally}"),
            });
        }
        let best = exact.as_ref().map_or(f64::INFINITY, |winner| winner.us);
        let transform = race.winner(transforms, best, referee, &mut tally)?;
        self.found(exact, transform, tally)
    }

    /// The plans that must run, and those that are known to be far.
    fn without_known(
        &self,
        plans: Vec<Proposal>,
        tally: &mut Tally,
    ) -> (Vec<Proposal>, Vec<Proposal>) {
        plans.into_iter().partition(|plan| {
            let fate = self.known.and_then(|known| known.far(&plan.choice));
            if let Some(fate) = fate {
                tally.exclude("known to be far from the fastest");
                tally.set(&plan.choice, fate.clone());
            }
            fate.is_none()
        })
    }

    fn found(
        &self,
        exact: Option<Runner>,
        transform: Option<Runner>,
        mut tally: Tally,
    ) -> Result<Found> {
        if let Some(Runner { candidate, us, .. }) = &transform {
            let choice = &candidate.choice;
            tally.remark(format!("the fastest transform is {choice} at {us:.1} us"));
        }
        let version = version()?;
        let told = |runner: Runner| {
            let candidate: Arc<Candidate> = runner.candidate;
            Winner {
                choice: candidate.choice.clone(),
                us: runner.us,
                note: note(&candidate, self.problem, version),
            }
        };
        let (exact, transform) = (exact.map(told), transform.map(told));
        let winners = exact.iter().chain(&transform).map(|winner| winner.us);
        let best = winners.fold(f64::INFINITY, f64::min);
        Ok(Found {
            wrong: fastest_wrong(&tally.trials, best),
            incomplete: tally.incomplete(),
            report: tally.to_string(),
            trials: tally.trials,
            exact,
            transform,
        })
    }
}

/// The fastest plan that is wrong, if it takes less than the best one that is right.
fn fastest_wrong(trials: &[Trial], best: f64) -> Option<Rejected> {
    let wrong = trials.iter().filter_map(|trial| match &trial.fate {
        Fate::Wrong { us, why } if *us < best => Some((trial, *us, why)),
        _ => None,
    });
    let (trial, us, why) = wrong.min_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(Rejected {
        choice: trial.plan.clone(),
        us,
        why: why.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(exact_us: f64, trials: &[(i64, Fate)]) -> Found {
        let trials = trials.iter().map(|(engine, fate)| {
            let mut tally = Tally::default();
            tally.set(&Choice::engine(*engine), fate.clone());
            tally.trials.remove(0)
        });
        Found {
            exact: Some(Winner {
                choice: Choice::engine(0),
                us: exact_us,
                note: String::new(),
            }),
            transform: None,
            wrong: None,
            incomplete: None,
            trials: trials.collect(),
            report: String::new(),
        }
    }

    #[test]
    fn only_what_is_known_to_be_slow_does_not_run_again() {
        let no_time = "no time left to run them".to_owned();
        let known = found(
            100.0,
            &[
                (0, Fate::Final { us: 100.0 }),
                (1, Fate::Timed { us: 219.0 }),
                (2, Fate::Timed { us: 221.0 }),
                (3, Fate::Far { us: 900.0 }),
                (4, Fate::Left { why: no_time }),
            ],
        );
        let is_far = |engine| known.far(&Choice::engine(engine)).is_some();
        assert_eq!(
            [0, 1, 2, 3, 4, 5].map(is_far),
            [false, false, true, true, false, false]
        );
        let nothing_right = Found {
            exact: None,
            ..known.clone()
        };
        assert!(nothing_right.far(&Choice::engine(3)).is_none());
    }

    #[test]
    fn the_fastest_that_runs_at_all_is_told_with_what_is_wrong() {
        let wrong = |us, why: &str| Fate::Wrong {
            us,
            why: why.to_owned(),
        };
        let all = found(
            100.0,
            &[
                (0, Fate::Final { us: 100.0 }),
                (1, wrong(70.0, "coarse")),
                (2, wrong(60.0, "out of bounds")),
                (3, Fate::Timed { us: 50.0 }),
            ],
        );
        let fastest = fastest_wrong(&all.trials, 100.0).unwrap();
        assert_eq!((fastest.us, &*fastest.why), (60.0, "out of bounds"));
        assert_eq!(fastest.choice, Choice::engine(2));
        assert_eq!(fastest_wrong(&all.trials, 60.0), None);
    }
}
