//! The page's head: what this is, where it was measured and how, and the answer in one table.

use maud::{Markup, html};

use super::{
    html::{Cell, Line, column, missing, table},
    results::{Layer, PLAIN, Results},
};
use crate::measure::{
    Environment,
    table::{over_floor, times},
};

/// The suites that the answer is about.
const HEADLINES: [&str; 2] = ["report-86", "report-70"];

pub fn head(results: &Results) -> Markup {
    let headline = |layer: &&Layer| {
        HEADLINES.contains(&layer.suite) && layer.kind() == PLAIN && layer.best().is_some()
    };
    let layers: Vec<&Layer> = results.layers.iter().filter(headline).collect();
    html! {
        p.lead {
            "Handwritten CUDA kernels for 2-D convolution beside cuBLAS and cuDNN. Which optimisation "
            "helps, by how much, and what bounds it: the layers of the source reports, measured again "
            "side by side."
        }
        (measured(results))
        @if layers.is_empty() {
            (missing("No layers of report-86 or report-70 in fp32 were given, so there is no headline."))
        } @else {
            p.answer { (said(&layers)) }
            (answers(&layers))
        }
    }
}

/// Where, when, and how.
fn measured(results: &Results) -> Markup {
    let environments = results.environments();
    let each_once = |of: &dyn Fn(&Environment) -> Option<String>| {
        let mut found: Vec<String> = environments.iter().filter_map(|e| of(e)).collect();
        found.sort();
        found.dedup();
        found.join(", ")
    };
    let day = |date: &str| date.split('T').next().unwrap_or_default().to_owned();
    let mut facts = vec![
        ("Device", each_once(&|e| Some(e.device.clone()))),
        ("Driver", each_once(&|e| e.driver.clone())),
        ("cuBLAS", each_once(&|e| e.libraries.get("cuBLAS").cloned())),
        ("cuDNN", each_once(&|e| e.libraries.get("cuDNN").cloned())),
        ("Dates", each_once(&|e| Some(day(&e.date)))),
        ("Sources (csrc)", each_once(&|e| Some(e.csrc.clone()))),
    ];
    let mut tools: Vec<&str> = results
        .profiles
        .iter()
        .map(|profile| &*profile.tool)
        .collect();
    tools.dedup();
    facts.push(("Profiler", tools.join(", ")));
    html! {
        dl.facts {
            @for (name, value) in facts.iter().filter(|(_, value)| !value.is_empty()) {
                div { dt { (name) } dd { (value) } }
            }
        }
        p {
            "No time stands here for a variant that did not pass its check in the same run. Calls are "
            "captured in a CUDA graph and timed by device events, variants take turns round by round, "
            "and inputs, filters and outputs rotate among buffers that exceed twice the L2. A time is "
            "the median of its samples. The floor is the longer of two: the fewest bytes at the "
            "bandwidth, or all operations at the full rate, both measured in the same run."
        }
    }
}

/// The table's range, in a sentence.
fn said(layers: &[&Layer]) -> String {
    let range = |of: &dyn Fn(&Layer) -> Option<f64>| {
        let known: Vec<f64> = layers.iter().filter_map(|layer| of(layer)).collect();
        let least = known.iter().copied().reduce(f64::min)?;
        let most = known.iter().copied().reduce(f64::max)?;
        Some((times(least), times(most)))
    };
    let mut text = "In fp32".to_owned();
    if let Some((least, most)) = range(&against_cudnn) {
        text += &format!(
            " the best handwritten variant runs at {least} to {most} times the speed of cuDNN"
        );
    }
    if let Some((least, most)) = range(&|layer| over_floor(layer.best()?)) {
        let and = if text.ends_with("cuDNN") {
            " and"
        } else {
            " the best handwritten variant"
        };
        text += &format!("{and} takes {least} to {most} times the floor");
    }
    text + ", depending on layer and batch."
}

fn against_cudnn(layer: &Layer) -> Option<f64> {
    Some(layer.baseline("cudnn")?.median_us? / layer.best()?.median_us?)
}

fn answers(layers: &[&Layer]) -> Markup {
    let columns = [
        column("suite", ""),
        column("layer", ""),
        column("batch", "images"),
        column("best handwritten", ""),
        column("time", "median of a call"),
        column("cuBLAS", "its fastest variant"),
        column("cuDNN", "its fastest plan that passed"),
        column("floor", "what the device allows at least"),
        column("× floor", "how many times the floor the best takes"),
        column("vs cuDNN", "how many times faster the best is"),
    ];
    let line = |layer: &&Layer| {
        let best = layer.best();
        let of = |family| layer.baseline(family).and_then(|row| row.median_us);
        Line {
            class: "",
            cells: vec![
                Cell::text(layer.suite),
                Cell::text(html! { b { (layer.name) } " " (shape(layer)) }),
                Cell::number(Some(layer.problem.n as f64), |n| n.to_string()),
                best.map_or(Cell::Nothing, |row| Cell::name(&row.name())),
                Cell::time(best.and_then(|row| row.median_us)),
                Cell::time(of("cublas")),
                Cell::time(of("cudnn")),
                Cell::time(best.and_then(|row| row.floor_us)),
                Cell::times(best.and_then(over_floor)),
                Cell::gain(against_cudnn(layer)),
            ],
        }
    };
    let lines: Vec<Line> = layers.iter().map(line).collect();
    table(
        "The reports' layers in fp32",
        &[("of", "headline")],
        &columns,
        &lines,
    )
}

/// `1 → 4, 7×7`.
fn shape(layer: &Layer) -> String {
    let problem = layer.problem;
    format!("{} → {}, {}×{}", problem.c, problem.k, problem.r, problem.s)
}
