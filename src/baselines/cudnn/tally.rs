//! What became of the plans that cuDNN proposed, counted, so that the baseline cannot weaken unseen.

use std::{collections::BTreeMap, fmt};

use super::{
    plan::Choice,
    trial::{Fate, Trial},
};
use crate::{Error, chain};

/// Why plans were left out where the time of a search is limited.
pub(crate) const NO_TIME_TO_BUILD: &str = "no time left to build them";
/// The same, later.
pub(crate) const NO_TIME_TO_RUN: &str = "no time left to run them";

/// Counts of one search.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Different plans that cuDNN named, and algorithms of the older API.
    pub(crate) found: usize,
    /// How many of them compile their kernel here: none at all means that NVRTC is missing.
    pub(crate) compile: usize,
    /// Plans that the heuristics announced and then left out.
    pub(crate) withdrawn: usize,
    /// Engines that were asked by their own settings and the heuristics' alone, as they have too many.
    pub(crate) of_many_settings: usize,
    /// Plans that built.
    pub(crate) built: usize,
    /// Plans that ran and were timed.
    pub(crate) timed: usize,
    /// What became of each plan that no rule excludes.
    pub(crate) trials: Vec<Trial>,
    /// Why cuDNN could not name all of its plans.
    pub(crate) withheld: Option<String>,
    excluded: BTreeMap<&'static str, usize>,
    failed: BTreeMap<String, usize>,
    /// The first error of all, in full.
    first: Option<String>,
    /// Plans that were fast, but did not pass the check.
    wrong: Vec<String>,
    /// What else is to be known of the plans that won.
    remarks: Vec<String>,
}

impl Tally {
    /// Another one of the plans that cuDNN named, before anything became of them.
    pub(crate) fn anew(&self) -> Self {
        Tally {
            found: self.found,
            compile: self.compile,
            withdrawn: self.withdrawn,
            of_many_settings: self.of_many_settings,
            withheld: self.withheld.clone(),
            ..Tally::default()
        }
    }

    /// A plan that a rule excludes.
    pub(crate) fn exclude(&mut self, why: &'static str) {
        *self.excluded.entry(why).or_default() += 1;
    }

    /// A plan, or a whole graph, that cuDNN refused or that did not run.
    pub(crate) fn fail(&mut self, when: &str, error: &Error) {
        let name = name(error);
        *self.failed.entry(format!("{when}: {name}")).or_default() += 1;
        self.first.get_or_insert_with(|| brief(error));
    }

    /// A plan that is not tried.
    pub(crate) fn leave(&mut self, plan: &Choice, why: &'static str) {
        self.exclude(why);
        let why = why.to_owned();
        self.set(plan, Fate::Left { why });
    }

    /// A plan that cuDNN refused or that did not run.
    pub(crate) fn lose(&mut self, plan: &Choice, when: &str, error: &Error) {
        self.fail(when, error);
        let why = format!("{when}: {}", name(error));
        self.set(plan, Fate::Failed { why });
    }

    /// A plan that was timed, but is no baseline.
    pub(crate) fn wrong(&mut self, plan: &Choice, us: f64, why: &str) {
        let why = why.lines().next().unwrap_or_default().to_owned();
        self.wrong.push(format!("{plan} at {us:.1} us: {why}"));
        self.set(plan, Fate::Wrong { us, why });
    }

    /// What became of a plan, in the place of what was known of it.
    pub(crate) fn set(&mut self, plan: &Choice, fate: Fate) {
        match self.trials.iter_mut().find(|trial| trial.plan == *plan) {
            Some(trial) => trial.fate = fate,
            None => self.trials.push(Trial {
                plan: plan.clone(),
                fate,
            }),
        }
    }

    /// Why a faster plan may be among those that were not tried.
    pub(crate) fn incomplete(&self) -> Option<String> {
        let left = |why| {
            let count = self.excluded.get(why)?;
            Some(format!("{count} plans left out ({why})"))
        };
        let reasons = [NO_TIME_TO_BUILD, NO_TIME_TO_RUN]
            .into_iter()
            .filter_map(left);
        let reasons: Vec<String> = reasons.chain(self.withheld.clone()).collect();
        let text = reasons.join("; ");
        (!text.is_empty()).then_some(text)
    }

    /// Something about a plan that won.
    pub(crate) fn remark(&mut self, remark: String) {
        self.remarks.push(remark);
    }
}

/// What an error is called.
fn name(error: &Error) -> String {
    match error {
        Error::Gpu { name, .. } => name.clone(),
        other => brief(other),
    }
}

/// The first line of it and its causes, without endless file names.
fn brief(error: &Error) -> String {
    let text = chain(error);
    let line = text.lines().next().unwrap_or_default();
    match line.char_indices().nth(240) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line.to_owned(),
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(
            f,
            "{} plans found ({} compile at run time)",
            self.found, self.compile
        )?;
        if self.withdrawn > 0 {
            write!(f, ", {} announced and withdrawn by cuDNN", self.withdrawn)?;
        }
        if self.of_many_settings > 0 {
            let count = self.of_many_settings;
            write!(
                f,
                ", {count} engines with too many settings to try them all"
            )?;
        }
        for (why, count) in &self.excluded {
            write!(f, ", {count} excluded ({why})")?;
        }
        write!(f, ", {} built", self.built)?;
        for (why, count) in &self.failed {
            write!(f, ", {count} failed ({why})")?;
        }
        write!(f, ", {} timed", self.timed)?;
        for wrong in &self.wrong {
            write!(f, "; dropped {wrong}")?;
        }
        for remark in self.remarks.iter().chain(&self.withheld) {
            write!(f, "; {remark}")?;
        }
        match &self.first {
            Some(first) => write!(f, "; first failure: {first}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_in_silence() {
        let mut tally = Tally {
            found: 9,
            compile: 2,
            withdrawn: 1,
            of_many_settings: 5,
            built: 4,
            timed: 3,
            ..Tally::default()
        };
        tally.exclude("on tensor cores");
        tally.exclude("on tensor cores");
        let error = Error::Gpu {
            call: "cudnnBackendFinalize",
            code: 3008,
            name: "CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING".to_owned(),
            text: "libnvrtc.so.13 was not found".to_owned(),
        };
        tally.fail("compiling", &error);
        tally.fail("compiling", &error);
        tally.wrong(&Choice::engine(7), 12.34, "out of bounds\nand more");
        tally.remark("the fastest transform is engine 6".to_owned());
        let text = tally.to_string();
        for part in [
            "9 plans found (2 compile at run time)",
            "1 announced and withdrawn by cuDNN",
            "5 engines with too many settings to try them all",
            "2 excluded (on tensor cores)",
            "4 built",
            "2 failed (compiling: CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING)",
            "3 timed",
            "dropped engine 7 at 12.3 us: out of bounds",
            "; the fastest transform is engine 6; ",
            "libnvrtc.so.13",
        ] {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
        assert!(!text.contains("and more"));
    }

    #[test]
    fn each_plan_has_one_fate_the_last_one() {
        let mut tally = Tally::default();
        let plans = [1, 2, 3].map(Choice::engine);
        for plan in &plans {
            tally.set(plan, Fate::Timed { us: 9.0 });
        }
        tally.set(&plans[0], Fate::Final { us: 8.0 });
        tally.wrong(&plans[1], 7.0, "coarse\nand more");
        tally.lose(&plans[2], "running", &Error::Interrupted);
        let why = format!("running: {}", Error::Interrupted);
        let fates: Vec<_> = tally.trials.iter().map(|trial| &trial.fate).collect();
        let coarse = "coarse".to_owned();
        let last = [
            Fate::Final { us: 8.0 },
            Fate::Wrong {
                us: 7.0,
                why: coarse,
            },
            Fate::Failed { why },
        ];
        assert_eq!(fates, last.iter().collect::<Vec<_>>());
    }

    #[test]
    fn a_search_that_left_plans_out_for_time_is_not_complete() {
        let mut tally = Tally::default();
        tally.exclude("on tensor cores");
        tally.leave(&Choice::engine(1), "larger workspace than there may be");
        assert_eq!(tally.incomplete(), None);
        tally.leave(&Choice::engine(2), NO_TIME_TO_BUILD);
        tally.leave(&Choice::engine(3), NO_TIME_TO_RUN);
        tally.leave(&Choice::engine(4), NO_TIME_TO_RUN);
        let why = "1 plans left out (no time left to build them); \
                   2 plans left out (no time left to run them)";
        assert_eq!(tally.incomplete().as_deref(), Some(why));
        let mut tally = Tally {
            withheld: Some("no NVRTC".to_owned()),
            ..Tally::default()
        };
        assert_eq!(tally.incomplete().as_deref(), Some("no NVRTC"));
        tally.withheld = None;
        assert_eq!(tally.incomplete(), None);
    }
}
