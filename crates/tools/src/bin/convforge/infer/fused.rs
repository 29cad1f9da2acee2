//! `convforge infer --fused`: the network with its layers fused.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use convforge::Device;
use convforge_tools::{
    measure::{Spread, duration},
    net::{FusedNetwork, Outcome},
};
use serde::Serialize;

use super::{args::Args, classified::Classified};
use crate::{
    data::Data,
    failure::Failure,
    terminal::{out, print_json},
};

/// What a run found, for programs.
#[derive(Serialize)]
struct Findings {
    #[serde(flatten)]
    classified: Classified,
    runs: usize,
    /// That the batch was copied in.
    chunks: usize,
    /// From pixels in pinned host memory to logits there.
    whole: Spread,
    /// On pixels that are on the device.
    kernels: Spread,
    copy_in: Spread,
    /// Whole over the longer of the other two.
    over_floor: f64,
}

/// Runs the subcommand with `--fused`.
pub fn run(args: &Args, device: &Device, data: Data) -> Result<ExitCode, Failure> {
    let mut network = FusedNetwork::new(device, &data.weights, data.images.count)?;
    let measured = network.measure(&data.images, args.runs)?;
    let over_floor = measured.over_floor();
    let outcome = Outcome {
        logits: measured.logits,
        ..Outcome::default()
    };
    let options = ["infer", "--fused", "--runs", &args.runs.to_string()];
    let findings = Findings {
        classified: Classified::new(args, device, &data, &outcome, &options)?,
        runs: args.runs,
        chunks: network.chunks(),
        whole: measured.whole,
        kernels: measured.kernels,
        copy_in: measured.copy_in,
        over_floor,
    };
    if args.json {
        print_json(&findings)?;
    } else {
        print(&findings)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(f: &Findings) -> io::Result<()> {
    let mut out = out();
    writeln!(
        out,
        "{} images on {}, layers fused, fp32 accuracy, {} runs",
        f.classified.count, f.classified.device, f.runs
    )?;
    let mut line = |what: &str, spread: &Spread| {
        writeln!(
            out,
            "{what}  {:>10}  (p10 {}, p90 {})",
            duration(spread.median_us),
            duration(spread.p10_us),
            duration(spread.p90_us)
        )
    };
    line("kernels alone, pixels on the device           ", &f.kernels)?;
    line("copy in alone, from pinned memory             ", &f.copy_in)?;
    line("whole, pixels to logits in pinned host memory ", &f.whole)?;
    writeln!(
        out,
        "whole is {:.2} times the longer of the other two; copied in {} chunks",
        f.over_floor, f.chunks
    )?;
    f.classified.print(&mut out)
}
