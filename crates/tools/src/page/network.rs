//! The network of the accuracy study: op times, layer times, the whole, and the accuracy.

use maud::{Markup, html};

use super::{
    bars::{Bar, bars},
    html::{Cell, Line, Section, column, figure, key, missing, table, why},
    results::{Results, plain_names},
    sheet::{QUIET, series},
};
use crate::{
    Result,
    measure::{Status, duration},
    study::NetworkRow,
};

/// What speed-ups are against.
const BASELINES: [&str; 3] = ["direct_naive", "im2col_gemm_shared", "cudnn"];

pub fn section(results: &Results) -> Result<Section> {
    let study = results
        .studies
        .iter()
        .find(|study| !study.network.is_empty());
    let body = match study {
        None => missing("No study with the network's times was given."),
        Some(study) => {
            let mut batches: Vec<usize> = study.network.iter().map(|row| row.images).collect();
            batches.sort_unstable();
            batches.dedup();
            let of = |images| study.network.iter().filter(move |row| row.images == images);
            html! {
                p {
                    "The small network of the accuracy study, both convolutions by the same variant. "
                    "Op Time is a convolution's kernels alone. Layer Time adds device memory "
                    "allocated and freed, and copies from and to pageable host memory. The whole is "
                    "from pixels in host memory to logits in host memory, all memory allocated before; "
                    "it can be shorter than a Layer Time, since it copies bytes in and ten logits per "
                    "image out, and what is between stays on the device. Speed-ups are against the "
                    "baseline in fp32, whatever the math of the row."
                }
                @for (i, images) in batches.iter().rev().enumerate() {
                    details open[i == 0] {
                        summary { b { (images) " images" } }
                        (batch(*images, &of(*images).collect::<Vec<_>>())?)
                    }
                }
            }
        }
    };
    Ok(Section {
        id: "network",
        title: "The network",
        body,
    })
}

fn op(row: &NetworkRow, layer: usize) -> Option<f64> {
    row.layers.get(layer).map(|times| times.op.median_us)
}

fn ops(row: &NetworkRow) -> Option<f64> {
    (!row.layers.is_empty()).then(|| row.layers.iter().map(|times| times.op.median_us).sum())
}

fn whole(row: &NetworkRow) -> Option<f64> {
    Some(row.total?.median_us)
}

fn batch(images: usize, rows: &[&NetworkRow]) -> Result<Markup> {
    let (mut timed, untimed): (Vec<&NetworkRow>, Vec<_>) = rows
        .iter()
        .partition(|row| row.status == Status::Passed && row.total.is_some());
    let order = |row: &NetworkRow| whole(row).unwrap_or(f64::INFINITY);
    timed.sort_by(|a, b| order(a).total_cmp(&order(b)));

    let names = plain_names(timed.iter().map(|row| &*row.variant));
    let bar = |(row, name): (&&NetworkRow, String)| {
        let all = whole(row).unwrap_or_default();
        let mut pieces: Vec<_> = (0..row.layers.len())
            .filter_map(|layer| Some((op(row, layer)?, series(layer))))
            .collect();
        pieces.push(((all - ops(row).unwrap_or_default()).max(0.0), QUIET));
        Bar {
            name: match &*row.math {
                "fp32" => name,
                math => format!("{name} {math}"),
            },
            pieces,
            whisker: None,
            number: duration(all),
        }
    };
    let list: Vec<Bar> = timed.iter().zip(names).map(bar).collect();
    let drawing = bars(
        &format!("The whole network on {images} images"),
        &list,
        None,
    )?;
    let legend = html! {
        (key("s0", "first convolution")) (key("s1", "second convolution"))
        (key("quiet", "the rest: copies and other layers"))
        "In fp32 where no math is named. Op times are measured by themselves, the whole in runs of its own."
    };
    Ok(html! {
        @if let Some(drawing) = drawing { div.figures { (figure(&drawing, &legend)) } }
        (times(images, &timed))
        @if !untimed.is_empty() {
            p { "Without a time:" }
            ul.reasons {
                @for row in untimed {
                    li {
                        code { (row.variant) } " " (row.math) " " (row.status.word()) ": "
                        (why(row.reason.as_deref()))
                    }
                }
            }
        }
    })
}

fn times(images: usize, rows: &[&NetworkRow]) -> Markup {
    let mut columns = vec![
        column("variant", ""),
        column("math", "how it multiplies"),
        column("Op Time 1", "kernels of the first convolution"),
        column("Op Time 2", "kernels of the second convolution"),
        column("Layer Time 1", "with allocation and copies"),
        column("Layer Time 2", "with allocation and copies"),
        column("whole", "from pixels to logits in host memory"),
        column("runs", "that the medians are of"),
        column("accuracy", "share of images classified right"),
    ];
    // A variant may be there in several kinds of math; speed-ups are against the first, fp32.
    let baseline = |name| {
        rows.iter()
            .find(|row| row.variant == name && row.math == "fp32")
    };
    let baselines: Vec<&NetworkRow> = BASELINES
        .into_iter()
        .filter_map(baseline)
        .copied()
        .collect();
    for row in &baselines {
        columns.push(column(
            format!("ops vs {}", row.variant),
            "both op times, times faster",
        ));
        columns.push(column(
            format!("whole vs {}", row.variant),
            "the whole, times faster",
        ));
    }
    let line = |row: &&NetworkRow| {
        let layer = |i: usize| row.layers.get(i).map(|times| times.layer.median_us);
        let mut cells = vec![
            Cell::name(&row.variant),
            Cell::text(&row.math),
            Cell::time(op(row, 0)),
            Cell::time(op(row, 1)),
            Cell::time(layer(0)),
            Cell::time(layer(1)),
            Cell::time(whole(row)),
            Cell::number(Some(row.runs as f64), |n| n.to_string()),
            Cell::number(row.accuracy, |share| format!("{share:.4}")),
        ];
        for other in &baselines {
            let gain = |of: fn(&NetworkRow) -> Option<f64>| Some(of(other)? / of(row)?);
            cells.extend([Cell::times(gain(ops)), Cell::times(gain(whole))]);
        }
        Line { class: "", cells }
    };
    let lines: Vec<Line> = rows.iter().map(line).collect();
    let batch = images.to_string();
    let keys = [("of", "network"), ("images", &*batch)];
    table(
        &format!("The network on {images} images"),
        &keys,
        &columns,
        &lines,
    )
}
