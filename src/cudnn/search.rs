//! The fastest of all plans that cuDNN has for a problem.
//!
//! Timing happens twice. All plans run in a first round, those of a large batch on a part of it before,
//! which tells the slow ones apart; the fastest are measured by the caller's [`Referee`]. The fastest
//! must then be right by his judgement, or the next one has its place. A plan that is far from the
//! fastest has lost; none is left out because others took long, unless the caller wants so.
//!
//! A search that was complete need not be made again from the start: its finalists race by themselves,
//! and where they no longer stand up all plans do.

use std::{
    sync::{Mutex, PoisonError, atomic::AtomicBool},
    time::Duration,
};

use super::{
    found::{Found, Winner, fastest_wrong},
    race::{Race, Runner},
    referee::Referee,
};
use crate::{
    Device, Error, Problem, Result,
    baselines::cudnn::{Choice, Proposal, Tally, every_plan, same_plans},
};

/// How long and how far a search goes.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
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

impl Options {
    /// How long building plans may take, and running them for the first time; none for no limit.
    #[must_use]
    pub fn budget(self, budget: impl Into<Option<Duration>>) -> Self {
        Options {
            budget: budget.into(),
            ..self
        }
    }

    /// Most bytes of workspace that a plan may ask for.
    #[must_use]
    pub fn workspace_cap(self, workspace_cap: usize) -> Self {
        Options {
            workspace_cap,
            ..self
        }
    }

    /// What ends the search once it is set; none for nothing.
    #[must_use]
    pub fn stop(self, stop: impl Into<Option<&'static AtomicBool>>) -> Self {
        Options {
            stop: stop.into(),
            ..self
        }
    }
}

/// A search for the fastest plans of one problem. Build it with [`Search::new`] and add what is known.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
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
    /// Whether its [finalists](Found::finalists) race by themselves, if it was complete. The others have
    /// their turn where cuDNN names more plans than then, where no finalist is right any more, or where the
    /// fastest takes over 1.1 times as long as then.
    pub finalists: bool,
}

impl<'a> Search<'a> {
    /// Of all plans, as far as the default goes.
    pub fn new(device: &'a Device, problem: &'a Problem) -> Self {
        Search {
            device,
            problem,
            options: Options::default(),
            known: None,
            finalists: false,
        }
    }

    /// How far it goes.
    #[must_use]
    pub fn options(self, options: Options) -> Self {
        Search { options, ..self }
    }

    /// What an earlier search of the same found, if there was one.
    #[must_use]
    pub fn known(self, known: impl Into<Option<&'a Found>>) -> Self {
        Search {
            known: known.into(),
            ..self
        }
    }

    /// Whether the finalists of the earlier search race by themselves.
    #[must_use]
    pub fn finalists(self, finalists: bool) -> Self {
        Search { finalists, ..self }
    }
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
        if race.until().is_stopped() {
            return Err(Error::Interrupted);
        }
        let mut tally = Tally::default();
        let plans = every_plan(self.device, self.problem, &mut tally)?;
        if let Some(found) = self.race_of_finalists(&race, &plans, &tally, referee)? {
            return Ok(found);
        }
        let (plans, mut far) = self.without_known(plans, &mut tally);
        let (plans, slow) = race.preview(plans, &mut tally)?;
        far.extend(slow);
        // What the far ones are far from may be wrong: they have their turn where nothing is right.
        self.decide(&race, [plans, far], tally, referee)
    }

    /// What the finalists of the search that is known come to by themselves, if that is enough; these are the
    /// plans that cuDNN named.
    fn race_of_finalists(
        &self,
        race: &Race,
        named: &[Proposal],
        tally: &Tally,
        referee: &mut dyn Referee,
    ) -> Result<Option<Found>> {
        let known = self.known.filter(|known| {
            self.finalists && known.is_of_all(tally.found) && tally.withheld.is_none()
        });
        let Some(known) = known else {
            return Ok(None);
        };
        let finalists = known.finalists();
        let trials = finalists.trials.into_iter();
        // Not what a rule excludes by now.
        let is_named = |choice: &Choice| named.iter().any(|plan| plan.choice == *choice);
        let choices: Vec<Choice> = trials.map(|trial| trial.plan).filter(is_named).collect();
        let plans = same_plans(self.device, self.problem, &choices)?;
        let again = self.decide(race, [plans, Vec::new()], tally.anew(), referee);
        let mut again = match again {
            Err(Error::Unsupported { .. }) => return Ok(None),
            again => again?,
        };
        if !known.stands(&again) {
            return Ok(None);
        }
        again.report = format!(
            "{}; {} finalists of this complete search raced by themselves: {}",
            finalists.report,
            choices.len(),
            again.report
        );
        let others = known.trials.iter();
        let others = others.filter(|trial| !choices.contains(&trial.plan));
        again.trials.extend(others.cloned());
        again.keep_faster(known);
        Ok(Some(again))
    }

    /// The winners among plans; the later ones have their turn where nothing of the earlier is right.
    fn decide(
        &self,
        race: &Race,
        turns: [Vec<Proposal>; 2],
        mut tally: Tally,
        referee: &mut dyn Referee,
    ) -> Result<Found> {
        let (mut exact, mut tried, mut transforms) = (None, false, Vec::new());
        for plans in turns {
            if exact.is_some() || plans.is_empty() {
                continue;
            }
            let runners = race.start(plans, &mut tally)?;
            let (sums, others): (Vec<_>, Vec<_>) = runners.into_iter().partition(Runner::is_exact);
            tried |= !sums.is_empty();
            transforms.extend(others);
            exact = race.winner(sums, f64::INFINITY, referee, &mut tally)?;
        }
        if exact.is_none() && race.until().is_stopped() {
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
        Ok(Search::found(exact, transform, tally))
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

    fn found(exact: Option<Runner>, transform: Option<Runner>, mut tally: Tally) -> Found {
        if let Some(Runner { candidate, us, .. }) = &transform {
            let choice = &candidate.choice;
            tally.remark(format!("the fastest transform is {choice} at {us:.1} us"));
        }
        let told = |runner: Runner| Winner {
            choice: runner.candidate.choice.clone(),
            us: runner.us,
        };
        let (exact, transform) = (exact.map(told), transform.map(told));
        let winners = exact.iter().chain(&transform).map(|winner| winner.us);
        let best = winners.fold(f64::INFINITY, f64::min);
        Found {
            wrong: fastest_wrong(&tally.trials, best),
            incomplete: tally.incomplete(),
            plans: tally.found,
            report: tally.to_string(),
            trials: tally.trials,
            exact,
            transform,
        }
    }
}
