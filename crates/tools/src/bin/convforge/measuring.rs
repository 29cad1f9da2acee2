//! What `compare` and `sweep` share: how much is measured and where results go; and what `study` says as
//! they do.

mod run;

use std::{
    env,
    io::{self, Write},
    path::{Path, PathBuf},
};

use convforge::{Device, chain};
use convforge_tools::{
    files::{self, Target, file_stem},
    measure::{Ceilings, Environment, Format, Report, Row, Status, View},
};

use crate::{
    args::DeviceArgs,
    failure::Failure,
    sampling::SamplingArgs,
    terminal::{self, Progress},
};
pub use run::{Run, Unit};

#[derive(clap::Args)]
pub struct MeasuringArgs {
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// One JSON object instead of tables; with --out, the form of the file (the default)
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// CSV instead of tables; with --out, the form of the file
    #[arg(long)]
    csv: bool,
    /// Write the results into FILE, after each table, and tables to standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Draw a chart of each table into the folder DIR
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Go on with what FILE does not have yet
    #[arg(long, requires = "out", conflicts_with = "csv")]
    resume: bool,
}

impl MeasuringArgs {
    /// The device, and why it is not a GPU where none was found. From now on Ctrl-C asks the work
    /// to stop.
    pub fn open(&self) -> Result<(Device, Option<convforge::Error>), Failure> {
        terminal::catch_interrupts();
        self.device.open()
    }

    /// Where the results go.
    pub fn target(&self) -> Result<Option<Target>, Failure> {
        Ok(self.out.as_deref().map(Target::open).transpose()?)
    }

    fn format(&self) -> Format {
        if self.csv { Format::Csv } else { Format::Json }
    }

    /// Whether standard output is for people.
    pub fn prints_tables(&self) -> bool {
        self.out.is_some() || !(self.json || self.csv)
    }

    /// An empty report, or the one to be continued.
    fn report(&self, device: &Device, view: View) -> Result<Report, Failure> {
        let environment = environment(device);
        let (path, earlier) = match &self.out {
            Some(path) if self.resume && files::is_filled(path) => (path, Report::read(path)?),
            _ => return Ok(Report::new(environment, view)),
        };
        if earlier.view != view {
            return Err(Failure::Usage(format!(
                "{} has results of `{}` and cannot be continued by `{}`; give --out another name",
                path.display(),
                earlier.view.word(),
                view.word()
            )));
        }
        let is_other = |row: &Row| row.cold != self.sampling.is_cold(device.is_gpu());
        if earlier.rows.iter().any(is_other) {
            return Err(Failure::Usage(format!(
                "{} has times with {} and cannot be continued with others; give --out another name",
                path.display(),
                match self.sampling.warm {
                    true => "a cold cache",
                    false => "a warm cache, of --warm,",
                }
            )));
        }
        Ok(Report {
            environment: continued(environment, &earlier.environment)?,
            notes: Vec::new(),
            ..earlier
        })
    }
}

/// This machine now, and what the command was asked for.
pub fn environment(device: &Device) -> Environment {
    Environment::of(device, without_paths(env::args().skip(1)))
}

/// The environment of results that are continued, if nothing makes the times incomparable. The floors
/// of one file are reckoned from the same ceilings, and it names all that was asked for.
pub fn continued(now: Environment, earlier: &Environment) -> Result<Environment, Failure> {
    match now.differs_from(earlier) {
        None => Ok(Environment {
            ceilings: earlier.ceilings,
            options: asked(&earlier.options, &now.options),
            ..now
        }),
        Some(what) => Err(Failure::Usage(format!(
            "the results to be continued were made with another {what}: {earlier:?}, now {now:?}; \
             give --out another name"
        ))),
    }
}

/// The command lines one after the other, but for one that only goes on with the last.
fn asked(earlier: &[String], now: &[String]) -> Vec<String> {
    if earlier.ends_with(now) {
        return earlier.to_vec();
    }
    [earlier, &["then".to_owned()], now].concat()
}

/// Measures what floors are reckoned from, unless the results to be continued have it. Without, the
/// times are as good; they only stand by themselves.
pub fn find_ceilings(
    device: &Device,
    environment: &mut Environment,
    notes: &mut Vec<String>,
    progress: &mut Progress,
) {
    if !device.is_gpu() || environment.ceilings.is_some() {
        return;
    }
    progress.say("measuring the ceilings");
    match Ceilings::measure(device) {
        Ok(ceilings) => environment.ceilings = Some(ceilings),
        Err(error) => notes.push(format!("There are no floors: {}", chain(&error))),
    }
}

/// What is said below all tables: where the results are, and how many rows ended how.
pub fn print_end(
    timed_on: Option<&Device>,
    file: Option<&Path>,
    count: impl Fn(Status) -> usize,
) -> io::Result<()> {
    let mut out = terminal::out();
    writeln!(out)?;
    if timed_on.is_some_and(|device| !device.is_gpu()) {
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
    let counts = all.map(|status| format!("{} {}", count(status), status.word()));
    writeln!(out, "{}", counts.join(", "))
}

/// Options that take a file or a folder.
const PATHS: [&str; 8] = [
    "--out",
    "--unless",
    "--cudnn-known",
    "--svg",
    "--images",
    "--labels",
    "--weights",
    "--expect",
];

/// What a suite or a model is called whose file an option names.
fn named_by(option: &str, file: &str) -> Option<String> {
    let path = Path::new(file);
    match option {
        "--suite" => Some(file_stem(path)),
        "--model" => Some(path.file_name()?.to_string_lossy().into_owned()),
        _ => None,
    }
}

/// The command line as it was given, but for names of files, which would differ between machines, and
/// --resume: they say nothing about the numbers.
fn without_paths(args: impl Iterator<Item = String>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    let mut skip = false;
    for arg in args {
        let last = kept.last().map(String::as_str);
        if let Some(name) = last.and_then(|option| named_by(option, &arg)) {
            kept.push(name);
            continue;
        }
        if let Some((option, file)) = arg.split_once('=')
            && let Some(name) = named_by(option, file)
        {
            kept.push(format!("{option}={name}"));
            continue;
        }
        let option = arg.split_once('=').map(|(option, _)| option);
        let names_path = PATHS.contains(&arg.as_str());
        let is_path = std::mem::replace(&mut skip, names_path);
        let has_path = option.is_some_and(|option| PATHS.contains(&option));
        if !(is_path || names_path || has_path || arg == "--resume") {
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
            "compare",
            "--out",
            "a/b.json",
            "--warm",
            "--out=c",
            "--resume",
            "--suite",
            "vgg16",
            "--suite",
            "a/b/mine.txt",
            "--suite=c/mine.txt",
            "--model",
            "a/b/net.onnx",
            "--model=c/net.onnx",
        ];
        let kept = without_paths(args.into_iter().map(str::to_owned));
        let suites = ["--suite", "vgg16", "--suite", "mine", "--suite=mine"];
        let models = ["--model", "net.onnx", "--model=net.onnx"];
        let whole = [&["compare", "--warm"], &suites[..], &models].concat();
        assert_eq!(kept, whole);
    }

    #[test]
    fn a_file_names_every_command_that_went_into_it() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let first = words("study --parts overlap --runs 3");
        assert_eq!(
            asked(&first, &words("study --parts overlap --runs 3")),
            first
        );
        let both = asked(&first, &words("study --parts layers"));
        assert_eq!(
            both,
            words("study --parts overlap --runs 3 then study --parts layers")
        );
        assert_eq!(asked(&both, &words("study --parts layers")), both);
    }
}
