//! How far variants are from f64, one table per problem.

use convforge::{Math, Problem};
use convforge_check::Deviation;

use super::table::{Table, groups};
use crate::{
    measure::{Line, Lines, Status, or_dash},
    study::{ERROR_DATA, ErrorRow},
};

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
    let numbers = |of: &dyn Fn(usize) -> Option<Deviation>| {
        let pair = |i| [of(i).map(|d| d.rms), of(i).map(|d| d.largest)];
        let cells = (0..ERROR_DATA.len()).flat_map(pair);
        cells
            .map(|number| or_dash(number.map(short)))
            .collect::<Vec<_>>()
    };
    let of_loop = rows.iter().find(|row| !row.data.is_empty()).map(|row| {
        let name = "sequential loop".to_owned();
        let on = |i: usize| Some(row.on(ERROR_DATA[i])?.sequential);
        Line {
            cells: [vec![name.clone(), "fp32".to_owned()], numbers(&on)].concat(),
            name,
            status: Status::Passed,
            reason: None,
            median_us: None,
        }
    });
    let lines = rows.iter().map(|row| {
        let on = |i: usize| Some(row.on(ERROR_DATA[i])?.stored);
        Line {
            name: format!("{} {}", row.name(), row.math),
            status: row.status,
            reason: row.reason.as_deref(),
            median_us: None,
            cells: [vec![row.name(), row.math.clone()], numbers(&on)].concat(),
        }
    });
    let problem = &first.problem;
    let words = ["errors", &first.suite, &first.layer];
    let words = words.into_iter().filter(|word| !word.is_empty());
    Table {
        title: format!(
            "{} {}, C R S = {}",
            words.collect::<Vec<_>>().join(" "),
            problem
                .with(|shape| shape.math = Math::Fp32)
                .unwrap_or(problem.clone()),
            problem.reduction()
        ),
        lines: Lines {
            header: vec![
                "variant",
                "math",
                "normal: rms",
                "largest",
                "positive: rms",
                "largest",
                "wide: rms",
                "largest",
            ],
            lines: of_loop.into_iter().chain(lines).collect(),
        },
        stages: Vec::new(),
    }
}

/// `2.8e-8`.
fn short(error: f64) -> String {
    format!("{error:.1e}")
}
