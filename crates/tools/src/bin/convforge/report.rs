//! `convforge report`: what `compare --out`, `sweep --out` and `study --out` left behind, read again.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use convforge_tools::{
    Error,
    measure::{Environment, Format, ModelTotals, Part, Report},
    results::{Kept, Source, committed, committed_alone},
    study::{Study, Table},
};

use crate::{charts, failure::Failure, terminal};

#[derive(clap::Args)]
#[command(after_help = "Nothing is measured, and no GPU is needed.\n\n\
                        For example:\n\
                        \x20 convforge report results.json --markdown")]
pub struct Args {
    /// A JSON file that `compare`, `sweep` or `study` wrote with --out or --json, or one of
    /// benches/results [default: all of benches/results]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print every row of variants side by side as one JSON object per line, with what a row of
    /// `compare --json` has, and the csrc, device and date that it was measured with; without FILE also
    /// of benches/results/rows, whose rows ran by themselves and have no cudnn_us
    #[arg(long, conflicts_with_all = ["markdown", "csv", "svg", "keep"])]
    rows: bool,
    /// Print nothing: keep the results of FILEs in the folder DIR, a line per row, each file under
    /// its name with the ending .jsonl; and drop the rows of all files there that a later one has
    /// measured again
    #[arg(long, value_name = "DIR", conflicts_with_all = ["markdown", "csv", "svg"])]
    keep: Option<PathBuf>,
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
fn of(source: Source) -> Option<(Report, Option<Study>)> {
    match source {
        Source::Report(report) => Some((report, None)),
        Source::Study(study) => Some((study.report(), Some(study))),
        Source::Profile(_) => None,
    }
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    if let Some(folder) = &args.keep {
        return keep(folder, &args.files);
    }
    let named = !args.files.is_empty();
    let mut files = if named {
        args.files.clone()
    } else {
        committed()?
    };
    if args.rows && !named {
        files.extend(committed_alone()?);
    }
    let sources = files.iter().map(|file| Source::read(file));
    let sources = sources.collect::<Result<Vec<_>, _>>()?;
    if args.rows {
        return rows(&sources);
    }
    let mut shown = Vec::new();
    for (file, source) in files.iter().zip(sources) {
        match of(source) {
            Some(one) => shown.push(one),
            None if named => {
                let what = "is a profile, which `convforge page` shows";
                return Err(Error::file(file, what).into());
            }
            None => {}
        }
    }
    show(args, &shown)
}

/// Every row, a line each.
fn rows(sources: &[Source]) -> Result<ExitCode, Failure> {
    let mut out = io::stdout().lock();
    for row in sources.iter().flat_map(Source::rows) {
        serde_json::to_writer(&mut out, &row)?;
        writeln!(out)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Puts files into a folder of kept results.
fn keep(folder: &Path, files: &[PathBuf]) -> Result<ExitCode, Failure> {
    let mut kept = Kept::read(folder)?;
    for file in files {
        kept.add(file)?;
    }
    let superseded = kept.prune();
    kept.write()?;
    let (rows, reports) = kept.count();
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{}: {rows} rows in {reports} reports; {superseded} were superseded and dropped",
        folder.display()
    )?;
    if kept.interrupted() > 0 {
        let problems = kept.interrupted();
        writeln!(
            out,
            "{problems} problems left out, as they were interrupted"
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints reports as tables, Markdown or CSV, and draws them.
fn show(args: &Args, files: &[(Report, Option<Study>)]) -> Result<ExitCode, Failure> {
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
                for model in &report.models {
                    write!(out, "\n## {}\n\n{}", model.title(), model.markdown())?;
                }
            }
            false => {
                tables(&mut out, &parts, &more)?;
                models(&mut out, &report.models)?;
            }
        }
        if i + 1 < files.len() {
            writeln!(out)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints tables for a terminal.
pub fn tables(out: &mut impl Write, parts: &[Part], tables: &[Table]) -> io::Result<()> {
    let look = terminal::look();
    for part in parts {
        writeln!(out, "\n{}\n{}", part.title, part.table(look))?;
    }
    for table in tables {
        writeln!(out, "\n{}\n{}", table.title, table.text(look))?;
    }
    Ok(())
}

/// Prints what models take, for a terminal.
pub fn models(out: &mut impl Write, models: &[ModelTotals]) -> io::Result<()> {
    for model in models {
        let (title, table) = (model.title(), model.text(terminal::look()));
        writeln!(out, "\n{title}\n{table}")?;
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
