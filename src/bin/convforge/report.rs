//! `convforge report`: what `compare --out` and `sweep --out` left behind, read again.

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use convforge::measure::{Environment, Format, Report};

use crate::{charts, failure::Failure, terminal};

#[derive(clap::Args)]
#[command(after_help = "Nothing is measured, and no GPU is needed.")]
pub struct Args {
    /// A JSON file that `compare` or `sweep` wrote with --out or --json
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print Markdown instead of tables for a terminal
    #[arg(long, conflicts_with = "csv")]
    markdown: bool,
    /// Print CSV instead of tables
    #[arg(long)]
    csv: bool,
    /// Draw a chart of each table into the folder DIR
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let reports = args.files.iter().map(|file| Report::read(file));
    let reports = reports.collect::<Result<Vec<Report>, _>>()?;
    if let Some(folder) = &args.svg {
        charts::make(folder)?;
    }
    let mut out = io::stdout().lock();
    for (i, report) in reports.iter().enumerate() {
        let parts = report.parts();
        if let Some(folder) = &args.svg {
            for part in &parts {
                charts::write(folder, part, &report.environment)?;
            }
        }
        if args.csv {
            let text = report.text(Format::Csv);
            // One header, however many files.
            let is_header = |line: &str| line.starts_with("suite,layer,");
            for line in text.lines().filter(|line| i == 0 || !is_header(line)) {
                writeln!(out, "{line}")?;
            }
            continue;
        }
        let heading = about(&report.environment);
        writeln!(out, "{}{heading}", if args.markdown { "# " } else { "" })?;
        for note in &report.notes {
            writeln!(out, "\n{note}")?;
        }
        for part in &parts {
            match args.markdown {
                true => write!(out, "\n## {}\n\n{}", part.title, part.markdown())?,
                false => {
                    let table = part.table(terminal::color());
                    writeln!(out, "\n{}\n{table}", part.title)?;
                }
            }
        }
        if i + 1 < reports.len() {
            writeln!(out)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// `NVIDIA H200, driver 580.82.07, cuDNN 9.12.0, 2025-09-01T12:00:00Z, csrc 0123456789abcdef`.
fn about(environment: &Environment) -> String {
    let mut words = vec![environment.device.clone()];
    words.extend(environment.driver.iter().map(|v| format!("driver {v}")));
    let libraries = environment.libraries.iter();
    words.extend(libraries.map(|(name, version)| format!("{name} {version}")));
    words.push(environment.date.clone());
    words.push(format!("csrc {}", environment.csrc));
    words.join(", ")
}
