//! `convforge report`: what `compare --out`, `sweep --out` and `study --out` left behind, read again.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use convforge_tools::{
    Error,
    measure::{Environment, Format, Part, Report},
    page::Source,
    study::{Study, Table},
};

use crate::{charts, failure::Failure, terminal};

#[derive(clap::Args)]
#[command(after_help = "Nothing is measured, and no GPU is needed.")]
pub struct Args {
    /// A JSON file that `compare`, `sweep` or `study` wrote with --out or --json
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print Markdown instead of tables for a terminal
    #[arg(long, conflicts_with = "csv")]
    markdown: bool,
    /// Print CSV instead of tables; of a study its layers
    #[arg(long)]
    csv: bool,
    /// Draw a chart of each table into the folder DIR; of a study those of its layers
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
}

/// What `compare` or `sweep` measured, or the layers of a study; and the study.
fn read(path: &Path) -> Result<(Report, Option<Study>), Error> {
    match Source::read(path)? {
        Source::Report(report) => Ok((report, None)),
        Source::Study(study) => Ok((study.report(), Some(study))),
        Source::Profile(_) => {
            let what = "is a profile, which `convforge page` shows";
            Err(Error::file(path, what))
        }
    }
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let files = args.files.iter().map(|file| read(file));
    let files = files.collect::<Result<Vec<_>, _>>()?;
    if let Some(folder) = &args.svg {
        charts::make(folder)?;
    }
    let mut out = io::stdout().lock();
    for (i, (report, study)) in files.iter().enumerate() {
        let more = study.as_ref().map(Study::tables).unwrap_or_default();
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
        match args.markdown {
            true => {
                for part in &parts {
                    write!(out, "\n## {}\n\n{}", part.title, part.markdown())?;
                }
                for table in &more {
                    write!(out, "\n## {}\n\n{}", table.title, table.markdown())?;
                }
            }
            false => tables(&mut out, &parts, &more)?,
        }
        if i + 1 < files.len() {
            writeln!(out)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints tables for a terminal.
pub fn tables(out: &mut impl Write, parts: &[Part], tables: &[Table]) -> io::Result<()> {
    let color = terminal::color();
    for part in parts {
        writeln!(out, "\n{}\n{}", part.title, part.table(color))?;
    }
    for table in tables {
        writeln!(out, "\n{}\n{}", table.title, table.text(color))?;
    }
    Ok(())
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
