//! What folders of results already say of a comparison, so that only what is stale is measured.

use std::path::PathBuf;

use convforge::{Limits, Problem};

use super::{lines, seconds, source::Source};
use crate::{
    Contender, Error, Result,
    files::files_ending,
    measure::{Environment, Options, Report, Row, View, trials},
    suite::Layer,
};

/// The comparisons of one device in folders of results.
#[derive(Debug)]
pub struct Recorded {
    /// Each report, and whether it used the libraries that are here now.
    reports: Vec<(Vec<Row>, bool)>,
    limits: Limits,
    /// The device's name, and the version of cuDNN that is here or taken for it.
    device: String,
    cudnn: String,
}

impl Recorded {
    /// Reads the reports of a device, which `now` is the environment of: those that are kept, and what
    /// `compare --out` wrote.
    ///
    /// # Errors
    /// [`Error::File`] where a folder or a file in it cannot be read.
    pub fn read(folders: &[PathBuf], limits: &Limits, now: &Environment) -> Result<Self> {
        Ok(Recorded::of(reports(folders)?, limits, now))
    }

    /// Reads the reports of a chip, for a machine that has none: as if the driver and the libraries were
    /// those of the latest of them.
    ///
    /// # Errors
    /// As [`read`](Recorded::read); [`Error::Input`] where there is no such chip or no report of one.
    pub fn of_chip(folders: &[PathBuf], chip: &str) -> Result<Self> {
        let reports = reports(folders)?;
        let is_chip = |word: &str| word.eq_ignore_ascii_case(chip);
        let of_chip = reports.iter().map(|report| &report.environment);
        let of_chip = of_chip.filter(|then| then.device.split(' ').any(is_chip));
        let now = of_chip.max_by(|a, b| a.stamp().cmp(&b.stamp())).cloned();
        let (Some(limits), Some(now)) = (Limits::of_chip(chip), now) else {
            return Err(Error::Input(format!(
                "no folder that --unless names has a report of the chip `{chip}`, so nothing is known of \
                 what it takes; `benches/results` has those of an H200"
            )));
        };
        Ok(Recorded::of(reports, &limits, &now))
    }

    fn of(reports: Vec<Report>, limits: &Limits, now: &Environment) -> Self {
        let here = reports
            .into_iter()
            .filter(|report| report.environment.device == now.device);
        let compared = here.filter(|report| report.view == View::Compare);
        let libraries = |then: &Environment| then.libraries == now.libraries;
        Recorded {
            reports: compared
                .map(|report| (report.rows, libraries(&report.environment)))
                .collect(),
            limits: limits.clone(),
            device: now.device.clone(),
            cudnn: now.libraries.get("cuDNN").cloned().unwrap_or_default(),
        }
    }

    /// Whether one report has all contenders on the problem that can do it, as they are now. Variants are compared
    /// within a run only, so that one stale row makes the problem stale.
    pub fn has(&self, layer: &Layer, contenders: &[Contender], cold: bool) -> bool {
        self.reports.iter().any(|(rows, same_libraries)| {
            let rows = || {
                rows.iter()
                    .filter(|row| row.is_of(layer) && row.cold == cold)
            };
            let fresh = |contender: &Contender| {
                let name = contender.name();
                rows().any(|row| row.name() == name && is_fresh(row, contender, &self.limits))
            };
            let able = |contender: &&Contender| contender.can(&self.limits, &layer.problem);
            *same_libraries && contenders.iter().filter(able).all(fresh)
        })
    }

    /// The contenders but for this project's own whose least time is over so many times the least of these. Of code that
    /// has changed since, and of what was never timed, its estimate counts as well. What a comparison found of a
    /// variant is a time of its default. A problem is the same in whichever suite it stands.
    pub fn within(
        &self,
        times: f64,
        layer: &Layer,
        contenders: &[Contender],
        cold: bool,
    ) -> Vec<Contender> {
        let rows = self.reports.iter().flat_map(|(rows, _)| rows);
        let timed: Vec<(&Row, f64)> = rows
            .filter(|row| row.problem == layer.problem && row.cold == cold)
            .filter_map(|row| Some((row, row.median_us?)))
            .collect();
        let is_of = |row: &Row, contender: &Contender| {
            let is_found = row.found && contender.is_first();
            row.name() == contender.name() || is_found && row.variant == contender.variant()
        };
        let own = contenders.iter().filter(|contender| contender.is_own());
        let own: Vec<&Contender> = own.collect();
        let of_own = timed
            .iter()
            .filter(|(row, _)| own.iter().any(|contender| is_of(row, contender)));
        let fastest = of_own.map(|(_, us)| *us).reduce(f64::min);
        let least = |contender: &Contender| {
            let own = timed.iter().filter(|(row, _)| is_of(row, contender));
            let times = own.clone().map(|(_, us)| *us);
            let is_fresh = own
                .clone()
                .any(|(row, _)| is_fresh(row, contender, &self.limits));
            let estimate = match is_fresh {
                true => None,
                false => contender.estimate_us(&self.limits, &layer.problem),
            };
            times.chain(estimate).reduce(f64::min)
        };
        let is_far = |contender: &Contender| {
            let pair = least(contender).zip(fastest);
            contender.is_own() && pair.is_some_and(|(us, fastest)| us > times * fastest)
        };
        let near = contenders.iter().filter(|contender| !is_far(contender));
        near.cloned().collect()
    }

    /// Whether a contender can do a problem on the device.
    pub fn can(&self, contender: &Contender, problem: &Problem) -> bool {
        contender.can(&self.limits, problem)
    }

    /// Whether cuDNN is among the contenders that can do a problem and has to be searched from the start.
    pub fn wants_search(&self, problem: &Problem, contenders: &[Contender]) -> bool {
        let mut searched = contenders.iter().filter(|one| one.variant() == "cudnn");
        searched.any(|one| self.can(one, problem) && !self.is_known(one, problem))
    }

    #[cfg(feature = "cudnn")]
    fn is_known(&self, contender: &Contender, problem: &Problem) -> bool {
        crate::cudnn::is_known(contender, problem, (&self.device, &self.cudnn))
    }

    #[cfg(not(feature = "cudnn"))]
    fn is_known(&self, _: &Contender, _: &Problem) -> bool {
        let _ = (&self.device, &self.cudnn);
        false
    }

    /// About how many seconds a problem takes with these contenders.
    pub fn seconds(&self, layer: &Layer, contenders: &[Contender], options: &Options) -> f64 {
        let able = contenders
            .iter()
            .filter(|contender| self.can(contender, &layer.problem));
        let each = able.map(|contender| {
            let name = contender.name();
            let rows = self.reports.iter().flat_map(|(rows, _)| rows);
            let row = rows
                .rev()
                .find(|row| row.problem == layer.problem && row.name() == name);
            let known = self.is_known(contender, &layer.problem);
            seconds::of_contender(
                row,
                (contender, known),
                &layer.problem,
                &self.limits,
                options,
            )
        });
        let problem = &layer.problem;
        let trials = match options.fastest_configs {
            true => trials(&self.limits, problem, contenders),
            false => Vec::new(),
        };
        let trials = trials
            .iter()
            .map(|trial| seconds::of_trial(trial.us, problem, &self.limits, options));
        seconds::of_problem(problem, &self.limits, options)
            + each.sum::<f64>()
            + trials.sum::<f64>()
    }
}

/// The reports of folders, kept ones and others.
fn reports(folders: &[PathBuf]) -> Result<Vec<Report>> {
    let mut reports = Vec::new();
    for folder in folders {
        for file in files_ending(folder, &[lines::EXTENSION, "json"])? {
            if let Source::Report(report) = Source::read(&file)? {
                reports.push(report);
            }
        }
    }
    Ok(reports)
}

/// Whether a row is of the contender as it is now: of a pick also, whether it would choose the same.
fn is_fresh(row: &Row, contender: &Contender, limits: &Limits) -> bool {
    let is_of_now = match &row.chose {
        None => row.source == contender.source(),
        Some(chose) => contender
            .chosen(limits, &row.problem)
            .is_some_and(|now| now.name() == *chose && now.info().hash == row.source),
    };
    row.is_whole() && !row.is_search_incomplete() && is_of_now
}

#[cfg(test)]
mod tests {
    use convforge::{Device, Pick, variants};

    use super::*;
    use crate::{
        measure::{Format, compare},
        results::lines,
    };

    #[test]
    fn only_what_is_as_it_was_is_fresh() {
        let device = Device::cpu();
        let mut contenders: Vec<Contender> = ["cpu_direct", "cpu_gemm"]
            .map(|name| variants::find(name).unwrap().into())
            .into();
        contenders.push(Contender::Pick(Pick::Rule));
        let layer = Layer::alone("mb1ic2ih5oc2kh3".parse().unwrap());
        let options = Options::of(&device);
        let stop = std::sync::atomic::AtomicBool::new(false);
        let mut report = Report::new(Environment::of(&device, Vec::new()), View::Compare);
        report.rows = compare(&device, &layer, &contenders, &options, &stop, &mut |_| {});
        let folder = tempfile::tempdir().unwrap();
        let read = |report: &Report| {
            let text = lines::text(&Source::Report(report.clone())).unwrap();
            std::fs::write(folder.path().join("a.jsonl"), text).unwrap();
            let now = Environment::of(&device, Vec::new());
            let folders = [folder.path().to_owned()];
            Recorded::read(&folders, &device.limits(), &now).unwrap()
        };
        let has = |report: &Report| {
            let recorded = read(report);
            assert!(recorded.seconds(&layer, &contenders, &options) > 0.0);
            recorded.has(&layer, &contenders, false)
        };
        assert!(has(&report));
        // A report that `compare` is still writing counts as well.
        let text = report.text(Format::Json);
        std::fs::write(folder.path().join("b.json"), text).unwrap();
        report.rows[1].source = Some("another".to_owned());
        assert!(has(&report));
        std::fs::remove_file(folder.path().join("b.json")).unwrap();
        report.rows[1].source = contenders[1].source();
        let mut stale = report.clone();
        stale.rows[1].source = Some("another".to_owned());
        assert!(!has(&stale));
        let mut other = report.clone();
        assert_eq!(other.rows[2].chose, Some(contenders[0].name()));
        other.rows[2].chose = Some(contenders[1].name());
        other.rows[2].source = contenders[1].source();
        assert!(!has(&other), "it would choose another now");
        let mut older = report.clone();
        older
            .environment
            .libraries
            .insert("cuDNN".to_owned(), "1".to_owned());
        assert!(!has(&older));
        let mut less = report.clone();
        less.rows.truncate(1);
        assert!(!has(&less));
        let mut far = report.clone();
        far.rows[0].median_us = Some(1.0);
        far.rows[1].median_us = Some(3.0);
        let names = |report: &Report, times| {
            let near = read(report).within(times, &layer, &contenders[..2], false);
            near.iter().map(Contender::name).collect::<Vec<String>>()
        };
        // The second one's fastest configuration is as fast as the first.
        let mut near = far.clone();
        near.rows.push(Row {
            config: Some("plan=2".to_owned()),
            found: true,
            median_us: Some(1.0),
            ..near.rows[1].clone()
        });
        assert_eq!(names(&near, 1.0), ["cpu_direct", "cpu_gemm"]);
        // What others take is no measure.
        let mut behind = far.clone();
        behind.rows.push(Row {
            variant: "cudnn".to_owned(),
            median_us: Some(0.1),
            ..behind.rows[1].clone()
        });
        assert_eq!(names(&behind, 1.0), ["cpu_direct"]);
        assert_eq!(names(&far, 4.0), ["cpu_direct", "cpu_gemm"]);
        assert_eq!(names(&far, 2.0), ["cpu_direct"]);
        let mut elsewhere = far.clone();
        for row in &mut elsewhere.rows {
            row.suite = "of others".to_owned();
        }
        assert_eq!(names(&elsewhere, 2.0), ["cpu_direct"]);
        // What it takes now is not known of code that has changed since: its estimate may be less.
        let estimate = contenders[1]
            .estimate_us(&device.limits(), &layer.problem)
            .unwrap();
        far.rows[0].median_us = Some(estimate);
        far.rows[1].median_us = Some(estimate * 9.0);
        assert_eq!(names(&far, 2.0), ["cpu_direct"]);
        far.rows[1].source = Some("another".to_owned());
        assert_eq!(names(&far, 2.0), ["cpu_direct", "cpu_gemm"]);
        // Nor of what was never timed.
        far.rows.truncate(1);
        assert_eq!(names(&far, 2.0), ["cpu_direct", "cpu_gemm"]);
        far.rows[0].median_us = Some(estimate / 9.0);
        assert_eq!(names(&far, 2.0), ["cpu_direct"]);
        let mut elsewhere = report;
        elsewhere.environment.device = "another".to_owned();
        assert!(!has(&elsewhere));
    }

    #[test]
    fn a_chip_that_is_not_here_is_as_its_latest_report_says() {
        let folder = tempfile::tempdir().unwrap();
        let folders = [folder.path().to_owned()];
        let said = Recorded::of_chip(&folders, "h200").unwrap_err().to_string();
        assert!(said.contains("`h200`"), "{said}");
        for (date, cudnn) in [("2026-02-01", "9.19.0"), ("2026-01-01", "9.12.0")] {
            let mut then = Environment::of(&Device::cpu(), Vec::new());
            then.device = "NVIDIA H200".to_owned();
            then.date = date.to_owned();
            then.libraries.insert("cuDNN".to_owned(), cudnn.to_owned());
            let report = Report::new(then, View::Compare);
            let path = folder.path().join(format!("{date}.json"));
            std::fs::write(path, report.text(Format::Json)).unwrap();
        }
        let recorded = Recorded::of_chip(&folders, "h200").unwrap();
        assert_eq!(
            (&*recorded.device, &*recorded.cudnn),
            ("NVIDIA H200", "9.19.0")
        );
        assert_eq!(recorded.reports.len(), 2);
        let same: Vec<bool> = recorded.reports.iter().map(|(_, same)| *same).collect();
        assert_eq!(same, [false, true]);
    }
}
