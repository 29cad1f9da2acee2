//! How far variants are from f64, one table per problem.

use convforge::{Math, Problem};
use convforge_check::{Data, Deviation};

use super::table::{Table, groups};
use crate::{
    measure::{Line, Lines, Status, or_dash},
    study::{ERROR_DATA, ErrorRow},
};

const HEADER: [&str; 8] = [
    "variant",
    "math",
    "normal: rms",
    "largest",
    "positive: rms",
    "largest",
    "wide: rms",
    "largest",
];

/// A table per problem, all math in one, in the order of the rows.
pub fn tables(rows: &[ErrorRow]) -> Vec<Table<'_>> {
    let in_fp32 = |problem: &Problem| problem.with(|shape| shape.math = Math::Fp32).ok();
    let alike = |a: &ErrorRow, b: &ErrorRow| {
        (&a.suite, &a.layer) == (&b.suite, &b.layer) && in_fp32(&a.problem) == in_fp32(&b.problem)
    };
    groups(rows, alike).iter().map(|rows| table(rows)).collect()
}

fn table<'a>(rows: &[&'a ErrorRow]) -> Table<'a> {
    let first = rows[0];
    let mut rows = rows.to_vec();
    // Math by math as they come, the nearest first, and last what has no number.
    let order = |row: &ErrorRow| {
        let nearest = row.data.first().map_or(f64::INFINITY, |e| e.stored.rms);
        (row.problem.math() as usize, nearest)
    };
    rows.sort_by(|a, b| {
        order(a)
            .partial_cmp(&order(b))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    let of_loop = rows.iter().find(|row| !row.data.is_empty());
    let of_loop = of_loop.map(|row| loop_line(row));
    let lines = rows.iter().map(|row| line(row));
    Table {
        title: title(first),
        lines: Lines {
            header: HEADER.to_vec(),
            lines: of_loop.into_iter().chain(lines).collect(),
        },
        stages: Vec::new(),
    }
}

/// Of all math, as the table has it.
fn title(row: &ErrorRow) -> String {
    let words = ["errors", &row.suite, &row.layer];
    let words = words.into_iter().filter(|word| !word.is_empty());
    let in_fp32 = row.problem.with(|shape| shape.math = Math::Fp32);
    format!(
        "{} {}, C R S = {}",
        words.collect::<Vec<_>>().join(" "),
        in_fp32.unwrap_or(row.problem.clone()),
        row.problem.reduction()
    )
}

/// The sequential loop beside a row.
fn loop_line(row: &ErrorRow) -> Line<'static> {
    let name = "sequential loop".to_owned();
    let numbers = numbers(|data| Some(row.on(data)?.sequential));
    Line {
        cells: [vec![name.clone(), "fp32".to_owned()], numbers].concat(),
        name,
        status: Status::Passed,
        reason: None,
        median_us: None,
    }
}

fn line(row: &ErrorRow) -> Line<'_> {
    let numbers = numbers(|data| Some(row.on(data)?.stored));
    Line {
        name: format!("{} {}", row.name(), row.math),
        status: row.status,
        reason: row.reason.as_deref(),
        median_us: None,
        cells: [vec![row.name(), row.math.clone()], numbers].concat(),
    }
}

/// The columns of each kind of data: the root mean square and the largest.
fn numbers(on: impl Fn(Data) -> Option<Deviation>) -> Vec<String> {
    let pair = |data| [on(data).map(|d| d.rms), on(data).map(|d| d.largest)];
    let numbers = ERROR_DATA.into_iter().flat_map(pair);
    numbers.map(|number| or_dash(number.map(short))).collect()
}

/// `2.8e-8`.
fn short(error: f64) -> String {
    format!("{error:.1e}")
}
