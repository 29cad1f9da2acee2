//! The configurations of one variant on one problem: as a table, and as what a curve is drawn of.

use super::{
    Row,
    table::{Line, Lines, bytes, duration, or_dash, over_floor, significant, spread, times},
};

/// The rows of one variant, in order.
pub(super) struct Sweep<'a> {
    /// By their numbers where they have such, otherwise as the variant lists them.
    pub rows: Vec<&'a Row>,
    /// What the numbers are of, and each row's, where configurations are `key=number`.
    pub numbers: Option<(&'a str, Vec<u64>)>,
    /// The row of the default configuration.
    pub default: Option<&'a Row>,
    /// The fastest row; the first of equals.
    pub best: Option<&'a Row>,
}

impl<'a> Sweep<'a> {
    /// The rows of every configuration of a variant on one problem, the default's first.
    pub fn of(rows: &'a [Row]) -> Self {
        let default = rows.first();
        let mut rows: Vec<&Row> = rows.iter().collect();
        let mut numbers = numbers(&rows);
        if let Some((_, numbers)) = &mut numbers {
            let mut both: Vec<(u64, &Row)> = numbers.iter().copied().zip(rows).collect();
            both.sort_by_key(|(number, _)| *number);
            (*numbers, rows) = both.into_iter().unzip();
        }
        let median = |row: &&Row| row.median_us.unwrap_or(f64::INFINITY);
        let timed = rows.iter().filter(|row| row.median_us.is_some());
        let best = timed.min_by(|a, b| median(a).total_cmp(&median(b)));
        Sweep {
            best: best.copied(),
            rows,
            numbers,
            default,
        }
    }

    /// In order, the fastest and the default marked.
    pub fn lines(&self) -> Lines<'a> {
        let default_us = self.default.and_then(|row| row.median_us);
        let is = |one: Option<&Row>, row| one.is_some_and(|one| std::ptr::eq(one, row));
        let cells = |row: &Row| {
            let against = row.median_us.zip(default_us).map(|(us, them)| us / them);
            let marks = [
                (is(self.best, row), "best"),
                (is(self.default, row), "default"),
            ];
            let marks = marks
                .into_iter()
                .filter_map(|(set, word)| set.then_some(word));
            vec![
                name(row).to_owned(),
                row.status.word().to_owned(),
                or_dash(row.median_us.map(duration)),
                or_dash(spread(row)),
                or_dash(against.map(times)),
                or_dash(row.tflops.map(significant)),
                or_dash(over_floor(row).map(times)),
                or_dash(row.workspace_bytes.map(bytes)),
                marks.collect::<Vec<_>>().join(", "),
            ]
        };
        Lines {
            header: vec![
                "configuration",
                "status",
                "time",
                "spread",
                "x default",
                "TFLOP/s",
                "x floor",
                "workspace",
                "",
            ],
            lines: self
                .rows
                .iter()
                .map(|row| Line::of(row, name(row).to_owned(), cells(row)))
                .collect(),
        }
    }
}

/// The configuration, or the variant where it has none.
pub(super) fn name(row: &Row) -> &str {
    row.config.as_deref().unwrap_or(&row.variant)
}

/// The numbers of configurations that are all `key=number`, with one key.
fn numbers<'a>(rows: &[&'a Row]) -> Option<(&'a str, Vec<u64>)> {
    let pair = |row: &&'a Row| -> Option<(&'a str, u64)> {
        let (key, number) = row.config.as_deref()?.split_once('=')?;
        Some((key, number.parse().ok()?))
    };
    let pairs = rows.iter().map(pair).collect::<Option<Vec<_>>>()?;
    let (key, _) = *pairs.first()?;
    let one_key = pairs.iter().all(|(other, _)| *other == key);
    one_key.then(|| (key, pairs.into_iter().map(|(_, number)| number).collect()))
}

#[cfg(test)]
pub(super) mod tests {
    use convforge::{Device, variants};

    use super::*;
    use crate::{
        measure::{Options, Part, Status, View},
        suite::Layer,
    };

    /// A sweep that might have been: configurations with their medians, or unsupported.
    pub fn example(configs: &[(&str, Option<f64>)]) -> Vec<Row> {
        let layer = Layer::alone("mb1ic1ih3oc1kh1".parse().unwrap());
        let contender = variants::find("cpu_direct").unwrap().into();
        let row = Row::new(
            &layer,
            &contender,
            &Device::cpu(),
            &Options::of(&Device::cpu()),
        );
        let outcome = |(config, us): &(&str, Option<f64>)| Row {
            config: Some((*config).to_owned()),
            status: match us {
                Some(_) => Status::Passed,
                None => Status::Unsupported,
            },
            reason: us.is_none().then(|| "needs more, it says".to_owned()),
            median_us: *us,
            p10_us: us.map(|us| us * 0.9),
            p90_us: us.map(|us| us * 1.2),
            samples: 30,
            ..row.clone()
        };
        configs.iter().map(outcome).collect()
    }

    fn table(rows: Vec<Row>) -> String {
        Part {
            view: View::Sweep,
            title: String::new(),
            rows,
        }
        .table(super::super::look::Look::default())
    }

    /// The first words of the lines below the header.
    fn names(table: &str) -> Vec<&str> {
        let lines = table.lines().skip(2).filter(|line| !line.starts_with("  "));
        lines
            .filter_map(|line| line.split_whitespace().next())
            .collect()
    }

    #[test]
    fn numbers_are_in_order_and_the_best_is_marked() {
        let text = table(example(&[
            ("tile=16", Some(200.0)),
            ("tile=4", None),
            ("tile=32", Some(100.0)),
            ("tile=8", None),
        ]));
        assert_eq!(
            names(&text),
            ["tile=4", "tile=8", "tile=16", "tile=32"],
            "{text}"
        );
        let line = |name: &str| {
            let line = text.lines().find(|line| line.trim().starts_with(name));
            line.unwrap().split_whitespace().collect::<Vec<_>>()
        };
        let (default, best) = (line("tile=16"), line("tile=32"));
        assert_eq!(default[2..7], ["200", "us", "-10%", "+20%", "1.00"]);
        assert_eq!(default.last(), Some(&"default"));
        assert_eq!(best[6], "0.50");
        assert_eq!(best.last(), Some(&"best"));
        // One reason, said once.
        let reason = "tile=4, tile=8 unsupported: needs more, it says";
        assert!(text.ends_with(reason), "{text}");
    }

    #[test]
    fn without_numbers_the_order_is_the_variants_own() {
        for other in ["block=4x4", "images=2,tile=4", "step=2", "tile=4.5"] {
            let configs = [("tile=16", Some(2.0)), (other, Some(1.0)), ("tile=8", None)];
            let text = table(example(&configs));
            assert_eq!(names(&text), ["tile=16", other, "tile=8"], "{text}");
        }
    }

    #[test]
    fn a_default_without_a_time_is_compared_with_nothing() {
        let text = table(example(&[("tile=16", None), ("tile=8", Some(1.0))]));
        assert!(text.contains("default") && text.contains("best"), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        assert_eq!(names(&table(example(&[("tile=4", None)]))), ["tile=4"]);
    }
}
