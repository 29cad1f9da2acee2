//! The study's file.

use std::path::Path;

use convforge::{Math, Problem};
use serde::{Deserialize, Serialize};

use super::{ErrorRow, NetworkRow, OverlapRow};
use crate::{
    Contender, Result,
    files::{json, read_json},
    measure::{self, ClockLog, Entry, Environment, Report, Row, Status, View},
    suite::Layer,
};

/// All that one study found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Study {
    /// Where and when.
    pub environment: Environment,
    /// The layers of the reports, variants side by side, as `compare` measures them.
    pub layers: Vec<Row>,
    /// The network, a row per variant and batch.
    pub network: Vec<NetworkRow>,
    /// Batches split over streams.
    pub overlap: Vec<OverlapRow>,
    /// How far results are from f64, variants side by side; a file of an earlier version has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ErrorRow>,
    /// What the GPU ran at; not kept in the compact form.
    #[serde(default)]
    pub clocks: Vec<ClockLog>,
    /// What was done otherwise than asked.
    pub notes: Vec<String>,
}

impl Study {
    /// A study without rows.
    pub fn new(environment: Environment) -> Self {
        Study {
            environment,
            layers: Vec::new(),
            network: Vec::new(),
            overlap: Vec::new(),
            errors: Vec::new(),
            clocks: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Reads a study.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) with what is wrong with it.
    pub fn read(path: &Path) -> Result<Self> {
        read_json(path, "is no file of `study`")
    }

    /// The file's text.
    pub fn text(&self) -> String {
        json(self)
    }

    /// The layers as `compare` would have kept them, to be shown as it shows them.
    pub fn report(&self) -> Report {
        Report {
            environment: self.environment.clone(),
            view: View::Compare,
            rows: self.layers.clone(),
            clocks: self.clocks.clone(),
            notes: self.notes.clone(),
            models: Vec::new(),
        }
    }

    /// Whether it has every contender's row on a layer, none of them interrupted.
    pub fn has_layer(&self, layer: &Layer, contenders: &[Contender]) -> bool {
        measure::has(self.layers.iter(), layer, contenders)
    }

    /// Whether it has the row of a variant on a batch, not interrupted.
    pub fn has_network(&self, variant: &str, math: Math, images: usize) -> bool {
        let math = math.to_string();
        self.network.iter().any(|row| {
            (&*row.variant, &row.math, row.images) == (variant, &math, images) && row.is_whole()
        })
    }

    /// Whether it has the rows of a variant on a layer, none of them interrupted.
    pub fn has_overlap(&self, layer: &Layer, variant: &str) -> bool {
        let work = (&*layer.suite, &*layer.layer, &layer.problem, variant);
        let mut rows = self.overlap.iter().filter(|row| of(row) == work).peekable();
        rows.peek().is_some() && rows.all(Entry::is_whole)
    }

    /// Whether it has the errors of every contender on a layer, none of them interrupted.
    pub fn has_errors(&self, layer: &Layer, contenders: &[Contender]) -> bool {
        contenders.iter().all(|contender| {
            let name = contender.name();
            let mut rows = self.errors.iter().filter(|row| row.is_of(layer));
            rows.any(|row| row.name() == name && row.is_whole())
        })
    }

    /// Puts rows in the places of those of the same work, or at the end. What was interrupted or
    /// skipped does not take the place of what was not.
    pub fn put_layers(&mut self, rows: &[Row]) {
        measure::put(&mut self.layers, rows);
    }

    /// As [`put_layers`](Self::put_layers).
    pub fn put_network(&mut self, row: NetworkRow) {
        measure::put(&mut self.network, &[row]);
    }

    /// As [`put_layers`](Self::put_layers); the rows of a variant on a layer come together. If none of
    /// them was interrupted and not all were skipped, all earlier ones go: a run that failed before the
    /// batch was split left rows of other chunks.
    pub fn put_overlap(&mut self, rows: &[OverlapRow]) {
        self.overlap.retain(|old| {
            let again = rows.iter().filter(|new| of(new) == of(old));
            again.clone().next().is_none() || old.outlasts(again)
        });
        measure::put(&mut self.overlap, rows);
    }

    /// As [`put_layers`](Self::put_layers).
    pub fn put_errors(&mut self, rows: &[ErrorRow]) {
        measure::put(&mut self.errors, rows);
    }

    /// How many rows ended so.
    pub fn count(&self, status: Status) -> usize {
        let layers = self.layers.iter().map(|row| row.status);
        let network = self.network.iter().map(|row| row.status);
        let overlap = self.overlap.iter().map(|row| row.status);
        let errors = self.errors.iter().map(|row| row.status);
        let all = layers.chain(network).chain(overlap).chain(errors);
        all.filter(|other| *other == status).count()
    }

    /// Takes over what another share of the same study found. Whether the two may stand in one file
    /// says [`Environment::differs_from`].
    pub fn merge(&mut self, other: Study) {
        self.put_layers(&other.layers);
        measure::put(&mut self.network, &other.network);
        self.put_overlap(&other.overlap);
        self.put_errors(&other.errors);
        // Shares that went on from one file have a part in common.
        extend(&mut self.clocks, other.clocks);
        extend(&mut self.notes, other.notes);
        let ceilings = &mut self.environment.ceilings;
        *ceilings = ceilings.or(other.environment.ceilings);
    }
}

/// Appends what is not there yet.
fn extend<T: PartialEq>(all: &mut Vec<T>, more: Vec<T>) {
    for one in more {
        if !all.contains(&one) {
            all.push(one);
        }
    }
}

impl Entry for NetworkRow {
    fn is_same(&self, other: &Self) -> bool {
        (&self.variant, &self.math, self.images) == (&other.variant, &other.math, other.images)
    }

    fn status(&self) -> Status {
        self.status
    }

    fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }
}

/// What a row of overlap is of, but for the streams and the memory.
fn of(row: &OverlapRow) -> (&str, &str, &Problem, &str) {
    (&row.suite, &row.layer, &row.problem, &row.variant)
}

impl Entry for OverlapRow {
    fn is_same(&self, other: &Self) -> bool {
        let how = |row: &Self| (row.streams, row.chunk, row.memory);
        of(self) == of(other) && how(self) == how(other)
    }

    fn status(&self) -> Status {
        self.status
    }

    fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use convforge::{Device, Error::Interrupted, variants};
    use convforge_check::{Data, Deviation};

    use super::*;
    use crate::{
        files::write_whole,
        measure::Spread,
        study::{DataErrors, HostMemory},
    };

    fn study() -> Study {
        Study::new(Environment::of(&Device::cpu(), Vec::new()))
    }

    fn network(variant: &str, images: usize, reason: Option<String>) -> NetworkRow {
        NetworkRow {
            variant: variant.to_owned(),
            math: "fp32".to_owned(),
            images,
            status: Status::Passed,
            reason,
            layers: Vec::new(),
            // A careless reader makes 363.795 of it.
            total: Spread::of(&[363.79499999999996]),
            accuracy: None,
            logit_deviation: None,
            runs: 1,
        }
    }

    fn overlap(streams: usize, reason: Option<String>) -> OverlapRow {
        OverlapRow {
            suite: String::new(),
            layer: String::new(),
            problem: "mb4ic1ih8oc1kh3".parse().unwrap(),
            variant: "a".to_owned(),
            chose: None,
            streams,
            chunk: 1,
            memory: HostMemory::Pinned,
            status: Status::Skipped,
            reason,
            time: None,
            runs: 0,
            copy_in_us: None,
            copy_out_us: None,
            kernel_us: None,
            timeline: Vec::new(),
        }
    }

    fn errors(variant: &str, reason: Option<String>) -> ErrorRow {
        let deviation = |rms| Deviation {
            largest: 5.551_115_123_125_783e-17,
            rms,
        };
        let passed = DataErrors {
            data: Data::Wide,
            stored: deviation(1e-4),
            rounded: Some(deviation(2e-8)),
            sequential: deviation(3e-8),
        };
        ErrorRow {
            suite: String::new(),
            layer: String::new(),
            problem: "mb4ic1ih8oc1kh3".parse().unwrap(),
            math: "fp32".to_owned(),
            variant: variant.to_owned(),
            config: Some("tile=8".to_owned()),
            plan: None,
            seed: 1,
            status: Status::Passed,
            data: if reason.is_none() {
                vec![passed]
            } else {
                Vec::new()
            },
            reason,
        }
    }

    fn interrupted() -> Option<String> {
        Some(Interrupted.to_string())
    }

    #[test]
    fn what_was_interrupted_is_not_there() {
        let mut study = study();
        let has = |study: &Study| study.has_network("a", Math::Fp32, 100);
        study.put_network(network("a", 1000, None));
        study.put_network(network("a", 100, interrupted()));
        assert!(!has(&study));
        study.put_network(network("a", 100, None));
        study.put_network(network("a", 100, interrupted()));
        assert!(has(&study) && !study.has_network("a", Math::F16, 100));
        assert_eq!(study.network.len(), 2);

        let layer = Layer::alone(overlap(1, None).problem);
        assert!(!study.has_overlap(&layer, "a"));
        study.put_overlap(&[overlap(2, None), overlap(0, interrupted())]);
        assert!(!study.has_overlap(&layer, "a"));
        study.put_overlap(&[overlap(2, None), overlap(4, None)]);
        assert!(study.has_overlap(&layer, "a") && !study.has_overlap(&layer, "b"));
        assert_eq!(study.overlap.len(), 2);
        study.put_overlap(&[overlap(2, interrupted())]);
        assert!(study.has_overlap(&layer, "a"));
    }

    #[test]
    fn errors_are_there_once_every_variant_has_them() {
        let mut study = study();
        let layer = Layer::alone("mb4ic1ih8oc1kh3".parse().unwrap());
        let names = ["cpu_direct", "cpu_gemm"];
        let contenders = names.map(|name| variants::find(name).unwrap().into());
        // These have no configuration.
        let row = |variant: &str, reason| ErrorRow {
            config: None,
            ..errors(variant, reason)
        };
        assert!(!study.has_errors(&layer, &contenders));
        study.put_errors(&[row("cpu_direct", None), row("cpu_gemm", interrupted())]);
        assert!(study.has_errors(&layer, &contenders[..1]));
        assert!(!study.has_errors(&layer, &contenders));
        study.put_errors(&[row("cpu_gemm", None)]);
        assert!(study.has_errors(&layer, &contenders));
        let other = Layer::alone("mb4ic1ih8oc1kh3+math=tf32".parse().unwrap());
        assert!(!study.has_errors(&other, &contenders));
        assert_eq!(study.count(Status::Passed), 2);
    }

    #[test]
    fn a_file_from_before_the_errors_can_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("study.json");
        write_whole(&path, study().text()).unwrap();
        assert!(!std::fs::read_to_string(&path).unwrap().contains("errors"));
        assert!(Study::read(&path).unwrap().errors.is_empty());
    }

    #[test]
    fn a_batch_that_was_never_split_leaves_no_row_behind() {
        let mut study = study();
        let whole = OverlapRow {
            chunk: 0,
            ..overlap(1, Some("out of memory".to_owned()))
        };
        study.put_overlap(&[whole]);
        study.put_overlap(&[overlap(1, None)]);
        let chunks: Vec<usize> = study.overlap.iter().map(|row| row.chunk).collect();
        assert_eq!(chunks, [1]);
    }

    #[test]
    fn what_was_skipped_does_not_replace_what_was_measured() {
        let mut study = study();
        let skipped = |row: NetworkRow| NetworkRow {
            status: Status::Skipped,
            reason: Some("out of memory".to_owned()),
            ..row
        };
        study.put_network(skipped(network("a", 100, None)));
        study.put_network(network("a", 100, None));
        study.put_network(skipped(network("a", 100, None)));
        assert_eq!(study.network, [network("a", 100, None)]);

        let passed = OverlapRow {
            status: Status::Passed,
            ..overlap(1, None)
        };
        study.put_overlap(std::slice::from_ref(&passed));
        study.put_overlap(&[overlap(2, None)]);
        assert_eq!(study.overlap, [passed.clone(), overlap(2, None)]);
        study.put_overlap(&[
            overlap(1, None),
            OverlapRow {
                streams: 2,
                ..passed.clone()
            },
        ]);
        assert_eq!(study.overlap[0].status, Status::Skipped);
    }

    #[test]
    fn shares_become_one() {
        let (mut first, mut second) = (study(), study());
        first.put_network(network("a", 100, None));
        first.put_network(network("b", 100, interrupted()));
        first.notes.push("reduced".to_owned());
        second.put_network(network("b", 100, None));
        second.put_overlap(&[overlap(1, None)]);
        first.put_errors(&[errors("cpu_direct", interrupted())]);
        second.put_errors(&[errors("cpu_direct", None), errors("cpu_gemm", None)]);
        second.notes.push("reduced".to_owned());
        for study in [&mut first, &mut second] {
            study.clocks.push(ClockLog {
                problem: "a".to_owned(),
                before: None,
                after: None,
            });
        }
        first.merge(second);
        assert!(first.has_network("a", Math::Fp32, 100) && first.has_network("b", Math::Fp32, 100));
        assert_eq!((first.network.len(), first.overlap.len()), (2, 1));
        assert_eq!(
            first.errors,
            [errors("cpu_direct", None), errors("cpu_gemm", None)]
        );
        assert_eq!(first.notes, ["reduced"]);
        assert_eq!(first.clocks.len(), 1);

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("study.json");
        write_whole(&path, first.text()).unwrap();
        assert_eq!(Study::read(&path).unwrap(), first);
    }
}
