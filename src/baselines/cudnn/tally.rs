//! What became of the plans that cuDNN proposed, counted, so that the baseline cannot weaken unseen.

use std::{collections::BTreeMap, fmt};

use crate::Error;

/// Counts of one search.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Different plans that cuDNN named, and algorithms of the older API.
    pub(crate) found: usize,
    /// How many of them compile their kernel here: none at all means that NVRTC is missing.
    pub(crate) compile: usize,
    /// Plans that the heuristics announced and then left out.
    pub(crate) withdrawn: usize,
    /// Plans that built.
    pub(crate) built: usize,
    /// Plans that ran and were timed.
    pub(crate) timed: usize,
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
    /// A plan that a rule excludes.
    pub(crate) fn exclude(&mut self, why: &'static str) {
        *self.excluded.entry(why).or_default() += 1;
    }

    /// A plan, or a whole graph, that cuDNN refused or that did not run.
    pub(crate) fn fail(&mut self, when: &str, error: &Error) {
        let name = match error {
            Error::Gpu { name, .. } => name.clone(),
            other => brief(other),
        };
        *self.failed.entry(format!("{when}: {name}")).or_default() += 1;
        self.first.get_or_insert_with(|| brief(error));
    }

    /// A plan that was timed, but is no baseline.
    pub(crate) fn wrong(&mut self, plan: &impl fmt::Display, us: f64, why: &str) {
        let why = why.lines().next().unwrap_or_default();
        self.wrong.push(format!("{plan} at {us:.1} us: {why}"));
    }

    /// Something about a plan that won.
    pub(crate) fn remark(&mut self, remark: String) {
        self.remarks.push(remark);
    }
}

/// The first line, without endless file names.
fn brief(error: &Error) -> String {
    let text = error.to_string();
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
        for remark in &self.remarks {
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
        tally.wrong(&"engine 7", 12.34, "out of bounds\nand more");
        tally.remark("the fastest transform is engine 6".to_owned());
        let text = tally.to_string();
        for part in [
            "9 plans found (2 compile at run time)",
            "1 announced and withdrawn by cuDNN",
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
}
