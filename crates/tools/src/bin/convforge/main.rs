//! The command `convforge`: one file per subcommand.

mod args;
mod charts;
mod check;
mod compare;
mod data;
mod devices;
mod failure;
mod infer;
mod list;
mod measuring;
mod model;
mod numbers;
mod page;
mod profile;
mod report;
mod sampling;
#[cfg(feature = "cudnn")]
mod searches;
mod shape;
mod study;
mod sweep;
mod terminal;
mod tune;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// 2-D convolution on NVIDIA GPUs: handwritten CUDA kernels beside cuBLAS and cuDNN, every one
/// checked against the same oracle and timed in the same run.
#[derive(Parser)]
#[command(name = "convforge", version, max_term_width = 100)]
#[command(
    after_help = "Exit status: 0 fine, 1 a failed check or an error, 2 wrong usage, \
                        130 interrupted."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show the CPU, the GPUs and the libraries that were found.
    Devices(devices::Args),
    /// Show every variant, and which of them can do a given problem.
    List(list::Args),
    /// Check variants against the oracle.
    Check(check::Args),
    /// Check variants, then time them side by side.
    Compare(compare::Args),
    /// Check every configuration of variants, then time them side by side.
    Sweep(sweep::Args),
    /// Measure what is fastest on this device, for all programs of this user to go by.
    Tune(tune::Args),
    /// Measure what the source reports measured: layers, the network, streams.
    Study(study::Args),
    /// Show results of `compare`, `sweep` and `study` again, as tables, Markdown, CSV or charts.
    Report(report::Args),
    /// Keep what searches of cuDNN's plans found in one file, short enough to be committed.
    #[cfg(feature = "cudnn")]
    Searches(searches::Args),
    /// Run one variant on one problem by itself, for a profiler or a timeline.
    Profile(profile::Args),
    /// Write results of `compare`, `sweep`, `study` and the profiler as one HTML page.
    Page(page::Args),
    /// Classify images with the small network of the accuracy study.
    Infer(infer::Args),
}

fn main() -> ExitCode {
    let answer = match Cli::parse().command {
        Command::Devices(args) => devices::run(&args),
        Command::List(args) => list::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::Study(args) => study::run(&args),
        Command::Report(args) => report::run(&args),
        #[cfg(feature = "cudnn")]
        Command::Searches(args) => searches::run(&args),
        Command::Profile(args) => profile::run(&args),
        Command::Page(args) => page::run(&args),
        Command::Infer(args) => infer::run(&args),
    };
    answer.unwrap_or_else(|failure| failure.report())
}
