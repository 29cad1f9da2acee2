//! The study's file.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{NetworkRow, OverlapRow};
use crate::{
    Error, Math, Problem, Result,
    measure::{self, ClockLog, Contender, Entry, Environment, Report, Row, Status, View},
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
    /// Batches cut over streams.
    pub overlap: Vec<OverlapRow>,
    /// What the GPU ran at.
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
            clocks: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Reads a study.
    ///
    /// # Errors
    /// [`Error::File`] with what is wrong with it.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| Error::file(path, error))?;
        serde_json::from_str(&text)
            .map_err(|error| Error::file(path, format!("is no file of `study`: {error}")))
    }

    /// Writes the study so that the file is whole at any time.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn write(&self, path: &Path) -> Result<()> {
        // It consists of strings and numbers only.
        let text = serde_json::to_string_pretty(self).unwrap_or_default() + "\n";
        measure::write_whole(path, &text)
    }

    /// The layers as `compare` would have kept them, to be shown as it shows them.
    pub fn report(&self) -> Report {
        Report {
            environment: self.environment.clone(),
            view: View::Compare,
            rows: self.layers.clone(),
            clocks: self.clocks.clone(),
            notes: self.notes.clone(),
        }
    }

    /// Whether it has every contender's row on a layer, none of them interrupted.
    pub fn has_layer(&self, layer: &Layer, contenders: &[Contender]) -> bool {
        measure::has(&self.layers, layer, contenders)
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

    /// Puts rows in the places of those of the same work, or at the end. What was interrupted does
    /// not take the place of what was not.
    pub fn put_layers(&mut self, rows: &[Row]) {
        measure::put(&mut self.layers, rows);
    }

    /// As [`put_layers`](Self::put_layers).
    pub fn put_network(&mut self, row: NetworkRow) {
        measure::put(&mut self.network, &[row]);
    }

    /// As [`put_layers`](Self::put_layers); the rows of a variant on a layer come together. If none of
    /// them was interrupted, all earlier ones go: a run that failed before the batch was cut left rows
    /// of other chunks.
    pub fn put_overlap(&mut self, rows: &[OverlapRow]) {
        self.overlap.retain(|old| {
            let mut again = rows.iter().filter(|new| of(new) == of(old)).peekable();
            again.peek().is_none() || old.is_whole() && !again.all(Entry::is_whole)
        });
        measure::put(&mut self.overlap, rows);
    }

    /// How many rows ended so.
    pub fn count(&self, status: Status) -> usize {
        let layers = self.layers.iter().map(|row| row.status);
        let network = self.network.iter().map(|row| row.status);
        let overlap = self.overlap.iter().map(|row| row.status);
        let all = layers.chain(network).chain(overlap);
        all.filter(|other| *other == status).count()
    }

    /// Takes over what another share of the same study found. Whether the two may stand in one file
    /// says [`Environment::differs_from`].
    pub fn merge(&mut self, other: Study) {
        self.put_layers(&other.layers);
        measure::put(&mut self.network, &other.network);
        self.put_overlap(&other.overlap);
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

    fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Device,
        study::{HostMemory, Spread},
    };

    fn study() -> Study {
        Study::new(Environment::of(&Device::Cpu, Vec::new()))
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

    fn interrupted() -> Option<String> {
        Some(Error::Interrupted.to_string())
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
    fn a_batch_that_was_never_cut_leaves_no_row_behind() {
        let mut study = study();
        let uncut = OverlapRow {
            chunk: 0,
            ..overlap(1, Some("out of memory".to_owned()))
        };
        study.put_overlap(&[uncut]);
        study.put_overlap(&[overlap(1, None)]);
        let chunks: Vec<usize> = study.overlap.iter().map(|row| row.chunk).collect();
        assert_eq!(chunks, [1]);
    }

    #[test]
    fn shares_become_one() {
        let (mut first, mut second) = (study(), study());
        first.put_network(network("a", 100, None));
        first.put_network(network("b", 100, interrupted()));
        first.notes.push("cut".to_owned());
        second.put_network(network("b", 100, None));
        second.put_overlap(&[overlap(1, None)]);
        second.notes.push("cut".to_owned());
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
        assert_eq!(first.notes, ["cut"]);
        assert_eq!(first.clocks.len(), 1);

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("study.json");
        first.write(&path).unwrap();
        assert_eq!(Study::read(&path).unwrap(), first);
    }
}
