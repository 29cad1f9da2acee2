//! The page's head: what this is, where it was measured and how, and the answer in one table.

use maud::{Markup, html};

use super::{
    html::{Cell, Line, column, missing, table},
    results::{Layer, PLAIN, REPORTS, Results},
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
            p.answer { (said(&layers)) " " (elsewhere(results)) }
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
    let mut facts = vec![
        ("Device", each_once(&|e| Some(e.device.clone()))),
        ("Driver", each_once(&|e| e.driver.clone())),
        ("cuBLAS", each_once(&|e| e.libraries.get("cuBLAS").cloned())),
        ("cuDNN", each_once(&|e| e.libraries.get("cuDNN").cloned())),
        ("Dates", each_once(&|e| Some(e.day().to_owned()))),
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
            "No time stands here for a variant that did not pass its check in the same run. Calls on "
            "layers are captured in a CUDA graph and timed by device events, variants interleaved round by round, "
            "and inputs, filters and outputs rotate among buffers that exceed twice the L2. A time is "
            "the median of its samples. The floor is the longer of two: the fewest bytes at the "
            "bandwidth, or all operations at the full rate, both measured in the same run."
        }
    }
}

/// From the least to the most that layers have.
fn range(layers: &[&Layer], of: impl Fn(&Layer) -> Option<f64>) -> Option<String> {
    let known: Vec<f64> = layers.iter().filter_map(|layer| of(layer)).collect();
    let least = known.iter().copied().reduce(f64::min)?;
    let most = known.iter().copied().reduce(f64::max)?;
    Some(format!("{} to {} times", times(least), times(most)))
}

/// The table's range, in a sentence.
fn said(layers: &[&Layer]) -> String {
    let mut suites: Vec<&str> = layers.iter().map(|layer| layer.suite).collect();
    suites.dedup();
    let mut clauses = Vec::new();
    if let Some(times) = range(layers, against_cudnn) {
        clauses.push(format!("runs at {times} the speed of cuDNN"));
    }
    if let Some(times) = range(layers, |layer| over_floor(layer.best()?)) {
        clauses.push(format!("takes {times} the floor"));
    }
    format!(
        "In fp32 the best handwritten variant {} on the layers of {}, depending on layer and batch.",
        clauses.join(" and "),
        suites.join(" and ")
    )
}

/// The same on the reports' other layers, against whichever library is faster there.
fn elsewhere(results: &Results) -> String {
    let suites = REPORTS
        .into_iter()
        .filter(|suite| !HEADLINES.contains(suite));
    let clauses = suites.filter_map(|suite| {
        let layers = results.layers.iter();
        let layers: Vec<&Layer> = layers
            .filter(|layer| layer.suite == suite && layer.kind() == PLAIN)
            .collect();
        let times = range(&layers, against_libraries)?;
        Some(format!(
            "On {suite} it runs at {times} the speed of the faster of cuBLAS and cuDNN."
        ))
    });
    clauses.collect::<Vec<_>>().join(" ")
}

fn against_libraries(layer: &Layer) -> Option<f64> {
    let cublas = layer.baseline("cublas").and_then(|row| row.median_us);
    let cudnn = match layer.baseline("cudnn") {
        Some(_) => Some(layer.cudnn_us()?),
        None => None,
    };
    let fastest = [cublas, cudnn].into_iter().flatten();
    Some(fastest.reduce(f64::min)? / layer.best()?.median_us?)
}

fn against_cudnn(layer: &Layer) -> Option<f64> {
    Some(layer.cudnn_us()? / layer.best()?.median_us?)
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
        column("measured", "the day, and the hash of csrc that ran"),
    ];
    let line = |layer: &&Layer| {
        let best = layer.best();
        let of = |family| layer.baseline(family).and_then(|row| row.median_us);
        Line {
            class: "",
            cells: vec![
                Cell::text(layer.suite),
                Cell::text(html! { b { (layer.name) } " " (shape(layer)) }),
                Cell::number(Some(layer.problem.n() as f64), |n| n.to_string()),
                best.map_or(Cell::Nothing, |row| Cell::name(&row.name())),
                Cell::time(best.and_then(|row| row.median_us)),
                Cell::time(of("cublas")),
                Cell::time(of("cudnn")),
                Cell::time(best.and_then(|row| row.floor_us)),
                Cell::times(best.and_then(over_floor)),
                Cell::gain(against_cudnn(layer)),
                Cell::text(
                    html! { (layer.environment.day()) ", " code { (layer.environment.csrc) } },
                ),
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
    format!(
        "{} → {}, {}×{}",
        problem.c(),
        problem.k(),
        problem.r(),
        problem.s()
    )
}
