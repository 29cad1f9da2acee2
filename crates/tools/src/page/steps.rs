//! Which optimisation helps, and by how much: every variant beside the one that it builds on.

use maud::{Markup, html};

use super::{
    html::{Cell, Line, Section, column, missing, table, within_noise},
    results::{Layer, PLAIN, REPORTS, Results},
};
use crate::measure::table::times;

/// A variant, the one that it builds on or replaces, and what is different.
pub struct Step {
    pub from: &'static str,
    pub to: &'static str,
    /// What the variant is about.
    change: &'static str,
    /// What else is different; empty where nothing is, so that the gain is the change's.
    also: &'static str,
}

const fn step(
    from: &'static str,
    to: &'static str,
    change: &'static str,
    also: &'static str,
) -> Step {
    Step {
        from,
        to,
        change,
        also,
    }
}

impl Step {
    /// All that is different.
    fn whole(&self) -> String {
        match self.also {
            "" => self.change.to_owned(),
            also => format!("{}; also {also}", self.change),
        }
    }

    /// The same within a sentence.
    fn short(&self) -> String {
        let more = if self.also.is_empty() {
            ""
        } else {
            " and more"
        };
        format!("{}{more}", self.change)
    }
}

/// In reading order.
pub const STEPS: [Step; 19] = [
    step(
        "direct_naive",
        "direct_constant",
        "filter in constant memory",
        "addresses of weights in 32 bits, in NHWC threads along pixels",
    ),
    step(
        "direct_naive",
        "direct_unroll",
        "filter size compiled in and loops unrolled",
        "restrict pointers, addresses stepped, one test per tap or none, up to 128 registers instead of 85",
    ),
    step(
        "direct_naive",
        "direct_shared",
        "tile of the input and filter of a channel in shared memory",
        "restrict pointers, up to 64 registers, in NHWC threads along pixels",
    ),
    step(
        "direct_shared",
        "direct_shared_batched",
        "4 images per block, which share the filter",
        "tiles of 8×8 instead of 16×16",
    ),
    step(
        "direct_shared_batched",
        "direct_shared_unroll",
        "filter in constant memory, its size compiled in, loops unrolled",
        "",
    ),
    step(
        "direct_naive",
        "im2col_gemm_shared",
        "another algorithm: unrolled input, tiled matrix product, a pass behind it",
        "",
    ),
    step(
        "im2col_gemm_shared",
        "im2col_gemm_constant",
        "filter in constant memory",
        "weights rounded at each product, a loop for the rest of the sum, in NHWC threads along pixels and sums through shared memory",
    ),
    step(
        "im2col_gemm_shared",
        "im2col_gemm_restrict",
        "pointers declared restrict",
        "",
    ),
    step(
        "im2col_gemm_shared",
        "im2col_gemm_unroll",
        "filter size compiled in and loops over taps unrolled (NCHW); two tiles of the product per pass",
        "",
    ),
    step(
        "im2col_gemm_shared",
        "im2col_gemm_register_slices",
        "operands through registers, without reuse",
        "the loop over a tile not unrolled",
    ),
    step(
        "im2col_gemm_register_slices",
        "im2col_gemm_register",
        "8×8 outputs per thread in registers",
        "a 64×64 tile, two buffers, vector loads, padded rows",
    ),
    step(
        "im2col_gemm_shared",
        "im2col_gemm_mma",
        "tensor cores",
        "a 64×128 tile, matrix in the operands' type, packed filter, three stages of asynchronous copies",
    ),
    step(
        "im2col_gemm_shared",
        "fused_shared",
        "matrix unrolled in shared memory only, one kernel",
        "an index by division per element, restrict pointers, epilogue in registers",
    ),
    step(
        "fused_shared",
        "fused_offsets",
        "divisions replaced by a staged region and a table of offsets",
        "4×4 sums per thread (64 pixels, 4 channels, 4 images per block)",
    ),
    step(
        "fused_shared",
        "fused_half2",
        "two products per instruction, in f16",
        "8 sums per thread in a tile of 64×32",
    ),
    step(
        "fused_shared",
        "fused_wmma",
        "tensor cores in a 16×64 tile",
        "the pixel of every element by division, sums stored through shared memory",
    ),
    step(
        "fused_wmma",
        "fused_wmma_index_reuse",
        "indices counted up instead of divided",
        "",
    ),
    step(
        "fused_wmma_index_reuse",
        "fused_wmma_8x32",
        "a flat tile of 8×32 per warp",
        "indices from tables, 256 products of the filter staged together, waits within warps",
    ),
    step(
        "fused_offsets",
        "small_fma",
        "another design: columns of sums in registers, persistent blocks, images streamed in by a warp of their own",
        "",
    ),
];

/// Kinds of element in which a step is looked for; the first that has it is shown.
const KINDS: [&str; 5] = [
    PLAIN,
    "f32 NCHW, f16 math",
    "f16 NCHW",
    "f32 NCHW, tf32 math",
    "f16 NCHW, f16acc math",
];

pub fn section(results: &Results) -> Section {
    let layers = largest(results);
    Section {
        id: "steps",
        title: "Which optimisation helps",
        body: match layers.is_empty() {
            true => missing("No layers of the reports were given, so no steps can be compared."),
            false => body(&layers),
        },
    }
}

/// Of every layer and kind the largest batch.
fn largest<'a, 'b>(results: &'b Results<'a>) -> Vec<&'b Layer<'a>> {
    let mut largest: Vec<&Layer> = Vec::new();
    for layer in &results.layers {
        if !REPORTS.contains(&layer.suite) || !KINDS.contains(&layer.kind().as_str()) {
            continue;
        }
        let key = |layer: &Layer| (layer.suite.to_owned(), layer.name.to_owned(), layer.kind());
        match largest.iter_mut().find(|other| key(other) == key(layer)) {
            Some(other) if other.problem.n() < layer.problem.n() => *other = layer,
            Some(_) => {}
            None => largest.push(layer),
        }
    }
    largest
}

fn body(layers: &[&Layer]) -> Markup {
    // One column per layer, whatever its kind.
    let mut columns: Vec<(&str, &str)> = Vec::new();
    for layer in layers.iter().filter(|layer| layer.suite != "report-gemv") {
        if !columns.contains(&(layer.suite, layer.name)) {
            columns.push((layer.suite, layer.name));
        }
    }
    let taken: Vec<Taken> = STEPS
        .iter()
        .filter_map(|step| take(step, layers, &columns))
        .collect();
    if taken.is_empty() {
        return missing("No variant stands beside the one that it builds on.");
    }
    let mut head = vec![
        column("variant", ""),
        column("builds on", "or replaces"),
        column("what changes", ""),
        column("mean", "geometric mean of the layers"),
    ];
    head.extend(columns.iter().map(|(suite, name)| {
        let name = format!("{} {name}", suite.trim_start_matches("report-"));
        column(name, "times faster on this layer")
    }));
    let lines: Vec<Line> = taken.iter().map(line).collect();
    head.push(column("elements", "how they are stored and multiplied"));
    html! {
        p {
            "Each variant beside the one that it builds on or replaces, on each layer of the reports "
            "in its largest batch: how many times faster it is. Below 1 it is slower; within 3 % of "
            "1 nothing is marked."
        }
        p { (said(&taken)) }
        (table("Times faster than the variant before", &[("of", "steps")], &head, &lines))
    }
}

/// A step with what it gained.
struct Taken<'a> {
    step: &'a Step,
    kind: &'static str,
    /// Times faster, per layer.
    gains: Vec<Option<f64>>,
    /// Their geometric mean.
    mean: f64,
}

/// The step in the first kind of element that has it; none where no kind has.
fn take<'a>(step: &'a Step, layers: &[&Layer], columns: &[(&str, &str)]) -> Option<Taken<'a>> {
    KINDS.iter().find_map(|kind| {
        let gain = |(suite, name): &(&str, &str)| {
            let mut found = layers.iter();
            let layer =
                found.find(|l| (l.suite, l.name) == (*suite, *name) && l.kind() == *kind)?;
            Some(layer.time_of(step.from)? / layer.time_of(step.to)?)
        };
        let gains: Vec<Option<f64>> = columns.iter().map(gain).collect();
        let known: Vec<f64> = gains.iter().flatten().map(|gain| gain.ln()).collect();
        let mean = (known.iter().sum::<f64>() / known.len() as f64).exp();
        (!known.is_empty()).then_some(Taken {
            step,
            kind,
            gains,
            mean,
        })
    })
}

fn line(taken: &Taken) -> Line {
    let mut cells = vec![
        Cell::name(taken.step.to),
        Cell::name(taken.step.from),
        Cell::Prose(taken.step.whole().into()),
        Cell::gain(Some(taken.mean)),
    ];
    cells.extend(taken.gains.iter().map(|gain| Cell::gain(*gain)));
    cells.push(Cell::Prose(taken.kind.into()));
    Line { class: "", cells }
}

/// Steps that a sentence names.
const NAMED: usize = 3;

/// Which steps help most, make no difference, and make it worse, by their means.
fn said(taken: &[Taken]) -> String {
    let (same, mut changed): (Vec<&Taken>, Vec<&Taken>) =
        taken.iter().partition(|taken| within_noise(taken.mean));
    changed.sort_by(|a, b| b.mean.total_cmp(&a.mean));
    let (better, worse): (Vec<&Taken>, Vec<&Taken>) =
        changed.into_iter().partition(|taken| taken.mean > 1.0);
    let named = |steps: &[&Taken], factor: bool| {
        let name = |taken: &&Taken| match factor {
            true => format!(
                "{} over {} ({}, {} times)",
                taken.step.to,
                taken.step.from,
                taken.step.short(),
                times(taken.mean)
            ),
            false => format!("{} ({})", taken.step.to, taken.step.short()),
        };
        steps.iter().map(name).collect::<Vec<_>>().join("; ")
    };
    let mut text = format!(
        "By their means {} of {} steps are faster",
        better.len(),
        taken.len()
    );
    if !better.is_empty() {
        let most = &better[..better.len().min(NAMED)];
        text += &format!(", most of all {}", named(most, true));
    }
    text += ".";
    if !same.is_empty() {
        text += &format!(" No difference beyond 3 %: {}.", named(&same, false));
    }
    if !worse.is_empty() {
        text += &format!(" Slower: {}.", named(&worse, true));
    }
    text
}
