//! Batches cut over streams: time over the number of streams, and what overlapped.

use maud::{Markup, html};

use super::{
    gantt::gantt,
    html::{Cell, Line, Section, column, figure, key, missing, table},
    lines::{Curve, Level, lines},
    results::{Results, words},
    sheet::{QUIET, series, series_variable},
};
use crate::{
    Result,
    measure::{Status, canvas::FLOOR, duration},
    study::{HostMemory, OverlapRow},
};

pub fn section(results: &Results) -> Result<Section> {
    let study = results
        .studies
        .iter()
        .find(|study| !study.overlap.is_empty());
    let body = match study {
        None => missing("No study with batches cut over streams was given."),
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
                    "The batch is cut into chunks over streams, so that copies in, kernels and copies "
                    "out can overlap. The bound is the longest of the three alone: no overlap can "
                    "beat it. Pageable memory passes through a buffer of the driver's, so its copies "
                    "wait for the host."
                }
                @for (i, rows) in problems.iter().enumerate() {
                    details open[i == 0] {
                        summary {
                            b { (rows[0].suite) " " (rows[0].layer) } " " (words(&rows[0].problem))
                        }
                        (drawings(rows)?)
                        (times(rows))
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

fn word(memory: HostMemory) -> &'static str {
    match memory {
        HostMemory::Pinned => "pinned",
        HostMemory::Pageable => "pageable",
    }
}

fn median(row: &OverlapRow) -> Option<f64> {
    Some(row.time?.median_us)
}

/// A drawing per variant, then the timelines that were kept.
fn drawings(rows: &[&OverlapRow]) -> Result<Markup> {
    let mut variants: Vec<&str> = Vec::new();
    for row in rows.iter().filter(|row| row.time.is_some()) {
        if !variants.contains(&&*row.variant) {
            variants.push(&row.variant);
        }
    }
    let curves = variants.into_iter().map(|name| {
        let of: Vec<&OverlapRow> = rows
            .iter()
            .copied()
            .filter(|row| row.variant == name)
            .collect();
        Ok((name, over_streams(name, &of)?))
    });
    let curves: Vec<(&str, Option<Markup>)> = curves.collect::<Result<_>>()?;
    let timelines = rows.iter().filter(|row| !row.timeline.is_empty());
    let timelines: Vec<&OverlapRow> = timelines.copied().collect();
    Ok(html! {
        div.figures {
            @for (name, drawing) in &curves {
                @if let Some(drawing) = drawing {
                    (figure(drawing, &html! {
                        code { (name) } ": " (key("s0", "pinned")) (key("s1", "pageable"))
                        (key("floor", "the bound of pinned memory"))
                    }))
                }
            }
        }
        @if !timelines.is_empty() {
            h4 { "Timelines of one run" }
            div.figures { @for row in timelines { (timeline(row)?) } }
        }
    })
}

/// The fastest chunk at each number of streams.
fn over_streams(name: &str, rows: &[&OverlapRow]) -> Result<Option<Markup>> {
    let curve = |memory, color| {
        let mut points: Vec<(f64, f64)> = Vec::new();
        let mut band: Vec<[f64; 2]> = Vec::new();
        let mut of: Vec<&&OverlapRow> = rows.iter().filter(|row| row.memory == memory).collect();
        of.sort_by(|a, b| {
            let time = |row: &OverlapRow| median(row).unwrap_or(f64::INFINITY);
            a.streams.cmp(&b.streams).then(time(a).total_cmp(&time(b)))
        });
        of.dedup_by_key(|row| row.streams);
        for row in of {
            if let Some(time) = row.time {
                points.push((row.streams as f64, time.median_us));
                band.push([time.p10_us, time.p90_us]);
            }
        }
        Curve {
            name: word(memory).to_owned(),
            color,
            points,
            band,
        }
    };
    let curves = [
        curve(HostMemory::Pinned, series(0)),
        curve(HostMemory::Pageable, series(1)),
    ];
    let curves: Vec<Curve> = curves
        .into_iter()
        .filter(|c| !c.points.is_empty())
        .collect();
    // Copies alone depend on the memory; those of the fastest way are the bound.
    let pinned = rows.iter().find(|row| row.memory == HostMemory::Pinned);
    let alone = pinned.or(rows.first());
    let bound = alone.and_then(|row| row.bound_us());
    let level = |us: Option<f64>, name: &str| {
        let us = us?;
        let color = if Some(us) == bound { FLOOR } else { QUIET };
        let name = format!("{name} alone");
        Some(Level { name, color, us })
    };
    let levels = [
        alone.and_then(|row| level(row.copy_in_us, "copy in")),
        alone.and_then(|row| level(row.copy_out_us, "copy out")),
        alone.and_then(|row| level(row.kernel_us, "kernels")),
    ];
    let levels: Vec<Level> = levels.into_iter().flatten().collect();
    lines(
        &format!("Time over streams, {name}"),
        "streams",
        &curves,
        &levels,
    )
}

fn timeline(row: &OverlapRow) -> Result<Markup> {
    let title = format!(
        "{}, {} streams, {}",
        row.variant,
        row.streams,
        word(row.memory)
    );
    let drawing = gantt(&format!("Timeline, {title}"), &row.timeline)?;
    Ok(html! {
        @if let Some(drawing) = drawing {
            (figure(&drawing, &html! {
                code { (row.variant) } ", " (word(row.memory)) ", " (row.streams)
                " streams, chunks of " (row.chunk) " images: "
                @for stream in 0..row.streams.min(8) {
                    (key(&series_variable(stream), &stream.to_string()))
                }
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
                Cell::text(word(row.memory)),
                Cell::number(Some(row.streams as f64), |n| n.to_string()),
                Cell::number(Some(row.chunk as f64), |n| n.to_string()),
                Cell::number(median(row), duration),
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
                        code { (row.variant) } ", " (word(row.memory)) ", " (row.streams)
                        " streams " (row.status.word()) ": "
                        (row.reason.as_deref().unwrap_or("was not timed"))
                    }
                }
            }
        }
    }
}
