//! `convforge profile`: one variant on one problem by itself, for a profiler.

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use convforge::{Pick, Problem};
use convforge_tools::measure::{self, Environment};
use serde_json::json;

use crate::{
    args::{DeviceArgs, SearchArgs},
    failure::Failure,
    numbers::{number, positive},
    terminal,
};

/// Checks the variant, warms it up and calls it: input copied in, kernels, output copied back. A
/// profiler that waits for cuProfilerStart records these calls alone (`ncu --profile-from-start off`,
/// `nsys profile --capture-range cudaProfilerApi`); scripts/profile.sh does that.
#[derive(clap::Args)]
#[command(
    after_help = "For example:\n  convforge profile direct_naive --problem mb1000ic4ih40oc16oh34kh7 --trace trace.json"
)]
pub struct Args {
    /// A variant, one configuration of it as in fused_shared:tile=24, or a pick
    #[arg(value_name = "VARIANT")]
    variant: Pick,
    /// The problem in its text form
    #[arg(long, value_name = "PROBLEM")]
    problem: Problem,
    /// Calls
    #[arg(long, default_value_t = 3, value_parser = positive::<u16>, allow_negative_numbers = true)]
    runs: u16,
    /// Write a timeline of the calls, by the device's own events, in Chrome's trace format; Perfetto
    /// shows it
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    search: SearchArgs,
    /// Seed of the data
    #[arg(long, default_value_t = 1, value_parser = number::<u64>, allow_negative_numbers = true)]
    seed: u64,
    /// Print one JSON object: what was run, on what
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let (device, no_gpu) = args.device.open()?;
    if let Some(why) = no_gpu {
        terminal::remark(&terminal::no_gpu(&why), !args.json)?;
    }
    let contender = args.search.contenders().named(&args.variant)?;
    let conv = contender.conv(&device, &args.problem)?;
    let events = measure::profile(&conv, args.runs.into(), args.seed)?;
    if let Some(path) = &args.trace {
        let title = format!("{} {} on {device}", conv.name(), args.problem);
        measure::write_trace(path, &title, &events)?;
    }
    if args.json {
        let options = vec!["profile".to_owned(), args.variant.to_string()];
        terminal::print_json(&json!({
            "environment": Environment::of(&device, options),
            "variant": conv.name(),
            "problem": args.problem,
            "plan": conv.note(),
            "runs": args.runs,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = io::stdout().lock();
    let plan = conv
        .note()
        .map_or(String::new(), |plan| format!(" ({plan})"));
    let (name, problem, runs) = (conv.name(), &args.problem, args.runs);
    writeln!(
        out,
        "{name}{plan} on {problem}: checked, called {runs} times on {device}"
    )?;
    if let Some(path) = &args.trace {
        writeln!(out, "The timeline is in {}.", path.display())?;
    }
    Ok(ExitCode::SUCCESS)
}
