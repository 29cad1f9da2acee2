//! Batches split over streams: time over the number of streams, and what overlapped.

use maud::{Markup, html};

use super::{
    gains::gains,
    gantt::gantt,
    html::{Cell, Line, Section, column, figure, key, missing, table, why},
    lines::{Curve, Level, Over, lines},
    results::{Results, plain_names, words},
    sheet::{beside_floor, series, series_variable},
};
use crate::{
    Result,
    measure::{Status, canvas::FLOOR},
    study::{HostMemory, OverlapRow},
};

pub fn section(results: &Results) -> Result<Section> {
    let study = results
        .studies
        .iter()
        .find(|study| !study.overlap.is_empty());
    let body = match study {
        None => missing("No study with batches split over streams was given."),
        Some(study) => {
            let mut problems: Vec<Vec<&OverlapRow>> = Vec::new();
            for row in &study.overlap {
                let same = |other: &&mut Vec<&OverlapRow>| {
                    (&other[0].suite, &other[0].layer, &other[0].problem)
                        == (&row.suite, &row.layer, &row.problem)
                };
                match problems.iter_mut().find(same) {
                    Some(rows) => rows.push(row),
                    None => problems.push(vec![row]),
                }
            }
            html! {
                p {
                    "The batch is split into chunks over streams, so that copies in, kernels and copies "
                    "out can overlap. The bound is the longest of the three alone: no overlap can "
                    "beat it. Pageable memory passes through a page-locked buffer of the driver's, "
                    "which the host has to fill or empty. Times are medians, with as many runs as the "
                    "tables say."
                }
                @for sentence in gains(&study.overlap) { p.answer { (sentence) } }
                @for (i, rows) in problems.iter().enumerate() {
                    details open[i == 0] {
                        summary {
                            b { (rows[0].suite) " " (rows[0].layer) } " " (words(&rows[0].problem))
                        }
                        (drawings(rows)?)
                        details { summary { "All times" } (times(rows)) }
                        (untimed(rows))
                    }
                }
            }
        }
    };
    Ok(Section {
        id: "streams",
        title: "Streams",
        body,
    })
}

fn median(row: &OverlapRow) -> Option<f64> {
    Some(row.time?.median_us)
}

/// A drawing per kind of memory, then the timelines that tell something.
fn drawings(rows: &[&OverlapRow]) -> Result<Markup> {
    let mut variants: Vec<&str> = Vec::new();
    for row in rows.iter().filter(|row| row.time.is_some()) {
        if !variants.contains(&&*row.variant) {
            variants.push(&row.variant);
        }
    }
    let curves = [HostMemory::Pinned, HostMemory::Pageable]
        .map(|memory| over_streams(rows, &variants, memory));
    let timelines = telling(rows);
    Ok(html! {
        div.figures { @for drawing in curves { (drawing?) } }
        @if !timelines.is_empty() {
            h4 { "Timelines of one run" }
            div.figures { @for row in timelines { (timeline(row)?) } }
        }
    })
}

/// A curve per variant, through the fastest chunk at each number of streams.
fn over_streams(rows: &[&OverlapRow], variants: &[&str], memory: HostMemory) -> Result<Markup> {
    let of = |name: &str| {
        let of = rows.iter().copied();
        let of = of.filter(|row| row.memory == memory && row.variant == name && row.time.is_some());
        of.collect::<Vec<&OverlapRow>>()
    };
    let names = plain_names(variants.iter().copied());
    let curve = |(i, name): (usize, &&str)| {
        let rows = fastest_chunks(of(name));
        let spreads = rows
            .iter()
            .filter_map(|row| Some((row.streams as f64, row.time?)));
        let (points, band) = spreads
            .map(|(streams, time)| ((streams, time.median_us), [time.p10_us, time.p90_us]))
            .unzip();
        Curve {
            name: names[i].clone(),
            color: series(beside_floor(i)),
            points,
            band,
        }
    };
    let curves: Vec<Curve> = variants
        .iter()
        .enumerate()
        .map(curve)
        .filter(|curve| !curve.points.is_empty())
        .collect();
    // Copies alone are the same work for all variants.
    let alone = rows
        .iter()
        .find(|row| row.memory == memory && row.time.is_some());
    let copies = alone.and_then(|row| Some((row.copy_in_us?, row.copy_out_us?)));
    let (name, meaning) = match memory {
        HostMemory::Pinned => ("slower copy", "the slower of the two copies alone"),
        HostMemory::Pageable => ("both copies", "both copies alone, one after the other"),
    };
    let level = copies.map(|(to, from)| Level {
        name: name.to_owned(),
        color: FLOOR,
        us: match memory {
            HostMemory::Pinned => to.max(from),
            HostMemory::Pageable => to + from,
        },
    });
    let drawing = lines(
        &format!(
            "Time over streams, {} memory, {}",
            memory.word(),
            rows[0].problem
        ),
        (Over::Time, "streams"),
        &curves,
        level.as_slice(),
    )?;
    Ok(html! {
        @if let Some(drawing) = drawing {
            (figure(&drawing, &html! {
                b { (memory.word()) " memory" } ": "
                @for (i, name) in names.iter().enumerate() { (key(&series_variable(beside_floor(i)), name)) }
                (key("floor", meaning))
            }))
        }
    })
}

/// Of every number of streams the fastest row, ascending.
fn fastest_chunks(mut rows: Vec<&OverlapRow>) -> Vec<&OverlapRow> {
    rows.sort_by(|a, b| {
        let time = |row: &OverlapRow| median(row).unwrap_or(f64::INFINITY);
        a.streams.cmp(&b.streams).then(time(a).total_cmp(&time(b)))
    });
    rows.dedup_by_key(|row| row.streams);
    rows
}

/// Streams beyond which lanes are too thin to be told apart.
const LANES: usize = 8;

/// Timelines to be drawn, per variant: from pinned memory that of one stream, of the fastest number
/// and of the most that can be told apart; from pageable memory that of the same fastest number.
fn telling<'a>(rows: &[&'a OverlapRow]) -> Vec<&'a OverlapRow> {
    let kept = rows.iter().copied();
    let kept = kept.filter(|row| !row.timeline.is_empty() && row.streams <= LANES);
    let kept: Vec<&OverlapRow> = kept.collect();
    let same = |a: &OverlapRow, b: &OverlapRow| a.variant == b.variant;
    let mut shown: Vec<&OverlapRow> = Vec::new();
    for rows in kept.chunk_by(|a, b| same(a, b)) {
        let of = |memory| {
            let of = rows.iter().copied().filter(move |row| row.memory == memory);
            fastest_chunks(of.collect())
        };
        let (pinned, pageable) = (of(HostMemory::Pinned), of(HostMemory::Pageable));
        let all = if pinned.is_empty() {
            &pageable
        } else {
            &pinned
        };
        let order = |row: &&&OverlapRow| median(row).unwrap_or(f64::INFINITY);
        let Some(best) = all.iter().min_by(|a, b| order(a).total_cmp(&order(b))) else {
            continue;
        };
        let (first, last) = (all.first(), all.last());
        let mut numbers: Vec<usize> = first
            .into_iter()
            .chain([best])
            .chain(last)
            .map(|row| row.streams)
            .collect();
        numbers.dedup();
        shown.extend(pinned.iter().filter(|row| numbers.contains(&row.streams)));
        shown.extend(pageable.iter().filter(|row| row.streams == best.streams));
    }
    shown
}

fn timeline(row: &OverlapRow) -> Result<Markup> {
    let streams = match row.streams {
        1 => "1 stream".to_owned(),
        many => format!("{many} streams"),
    };
    let title = format!("{}, {streams}, {}", row.variant, row.memory.word());
    let drawing = gantt(&format!("Timeline, {title}"), &row.timeline)?;
    Ok(html! {
        @if let Some(drawing) = drawing {
            (figure(&drawing, &html! {
                code { (row.variant) }
                @if let Some(chose) = &row.chose { " (" code { (chose) } ")" }
                ", " b { (row.memory.word()) ", " (streams) }
                ", chunks of " (row.chunk) " images. A colour per stream."
            }))
        }
    })
}

fn times(rows: &[&OverlapRow]) -> Markup {
    let columns = [
        column("variant", ""),
        column("memory", "the host's"),
        column("streams", ""),
        column("chunk", "images"),
        column("time", "median, from the first copy to the last"),
        column("runs", "that the median is of"),
        column(
            "vs 1 stream",
            "times faster than with one stream, from the same memory",
        ),
        column("copy in", "alone"),
        column("kernels", "alone"),
        column("copy out", "alone"),
        column("bound reached", "the longest of the three over the time"),
    ];
    let line = |row: &&OverlapRow| {
        let single = rows.iter().filter(|other| {
            (&other.variant, other.memory, other.streams) == (&row.variant, row.memory, 1)
        });
        let single = single.filter_map(|other| median(other)).reduce(f64::min);
        let gain = single.zip(median(row)).map(|(one, many)| one / many);
        Line {
            class: "",
            cells: vec![
                Cell::name(&row.variant),
                Cell::text(row.memory.word()),
                Cell::number(Some(row.streams as f64), |n| n.to_string()),
                Cell::number(Some(row.chunk as f64), |n| n.to_string()),
                Cell::time(median(row)),
                Cell::number(Some(row.runs as f64), |n| n.to_string()),
                Cell::times(gain),
                Cell::time(row.copy_in_us),
                Cell::time(row.kernel_us),
                Cell::time(row.copy_out_us),
                Cell::percent(row.reached().map(|share| share * 100.0)),
            ],
        }
    };
    let timed = rows
        .iter()
        .filter(|row| row.status == Status::Passed && row.time.is_some());
    let lines: Vec<Line> = timed.map(line).collect();
    let (layer, problem) = (&*rows[0].layer, rows[0].problem.to_string());
    let keys = [
        ("of", "streams"),
        ("suite", &*rows[0].suite),
        ("layer", layer),
        ("problem", &problem),
    ];
    table(
        &format!("Streams on {}", words(&rows[0].problem)),
        &keys,
        &columns,
        &lines,
    )
}

fn untimed(rows: &[&OverlapRow]) -> Markup {
    let untimed = || rows.iter().filter(|row| row.time.is_none());
    html! {
        @if untimed().count() > 0 {
            p { "Without a time:" }
            ul.reasons {
                @for row in untimed() {
                    li {
                        code { (row.variant) } ", " (row.memory.word()) ", " (row.streams)
                        " streams " (row.status.word()) ": "
                        (why(row.reason.as_deref()))
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        measure::Spread,
        study::{Span, Work},
    };

    #[test]
    fn few_timelines_are_drawn() {
        let row = |memory, (streams, us): (usize, f64)| OverlapRow {
            suite: String::new(),
            layer: String::new(),
            problem: "mb16ic1ih8oc1kh3".parse().unwrap(),
            variant: "a".to_owned(),
            chose: None,
            streams,
            chunk: 1,
            memory,
            status: Status::Passed,
            reason: None,
            time: Spread::of(&[us]),
            runs: 1,
            copy_in_us: None,
            copy_out_us: None,
            kernel_us: None,
            timeline: vec![Span::new(0, 0, Work::In, [0.0, 1.0])],
        };
        let times = [(1, 9.0), (2, 5.0), (4, 6.0), (8, 7.0), (16, 4.0)];
        let pinned = times.map(|time| row(HostMemory::Pinned, time));
        let pageable = times.map(|time| row(HostMemory::Pageable, time));
        let drawn = |rows: &[OverlapRow]| {
            let rows: Vec<&OverlapRow> = rows.iter().collect();
            let shown = telling(&rows);
            shown
                .iter()
                .map(|row| (row.memory, row.streams))
                .collect::<Vec<_>>()
        };
        let (pin, page) = (HostMemory::Pinned, HostMemory::Pageable);
        let both = drawn(&[pinned, pageable.clone()].concat());
        assert_eq!(both, [(pin, 1), (pin, 2), (pin, 8), (page, 2)]);
        assert_eq!(drawn(&pageable), [(page, 2)]);
        assert!(drawn(&[]).is_empty());
    }
}
