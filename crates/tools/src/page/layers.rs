//! Layer by layer: bars, roofline and table of all variants.

use convforge::variant::Arithmetic;
use maud::{Markup, html};

use super::{
    bars::{Bar, bars},
    bound::bound,
    html::{Cell, Line, Section, code, column, figure, key, missing, table, why},
    profiles::longest,
    results::{Layer, REPORTS, Results, is_handwritten, plain_names},
    roofline::{Point, Roof, roofline},
};
use crate::{
    Result,
    measure::{
        Ceilings, Row, bytes,
        canvas::color,
        duration,
        table::{over_floor, significant, spread, times},
    },
};

pub fn section(results: &Results) -> Result<Section> {
    let mut suites: Vec<&str> = results.layers.iter().map(|layer| layer.suite).collect();
    suites.dedup();
    let (reports, others): (Vec<&str>, Vec<&str>) = suites
        .into_iter()
        .partition(|suite| REPORTS.contains(suite));
    let body = html! {
        @if results.layers.is_empty() {
            (missing("No report of compare and no study with layers was given."))
        } @else {
            p {
                "Every variant was checked against an f64 oracle, then timed beside the others in "
                "the same run: the median of calls on buffers that rotate beyond the L2. The floor "
                "is what the bandwidth or the arithmetic measured in that run allow at least. Times "
                "vs cuDNN are how many times faster a variant is than cuDNN's fastest plan that "
                "passed. Layers in fp32 and NCHW are drawn; the other kinds of element are tables."
            }
            @for suite in reports { h3 { (suite) } (of_suite(results, suite)?) }
            @if !others.is_empty() {
                h3 { "Other suites" }
                p { "Layers of whole networks, as tables." }
                @for suite in others {
                    details.bulk { summary { (if suite.is_empty() { "no suite" } else { suite }) }
                        (of_suite(results, suite)?)
                    }
                }
            }
        }
    };
    Ok(Section {
        id: "layers",
        title: "Layer by layer",
        body,
    })
}

/// Layers that are drawn one by one, the others by their kind of element.
fn of_suite(results: &Results, suite: &str) -> Result<Markup> {
    let of_suite = || results.layers.iter().filter(|layer| layer.suite == suite);
    let mut kinds: Vec<String> = of_suite()
        .filter(|l| !l.is_drawn())
        .map(Layer::kind)
        .collect();
    kinds.dedup();
    Ok(html! {
        @for layer in of_suite().filter(|layer| layer.is_drawn()) { (details(results, layer)?) }
        @for kind in &kinds {
            @let layers = of_suite().filter(|layer| !layer.is_drawn() && layer.kind() == *kind);
            @let layers = layers.collect::<Vec<_>>();
            details.bulk {
                summary { b { (kind) } ", " (layers.len()) @if layers.len() == 1 { " layer" } @else { " layers" } }
                @for layer in layers { (details(results, layer)?) }
            }
        }
    })
}

fn details(results: &Results, layer: &Layer) -> Result<Markup> {
    Ok(html! {
        details open[is_first(results, layer)] {
            summary {
                b { (if layer.name.is_empty() { "layer" } else { layer.name }) } " "
                (layer.words())
                span.answer { (answer(layer)) }
            }
            p { (floor(layer)) }
            @if layer.is_drawn() { (drawings(results, layer)?) }
            (rows(results, layer))
            (untimed(layer))
            p.small { code { (layer.problem) } ", " (run(layer)) }
        }
    })
}

/// Whether it is the first of the drawn layers in the largest batch of its suite: the one that is open.
fn is_first(results: &Results, layer: &Layer) -> bool {
    let drawn = results.layers.iter().filter(|layer| layer.is_drawn());
    // Of equals `max_by_key` takes the last, so the order is turned round.
    let same = drawn.filter(|other| other.suite == results.layers[0].suite);
    let first = same.rev().max_by_key(|other| other.problem.n());
    first.is_some_and(|first| std::ptr::eq(first, layer))
}

/// `small_fma:weights=constant, 534 us, 1.40 × floor, 16.12 × cuDNN`.
fn answer(layer: &Layer) -> String {
    let Some((best, us)) = layer.best().and_then(|row| Some((row, row.median_us?))) else {
        return "no handwritten variant has a time".to_owned();
    };
    let mut words = vec![best.name(), duration(us)];
    words.extend(over_floor(best).map(|ratio| format!("{} × floor", times(ratio))));
    words.extend(
        layer
            .cudnn_us()
            .map(|them| format!("{} × cuDNN's speed", times(them / us))),
    );
    words.join(", ")
}

/// Why the floor is where it is.
fn floor(layer: &Layer) -> String {
    let problem = layer.problem;
    let (gflop, megabytes) = (problem.flops() / 1e9, problem.bytes() / 1e6);
    let work = format!(
        "{} GFLOP over at least {} MB, {} FLOP per byte",
        significant(gflop),
        significant(megabytes),
        significant(problem.flops() / problem.bytes())
    );
    let Some(ceilings) = layer.environment.ceilings else {
        return format!("{work}; no ceilings were measured in this run, so there is no floor.");
    };
    let floor = ceilings.floor_us(problem);
    let memory = bandwidth(&ceilings);
    let by = match problem.bytes() / memory * 1e6 >= floor {
        true => format!("memory, at {} TB/s", significant(memory / 1e12)),
        false => {
            let rate = ceilings.rate(problem.math()).unwrap_or(f64::NAN) / 1e12;
            format!(
                "arithmetic, at {} TFLOP/s in {}",
                significant(rate),
                problem.math()
            )
        }
    };
    format!("{work}. The floor of {} is that of {by}.", duration(floor))
}

/// What the floor takes for memory.
fn bandwidth(ceilings: &Ceilings) -> f64 {
    ceilings.read.max(ceilings.write).max(ceilings.copy)
}

fn drawings(results: &Results, layer: &Layer) -> Result<Markup> {
    let timed = layer.timed();
    let spelled: Vec<String> = timed.iter().map(|row| row.name()).collect();
    let names = plain_names(spelled.iter().map(String::as_str));
    let bar = |(row, name): (&&Row, &String)| {
        let us = row.median_us.unwrap_or_default();
        Bar {
            name: name.clone(),
            pieces: vec![(us, color(row))],
            whisker: row.p10_us.zip(row.p90_us).map(|(low, high)| [low, high]),
            number: duration(us),
        }
    };
    let list: Vec<Bar> = timed.iter().zip(&names).map(bar).collect();
    let floor_us = timed.iter().find_map(|row| row.floor_us);
    let name = [layer.suite, layer.name, &layer.problem.to_string()].join(" ");
    let time = bars(&format!("Time per variant, {name}"), &list, floor_us)?;
    let legend = html! {
        (key("ours", "handwritten")) (key("cudnn", "cuDNN")) (key("others", "cuBLAS"))
        @if floor_us.is_some() { (key("floor", "floor")) }
        "Median; thin lines from the 10th to the 90th percentile."
    };
    let points: Vec<Point> = timed
        .iter()
        .zip(names)
        .filter_map(|(row, name)| point(results, layer, row, name))
        .collect();
    let counted = points.iter().filter(|point| point.counted).count();
    let roof = layer
        .environment
        .ceilings
        .map(|ceilings| roof(&ceilings, layer));
    let roof = match roof {
        Some(roof) => roofline(&format!("Roofline, {name}"), &roof, &points)?,
        None => None,
    };
    let meaning = html! {
        "Roofline with the ceilings measured in the same run. "
        @if counted == 0 {
            "Bytes are the problem's fewest, the same for all variants: how far a point is below the "
            "roof is how many times its floor it takes."
        } @else {
            "Filled points: bytes counted in device memory (" (counted) " of " (points.len())
            " variants), which is less than was written where the L2 still holds it. Hollow points: the "
            "problem's fewest bytes."
        }
    };
    Ok(html! {
        div.figures {
            @if let Some(time) = time { (figure(&time, &legend)) }
            @if let Some(roof) = roof { (figure(&roof, &meaning)) }
        }
    })
}

fn roof(ceilings: &Ceilings, layer: &Layer) -> Roof {
    let math = layer.problem.math();
    let rate = ceilings
        .rate(math)
        .map(|rate| (math.to_string(), rate / 1e12));
    Roof {
        memory: bandwidth(ceilings) / 1e12,
        arithmetic: rate.into_iter().collect(),
    }
}

/// A row under the roof, by the bytes of device memory that its kernels moved if they were counted.
fn point(results: &Results, layer: &Layer, row: &Row, name: String) -> Option<Point> {
    let kernels = results.counted(layer.problem, &row.name());
    let moved = kernels.iter().map(|kernel| {
        let counters = &kernel.counters;
        Some(counters.dram_read_bytes? + counters.dram_write_bytes?)
    });
    let moved: Option<f64> = moved.sum();
    let moved = moved.filter(|bytes| *bytes > 0.0);
    Some(Point {
        name,
        color: color(row),
        intensity: layer.problem.flops() / moved.unwrap_or(layer.problem.bytes()),
        counted: moved.is_some(),
        tflops: row.tflops?,
    })
}

/// Every row with a time.
fn rows(results: &Results, layer: &Layer) -> Markup {
    let columns = [
        column("variant", ""),
        column("time", "median of a call"),
        column("spread", "10th and 90th percentile against the median"),
        column("× floor", "how many times the floor it takes"),
        column(
            "vs cuDNN",
            "times faster than cuDNN's fastest plan that passed",
        ),
        column("TFLOP/s", "operations of the problem over the time"),
        column("GB/s", "fewest bytes of the problem over the time"),
        column("workspace", "device memory beside the operands"),
        column("bound by", "from its counters, where it was profiled"),
    ];
    let line = |row: &&Row| {
        let width = |row: &Row| Some((row.p90_us? - row.p10_us?) / row.median_us?);
        let kernels = results.counted(layer.problem, &row.name());
        let by = longest(&kernels).and_then(|kernel| bound(&kernel.counters));
        let name = match row.arithmetic {
            Arithmetic::Transform => Cell::text(html! { (code(&row.label())) " (transform)" }),
            _ => Cell::name(&row.label()),
        };
        Line {
            class: class(row),
            cells: vec![
                name,
                Cell::time(row.median_us),
                Cell::number(width(row), |_| spread(row).unwrap_or_default()),
                Cell::times(over_floor(row)),
                Cell::times(row.speedup_vs_cudnn),
                Cell::number(row.tflops, significant),
                Cell::number(row.gbs, significant),
                Cell::number(row.workspace_bytes.map(|b| b as f64), |b| bytes(b as usize)),
                by.map_or(Cell::Nothing, |by| Cell::text(by.by)),
            ],
        }
    };
    let lines: Vec<Line> = layer.timed().iter().map(line).collect();
    let problem = layer.problem.to_string();
    let keys = [
        ("suite", layer.suite),
        ("layer", layer.name),
        ("problem", &problem),
    ];
    table(
        &format!("Variants on {}", layer.words()),
        &keys,
        &columns,
        &lines,
    )
}

pub fn class(row: &Row) -> &'static str {
    match row.family() {
        "cudnn" => "cudnn",
        _ if is_handwritten(row) => "ours",
        _ => "others",
    }
}

/// Why rows have no time; those with one reason together.
fn untimed(layer: &Layer) -> Markup {
    let timed = layer.timed();
    let mut reasons: Vec<(&str, Option<&str>, Vec<String>)> = Vec::new();
    let missing = layer
        .rows
        .iter()
        .filter(|row| !timed.iter().any(|t| std::ptr::eq(*t, **row)));
    for row in missing {
        let (status, reason) = (row.status.word(), row.reason.as_deref());
        match reasons
            .iter_mut()
            .find(|known| (known.0, known.1) == (status, reason))
        {
            Some((.., names)) => names.push(row.name()),
            None => reasons.push((status, reason, vec![row.name()])),
        }
    }
    html! {
        @if !reasons.is_empty() {
            p { "Without a time:" }
            ul.reasons {
                @for (status, reason, names) in &reasons {
                    li {
                        @for (i, name) in names.iter().enumerate() {
                            @if i > 0 { ", " }
                            code { (name) }
                        }
                        " " (status) ": " (why(*reason))
                    }
                }
            }
        }
    }
}

/// Where and when.
fn run(layer: &Layer) -> String {
    let environment = layer.environment;
    let day = environment.day();
    format!("{}, {day}, csrc {}", environment.device, environment.csrc)
}
