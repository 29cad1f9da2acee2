//! Rows as a table for people.

use comfy_table::{Cell, CellAlignment, Color, ContentArrangement, LineStyle, Table, TableStyle};
use convforge::variant::Arithmetic;

use super::{Look, Row, Status};

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
    let against_cudnn = rows.iter().any(|row| row.cudnn_us.is_some());
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
    pub header: Vec<&'a str>,
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

    /// What comes before the reason: a row that passed has one where its times are few or none.
    fn ending(&self) -> &'static str {
        match (self.status, self.median_us) {
            (Status::Passed, Some(_)) => "timed in part",
            (Status::Passed, None) => "checked, but not timed",
            (status, _) => status.word(),
        }
    }
}

/// Columns of words.
const WORDS: usize = 2;

/// Blanks beside a cell.
const GAP: usize = 3;

/// What is left out first where a terminal is narrow.
const LEAST_NEEDED: [&str; 17] = [
    "problem",
    "workspace",
    "GB/s",
    "vs im2col_gemm_shared",
    "vs direct_naive",
    "largest",
    "TFLOP/s",
    "layer time 1",
    "layer time 2",
    "spread",
    "accuracy",
    "x floor",
    "positive: rms",
    "op time 1",
    "op time 2",
    "x default",
    "status",
];

impl Lines<'_> {
    /// For people: the columns that say something and for which there is room, and below them why rows
    /// have no time.
    pub fn text(&self, look: Look) -> String {
        let said: Vec<usize> = (0..self.header.len()).filter(|i| self.says(*i)).collect();
        let shown = self.fitting(&said, look.width);
        let mut text = self.table(&shown, look.color);
        if said.len() <= WORDS {
            text += "\n  There is no number to show.";
        }
        for (names, ending, reason) in self.reasons() {
            let reason = format!("{} {ending}: {reason}", names.join(", "));
            text += &format!("\n{}", look.paragraph("  ", &reason));
        }
        let hidden = said.iter().filter(|i| !shown.contains(i));
        let hidden: Vec<&str> = hidden.map(|i| self.header[*i]).collect();
        if !hidden.is_empty() {
            let hidden = format!("There is no room for: {}.", hidden.join(", "));
            text += &format!("\n{}", look.paragraph("  ", &hidden));
        }
        text
    }

    /// Whether a column has more than dashes.
    fn says(&self, column: usize) -> bool {
        column < WORDS || self.lines.iter().any(|line| line.cells[column] != "-")
    }

    /// Of some columns those that fit, the least needed left out.
    fn fitting(&self, columns: &[usize], width: Option<usize>) -> Vec<usize> {
        let mut shown = columns.to_vec();
        let of = |column: &usize| {
            let cells = self
                .lines
                .iter()
                .map(|line| line.cells[*column].chars().count());
            // Two blanks between columns and one at the end are the table's.
            cells
                .max()
                .unwrap_or(0)
                .max(self.header[*column].chars().count())
                + GAP
        };
        for least in LEAST_NEEDED {
            if width.is_some_and(|width| shown.iter().map(of).sum::<usize>() > width) {
                shown.retain(|column| self.header[*column] != least);
            }
        }
        shown
    }

    /// The rows with some of the columns; `color` marks the fastest and the failed.
    fn table(&self, columns: &[usize], color: bool) -> String {
        let mut table = Table::new();
        table.load_style(STYLE);
        table.set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(columns.iter().map(|i| self.header[*i]));
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
            let cells = columns.iter().map(|i| &line.cells[*i]);
            table.add_row(cells.map(|text| match paint.filter(|_| color) {
                Some(paint) => Cell::new(text).fg(paint),
                None => Cell::new(text),
            }));
        }
        table.to_string()
    }

    pub fn markdown(&self) -> String {
        let line = |cells: &[&str]| format!("| {} |\n", cells.join(" | "));
        let ruler = (0..self.header.len()).map(|i| if i < WORDS { "---" } else { "---:" });
        let mut text = line(&self.header) + &line(&ruler.collect::<Vec<_>>());
        for Line { cells, .. } in &self.lines {
            text += &line(&cells.iter().map(String::as_str).collect::<Vec<_>>());
        }
        for (i, (names, ending, reason)) in self.reasons().into_iter().enumerate() {
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            let reason: Vec<&str> = reason.split_whitespace().collect();
            text += &format!(
                "{}- {} {}: {}\n",
                if i == 0 { "\n" } else { "" },
                names.join(", "),
                ending,
                reason.join(" ")
            );
        }
        text
    }

    /// Why rows have no time; those that have one reason together.
    fn reasons(&self) -> Vec<(Vec<&str>, &'static str, &str)> {
        let mut reasons: Vec<(Vec<&str>, &'static str, &str)> = Vec::new();
        for line in &self.lines {
            let Some(reason) = line.reason else {
                continue;
            };
            let known = reasons
                .iter_mut()
                .find(|(_, ending, other)| (*ending, *other) == (line.ending(), reason));
            match known {
                Some((names, ..)) => names.push(&line.name),
                None => reasons.push((vec![&line.name], line.ending(), reason)),
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

    fn line(variant: &str, status: Status, median_us: Option<f64>) -> Line<'static> {
        Line {
            name: variant.to_owned(),
            status,
            reason: Some("interrupted"),
            median_us,
            cells: [
                variant,
                status.word(),
                &or_dash(median_us.map(duration)),
                "0 B",
            ]
            .map(str::to_owned)
            .into(),
        }
    }

    fn lines(lines: Vec<Line>) -> Lines {
        Lines {
            header: vec!["variant", "status", "time", "workspace"],
            lines,
        }
    }

    #[test]
    fn an_interrupted_row_did_not_pass_interrupted() {
        let rows = [
            line("a", Status::Passed, Some(1.5)),
            line("b", Status::Passed, None),
            line("c", Status::Skipped, None),
        ];
        let lines = lines(rows.to_vec());
        for part in [
            "a timed in part: interrupted",
            "b checked, but not timed: interrupted",
            "c skipped: interrupted",
        ] {
            let text = lines.text(Look::default());
            assert!(text.contains(part), "{text}");
        }
        assert!(
            lines
                .markdown()
                .contains("- `a` timed in part: interrupted")
        );
    }

    #[test]
    fn columns_that_say_nothing_or_do_not_fit_are_left_out() {
        let text = |lines: &Lines, width| {
            lines.text(Look {
                color: false,
                width,
            })
        };
        let timed = lines(vec![line("a", Status::Passed, Some(1.5))]);
        let whole = text(&timed, None);
        assert!(
            whole.contains("workspace") && !whole.contains("no room"),
            "{whole}"
        );
        let width = whole
            .lines()
            .map(|line| line.chars().count())
            .max()
            .unwrap();
        let narrow = text(&timed, Some(width - 3));
        assert!(
            narrow.contains("1.50 us") && !narrow.contains("0 B"),
            "{narrow}"
        );
        assert!(
            narrow.contains("There is no room for: workspace."),
            "{narrow}"
        );
        for row in narrow.lines() {
            assert!(row.chars().count() <= width - 3, "{narrow}");
        }

        let mut row = line("a", Status::Unsupported, None);
        row.cells[3] = "-".to_owned();
        let none = text(&lines(vec![row]), None);
        assert!(none.contains("There is no number to show."), "{none}");
        assert!(!none.contains("time") && !none.contains(" - "), "{none}");
    }

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
