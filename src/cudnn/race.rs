//! The race of the plans: once round for all of them, and a careful one for the fastest.

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use super::{
    referee::{Judgement, Referee},
    timer::{FAR, Timer, conv, is_far},
};
use crate::{
    Conv, Device, Problem, Result,
    baselines::cudnn::{
        Candidate, Fate, NO_TIME_TO_RUN, Proposal, Tally, Until, build, same_plans,
    },
    variant::Arithmetic,
};

/// From this many images on, the first look at plans is on one [`FAR`]th of them. Who is far there is
/// slower with all of them too: no batch takes less time than a part of it, and the fastest takes about
/// [`FAR`] times as long.
const MANY_IMAGES: usize = 1000;
/// How many of the fastest plans the referee measures at once, if they are near the best one.
const FINALISTS: usize = 16;
/// What a first timing may be above the best one and still be worth another look, as a factor and in
/// microseconds: operands may be cached in the first round, and are not in the last.
const NEAR: (f64, f64) = (1.5, 5.0);
/// What two timings of the first round do not tell apart: these are finalists however many they are.
const NOISE: (f64, f64) = (1.1, 2.0);

fn is_within(us: f64, best: f64, (factor, more): (f64, f64)) -> bool {
    us <= best * factor + more
}

/// How many of these times, ascending, the referee should measure.
fn finalists(times: &[f64]) -> usize {
    let Some(&best) = times.first() else { return 0 };
    let within = |limit| times.partition_point(|us| is_within(*us, best, limit));
    within(NEAR).min(FINALISTS).max(within(NOISE))
}

/// The first of `order`, fastest first, that takes less than `limit` and is right, and how many
/// come after that limit. Who is slower than the winner is not asked.
pub(super) fn first_right<T>(
    mut order: Vec<T>,
    us: impl Fn(&T) -> f64,
    limit: f64,
    is_right: impl FnMut(&T) -> bool,
) -> (Option<T>, usize) {
    let all = order.len();
    order.retain(|one| us(one) < limit);
    let slower = all - order.len();
    let winner = order.iter().position(is_right);
    (winner.map(|at| order.swap_remove(at)), slower)
}

/// A plan in the race.
pub(super) struct Runner {
    pub(super) candidate: Arc<Candidate>,
    pub(super) conv: Conv,
    pub(super) us: f64,
}

impl Runner {
    /// Whether another look may show that it takes less than this.
    fn may_beat(&self, us: f64) -> bool {
        is_within(self.us, us, NEAR)
    }

    pub(super) fn is_exact(&self) -> bool {
        self.candidate.arithmetic == Arithmetic::Exact
    }
}

/// The fastest runner that adds up products; where there is none, the fastest.
fn best(runners: &[Runner]) -> f64 {
    let least = |exact: bool| {
        let times = runners.iter().filter(|runner| !exact || runner.is_exact());
        times.map(|runner| runner.us).fold(f64::INFINITY, f64::min)
    };
    let exact = least(true);
    if exact.is_finite() {
        exact
    } else {
        least(false)
    }
}

/// What the plans run on, and for how long.
#[derive(Clone, Copy)]
pub(super) struct Race<'a> {
    pub(super) device: &'a Device,
    pub(super) problem: &'a Problem,
    /// Of building, and again of the first round.
    pub(super) budget: Option<Duration>,
    /// Once it is set time is up.
    pub(super) stop: Option<&'static AtomicBool>,
    /// Most bytes of workspace.
    pub(super) cap: usize,
}

impl Race<'_> {
    /// Where there are many images, looks at the plans on a part of them, and tells those that may
    /// win from those that are far. What does not work with few images may with many.
    pub(super) fn preview(
        &self,
        plans: Vec<Proposal>,
        tally: &mut Tally,
    ) -> Result<(Vec<Proposal>, Vec<Proposal>)> {
        let images = self.problem.n();
        if images < MANY_IMAGES {
            return Ok((plans, Vec::new()));
        }
        let few = self.problem.with(|shape| shape.n = images / FAR)?;
        let race = Race {
            problem: &few,
            ..*self
        };
        let choices: Vec<_> = plans.iter().map(|plan| plan.choice.clone()).collect();
        let mut aside = Tally::default();
        let runners = race.start(same_plans(self.device, &few, &choices)?, &mut aside)?;
        let best = best(&runners);
        let scale = images as f64 / few.n() as f64;
        let far = runners.iter().filter(|runner| is_far(runner.us, best));
        let far: Vec<_> = far
            .map(|one| (&one.candidate.choice, one.us * scale))
            .collect();
        for (plan, us) in &far {
            tally.exclude("far from the fastest on fewer images");
            tally.set(plan, Fate::Far { us: *us });
        }
        let is_near = |plan: &Proposal| far.iter().all(|(choice, _)| **choice != plan.choice);
        Ok(plans.into_iter().partition(is_near))
    }

    /// Builds the plans and runs them for the first time; answers those that ran.
    pub(super) fn start(&self, plans: Vec<Proposal>, tally: &mut Tally) -> Result<Vec<Runner>> {
        let candidates = build(
            self.device,
            self.problem,
            plans,
            self.until(),
            self.cap,
            tally,
        )?;
        self.first_round(candidates, tally)
    }

    /// When what begins now has to end.
    pub(super) fn until(&self) -> Until {
        Until::new(self.budget, self.stop)
    }

    /// Runs each on constant data.
    fn first_round(&self, candidates: Vec<Candidate>, tally: &mut Tally) -> Result<Vec<Runner>> {
        // A budget of its own: however long building took, plans are timed.
        let until = self.until();
        let stream = self.device.stream()?;
        let Some(queue) = stream.as_gpu() else {
            return Ok(Vec::new());
        };
        let runner = |candidate: Candidate| -> Result<Runner> {
            let candidate = Arc::new(candidate);
            Ok(Runner {
                conv: conv(self.device, queue.gpu(), self.problem, &candidate)?,
                candidate,
                us: f64::INFINITY,
            })
        };
        let runners = candidates.into_iter().map(runner);
        let mut runners = runners.collect::<Result<Vec<_>>>()?;
        let convs = runners.iter().map(|runner| &runner.conv);
        let mut timer = Timer::new(&stream, queue, self.problem, convs)?;
        for at in 0..runners.len() {
            let best = best(&runners);
            let Runner {
                candidate,
                conv,
                us,
            } = &mut runners[at];
            if until.is_over() {
                tally.leave(&candidate.choice, NO_TIME_TO_RUN);
                continue;
            }
            match timer.time(conv, best) {
                Ok(time) => {
                    *us = time;
                    tally.timed += 1;
                    tally.set(&candidate.choice, Fate::Timed { us: time });
                }
                Err(error) => tally.lose(&candidate.choice, "running", &error),
            }
        }
        runners.retain(|runner| runner.us.is_finite());
        Ok(runners)
    }

    /// The fastest that is right, if it takes less than `limit` microseconds. Should none of the
    /// finalists be right, the next ones have their turn.
    pub(super) fn winner(
        &self,
        mut runners: Vec<Runner>,
        limit: f64,
        referee: &mut dyn Referee,
        tally: &mut Tally,
    ) -> Result<Option<Runner>> {
        let all = runners.len();
        runners.sort_by(|a, b| a.us.total_cmp(&b.us));
        runners.retain(|runner| runner.may_beat(limit));
        let far = all - runners.len();
        let (mut winner, mut slower) = (None, 0);
        while winner.is_none() && slower == 0 && !runners.is_empty() {
            let times: Vec<f64> = runners.iter().map(|runner| runner.us).collect();
            let rest = runners.split_off(finalists(&times));
            let order = measured(runners, referee, tally)?;
            let is_right = |runner: &Runner| is_right(runner, referee, tally);
            (winner, slower) = first_right(order, |runner| runner.us, limit, is_right);
            runners = rest;
        }
        for _ in 0..far + slower {
            tally.exclude("slower than the best plan that is no transform");
        }
        Ok(winner)
    }
}

/// Lets the referee measure them, and puts them in order.
fn measured(
    runners: Vec<Runner>,
    referee: &mut dyn Referee,
    tally: &mut Tally,
) -> Result<Vec<Runner>> {
    let (convs, candidates): (Vec<Conv>, Vec<_>) = runners
        .into_iter()
        .map(|runner| (runner.conv, (runner.candidate, runner.us)))
        .unzip();
    let times = referee.time(&convs)?;
    let mut order = Vec::new();
    for ((conv, (candidate, first)), time) in convs.into_iter().zip(candidates).zip(times) {
        match time {
            Ok(us) => {
                tally.set(&candidate.choice, Fate::Final { us });
                order.push(Runner {
                    candidate,
                    conv,
                    us,
                });
            }
            Err(why) => tally.wrong(&candidate.choice, first, &why),
        }
    }
    order.sort_by(|a, b| a.us.total_cmp(&b.us));
    Ok(order)
}

fn is_right(runner: &Runner, referee: &mut dyn Referee, tally: &mut Tally) -> bool {
    match referee.judge(&runner.conv) {
        Judgement::Right => true,
        Judgement::Open(why) => {
            tally.remark(format!("not checked here: {why}"));
            true
        }
        Judgement::Wrong(why) => {
            tally.wrong(&runner.candidate.choice, runner.us, &why);
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plans of vgg16's `mb32ic256ih28oc512oh28kh3ph1` as an H200 had them, microseconds.
    const TIMES: [(&str, f64); 4] = [
        ("engine 6 k25=0", 468.0),
        ("algorithm winograd_nonfused", 470.0),
        ("algorithm fft_tiling", 914.0),
        ("algorithm fft", 1500.0),
    ];

    fn winner(limit: f64, right: &[&str]) -> (Option<&'static str>, usize, usize) {
        let mut asked = 0;
        let is_right = |(name, _): &(&str, f64)| {
            asked += 1;
            right.contains(name)
        };
        let (winner, slower) = first_right(TIMES.to_vec(), |(_, us)| *us, limit, is_right);
        (winner.map(|(name, _)| name), slower, asked)
    }

    #[test]
    fn whoever_noise_may_have_put_back_is_a_finalist() {
        assert_eq!(finalists(&[]), 0);
        // 3.9 us against 5.6 is no matter for a first round.
        assert_eq!(finalists(&[3.9, 4.5, 5.6, 10.0, 11.0]), 4);
        assert_eq!(finalists(&[4.0; 40]), 40);
        // Near, but not within noise: as many as there is room for.
        let near: Vec<f64> = (0..40).map(|i| 1000.0 + 12.0 * f64::from(i)).collect();
        assert_eq!(finalists(&near), FINALISTS);
        assert_eq!(finalists(&[100.0, 154.0, 156.0]), 2);
    }

    #[test]
    fn far_is_a_loss_for_any_number_of_images() {
        assert!(is_far(801.0, 100.0) && !is_far(800.0, 100.0));
        assert!(!is_far(1e9, f64::INFINITY), "nothing ran before");
        // A plan whose time does not grow with the images at all is slower than the fastest, whose
        // time grows with each, if it is far on one FAR-th of them.
        let (fastest, constant) = (10.0, 81.0);
        assert!(is_far(constant, fastest) && constant > fastest * FAR as f64);
    }

    #[test]
    fn the_fastest_that_is_right_wins() {
        let fft = ["algorithm fft", "algorithm fft_tiling"];
        let all = f64::INFINITY;
        assert_eq!(winner(all, &fft), (Some("algorithm fft_tiling"), 0, 3));
        assert_eq!(winner(all, &["engine 6 k25=0"]).2, 1);
        assert_eq!(winner(all, &[]), (None, 0, 4));
        // The best plan that is no transform took 1360.
        assert_eq!(winner(1360.0, &fft[..1]), (None, 1, 3));
        assert_eq!(winner(400.0, &fft), (None, 4, 0));
    }
}
