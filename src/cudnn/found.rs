//! What a search for the fastest plans found, and what of it is worth another look later.

use crate::{
    baselines::cudnn::{Choice, Fate, Trial},
    variant::Arithmetic,
};

/// What a search found.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Found {
    /// The fastest plan that adds up products, and is right.
    pub exact: Option<Winner>,
    /// The fastest of all plans that are right, if that is a transform.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub transform: Option<Winner>,
    /// The fastest of all plans that ran, if that is none of those.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub wrong: Option<Rejected>,
    /// Why a faster plan may be among those that were not tried; none where all were.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub incomplete: Option<String>,
    /// How many plans cuDNN named, those among them that the rules exclude.
    #[cfg_attr(feature = "serde", serde(default))]
    pub plans: usize,
    /// What became of each plan.
    pub trials: Vec<Trial>,
    /// What became of all of them, for the reports.
    pub report: String,
}

/// What may be the fastest another time: a time of up to so many times the winner's, or so many
/// microseconds more.
const NEAR_WINNER: (f64, f64) = (1.25, 3.0);
/// How many plans that are right are kept of those near a winner, and how many of the fastest wrong ones.
const FINALISTS: (usize, usize) = (6, 3);
/// How many times as long the fastest may take as it did before: where other finalists ran beside it, and
/// where nobody knows who came second.
const SLOWER: f64 = 1.05;
const SLOWER_ALONE: f64 = 1.03;
/// And microseconds, which the clock's steps come to.
const SLOWER_US: f64 = 0.2;

impl Found {
    /// The winner among plans of this arithmetic.
    pub fn winner(&self, arithmetic: Arithmetic) -> Option<&Winner> {
        match arithmetic {
            Arithmetic::Exact => self.exact.as_ref(),
            Arithmetic::Transform => self.transform.as_ref(),
        }
    }

    /// The same, short: with the trials of those alone that may win another time, which are the winners, the
    /// finalists that came near them, and the fastest that were wrong, should they pass then.
    #[must_use]
    pub fn finalists(&self) -> Found {
        let (exact, transform) = (us(&self.exact), us(&self.transform));
        let near = |winner: f64| (winner * NEAR_WINNER.0).max(winner + NEAR_WINNER.1);
        let mut trials: Vec<&Trial> = self.trials.iter().collect();
        let time = |trial: &Trial| trial.fate.us().unwrap_or(f64::INFINITY);
        trials.sort_by(|a, b| time(a).total_cmp(&time(b)));
        let few = |most, is: &dyn Fn(&Fate) -> bool| {
            let fitting = trials.iter().filter(|trial| is(&trial.fate));
            fitting
                .take(most)
                .map(|trial| Trial::clone(trial))
                .collect()
        };
        // Whoever was measured to be faster than the best sum, and is not wrong, is a transform.
        let sums =
            |fate: &Fate| matches!(fate, Fate::Final { us } if (exact..=near(exact)).contains(us));
        let transforms = |fate: &Fate| matches!(fate, Fate::Final { us } if *us < exact && *us <= near(transform));
        let wrong = |fate: &Fate| matches!(fate, Fate::Wrong { us, .. } if *us <= near(exact));
        let few: [Vec<Trial>; 3] = [
            few(FINALISTS.0, &sums),
            few(FINALISTS.0, &transforms),
            few(FINALISTS.1, &wrong),
        ];
        let (counts, _) = self.report.split_once("; ").unwrap_or((&self.report, ""));
        Found {
            trials: few.concat(),
            report: counts.to_owned(),
            ..self.clone()
        }
    }

    /// Whether it says who may win where cuDNN names so many plans.
    pub(super) fn is_of_all(&self, plans: usize) -> bool {
        self.exact.is_some() && self.incomplete.is_none() && plans <= self.plans
    }

    /// Whether what its finalists took once more is no reason to look at all plans again.
    pub(super) fn stands(&self, again: &Found) -> bool {
        let sums = self
            .trials
            .iter()
            .filter(|trial| matches!(trial.fate, Fate::Final { us } if us >= self.exact_us()));
        let slower = match sums.count() {
            ..2 => SLOWER_ALONE,
            _ => SLOWER,
        };
        let holds = |us: fn(&Found) -> f64| us(again) <= us(self) * slower + SLOWER_US;
        again.incomplete.is_none() && holds(Found::exact_us) && holds(Found::best_us)
    }

    /// Where the winners are the same, their faster times: what is a little slower each time would be far slower
    /// in the end, and be no reason for a search.
    pub(super) fn keep_faster(&mut self, before: &Found) {
        let winners = [
            (&mut self.exact, &before.exact),
            (&mut self.transform, &before.transform),
        ];
        for (now, before) in winners {
            let (Some(now), Some(before)) = (now, before) else {
                continue;
            };
            if now.choice != before.choice || now.us <= before.us {
                continue;
            }
            now.us = before.us;
            let of_it = self
                .trials
                .iter_mut()
                .find(|trial| trial.plan == now.choice);
            if let Some(Fate::Final { us }) = of_it.map(|trial| &mut trial.fate) {
                *us = before.us;
            }
        }
    }

    fn exact_us(&self) -> f64 {
        us(&self.exact)
    }

    /// Of the fastest of both.
    fn best_us(&self) -> f64 {
        us(&self.exact).min(us(&self.transform))
    }

    /// What is known of a plan that need not run again: that it takes far longer than the winner.
    pub(super) fn far(&self, plan: &Choice) -> Option<&Fate> {
        let limit = self.exact.as_ref()?.us * KNOWN_FAR.0 + KNOWN_FAR.1;
        let trial = self.trials.iter().find(|trial| trial.plan == *plan)?;
        let us = trial.fate.us()?;
        (us > limit).then_some(&trial.fate)
    }
}

/// A winner's time, which nothing reaches where there is none.
fn us(winner: &Option<Winner>) -> f64 {
    winner.as_ref().map_or(f64::INFINITY, |winner| winner.us)
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

/// The fastest plan that is wrong, if it takes less than the best one that is right.
pub(super) fn fastest_wrong(trials: &[Trial], best: f64) -> Option<Rejected> {
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
    use crate::baselines::cudnn::Tally;

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
            }),
            transform: None,
            wrong: None,
            incomplete: None,
            plans: 60,
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

    #[test]
    fn finalists_are_those_near_the_winners_and_the_fastest_wrong_ones() {
        let wrong = |us| Fate::Wrong {
            us,
            why: "coarse".to_owned(),
        };
        let last = |us| Fate::Final { us };
        let mut all = found(
            100.0,
            &[
                (0, last(100.0)),
                (1, last(124.0)),
                (2, last(126.0)),
                (3, Fate::Timed { us: 101.0 }),
                (4, last(80.0)),
                (5, last(99.0)),
                (6, last(101.0)),
                (7, wrong(70.0)),
                (8, wrong(124.0)),
                (9, wrong(60.0)),
                (10, wrong(90.0)),
                (11, wrong(500.0)),
            ],
        );
        let mut winner = all.exact.clone().unwrap();
        (winner.choice, winner.us) = (Choice::engine(4), 80.0);
        all.transform = Some(winner);
        let engines = |found: &Found| -> Vec<String> {
            let trials = found.trials.iter();
            trials
                .map(|trial| trial.plan.to_string()[7..].to_owned())
                .collect()
        };
        let few = all.finalists();
        assert_eq!(engines(&few), ["0", "6", "1", "4", "5", "9", "7", "10"]);
        assert_eq!(few.exact, all.exact);
        // Short times have three microseconds more, and no crowd is kept.
        let crowd: Vec<_> = (0..9).map(|i| (i, last(5.0 + 0.5 * i as f64))).collect();
        let crowd = found(5.0, &crowd).finalists();
        assert_eq!(engines(&crowd), ["0", "1", "2", "3", "4", "5"]);
        assert_eq!(
            engines(&found(5.0, &[(0, last(5.0)), (1, last(8.1))]).finalists()),
            ["0"]
        );
    }

    #[test]
    fn finalists_are_enough_while_they_stand_up() {
        let known = found(100.0, &[(0, Fate::Final { us: 100.0 })]);
        assert!(known.is_of_all(60) && known.is_of_all(59));
        assert!(!known.is_of_all(61), "plans that nobody has tried");
        let open = Some("no NVRTC".to_owned());
        assert!(
            !Found {
                incomplete: open.clone(),
                ..known.clone()
            }
            .is_of_all(60)
        );
        assert!(known.stands(&found(103.0, &[])));
        assert!(!known.stands(&found(104.0, &[])), "who came second?");
        let two = found(
            100.0,
            &[
                (0, Fate::Final { us: 100.0 }),
                (1, Fate::Final { us: 101.0 }),
            ],
        );
        assert!(two.stands(&found(105.0, &[])));
        assert!(!two.stands(&found(106.0, &[])));
        let mut again = found(100.0, &[]);
        again.incomplete = open;
        assert!(!known.stands(&again));
        // The fastest of all is held to its time as well as the fastest sum.
        let transform = |us| Found {
            transform: Some(Winner {
                us,
                ..known.exact.clone().unwrap()
            }),
            ..known.clone()
        };
        assert!(transform(50.0).stands(&transform(51.0)));
        assert!(!transform(50.0).stands(&transform(53.0)));
        assert!(!transform(50.0).stands(&known));
        assert!(known.stands(&transform(50.0)));
    }
}
