//! `convforge compare`: check, then time side by side.

use std::{
    env,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use convforge::{
    Device,
    measure::{
        self, Ceilings, ClockLog, Clocks, Contender, Environment, Format, Options, Report, Status,
    },
    suite::{self, Layer, Suite},
};

use crate::{
    args::{Configs, DeviceArgs, ProblemArgs, VariantArgs},
    charts,
    failure::Failure,
    terminal::{self, Progress},
};

/// What is compared when nothing is asked for.
const DEFAULT_SUITE: &str = "quick";

#[derive(clap::Args)]
#[command(
    after_help = "Without --problem and --suite it takes the suite `quick`. A variant is \
                        timed only after it has passed its check in the same run."
)]
pub struct Args {
    #[command(flatten)]
    problems: ProblemArgs,
    #[command(flatten)]
    variants: VariantArgs,
    #[command(flatten)]
    device: DeviceArgs,
    /// Samples of each variant [default: 30 on a GPU, 10 on the CPU]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    samples: Option<u32>,
    /// Use one set of buffers, so that they may stay in the L2 cache
    #[arg(long)]
    warm: bool,
    /// Time for the samples of one problem; slow variants then take fewer, but at least 5
    /// [default: 60 on a GPU, 2 on the CPU]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Seed of the data
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One JSON object instead of tables; with --out, the form of the file (the default)
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// CSV instead of tables; with --out, the form of the file
    #[arg(long)]
    csv: bool,
    /// Write the results into FILE, after each problem, and tables to standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Draw a chart of each problem into the folder DIR
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Go on with the problems that FILE does not have yet
    #[arg(long, requires = "out", conflicts_with = "csv")]
    resume: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

impl Args {
    fn options(&self, device: &Device) -> Options {
        let default = Options::of(device);
        Options {
            samples: self
                .samples
                .map_or(default.samples, |samples| samples as usize),
            budget: self.seconds.unwrap_or(default.budget),
            warm: self.warm,
            seed: self.seed,
            ceilings: None,
        }
    }

    fn format(&self) -> Format {
        if self.csv { Format::Csv } else { Format::Json }
    }

    /// Whether standard output is for people.
    fn prints_tables(&self) -> bool {
        self.out.is_some() || !(self.json || self.csv)
    }

    fn layers(&self) -> Result<Vec<Layer>, Failure> {
        match self.problems.is_empty() {
            true => self.problems.adapt(&Suite::find(DEFAULT_SUITE)?.layers),
            false => self.problems.layers(),
        }
    }

    /// An empty report, or the one to be continued.
    fn report(&self, device: &Device) -> Result<Report, Failure> {
        let environment = Environment::of(device, without_paths(env::args().skip(1)));
        let earlier = match &self.out {
            Some(path) if self.resume && path.exists() => Report::read(path)?,
            _ => return Ok(Report::new(environment)),
        };
        match environment.differs_from(&earlier.environment) {
            // The floors of one file are reckoned from the same ceilings.
            None => Ok(Report {
                environment: Environment {
                    ceilings: earlier.environment.ceilings,
                    ..environment
                },
                notes: Vec::new(),
                ..earlier
            }),
            Some(what) => Err(Failure::Usage(format!(
                "the results to be continued were made with another {what}: {:?}, now {:?}; \
                 give --out another name",
                earlier.environment, environment
            ))),
        }
    }
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    terminal::catch_interrupts();
    let (device, no_gpu) = args.device.open()?;
    let contenders = args.variants.contenders(&device, Configs::First)?;
    let mut options = args.options(&device);
    let mut report = args.report(&device)?;
    let mut layers = args.layers()?;
    if !device.is_gpu() {
        (layers, report.notes) = suite::cut_for_cpu(&layers);
    }
    if let Some(why) = no_gpu {
        report.notes.insert(0, terminal::no_gpu(&why));
    }

    if let Some(folder) = &args.svg {
        charts::make(folder)?;
    }
    if let Some(path) = &args.out {
        // A place that cannot be written to should show now.
        report.write(path, args.format())?;
    }
    let mut progress = Progress::new(layers.len());
    find_ceilings(&device, &mut report, &mut progress);
    options.ceilings = report.environment.ceilings;
    for note in &report.notes {
        terminal::remark(note, args.prints_tables())?;
    }
    for layer in &layers {
        if terminal::interrupted() {
            break;
        }
        if report.has(layer) {
            terminal::remark(
                &format!("{}: already there", layer.title()),
                args.prints_tables(),
            )?;
            progress.step();
            continue;
        }
        report.forget(layer);
        let first = report.rows.len();
        measure_layer(
            &device,
            layer,
            &contenders,
            &options,
            &mut report,
            &mut progress,
        );
        if let Some(path) = &args.out {
            report.write(path, args.format())?;
        }
        if let Some(folder) = &args.svg {
            charts::write(folder, layer, &report.rows[first..], &report.environment)?;
        }
        if args.prints_tables() {
            let table = measure::table(&report.rows[first..], terminal::color());
            progress.print(&format!("\n{}\n{table}", layer.title()))?;
        }
        progress.step();
    }
    drop(progress);

    if args.prints_tables() {
        print_end(&report, &device, args.out.as_deref())?;
    } else {
        write!(io::stdout().lock(), "{}", report.text(args.format()))?;
    }
    Ok(match terminal::interrupted() {
        true => ExitCode::from(terminal::INTERRUPTED),
        false if report.count(Status::Failed) > 0 => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

/// Measures what floors are reckoned from, unless the results to be continued have it. Without, the
/// times are as good; they only stand by themselves.
fn find_ceilings(device: &Device, report: &mut Report, progress: &mut Progress) {
    if !device.is_gpu() || report.environment.ceilings.is_some() {
        return;
    }
    progress.say("measuring the ceilings");
    match Ceilings::measure(device) {
        Ok(ceilings) => report.environment.ceilings = Some(ceilings),
        Err(error) => report.notes.push(format!("There are no floors: {error}")),
    }
}

fn print_end(report: &Report, device: &Device, file: Option<&Path>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out)?;
    if !device.is_gpu() {
        writeln!(
            out,
            "Timed on the CPU: fewer samples than on a GPU, and a warm cache."
        )?;
    }
    if let Some(file) = file {
        writeln!(out, "The results are in {}.", file.display())?;
    }
    let all = [
        Status::Passed,
        Status::Failed,
        Status::Skipped,
        Status::Unsupported,
    ];
    let counts = all.map(|status| format!("{} {}", report.count(status), status.word()));
    writeln!(out, "{}", counts.join(", "))
}

fn measure_layer(
    device: &Device,
    layer: &Layer,
    contenders: &[Contender],
    options: &Options,
    report: &mut Report,
    progress: &mut Progress,
) {
    let before = Clocks::read(device);
    let mut say = |doing: &str| progress.say(&format!("{}: {doing}", layer.title()));
    let stop = terminal::stop();
    report.rows.extend(measure::compare(
        device, layer, contenders, options, stop, &mut say,
    ));
    if device.is_gpu() {
        let after = Clocks::read(device);
        report.clocks.push(ClockLog {
            problem: layer.problem.to_string(),
            before,
            after,
        });
    }
}

/// The command line as it was given, but for names of files: they would differ between machines and
/// say nothing about the numbers.
fn without_paths(args: impl Iterator<Item = String>) -> Vec<String> {
    let mut kept = Vec::new();
    let mut skip = false;
    for arg in args {
        let names_path = ["--out", "--svg"].contains(&arg.as_str());
        let is_path = std::mem::replace(&mut skip, names_path);
        let has_path = ["--out=", "--svg="].iter().any(|o| arg.starts_with(o));
        if !(is_path || names_path || has_path) {
            kept.push(arg);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_out_of_the_results() {
        let args = [
            "compare", "--out", "a/b.json", "--warm", "--out=c", "--svg", "d", "--suite", "vgg16",
        ];
        let kept = without_paths(args.into_iter().map(str::to_owned));
        assert_eq!(kept, ["compare", "--warm", "--suite", "vgg16"]);
    }
}
