//! The fastest of all plans that cuDNN has for a problem.
//!
//! Timing happens twice. All plans run once after warming up, which tells the slow ones apart; the
//! fastest are measured by the caller's [`Referee`]. The fastest must then be right by his judgement,
//! or the next one has its place.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    race::{Race, Runner, first_right},
    referee::{Judgement, Referee},
};
use crate::{
    Device, Error, Problem, Result,
    baselines::cudnn::{Candidate, Choice, Tally, every_plan, note, version},
    variant::Arithmetic,
};

/// How long and how far a search goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How long building plans may take, and running them for the first time; plans that come later
    /// are left out and counted.
    pub budget: Duration,
    /// Most bytes of workspace that a plan may ask for.
    pub workspace_cap: usize,
}

impl Default for Options {
    /// Half a minute, any workspace.
    fn default() -> Self {
        Options {
            budget: Duration::from_secs(30),
            workspace_cap: usize::MAX,
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
}

/// What a search found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Found {
    /// The fastest plan that adds up products, and is right.
    pub exact: Option<Winner>,
    /// The fastest of all plans that are right, if that is a transform.
    pub transform: Option<Winner>,
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
}

/// A plan that won.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Winner {
    /// Which it is.
    pub choice: Choice,
    /// Its time by the referee's measuring, microseconds.
    pub us: f64,
    /// Its name, version and workspace, in words.
    pub note: String,
}

impl Search<'_> {
    /// The fastest plans that are right, and what was found on the way.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where there are plans that add up products and all are wrong;
    /// [`Error::NoGpu`], a missing library, or what the device answers.
    pub fn run(&self, referee: &mut dyn Referee) -> Result<Found> {
        let race = Race {
            device: self.device,
            problem: self.problem,
            budget: self.options.budget,
        };
        let mut tally = Tally::default();
        // A budget beyond all time is none.
        let deadline = Instant::now().checked_add(self.options.budget);
        let cap = self.options.workspace_cap;
        let candidates = every_plan(self.device, self.problem, deadline, cap, &mut tally)?;
        let runners = race.first_round(candidates, &mut tally)?;
        let adds = |runner: &Runner| runner.candidate.arithmetic == Arithmetic::Exact;
        let (sums, transforms): (Vec<_>, Vec<_>) = runners.into_iter().partition(adds);
        let tried = !sums.is_empty();
        let exact = winner(&race, referee, sums, f64::INFINITY, &mut tally)?;
        if tried && exact.is_none() {
            return Err(Error::Unsupported {
                variant: "cudnn".to_owned(),
                problem: self.problem.to_string(),
                why: format!("no plan of cuDNN is right: {tally}"),
            });
        }
        let best = exact.as_ref().map_or(f64::INFINITY, |winner| winner.us);
        let transform = winner(&race, referee, transforms, best, &mut tally)?;
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
        Ok(Found {
            exact: exact.map(told),
            transform: transform.map(told),
            report: tally.to_string(),
        })
    }
}

/// The fastest that is right, if it takes less than `limit` microseconds.
fn winner(
    race: &Race,
    referee: &mut dyn Referee,
    mut runners: Vec<Runner>,
    limit: f64,
    tally: &mut Tally,
) -> Result<Option<Runner>> {
    let all = runners.len();
    runners.retain(|runner| runner.may_beat(limit));
    let far = all - runners.len();
    let order = race.last_round(runners, referee, tally)?;
    let is_right = |runner: &Runner| match referee.judge(&runner.conv) {
        Judgement::Right => true,
        Judgement::Open(why) => {
            tally.remark(format!("not checked here: {why}"));
            true
        }
        Judgement::Wrong(why) => {
            tally.wrong(&runner.candidate.choice, runner.us, &why);
            false
        }
    };
    let (winner, slower) = first_right(order, |runner| runner.us, limit, is_right);
    for _ in 0..far + slower {
        tally.exclude("slower than the best plan that is no transform");
    }
    Ok(winner)
}
