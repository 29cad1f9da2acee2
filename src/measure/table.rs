//! Rows as a table for people.

use comfy_table::{Cell, CellAlignment, Color, ContentArrangement, LineStyle, Table, TableStyle};

use super::{Row, Status};
use crate::variant::Arithmetic;

/// A line under the header, nothing else.
const STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// The rows of one problem as a table, best first, and below it why some have no time; `color`
/// marks the fastest and the failed.
pub fn table(rows: &[Row], color: bool) -> String {
    let Lines {
        header,
        lines,
        best,
    } = Lines::of(rows);
    let mut table = Table::new();
    table.load_style(STYLE);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for (row, cells) in &lines {
        let paint = match row.status {
            Status::Failed => Some(Color::Red),
            Status::Unsupported | Status::Skipped => Some(Color::DarkGrey),
            Status::Passed => (row.median_us == Some(best)).then_some(Color::Green),
        };
        table.add_row(cells.iter().map(|text| match paint.filter(|_| color) {
            Some(paint) => Cell::new(text).fg(paint),
            None => Cell::new(text),
        }));
    }
    let reasons = lines.iter().filter_map(|(row, _)| {
        let reason = row.reason.as_ref()?.replace('\n', "\n    ");
        Some(format!(
            "\n  {} {}: {reason}",
            row.name(),
            row.status.word()
        ))
    });
    table.to_string() + &reasons.collect::<String>()
}

/// The rows of one problem as a table of Markdown, best first, and below it why some have no time.
pub fn markdown(rows: &[Row]) -> String {
    let Lines { header, lines, .. } = Lines::of(rows);
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let ruler = (0..header.len()).map(|i| if i < 2 { "---" } else { "---:" }.to_owned());
    let mut text = line(&header.map(str::to_owned));
    text += &line(&ruler.collect::<Vec<_>>());
    for (_, cells) in &lines {
        text += &line(cells);
    }
    let mut reasons = lines
        .iter()
        .filter(|(row, _)| row.reason.is_some())
        .peekable();
    if reasons.peek().is_some() {
        text.push('\n');
    }
    for (row, _) in reasons {
        let reason = row.reason.as_deref().unwrap_or_default();
        let words: Vec<&str> = reason.split_whitespace().collect();
        text += &format!(
            "- `{}` {}: {}\n",
            row.name(),
            row.status.word(),
            words.join(" ")
        );
    }
    text
}

const COLUMNS: usize = 9;

/// What a table shows of the rows of one problem.
struct Lines<'a> {
    header: [&'static str; COLUMNS],
    /// Best first.
    lines: Vec<(&'a Row, [String; COLUMNS])>,
    /// The least median.
    best: f64,
}

impl<'a> Lines<'a> {
    fn of(rows: &'a [Row]) -> Self {
        let mut rows: Vec<&Row> = rows.iter().collect();
        rows.sort_by(|a, b| rank(a).total_cmp(&rank(b)));
        let medians = || rows.iter().filter_map(|row| row.median_us);
        let (best, slowest) = (
            medians().fold(f64::INFINITY, f64::min),
            medians().fold(0.0, f64::max),
        );
        let against_cudnn = rows.iter().any(|row| row.speedup_vs_cudnn.is_some());
        let last = if against_cudnn {
            "vs cuDNN"
        } else {
            "vs slowest"
        };
        let cells = |row: &'a Row| {
            let number = |value: Option<f64>| value.map_or("-".to_owned(), significant);
            let times = |value: Option<f64>| value.map_or("-".to_owned(), |v| format!("{v:.2}"));
            let median = row.median_us;
            let speedup = match against_cudnn {
                true => row.speedup_vs_cudnn,
                false => median.map(|median| slowest / median),
            };
            let cells = [
                row.name(),
                status(row),
                median.map_or("-".to_owned(), duration),
                median.map_or("-".to_owned(), |median| spread(row, median)),
                number(row.tflops),
                number(row.gbs),
                times(row.floor_us.zip(median).map(|(floor, us)| us / floor)),
                row.workspace_bytes.map_or("-".to_owned(), bytes),
                times(speedup),
            ];
            (row, cells)
        };
        let lines = rows.iter().map(|row| cells(row)).collect();
        let header = [
            "variant",
            "status",
            "time",
            "spread",
            "TFLOP/s",
            "GB/s",
            "x floor",
            "workspace",
            last,
        ];
        Lines {
            header,
            lines,
            best,
        }
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
pub(super) fn rank(row: &Row) -> f64 {
    row.median_us.unwrap_or(match row.status {
        Status::Passed | Status::Failed => f64::MAX,
        Status::Unsupported | Status::Skipped => f64::INFINITY,
    })
}

/// `-1% +3%`: the tenth and the ninetieth percentile against the median.
fn spread(row: &Row, median: f64) -> String {
    let percent = |us: Option<f64>| (us.unwrap_or(median) / median - 1.0) * 100.0;
    format!("{:+.0}% {:+.0}%", percent(row.p10_us), percent(row.p90_us))
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
pub(super) fn significant(value: f64) -> String {
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
