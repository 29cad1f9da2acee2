//! All results of a page, as its sections want them.

use std::cmp::Reverse;

use convforge::{Layout, Math, Problem};

use crate::{
    measure::{Environment, Report, Row, Status, View},
    results::Source,
    study::{Profile, ProfileRow, Study},
};

/// The suites of the source reports, in reading order.
pub const REPORTS: [&str; 4] = ["report-86", "report-70", "report-vgg", "report-gemv"];

/// Variants side by side on one problem, measured in one run.
pub struct Layer<'a> {
    pub environment: &'a Environment,
    pub suite: &'a str,
    pub name: &'a str,
    pub problem: &'a Problem,
    pub rows: Vec<&'a Row>,
}

/// What files hold, in an order that does not depend on theirs.
pub struct Results<'a> {
    pub layers: Vec<Layer<'a>>,
    pub sweeps: Vec<&'a Report>,
    pub studies: Vec<&'a Study>,
    pub profiles: Vec<&'a Profile>,
}

impl<'a> Results<'a> {
    pub fn of(sources: &'a [Source]) -> Self {
        let mut results = Results {
            layers: Vec::new(),
            sweeps: Vec::new(),
            studies: Vec::new(),
            profiles: Vec::new(),
        };
        let mut runs: Vec<(&Environment, &[Row])> = Vec::new();
        for source in sources {
            match source {
                Source::Report(report) if report.view == View::Sweep => results.sweeps.push(report),
                Source::Report(report) => runs.push((&report.environment, &report.rows)),
                Source::Study(study) => {
                    runs.push((&study.environment, &study.layers));
                    results.studies.push(study);
                }
                Source::Profile(profile) => results.profiles.push(profile),
            }
        }
        runs.sort_by_key(|(environment, _)| Reverse(environment.stamp()));
        results
            .sweeps
            .sort_by_key(|report| Reverse(report.environment.stamp()));
        results
            .studies
            .sort_by_key(|study| Reverse(study.environment.stamp()));
        results
            .profiles
            .sort_by_key(|p| Reverse((&p.date, &p.csrc)));
        for (environment, rows) in runs {
            results.add(environment, rows);
        }
        results.layers.sort_by_key(|layer| {
            let suite = REPORTS.iter().position(|suite| *suite == layer.suite);
            let kind = layer.kind();
            (
                suite.unwrap_or(REPORTS.len()),
                layer.suite,
                kind != PLAIN,
                kind,
            )
        });
        results
    }

    /// Adds the problems that no later run has. Variants are compared within a run only, so a
    /// problem is taken from one of them, whole.
    fn add(&mut self, environment: &'a Environment, rows: &'a [Row]) {
        let known = self.layers.len();
        for row in rows {
            let at = self
                .layers
                .iter()
                .position(|layer| layer.is_of(environment, row));
            match at {
                Some(i) if i >= known => self.layers[i].rows.push(row),
                Some(_) => {}
                None => self.layers.push(Layer {
                    environment,
                    suite: &row.suite,
                    name: &row.layer,
                    problem: &row.problem,
                    rows: vec![row],
                }),
            }
        }
    }

    /// The counters of a variant, with its configuration, on a problem; of the latest profile that
    /// has them.
    pub fn counted(&self, problem: &Problem, name: &str) -> Vec<&'a ProfileRow> {
        let of = |profile: &&'a Profile| {
            let rows = profile.rows.iter();
            rows.filter(|row| row.problem == *problem && row.variant == name)
                .collect::<Vec<_>>()
        };
        let found = self.profiles.iter().map(of);
        found
            .into_iter()
            .find(|rows| !rows.is_empty())
            .unwrap_or_default()
    }

    /// Every environment that something on the page was measured in, each once.
    pub fn environments(&self) -> Vec<&'a Environment> {
        let layers = self.layers.iter().map(|layer| layer.environment);
        let sweeps = self.sweeps.iter().map(|report| &report.environment);
        let studies = self.studies.iter().map(|study| &study.environment);
        let mut all: Vec<&Environment> = layers.chain(sweeps).chain(studies).collect();
        all.sort_by_key(|environment| Reverse(environment.stamp()));
        all.dedup_by(|a, b| std::ptr::eq(*a, *b));
        all
    }
}

/// The kind of element that the reports measured.
pub const PLAIN: &str = "f32 NCHW";

impl<'a> Layer<'a> {
    fn is_of(&self, environment: &Environment, row: &Row) -> bool {
        let cold = self.rows.first().map(|first| first.cold);
        self.environment.device == environment.device
            && (self.suite, self.name, self.problem) == (&row.suite, &row.layer, &row.problem)
            && cold == Some(row.cold)
    }

    /// `f32 NCHW`, `f16 NHWC, f16acc math`: how elements are kept and multiplied.
    pub fn kind(&self) -> String {
        let problem = self.problem;
        let layout = match problem.layout() {
            Layout::Nchw => "NCHW",
            Layout::Nhwc => "NHWC",
        };
        let storage = problem.storage();
        let mut kind = format!("{storage} {layout}");
        if problem.math() != storage.maths()[0] {
            kind += &format!(", {} math", problem.math());
        }
        if self
            .rows
            .first()
            .is_some_and(|row| row.cold != self.environment.gpu.is_some())
        {
            kind += ", warm";
        }
        kind
    }

    /// Rows with a time, the fastest first.
    pub fn timed(&self) -> Vec<&'a Row> {
        let passed = |row: &&&Row| row.status == Status::Passed && row.median_us.is_some();
        let mut rows: Vec<&Row> = self.rows.iter().filter(passed).copied().collect();
        rows.sort_by(|a, b| {
            a.median_us
                .unwrap_or(0.0)
                .total_cmp(&b.median_us.unwrap_or(0.0))
        });
        rows
    }

    /// The fastest row of a family of baselines: `cudnn`, `cublas`.
    pub fn baseline(&self, family: &str) -> Option<&'a Row> {
        let mut rows = self.timed().into_iter();
        rows.find(|row| row.chose.is_none() && row.family() == family)
    }

    /// cuDNN's time, if all of its plans were tried.
    pub fn cudnn_us(&self) -> Option<f64> {
        let row = self.baseline("cudnn")?;
        row.median_us.filter(|_| !row.is_search_incomplete())
    }

    /// The fastest handwritten row; what a pick chose stands there by itself, too.
    pub fn best(&self) -> Option<&'a Row> {
        let mut rows = self.timed().into_iter();
        rows.find(|row| row.chose.is_none() && is_handwritten(row))
    }

    /// The fastest configuration of a variant, in microseconds.
    pub fn time_of(&self, variant: &str) -> Option<f64> {
        let mut rows = self.timed().into_iter();
        rows.find(|row| row.variant == variant)?.median_us
    }

    /// The problem for people: `1 → 4 channels, 7×7 filter, 86×86 image, batch 10000`.
    pub fn words(&self) -> String {
        words(self.problem)
    }

    /// Whether charts are drawn of it.
    pub fn is_drawn(&self) -> bool {
        REPORTS.contains(&self.suite) && self.problem.math() == Math::Fp32 && self.kind() == PLAIN
    }
}

/// `1 → 4 channels, 7×7 filter, 86×86 image, batch 10000`.
pub fn words(problem: &Problem) -> String {
    let mut text = format!(
        "{} → {} channels, {}×{} filter, {}×{} image, batch {}",
        problem.c(),
        problem.k(),
        problem.r(),
        problem.s(),
        problem.h(),
        problem.w(),
        problem.n()
    );
    if problem.groups() > 1 {
        text += &format!(", {} groups", problem.groups());
    }
    text
}

/// Names as short as drawings need them: without the configuration where no other variant has the
/// same name. A policy is nothing without its own.
pub fn plain_names<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let plain = |name: &'a str| match name.split_once(':') {
        Some((variant, _)) if variant != "policy" => variant,
        _ => name,
    };
    let names: Vec<&str> = names.collect();
    let is_one = |name| names.iter().filter(|other| plain(other) == name).count() == 1;
    let short = names.iter().map(|name| match plain(name) {
        plain if is_one(plain) => plain.to_owned(),
        _ => name.to_string(),
    });
    short.collect()
}

pub fn is_handwritten(row: &Row) -> bool {
    !["cublas", "cudnn", "cpu"].contains(&row.family())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_dropped_where_it_tells_nothing_apart() {
        let names = ["a:tile=8", "b:tile=8", "b:tile=16", "policy:p", "cudnn"];
        let plain = plain_names(names.into_iter());
        assert_eq!(plain, ["a", "b:tile=8", "b:tile=16", "policy:p", "cudnn"]);
    }
}
