//! What a run of measurements leaves behind: one JSON object, or a CSV table.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{
    csv,
    entry::{Status, put},
    environment::{Clocks, Environment, Load},
    model_totals::ModelTotals,
    row::Row,
    view::{Part, View},
};
use crate::{
    Contender, Result,
    files::{json, read_json},
    suite::Layer,
};

/// A run: where and when, and a row per problem and variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Where and when.
    pub environment: Environment,
    /// What the rows were measured for.
    #[serde(default)]
    pub view: View,
    /// One per problem and variant.
    pub rows: Vec<Row>,
    /// What the GPU ran at, before and after each time that a problem was measured; not kept in the
    /// compact form.
    #[serde(default)]
    pub clocks: Vec<ClockLog>,
    /// What was done otherwise than asked: batches reduced on the CPU.
    pub notes: Vec<String>,
    /// The models that the problems are of. Files have them under an earlier name.
    #[serde(rename = "networks", default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<ModelTotals>,
}

/// What the GPU ran at around one problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockLog {
    /// The problem.
    pub problem: String,
    /// Before its first sample.
    pub before: Option<Clocks>,
    /// After its last.
    pub after: Option<Clocks>,
}

/// The form of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One object; it can be read back.
    Json,
    /// One line per row, the environment in remarks before them.
    Csv,
}

impl Report {
    /// A report without rows.
    pub fn new(environment: Environment, view: View) -> Self {
        Report {
            environment,
            view,
            rows: Vec::new(),
            clocks: Vec::new(),
            notes: Vec::new(),
            models: Vec::new(),
        }
    }

    /// Reads a JSON report.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) with what is wrong with it.
    pub fn read(path: &Path) -> Result<Self> {
        read_json(path, "is no JSON report of `compare` or `sweep`")
    }

    /// What the GPU ran at under load: clocks as they were counted behind each sample, the others just
    /// after the last samples of the problems. A kept report says it of what it no longer has.
    pub(crate) fn load(&self) -> Option<Load> {
        match (self.environment.load, self.load_of_rows()) {
            (Some(kept), Some(rows)) => Some(kept.and(&rows)),
            (kept, rows) => rows.or(kept),
        }
    }

    fn load_of_rows(&self) -> Option<Load> {
        let after = || self.clocks.iter().filter_map(|log| log.after);
        let most = |of: fn(&Clocks) -> f64| after().map(|clocks| of(&clocks)).fold(0.0, f64::max);
        // Of the multiprocessors what a kernel counted, in earlier reports what the driver said.
        let counted: Vec<f64> = self.rows.iter().filter_map(|row| row.sm_mhz).collect();
        let sm_mhz = match counted.is_empty() {
            true => after().map(|clocks| clocks.sm_mhz).collect(),
            false => counted,
        };
        Some(Load {
            least_sm_mhz: sm_mhz.iter().copied().reduce(f64::min)?.round(),
            most_sm_mhz: sm_mhz.iter().copied().fold(0.0, f64::max).round(),
            memory_mhz: most(|clocks| clocks.memory_mhz),
            celsius: most(|clocks| clocks.celsius),
            watts: most(|clocks| clocks.watts),
        })
    }

    /// The file's text.
    pub fn text(&self, format: Format) -> String {
        match format {
            Format::Csv => self.csv(),
            Format::Json => json(self),
        }
    }

    /// Whether it has every contender's row on a problem, none of them interrupted.
    pub fn has(&self, layer: &Layer, contenders: &[Contender]) -> bool {
        has(self.rows.iter(), layer, contenders)
    }

    /// How many rows ended so.
    pub fn count(&self, status: Status) -> usize {
        self.rows.iter().filter(|row| row.status == status).count()
    }

    /// The rows, table by table, in the order of the report.
    pub fn parts(&self) -> Vec<Part> {
        let mut problems: Vec<(Layer, Vec<Row>)> = Vec::new();
        for row in &self.rows {
            match problems.iter_mut().find(|(layer, _)| row.is_of(layer)) {
                Some((_, rows)) => rows.push(row.clone()),
                None => {
                    let layer = Layer {
                        suite: row.suite.clone(),
                        layer: row.layer.clone(),
                        problem: row.problem.clone(),
                        nodes: Vec::new(),
                    };
                    problems.push((layer, vec![row.clone()]));
                }
            }
        }
        let parts = problems.iter();
        parts
            .flat_map(|(layer, rows)| self.view.parts(layer, rows))
            .collect()
    }

    /// Puts rows in the places of those of the same contenders on the same problem, or at the end.
    /// What was interrupted or skipped does not take the place of what was not.
    pub fn put(&mut self, rows: &[Row]) {
        self.rows.retain(|row| !row.is_outdated_by(rows));
        put(&mut self.rows, rows);
        for model in &mut self.models {
            model.fill(&self.rows);
        }
    }

    /// Takes models whose layers are measured; rows that are there already are theirs too.
    pub fn expect(&mut self, models: Vec<ModelTotals>) {
        let is_new = |old: &ModelTotals| models.iter().all(|new| new.model != old.model);
        self.models.retain(is_new);
        self.models.extend(models);
        self.put(&[]);
    }

    fn csv(&self) -> String {
        let mut text = String::new();
        if let Ok(serde_json::Value::Object(environment)) = serde_json::to_value(&self.environment)
        {
            for (key, value) in environment {
                text += &format!("# {key}: {value}\n");
            }
        }
        for note in &self.notes {
            text += &format!("# {}\n", note.replace('\n', "\n# "));
        }
        text + &csv::text(&self.rows)
    }
}

/// Whether every contender has its row on a problem, none of them interrupted.
pub(crate) fn has<'a>(
    rows: impl Iterator<Item = &'a Row> + Clone,
    layer: &Layer,
    contenders: &[Contender],
) -> bool {
    let rows = rows.filter(|row| row.is_of(layer));
    let named = contenders.iter().all(|contender| {
        let name = contender.name();
        let mut rows = rows.clone();
        rows.any(|row| row.name() == name && row.is_whole())
    });
    named && rows.clone().all(|row| !row.found || row.is_whole())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use convforge::{Device, Problem, variants};

    use super::*;
    use crate::{
        chain,
        files::write_whole,
        measure::{Options, Stage, compare},
    };

    fn contenders() -> Vec<Contender> {
        let all = variants::all().iter().cloned();
        all.map(Contender::from).collect()
    }

    fn rows(layer: &Layer, stopped: bool) -> Vec<Row> {
        let options = Options {
            samples: 5,
            ..Options::of(&Device::cpu())
        };
        let stop = AtomicBool::new(stopped);
        compare(
            &Device::cpu(),
            layer,
            &contenders(),
            &options,
            &stop,
            &mut |_| {},
        )
    }

    #[test]
    fn what_is_written_can_be_continued() {
        let problem: Problem = "mb1ic2ih6oc3kh3+bias".parse().unwrap();
        let layer = Layer::alone(problem);
        let mut report = Report::new(Environment::of(&Device::cpu(), Vec::new()), View::Compare);
        report.put(&rows(&layer, true));
        assert!(!report.has(&layer, &contenders()));
        report.put(&rows(&layer, false));
        assert_eq!(report.rows.len(), contenders().len());
        assert!(report.count(Status::Passed) > 0, "{:?}", report.rows);
        assert!(
            report
                .rows
                .iter()
                .all(|row| row.median_us.is_some() == [3, 5].contains(&row.samples))
        );

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        write_whole(&path, report.text(Format::Json)).unwrap();
        let mut read = Report::read(&path).unwrap();
        let all = contenders();
        assert!(read.has(&layer, &all) && read.environment == report.environment);
        read.put(&rows(&layer, true));
        let has = |read: &Report, all: &[Contender]| read.has(&layer, all);
        assert!(has(&read, &all), "an interrupted row takes no place");
        read.rows.truncate(1);
        assert!(has(&read, &all[..1]) && !has(&read, &all));

        std::fs::write(&path, "[]").unwrap();
        let text = chain(&Report::read(&path).unwrap_err());
        assert!(text.contains("report.json: is no JSON report"), "{text}");
    }

    #[test]
    fn a_table_has_remarks_and_every_column_before_its_rows() {
        let layer = Layer::alone("mb1ic1ih3oc1kh1".parse().unwrap());
        let mut report = Report::new(Environment::of(&Device::cpu(), Vec::new()), View::Compare);
        report.notes.push("two\nlines".to_owned());
        report.rows = rows(&layer, true);
        report.rows.truncate(1);
        let row = &mut report.rows[0];
        (row.reason, row.median_us) = (Some("no commas, please".to_owned()), Some(12.0));
        let stage = |name: &str, us| Stage {
            name: name.to_owned(),
            us,
        };
        row.stages = vec![stage("pack", 1.5), stage("sums", 10.0)];
        let text = report.text(Format::Csv);
        let before = "\n# two\n# lines\nsuite,layer,problem,";
        assert!(text.contains(before), "{text}");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let [header, row] = &lines.collect::<Vec<_>>()[..] else {
            panic!("{text}")
        };
        // What no row has, and JSON then leaves out, is a column all the same.
        assert!(header.contains(",floor_by,before_us,took_s"), "{header}");
        let Row {
            problem, variant, ..
        } = &report.rows[0];
        let how = "exact,skipped,\"no commas, please\",12,,,0,";
        let start = format!(",,{problem},fp32,{variant},,,,,{how}");
        assert!(row.starts_with(&start), "{row}");
        assert!(row.contains(",false,pack=1.5 sums=10,"), "{row}");
    }
}
