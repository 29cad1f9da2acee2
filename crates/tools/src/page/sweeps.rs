//! Every configuration of a variant: curves, or bars where configurations are no numbers.

use maud::{Markup, html};

use super::{
    bars::{Bar, bars},
    html::{Cell, Line, Section, column, figure, missing, table},
    lines::{Curve, Over, lines},
    results::{Results, words},
};
use crate::{
    Result,
    measure::{Part, Report, Row, canvas::OURS, duration, table::over_floor},
};

pub fn section(results: &Results) -> Result<Section> {
    let body = match results.sweeps.first() {
        None => missing("No report of sweep was given."),
        Some(_) => html! {
            p {
                "All configurations of a variant, side by side in the same run: tile widths, thread "
                "blocks, images per block. A curve shows the number that most configurations have; the "
                "table has all of them."
            }
            @for (i, report) in results.sweeps.iter().enumerate() { (of_report(report, i == 0)?) }
        },
    };
    Ok(Section {
        id: "sweeps",
        title: "Sweeps",
        body,
    })
}

/// Parts of one layer together.
fn of_report(report: &Report, open: bool) -> Result<Markup> {
    let parts: Vec<Part> = report
        .parts()
        .into_iter()
        .filter(|p| !p.rows.is_empty())
        .collect();
    let same = |a: &Part, b: &Part| {
        let key = |part: &Part| {
            let row = &part.rows[0];
            (row.suite.clone(), row.layer.clone(), row.problem.clone())
        };
        key(a) == key(b)
    };
    Ok(html! {
        @for (i, layer) in parts.chunk_by(same).enumerate() {
            @let row = &layer[0].rows[0];
            details open[open && i == 0] {
                summary { b { (row.suite) " " (row.layer) } " " (words(&row.problem)) }
                div.figures {
                    @for part in layer {
                        @if let Some(drawing) = drawing(part)? {
                            (figure(&drawing, &html! {
                                code { (part.rows[0].variant) }
                            }))
                        }
                    }
                }
                (summary(layer))
            }
        }
    })
}

/// A curve over the number that most configurations have; bars where there is no such. The floor is
/// left out: it lies far below, and what configurations differ by would not be seen.
fn drawing(part: &Part) -> Result<Option<Markup>> {
    let Some((what, numbers)) = numbers(&part.rows) else {
        let bar = |row: &Row| {
            Some(Bar {
                name: row.config.clone()?,
                pieces: vec![(row.median_us?, OURS)],
                whisker: row.p10_us.zip(row.p90_us).map(|(low, high)| [low, high]),
                number: duration(row.median_us?),
            })
        };
        let list: Vec<Bar> = part.rows.iter().filter_map(bar).collect();
        return bars(&part.title, &list, None);
    };
    let timed = numbers.into_iter().filter_map(|(number, row)| {
        let us = row.median_us?;
        let band = [row.p10_us.unwrap_or(us), row.p90_us.unwrap_or(us)];
        Some(((number as f64, us), band))
    });
    let (points, band) = timed.unzip();
    let curve = Curve {
        name: String::new(),
        color: OURS,
        points,
        band,
    };
    lines(&part.title, (Over::Time, what), &[curve], &[])
}

/// Configurations that are `key=number`, of the key that most of them have, ascending; none where
/// those are fewer than three.
fn numbers(rows: &[Row]) -> Option<(&str, Vec<(u64, &Row)>)> {
    let mut keys: Vec<(&str, Vec<(u64, &Row)>)> = Vec::new();
    for row in rows {
        let pair = row
            .config
            .as_deref()
            .and_then(|config| config.split_once('='));
        let Some((key, number)) = pair.and_then(|(key, n)| Some((key, n.parse().ok()?))) else {
            continue;
        };
        match keys.iter_mut().find(|(known, _)| *known == key) {
            Some((_, numbers)) => numbers.push((number, row)),
            None => keys.push((key, vec![(number, row)])),
        }
    }
    let (key, mut numbers) = keys.into_iter().max_by_key(|(_, numbers)| numbers.len())?;
    numbers.sort_by_key(|(number, _)| *number);
    (numbers.len() >= 3).then_some((key, numbers))
}

/// Every configuration of the layer's variants.
fn summary(layer: &[Part]) -> Markup {
    let columns = [
        column("variant", ""),
        column("configuration", ""),
        column("time", "median of a call"),
        column("× default", "time over that of the default configuration"),
        column("× floor", "how many times the floor it takes"),
        column("", "the fastest, and the default"),
    ];
    let of_part = |part: &Part| {
        let default_us = part.rows.first().and_then(|row| row.median_us);
        let best_us = part
            .rows
            .iter()
            .filter_map(|row| row.median_us)
            .reduce(f64::min);
        let timed = part
            .rows
            .iter()
            .enumerate()
            .filter(|(_, row)| row.median_us.is_some());
        let lines = timed.map(|(i, row)| {
            let is_best = row.median_us == best_us;
            let marks = [(is_best, "best"), (i == 0, "default")];
            let marks = marks
                .into_iter()
                .filter_map(|(set, word)| set.then_some(word));
            Line {
                class: if is_best { "best" } else { "" },
                cells: vec![
                    Cell::name(&row.variant),
                    Cell::text(row.config.as_deref().unwrap_or("–")),
                    Cell::time(row.median_us),
                    Cell::times(row.median_us.zip(default_us).map(|(us, them)| us / them)),
                    Cell::times(over_floor(row)),
                    Cell::text(marks.collect::<Vec<_>>().join(", ")),
                ],
            }
        });
        lines.collect::<Vec<Line>>()
    };
    let lines: Vec<Line> = layer.iter().flat_map(of_part).collect();
    let row = &layer[0].rows[0];
    let problem = row.problem.to_string();
    let keys = [
        ("of", "sweep"),
        ("suite", &*row.suite),
        ("problem", &problem),
    ];
    table(
        &format!("Configurations on {}", words(&row.problem)),
        &keys,
        &columns,
        &lines,
    )
}
