//! How far results are from f64: curves over the terms of a sum, and every number.

use convforge_check::Data;
use maud::{Markup, html};

use super::{
    html::{Cell, Line, Section, code, column, figure, key, missing, table, why},
    lines::{Curve, Over, lines},
    results::{Results, plain_names, words},
    sheet::{beside_floor, series, series_variable},
};
use crate::{
    Result,
    measure::{canvas::FLOOR, table::significant},
    study::{DataErrors, ERROR_DATA, ErrorRow},
};

pub fn section(results: &Results) -> Result<Section> {
    let study = results
        .studies
        .iter()
        .find(|study| !study.errors.is_empty());
    let body = match study {
        None => missing("No study with errors was given."),
        Some(study) => html! {
            p {
                "The error of an output is its distance from a convolution in f64, divided by the sum "
                "of the magnitudes of its products. Operands are f32 as they are stored, so rounding "
                "them to f16 or bf16 counts; the last two columns of the tables leave that out. Beside "
                "it stands a sequential loop of fp32 multiply-adds on the same data. What did not pass "
                "its check has no number here."
            }
            @for (i, data) in ERROR_DATA.into_iter().enumerate() {
                details open[i == 0] {
                    summary { b { (data) " data" } " " (meaning(data)) }
                    (drawings(&study.errors, data)?)
                    details { summary { "All errors" } (numbers(&study.errors, data)) }
                }
            }
            (without(&study.errors))
        },
    };
    Ok(Section {
        id: "accuracy",
        title: "Accuracy",
        body,
    })
}

fn meaning(data: Data) -> &'static str {
    match data {
        Data::Normal => "mean 0: sums that cancel",
        Data::Positive => "uniform in (0, 1]: sums that grow",
        Data::Wide => "of either sign, over many powers of two: terms of unequal size",
        Data::Integer | Data::Subnormal => "sums that are exact",
        Data::Extreme => "products of one size, of operands that are not",
    }
}

/// A drawing per math, in the order of the rows.
fn drawings(rows: &[ErrorRow], data: Data) -> Result<Markup> {
    let mut maths: Vec<&str> = Vec::new();
    for row in rows.iter().filter(|row| row.on(data).is_some()) {
        if !maths.contains(&&*row.math) {
            maths.push(&row.math);
        }
    }
    let of =
        |math: &str| -> Vec<&ErrorRow> { rows.iter().filter(|row| row.math == math).collect() };
    let drawings = maths.iter().map(|math| drawing(math, &of(math), data));
    Ok(html! { div.figures { @for drawing in drawings { (drawing?) } } })
}

/// Curves of every variant; where the math rounds operands, of the sums alone as well, which are
/// where variants differ.
fn drawing(math: &str, rows: &[&ErrorRow], data: Data) -> Result<Markup> {
    let stored = groups(rows, |row| Some(row.on(data)?.stored.rms));
    let sums = groups(rows, |row| Some(row.on(data)?.rounded?.rms));
    let curve = |(i, group): (usize, &Group), before: &str| Curve {
        name: format!("{before}{}", group.label()),
        color: series(beside_floor(i)),
        points: ascending(&group.points),
        band: Vec::new(),
    };
    let whole = stored.iter().enumerate().map(|group| curve(group, ""));
    let alone = (stored.len()..).zip(&sums);
    let alone = alone.map(|group| curve(group, "sums: "));
    let of_loop = rows
        .iter()
        .filter_map(|row| Some((*row, row.on(data)?.sequential.rms)));
    let of_loop = Curve {
        name: "fp32 loop".to_owned(),
        color: FLOOR,
        points: ascending(&of_loop.collect::<Vec<_>>()),
        band: Vec::new(),
    };
    // The loop last, so that it lies over those that agree with it.
    let curves: Vec<Curve> = whole.chain(alone).chain([of_loop]).collect();
    let title = format!("RMS error on {data} data, {math}");
    let drawing = lines(&title, (Over::Error, "C R S"), &curves, &[])?;
    Ok(html! {
        @if let Some(drawing) = drawing {
            (figure(&drawing, &html! {
                b { (math) } ": RMS error over the terms of a sum. "
                (key("floor", "a sequential fp32 loop"))
                (keys(&stored, 0))
                @if !sums.is_empty() { "The sums alone: " (keys(&sums, stored.len())) }
            }))
        }
    })
}

/// The colours of groups, counted from the first one's, and who is in them.
fn keys(groups: &[Group], first: usize) -> Markup {
    html! {
        @for (i, group) in (first..).zip(groups) {
            (key(&series_variable(beside_floor(i)), &group.names[0]))
            @for (i, name) in group.names[1..].iter().enumerate() {
                @if i == 0 { "and " } @else { ", " }
                (code(name))
            }
            " "
        }
    }
}

/// Errors over the terms of a sum, of each problem once.
fn ascending(points: &[(&ErrorRow, f64)]) -> Vec<(f64, f64)> {
    let mut problems: Vec<&ErrorRow> = Vec::new();
    let mut found: Vec<(f64, f64)> = Vec::new();
    for (row, rms) in points {
        if !problems.iter().any(|other| other.problem == row.problem) {
            problems.push(row);
            found.push((row.problem.reduction() as f64, *rms));
        }
    }
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    found
}

/// Variants whose curves are one.
struct Group<'a> {
    names: Vec<String>,
    points: Vec<(&'a ErrorRow, f64)>,
}

/// Curves whose points differ by no more than this are drawn once.
const SAME: f64 = 0.01;

impl<'a> Group<'a> {
    /// Whether these points lie on its curve, every one.
    fn has(&self, points: &[(&'a ErrorRow, f64)]) -> bool {
        let on_it = |(row, rms): &(&ErrorRow, f64)| {
            let mut ours = self.points.iter();
            ours.find(|(other, _)| other.problem == row.problem)
                .is_some_and(|(_, ours)| (ours / rms - 1.0).abs() <= SAME)
        };
        points.iter().all(on_it)
    }

    /// The first name, and how many more there are.
    fn label(&self) -> String {
        match self.names.len() {
            1 => self.names[0].clone(),
            many => format!("{} +{}", self.names[0], many - 1),
        }
    }
}

/// The variants of one math as curves, those that agree as one; first who can do the most problems.
fn groups<'a>(rows: &[&'a ErrorRow], rms: impl Fn(&ErrorRow) -> Option<f64>) -> Vec<Group<'a>> {
    let mut variants: Vec<(String, Vec<(&ErrorRow, f64)>)> = Vec::new();
    for row in rows {
        let Some(rms) = rms(row) else { continue };
        let (name, point) = (row.name(), (*row, rms));
        match variants.iter_mut().find(|(known, _)| *known == name) {
            Some((_, points)) => points.push(point),
            None => variants.push((name, vec![point])),
        }
    }
    variants.sort_by_key(|(_, points)| std::cmp::Reverse(points.len()));
    let names = plain_names(variants.iter().map(|(name, _)| &**name));
    let mut groups: Vec<Group> = Vec::new();
    for (name, (_, points)) in names.into_iter().zip(variants) {
        match groups.iter_mut().find(|group| group.has(&points)) {
            Some(group) => group.names.push(name),
            None => groups.push(Group {
                names: vec![name],
                points,
            }),
        }
    }
    groups
}

fn numbers(rows: &[ErrorRow], data: Data) -> Markup {
    let columns = [
        column("variant", ""),
        column("math", "how it multiplies"),
        column("layer", ""),
        column("C R S", "terms of a sum"),
        column("RMS", "of the errors of all outputs"),
        column("RMS × loop", "over that of a sequential fp32 loop"),
        column("largest", "of the errors of all outputs"),
        column("largest × loop", "over that of a sequential fp32 loop"),
        column("RMS of sums", "against operands as the math rounds them"),
        column(
            "largest of sums",
            "against operands as the math rounds them",
        ),
    ];
    let line = |row: &ErrorRow| {
        let DataErrors {
            stored,
            rounded,
            sequential,
            ..
        } = row.on(data)?;
        Some(Line {
            class: "",
            cells: vec![
                Cell::name(&row.name()),
                Cell::text(&row.math),
                Cell::text(html! { (row.suite) " " (row.layer) }),
                Cell::number(Some(row.problem.reduction() as f64), |n| n.to_string()),
                error(Some(stored.rms)),
                Cell::number(Some(stored.rms / sequential.rms), significant),
                error(Some(stored.largest)),
                Cell::number(Some(stored.largest / sequential.largest), significant),
                error(rounded.map(|sums| sums.rms)),
                error(rounded.map(|sums| sums.largest)),
            ],
        })
    };
    let lines: Vec<Line> = rows.iter().filter_map(line).collect();
    let kind = data.to_string();
    let keys = [("of", "errors"), ("data", &*kind)];
    table(&format!("Errors on {kind} data"), &keys, &columns, &lines)
}

/// `2.81e-8`.
fn error(error: Option<f64>) -> Cell {
    Cell::number(error, |error| format!("{error:.2e}"))
}

fn without(rows: &[ErrorRow]) -> Markup {
    let without = || rows.iter().filter(|row| row.data.is_empty());
    html! {
        @if without().count() > 0 {
            p { "Without numbers:" }
            ul.reasons {
                @for row in without() {
                    li {
                        code { (row.name()) } " on " (words(&row.problem)) ", " (row.math) ", "
                        (row.status.word()) ": " (why(row.reason.as_deref()))
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use convforge_check::Deviation;

    use super::*;
    use crate::measure::Status;

    fn row(variant: &str, problem: &str, rms: f64) -> ErrorRow {
        let deviation = |rms| Deviation {
            largest: rms * 10.0,
            rms,
        };
        let errors = DataErrors {
            data: Data::Normal,
            stored: deviation(rms),
            rounded: None,
            sequential: deviation(3e-8),
        };
        ErrorRow {
            suite: "s".to_owned(),
            layer: "l".to_owned(),
            problem: problem.parse().unwrap(),
            math: "fp32".to_owned(),
            variant: variant.to_owned(),
            config: None,
            plan: None,
            seed: 1,
            status: Status::Passed,
            reason: None,
            data: vec![errors],
        }
    }

    const SHORT: &str = "mb1ic1ih8oc1kh3";
    const LONG: &str = "mb1ic64ih8oc1kh3";

    #[test]
    fn curves_that_agree_are_one() {
        let rows = [
            // It cannot do the long one, and lies on the others' curve on the short one.
            row("c", SHORT, 3.01e-8),
            row("a", SHORT, 3e-8),
            row("a", LONG, 4e-8),
            row("b", SHORT, 3e-8),
            row("b", LONG, 4e-8),
            row("d", SHORT, 3e-8),
            row("d", LONG, 5e-8),
        ];
        let rows: Vec<&ErrorRow> = rows.iter().collect();
        let of = |data| groups(&rows, move |row| Some(row.on(data)?.stored.rms));
        let groups = of(Data::Normal);
        let labels: Vec<String> = groups.iter().map(Group::label).collect();
        assert_eq!(labels, ["a +2", "d"]);
        assert_eq!(groups[0].names, ["a", "b", "c"]);
        assert!(of(Data::Wide).is_empty());
    }

    #[test]
    fn every_curve_and_number_is_there_and_what_failed_has_none() {
        let failed = ErrorRow {
            status: Status::Failed,
            reason: Some("is wrong".to_owned()),
            data: Vec::new(),
            ..row("broken", SHORT, 1.0)
        };
        let mut rows = [row("a", SHORT, 3e-8), row("a", LONG, 6e-8), failed];
        let svg = drawings(&rows, Data::Normal).unwrap().into_string();
        for part in [">a<", ">fp32 loop<", ">5e-8<", "error to a log scale"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        let table = numbers(&rows, Data::Normal).into_string();
        assert_eq!(table.matches("<tr").count(), 3, "{table}");
        assert!(table.contains("data-value=\"0.00000006\">6.00e-8<") && table.contains(">2.00<"));
        assert!(without(&rows).into_string().contains("failed: is wrong"));
        assert!(!table.contains("broken") && !svg.contains("broken"));

        // Where operands are rounded, the sums have a curve of their own.
        assert!(!svg.contains("sums"), "{svg}");
        rows[0].data[0].rounded = Some(rows[1].data[0].stored);
        let svg = drawings(&rows, Data::Normal).unwrap().into_string();
        assert!(
            svg.contains(">sums: a<") && svg.contains("The sums alone: "),
            "{svg}"
        );
    }
}
