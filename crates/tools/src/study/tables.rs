//! The study as tables for people.

mod errors;
mod table;

pub use table::Table;

use table::groups;

use super::{NetworkRow, OverlapRow, Study};
use crate::measure::{Line, Lines, Stage, duration, or_dash, rank, times};

/// The variants that the reports measure speed-ups against.
pub const YARDSTICKS: [&str; 2] = ["direct_naive", "im2col_gemm_shared"];

impl Study {
    /// The tables of the network, one per batch, then those of overlap and of errors, one per layer.
    /// Those of the layers are the parts of [`report`](Self::report).
    pub fn tables(&self) -> Vec<Table<'_>> {
        let batches = groups(&self.network, |a, b| a.images == b.images);
        let layers = groups(&self.overlap, |a, b| {
            (&a.suite, &a.layer, &a.problem) == (&b.suite, &b.layer, &b.problem)
        });
        let networks = batches.iter().map(|rows| network(rows));
        networks
            .chain(layers.iter().map(|rows| overlap(rows)))
            .chain(errors::tables(&self.errors))
            .collect()
    }
}

fn network<'a>(rows: &[&'a NetworkRow]) -> Table<'a> {
    let mut rows = rows.to_vec();
    let rank = |row: &NetworkRow| rank(op_us(row), row.status);
    rows.sort_by(|a, b| rank(a).total_cmp(&rank(b)));
    let [direct, gemm] = YARDSTICKS;
    let cells = |row: &NetworkRow| {
        let layer = |i: usize| row.layers.get(i);
        let against = |is: &dyn Fn(&str) -> bool| or_dash(speed_up(row, &rows, is).map(times));
        vec![
            label(row),
            row.math.clone(),
            or_dash(layer(0).map(|layer| duration(layer.op.median_us))),
            or_dash(layer(1).map(|layer| duration(layer.op.median_us))),
            or_dash(layer(0).map(|layer| duration(layer.layer.median_us))),
            or_dash(layer(1).map(|layer| duration(layer.layer.median_us))),
            or_dash(row.total.map(|total| duration(total.median_us))),
            or_dash(row.accuracy.map(|accuracy| format!("{accuracy:.4}"))),
            against(&|name| name == direct),
            against(&|name| name == gemm),
            // Of its two variants the faster one.
            against(&|name| name.starts_with("cudnn")),
        ]
    };
    let lines = rows.iter().map(|row| Line {
        name: format!("{} {}", row.variant, row.math),
        status: row.status,
        reason: row.reason.as_deref(),
        median_us: op_us(row),
        cells: cells(row),
    });
    let images = rows.first().map_or(0, |row| row.images);
    Table {
        title: format!("network {images} images"),
        lines: Lines {
            header: vec![
                "variant",
                "math",
                "op time 1",
                "op time 2",
                "layer time 1",
                "layer time 2",
                "whole time",
                "accuracy",
                "vs direct_naive",
                "vs im2col_gemm_shared",
                "vs cuDNN",
            ],
            lines: lines.collect(),
        },
        stages: rows.iter().filter_map(|row| stages(row)).collect(),
    }
}

/// The variant, and what a pick chose: `policy:report-b (fused_wmma_8x32, fused_wmma)`.
fn label(row: &NetworkRow) -> String {
    let mut chose: Vec<&str> = row.layers.iter().map(|layer| &*layer.chose).collect();
    chose.dedup();
    match &chose[..] {
        [] => row.variant.clone(),
        [one] if *one == row.variant => row.variant.clone(),
        chose => format!("{} ({})", row.variant, chose.join(", ")),
    }
}

/// The two convolutions together, of a row that passed.
fn op_us(row: &NetworkRow) -> Option<f64> {
    let ops = row.layers.iter().map(|layer| layer.op.median_us);
    (!row.layers.is_empty()).then(|| ops.sum())
}

/// How many times faster the convolutions are than those of the fastest row of such a name, with
/// the same math if that was measured.
fn speed_up(row: &NetworkRow, rows: &[&NetworkRow], is: &dyn Fn(&str) -> bool) -> Option<f64> {
    let theirs = |same: bool| {
        let rows = rows.iter().filter(|other| {
            is(other.variant.split(':').next().unwrap_or_default())
                && (!same || other.math == row.math)
        });
        rows.filter_map(|other| op_us(other)).min_by(f64::total_cmp)
    };
    Some(theirs(true).or_else(|| theirs(false))? / op_us(row)?)
}

/// `layer 1: unroll 2.1 ms, gemm 3.4 ms; layer 2: ...`, of a variant of several kernels.
fn stages(row: &NetworkRow) -> Option<(String, String)> {
    let layers = row.layers.iter().enumerate();
    let layers = layers.filter(|(_, layer)| !layer.stages.is_empty());
    let spelled = layers.map(|(i, layer)| {
        let stage = |stage: &Stage| format!("{} {}", stage.name, duration(stage.us));
        let stages: Vec<String> = layer.stages.iter().map(stage).collect();
        format!("layer {}: {}", i + 1, stages.join(", "))
    });
    let spelled: Vec<String> = spelled.collect();
    (!spelled.is_empty()).then(|| (row.variant.clone(), spelled.join("; ")))
}

fn overlap<'a>(rows: &[&'a OverlapRow]) -> Table<'a> {
    let lines = rows.iter().map(|row| {
        let memory = row.memory.word();
        let time = row.time.map(|time| time.median_us);
        Line {
            name: format!("{} {memory} streams={}", row.variant, row.streams),
            status: row.status,
            reason: row.reason.as_deref(),
            median_us: time,
            cells: vec![
                row.variant.clone(),
                memory.to_owned(),
                row.streams.to_string(),
                or_dash(time.map(duration)),
                or_dash(row.copy_in_us.map(duration)),
                or_dash(row.copy_out_us.map(duration)),
                or_dash(row.kernel_us.map(duration)),
                or_dash(row.reached().map(|share| format!("{:.0} %", share * 100.0))),
            ],
        }
    });
    let title = rows.first().map_or_else(String::new, |row| {
        format!("streams {} {} {}", row.suite, row.layer, row.problem)
    });
    Table {
        title,
        lines: Lines {
            header: vec![
                "variant", "memory", "streams", "time", "copy in", "copy out", "kernels", "reached",
            ],
            lines: lines.collect(),
        },
        stages: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use convforge::{Device, Math};

    use super::*;
    use crate::{
        measure::{Environment, Spread, Status},
        net::Network,
        study::{HostMemory, LayerTimes},
    };

    fn spread(us: f64) -> Spread {
        Spread::of(&[us]).unwrap_or_default()
    }

    /// A row of the network; without a time it ended so.
    fn row(variant: &str, op_us: Option<f64>, status: Status, reason: Option<&str>) -> NetworkRow {
        let layers = Network::problems(100, Math::Fp32).unwrap();
        let layers = layers.map(|problem| LayerTimes {
            problem,
            chose: variant.to_owned(),
            op: spread(op_us.unwrap_or_default()),
            stages: Vec::new(),
            layer: spread(5000.0),
        });
        NetworkRow {
            variant: variant.to_owned(),
            math: "fp32".to_owned(),
            images: 100,
            status,
            reason: reason.map(str::to_owned),
            layers: op_us.map(|_| layers.to_vec()).unwrap_or_default(),
            total: op_us.map(|_| spread(9000.0)),
            accuracy: op_us.map(|_| 0.86),
            logit_deviation: None,
            runs: 5,
        }
    }

    fn study() -> Study {
        let mut study = Study::new(Environment::of(&Device::cpu(), Vec::new()));
        let wrong = Some("a logit is off");
        let mut gemm = row(
            "im2col_gemm_shared:tile=16",
            Some(100.0),
            Status::Passed,
            None,
        );
        gemm.layers[1].stages = ["unroll", "gemm"]
            .map(|name| Stage {
                name: name.to_owned(),
                us: 50.0,
            })
            .to_vec();
        for row in [
            row(
                "fused_wmma",
                None,
                Status::Unsupported,
                Some("needs f16 math"),
            ),
            row("broken", None, Status::Failed, wrong),
            row("direct_naive", Some(200.0), Status::Passed, None),
            gemm,
            row("cudnn", Some(80.0), Status::Passed, None),
            row("cudnn_transform", Some(50.0), Status::Passed, None),
        ] {
            study.put_network(row);
        }
        study
    }

    #[test]
    fn the_network_is_shown_fastest_first_with_every_speed_up() {
        let study = study();
        let [table] = &study.tables()[..] else {
            panic!("one batch, one table");
        };
        assert_eq!(table.title, "network 100 images");
        let names: Vec<&str> = table.lines.lines.iter().map(|l| &*l.cells[0]).collect();
        let order = [
            "cudnn_transform",
            "cudnn",
            "im2col_gemm_shared:tile=16",
            "direct_naive",
        ];
        assert_eq!(names[..4], order);
        assert_eq!(names[4..], ["broken", "fused_wmma"]);
        let cells = &table.lines.lines[2].cells;
        assert_eq!(cells[2..4], ["100 us", "100 us"]);
        assert_eq!(cells[7..], ["0.8600", "2.00", "1.00", "0.50"]);
        assert!(
            table.lines.lines[4].cells[2..]
                .iter()
                .all(|cell| cell == "-")
        );
        for text in [
            table.text(crate::measure::Look::default()),
            table.markdown(),
        ] {
            for part in [
                "failed: a logit is off",
                "unsupported: needs f16 math",
                "layer 2: unroll 50.0 us, gemm 50.0 us",
            ] {
                assert!(text.contains(part), "{text}");
            }
        }
    }

    #[test]
    fn streams_are_shown_with_what_they_reached() {
        let mut study = study();
        let [problem, _] = Network::problems(100, Math::Fp32).unwrap();
        let passed = OverlapRow {
            suite: "report-86".to_owned(),
            layer: "l1".to_owned(),
            problem,
            variant: "direct_naive".to_owned(),
            chose: None,
            streams: 4,
            chunk: 25,
            memory: HostMemory::Pinned,
            status: Status::Passed,
            reason: None,
            time: Some(spread(200.0)),
            runs: 1,
            copy_in_us: Some(50.0),
            copy_out_us: Some(150.0),
            kernel_us: Some(90.0),
            timeline: Vec::new(),
        };
        let skipped = OverlapRow {
            memory: HostMemory::Pageable,
            status: Status::Skipped,
            reason: Some("no memory".to_owned()),
            time: None,
            ..passed.clone()
        };
        study.put_overlap(&[passed, skipped]);
        let tables = study.tables();
        let text = tables[1].text(crate::measure::Look::default());
        assert!(text.contains("75 %"), "{text}");
        let why = "direct_naive pageable streams=4 skipped: no memory";
        assert!(text.contains(why), "{text}");
    }
}
