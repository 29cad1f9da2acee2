//! What a folder of results already says of a comparison, so that only what is stale is measured.

use std::path::Path;

use super::{kept::files, source::Source};
use convforge::{Device, Limits};

use crate::{
    Contender, Result,
    measure::{Environment, Options, Row, Status, View},
    suite::Layer,
};

/// The comparisons of one device in a folder of results.
#[derive(Debug, Default)]
pub struct Recorded {
    /// Each report, and whether it used the libraries that are here now.
    reports: Vec<(Vec<Row>, bool)>,
    limits: Limits,
}

impl Recorded {
    /// Reads the reports of a device, which `now` is the environment of.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) where the folder or a file in it cannot be read.
    pub fn read(folder: &Path, device: &Device, now: &Environment) -> Result<Self> {
        let mut reports = Vec::new();
        for file in files(folder)? {
            let Source::Report(report) = Source::read(&file)? else {
                continue;
            };
            let then = &report.environment;
            if report.view == View::Compare && then.device == now.device {
                let same = then.libraries == now.libraries;
                reports.push((report.rows, same));
            }
        }
        let limits = device.limits();
        Ok(Recorded { reports, limits })
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
                rows().any(|row| row.name() == name && is_fresh(row, contender))
            };
            let able = |contender: &&Contender| contender.can(&self.limits, &layer.problem);
            *same_libraries && contenders.iter().filter(able).all(fresh)
        })
    }

    /// About how many seconds a contender takes on a problem: as when it was measured last, or else
    /// guessed.
    pub fn seconds(&self, layer: &Layer, contender: &Contender, options: &Options) -> f64 {
        let name = contender.name();
        let rows = self.reports.iter().flat_map(|(rows, _)| rows);
        let mut rows = rows.filter(|row| row.is_of(layer) && row.name() == name);
        let Some(row) = rows.next_back() else {
            return guess(layer, contender);
        };
        let samples = row.median_us.map_or(0.0, |us| {
            row.samples.min(options.samples) as f64 * us.max(SAMPLE_US) / 1e6
        });
        let made = row.took_s.unwrap_or_else(|| match row.status {
            Status::Unsupported => 0.0,
            _ => guess(layer, contender),
        });
        made + samples
    }
}

/// What a sample takes at least.
const SAMPLE_US: f64 = 4_000.0;

/// Whether a row is of the contender as it is now.
fn is_fresh(row: &Row, contender: &Contender) -> bool {
    let now = match &row.chose {
        None => contender.source(),
        Some(chose) => {
            let name = chose.split(':').next().unwrap_or_default();
            let chosen = convforge::variants::find(name).ok();
            chosen.and_then(|variant| variant.info().hash.clone())
        }
    };
    row.is_whole() && !row.is_search_incomplete() && row.source == now
}

/// Seconds that nobody has measured: data are made and judged at some 2 GB/s, and cuDNN's plans, of which
/// the transforms are a part, are searched for some seconds.
fn guess(layer: &Layer, contender: &Contender) -> f64 {
    let search = match contender.variant() == "cudnn" {
        true => 5.0,
        false => 0.1,
    };
    search + layer.problem.bytes() / 2e9
}

#[cfg(test)]
mod tests {
    use convforge::{Device, variants};

    use super::*;
    use crate::{
        measure::{Report, compare},
        results::lines,
    };

    #[test]
    fn only_what_is_as_it_was_is_fresh() {
        let device = Device::cpu();
        let contenders: Vec<Contender> = ["cpu_direct", "cpu_gemm"]
            .map(|name| Contender::Variant {
                variant: variants::find(name).unwrap(),
                config: 0,
            })
            .into();
        let layer = Layer::alone("mb1ic2ih5oc2kh3".parse().unwrap());
        let options = Options::of(&device);
        let stop = std::sync::atomic::AtomicBool::new(false);
        let mut report = Report::new(Environment::of(&device, Vec::new()), View::Compare);
        report.rows = compare(&device, &layer, &contenders, &options, &stop, &mut |_| {});
        let folder = tempfile::tempdir().unwrap();
        let has = |report: &Report| {
            let text = lines::text(&Source::Report(report.clone())).unwrap();
            std::fs::write(folder.path().join("a.jsonl"), text).unwrap();
            let now = Environment::of(&device, Vec::new());
            let recorded = Recorded::read(folder.path(), &device, &now).unwrap();
            assert!(recorded.seconds(&layer, &contenders[0], &options) > 0.0);
            recorded.has(&layer, &contenders, false)
        };
        assert!(has(&report));
        let mut stale = report.clone();
        stale.rows[1].source = Some("another".to_owned());
        assert!(!has(&stale));
        let mut older = report.clone();
        older
            .environment
            .libraries
            .insert("cuDNN".to_owned(), "1".to_owned());
        assert!(!has(&older));
        let mut less = report.clone();
        less.rows.truncate(1);
        assert!(!has(&less));
        let mut elsewhere = report;
        elsewhere.environment.device = "another".to_owned();
        assert!(!has(&elsewhere));
    }
}
