//! Rows as a table for people.

use comfy_table::{Cell, CellAlignment, Color, ContentArrangement, LineStyle, Table, TableStyle};
use convforge::variant::Arithmetic;

use super::{Row, Status};

/// A line under the header, nothing else.
const STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// Variants side by side, the best first.
pub(super) fn compared(rows: &[Row]) -> Lines<'_> {
    let mut rows: Vec<&Row> = rows.iter().collect();
    let rank = |row: &Row| rank(row.median_us, row.status);
    rows.sort_by(|a, b| rank(a).total_cmp(&rank(b)));
    let medians = rows.iter().filter_map(|row| row.median_us);
    let slowest = medians.fold(0.0, f64::max);
    let against_cudnn = rows.iter().any(|row| row.speedup_vs_cudnn.is_some());
    let cells = |row: &Row| {
        let speedup = match against_cudnn {
            true => row.speedup_vs_cudnn,
            false => row.median_us.map(|median| slowest / median),
        };
        vec![
            row.label(),
            status(row),
            or_dash(row.median_us.map(duration)),
            or_dash(spread(row)),
            or_dash(row.tflops.map(significant)),
            or_dash(row.gbs.map(significant)),
            or_dash(over_floor(row).map(times)),
            or_dash(row.workspace_bytes.map(bytes)),
            or_dash(speedup.map(times)),
        ]
    };
    let last = if against_cudnn {
        "vs cuDNN"
    } else {
        "vs slowest"
    };
    Lines {
        header: vec![
            "variant",
            "status",
            "time",
            "spread",
            "TFLOP/s",
            "GB/s",
            "x floor",
            "workspace",
            last,
        ],
        lines: rows
            .into_iter()
            .map(|row| Line::of(row, row.name(), cells(row)))
            .collect(),
    }
}

/// What a table shows: two columns of words, then numbers.
#[derive(Clone, Debug)]
pub(crate) struct Lines<'a> {
    pub header: Vec<&'static str>,
    pub lines: Vec<Line<'a>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Line<'a> {
    /// What it is called below the table.
    pub name: String,
    pub status: Status,
    pub reason: Option<&'a str>,
    /// By which the fastest is found.
    pub median_us: Option<f64>,
    pub cells: Vec<String>,
}

impl<'a> Line<'a> {
    /// The line of a row.
    pub(super) fn of(row: &'a Row, name: String, cells: Vec<String>) -> Self {
        Line {
            name,
            status: row.status,
            reason: row.reason.as_deref(),
            median_us: row.median_us,
            cells,
        }
    }
}

/// Columns of words.
const WORDS: usize = 2;

impl Lines<'_> {
    /// For a terminal; `color` marks the fastest and the failed.
    pub fn text(&self, color: bool) -> String {
        let mut table = Table::new();
        table.load_style(STYLE);
        table.set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(&self.header);
        for column in table.column_iter_mut().skip(WORDS) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let best = self.lines.iter().filter_map(|line| line.median_us);
        let best = best.fold(f64::INFINITY, f64::min);
        for line in &self.lines {
            let paint = match line.status {
                Status::Failed => Some(Color::Red),
                Status::Unsupported | Status::Skipped => Some(Color::DarkGrey),
                Status::Passed => (line.median_us == Some(best)).then_some(Color::Green),
            };
            table.add_row(line.cells.iter().map(|text| match paint.filter(|_| color) {
                Some(paint) => Cell::new(text).fg(paint),
                None => Cell::new(text),
            }));
        }
        let reasons = self.reasons().into_iter().map(|(names, status, reason)| {
            let names = names.join(", ");
            let reason = reason.replace('\n', "\n    ");
            format!("\n  {names} {}: {reason}", status.word())
        });
        table.to_string() + &reasons.collect::<String>()
    }

    pub fn markdown(&self) -> String {
        let line = |cells: &[&str]| format!("| {} |\n", cells.join(" | "));
        let ruler = (0..self.header.len()).map(|i| if i < WORDS { "---" } else { "---:" });
        let mut text = line(&self.header) + &line(&ruler.collect::<Vec<_>>());
        for Line { cells, .. } in &self.lines {
            text += &line(&cells.iter().map(String::as_str).collect::<Vec<_>>());
        }
        for (i, (names, status, reason)) in self.reasons().into_iter().enumerate() {
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            let reason: Vec<&str> = reason.split_whitespace().collect();
            text += &format!(
                "{}- {} {}: {}\n",
                if i == 0 { "\n" } else { "" },
                names.join(", "),
                status.word(),
                reason.join(" ")
            );
        }
        text
    }

    /// Why rows have no time; those that have one reason together.
    fn reasons(&self) -> Vec<(Vec<&str>, Status, &str)> {
        let mut reasons: Vec<(Vec<&str>, Status, &str)> = Vec::new();
        for line in &self.lines {
            let Some(reason) = line.reason else {
                continue;
            };
            let known = reasons
                .iter_mut()
                .find(|(_, status, other)| (*status, *other) == (line.status, reason));
            match known {
                Some((names, ..)) => names.push(&line.name),
                None => reasons.push((vec![&line.name], line.status, reason)),
            }
        }
        reasons
    }
}

/// What became of it; a transform that passed did so by a rule of its own.
fn status(row: &Row) -> String {
    let word = row.status.word();
    match (row.status, row.arithmetic) {
        (Status::Passed, Arithmetic::Transform) => format!("{word} as {}", row.arithmetic.word()),
        _ => word.to_owned(),
    }
}

/// What rows are ordered by: time, then those that failed, then those that were not tried.
pub(crate) fn rank(median_us: Option<f64>, status: Status) -> f64 {
    median_us.unwrap_or(match status {
        Status::Passed | Status::Failed => f64::MAX,
        Status::Unsupported | Status::Skipped => f64::INFINITY,
    })
}

/// Fewer samples than this are told beside the spread.
const ENOUGH_SAMPLES: usize = 30;

/// `-1% +3%`: the tenth and the ninetieth percentile against the median; `-1% +3% of 5` where there
/// are so few samples.
pub(crate) fn spread(row: &Row) -> Option<String> {
    let median = row.median_us?;
    let percent = |us: Option<f64>| (us.unwrap_or(median) / median - 1.0) * 100.0;
    let few = match row.samples < ENOUGH_SAMPLES {
        true => format!(" of {}", row.samples),
        false => String::new(),
    };
    Some(format!(
        "{:+.0}% {:+.0}%{few}",
        percent(row.p10_us),
        percent(row.p90_us)
    ))
}

/// How many times its floor a row takes.
pub(crate) fn over_floor(row: &Row) -> Option<f64> {
    Some(row.median_us? / row.floor_us?)
}

/// `1.05`.
pub(crate) fn times(value: f64) -> String {
    format!("{value:.2}")
}

pub(crate) fn or_dash(text: Option<String>) -> String {
    text.unwrap_or("-".to_owned())
}

/// Microseconds for people: `38.2 us`, `1.52 ms`, `2.10 s`.
pub fn duration(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{} us", significant(us)),
        us if us < 1e6 => format!("{} ms", significant(us / 1e3)),
        us => format!("{} s", significant(us / 1e6)),
    }
}

/// Bytes for people: `0`, `12 KiB`, `1.5 GiB`.
pub fn bytes(bytes: usize) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 || unit == "TiB" {
            let digits = if value < 10.0 && unit != "B" { 1 } else { 0 };
            return format!("{value:.digits$} {unit}");
        }
        value /= 1024.0;
    }
    unreachable!("the last unit always answers")
}

/// Three significant digits, as far as they are behind the point.
pub(crate) fn significant(value: f64) -> String {
    let digits = match value.abs() {
        v if v < 0.01 => 4,
        v if v < 1.0 => 3,
        v if v < 10.0 => 2,
        v if v < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(
            [3.456, 45.67, 999.0].map(duration),
            ["3.46 us", "45.7 us", "999 us"]
        );
        assert_eq!([1520.0, 2.1e6].map(duration), ["1.52 ms", "2.10 s"]);
        assert_eq!([0, 1536, 20 << 20].map(bytes), ["0 B", "1.5 KiB", "20 MiB"]);
    }
}
