//! What `compare` and `sweep` share: how much is measured, where results go, and the walk over the
//! problems that checks, times, shows and keeps.

use std::{
    env,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::builder::PossibleValuesParser;
use convforge::{Device, Limits, chain};
use convforge_tools::{
    Contender,
    files::{self, Target, file_stem},
    measure::{
        self, Ceilings, ClockLog, Clocks, Environment, Format, Network, Options, Part, Report, Row,
        Status, View,
    },
    results::Recorded,
    suite::{self, Layer},
};

use crate::{
    args::DeviceArgs,
    charts,
    failure::Failure,
    numbers::{number, positive, seconds},
    report::networks,
    terminal::{self, Progress},
};

/// A problem, and who is compared on it, in a table a group.
type Unit = (Layer, Vec<Vec<Contender>>);

#[derive(clap::Args)]
pub struct MeasuringArgs {
    #[command(flatten)]
    device: DeviceArgs,
    /// Samples of each contender [default: 30 on a GPU, 10 on the CPU]
    #[arg(long, value_parser = positive::<u32>, allow_negative_numbers = true)]
    samples: Option<u32>,
    /// Use one set of buffers, so that they may stay in the L2 cache
    #[arg(long)]
    warm: bool,
    /// Time for the samples of one table; slow contenders then take fewer, but at least 5
    /// [default: 60 on a GPU, 2 on the CPU]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    seconds: Option<Duration>,
    /// Seed of the data
    #[arg(long, default_value_t = 1, value_parser = number::<u64>, allow_negative_numbers = true)]
    seed: u64,
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
    /// Leave out problems of which a report in DIR, which `report --keep` made or --out, has every
    /// contender, measured on such a device with these libraries and what the contender is made of now;
    /// may be repeated
    #[arg(long, value_name = "DIR")]
    unless: Vec<PathBuf>,
    /// Leave out variants, but for the libraries' and picks, whose least time in the DIR of --unless is over so many times
    /// the least of all on a problem; of code that has changed since, and of what has no time there, its estimate counts
    #[arg(long, value_name = "TIMES", requires = "unless", value_parser = positive::<u32>)]
    within: Option<u32>,
    /// Measure nothing: print which problems would be measured, and about how many seconds each takes
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    plan: bool,
    /// Plan for this chip, which need not be there: with the driver and the libraries of the latest report of
    /// one in the DIR of --unless
    #[arg(long = "as", value_name = "CHIP", requires_all = ["plan", "unless"])]
    #[arg(conflicts_with_all = ["device", "out"])]
    #[arg(value_parser = PossibleValuesParser::new(Limits::CHIPS))]
    chip: Option<String>,
}

impl MeasuringArgs {
    /// The device, and why it is not a GPU where none was found. From now on Ctrl-C asks the work
    /// to stop.
    pub fn open(&self) -> Result<(Device, Option<convforge::Error>), Failure> {
        terminal::catch_interrupts();
        self.device.open()
    }

    /// Whether a GPU is measured, or planned for.
    pub fn is_gpu(&self, device: &Device) -> bool {
        device.is_gpu() || self.chip.is_some()
    }

    fn options(&self, device: &Device) -> Options {
        let default = Options::on(self.is_gpu(device));
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
        Ok(Report {
            environment: continued(environment, &earlier.environment)?,
            notes: Vec::new(),
            ..earlier
        })
    }

    /// Measures each group of contenders on each problem, side by side within the group. A group
    /// has a table, a chart and a place in the file of its own; what the file has is skipped.
    pub fn measure(
        &self,
        (device, no_gpu): (Device, Option<convforge::Error>),
        mut layers: Vec<Layer>,
        groups: &[Vec<Contender>],
        view: View,
    ) -> Result<ExitCode, Failure> {
        // A place that cannot be written to should show now, and what is read there be no other run's.
        let place = self.out.as_deref().filter(|_| !self.plan);
        let mut target = place.map(Target::open).transpose()?;
        let mut report = self.report(&device, view)?;
        let gpu = self.is_gpu(&device);
        if !gpu {
            (layers, report.notes) = suite::reduce_for_cpu(&layers);
        }
        if view == View::Compare {
            report.expect(Network::of(&layers));
        }
        let recorded = match &self.chip {
            Some(chip) => Recorded::of_chip(&self.unless, chip)?,
            None => Recorded::read(&self.unless, &device.limits(), &report.environment)?,
        };
        let cold = gpu && !self.warm;
        let mut units = self.units(layers, groups, &recorded, cold)?;
        let all = units.len();
        units.retain(|(layer, groups)| {
            let fresh = |group: &Vec<Contender>| recorded.has(layer, group, cold);
            !groups.iter().all(fresh)
        });
        if self.plan {
            units.retain(|(layer, groups)| !groups.iter().all(|group| report.has(layer, group)));
            return self.tell_plan(&self.options(&device), &units, &recorded, all);
        }
        if let Some(why) = no_gpu {
            report.notes.insert(0, terminal::no_gpu(&why));
        }
        if let Some(folder) = &self.svg {
            charts::make(folder)?;
        }
        self.keep(target.as_mut(), &report)?;
        let mut progress = Progress::new(units.iter().map(|(_, groups)| groups.len()).sum());
        if !units.is_empty() {
            find_ceilings(
                &device,
                &mut report.environment,
                &mut report.notes,
                &mut progress,
            );
        }
        let options = Options {
            ceilings: report.environment.ceilings,
            ..self.options(&device)
        };
        for note in &report.notes {
            terminal::remark(note, self.prints_tables())?;
        }
        let tables = units
            .iter()
            .flat_map(|(layer, groups)| groups.iter().map(move |group| (layer, group)));
        for (layer, group) in tables {
            if terminal::interrupted() {
                break;
            }
            let title = view.title(
                layer,
                &group.first().map_or_else(String::new, Contender::variant),
            );
            if report.has(layer, group) {
                let there = format!("{title}: already there");
                terminal::remark(&there, self.prints_tables())?;
                progress.step();
                continue;
            }
            let before = Clocks::read(&device);
            let mut say = |doing: &str| progress.say(&format!("{title}: {doing}"));
            let stop = terminal::stop();
            let rows = measure::compare(&device, layer, group, &options, stop, &mut say);
            if device.is_gpu() {
                report.clocks.push(ClockLog {
                    problem: layer.problem.to_string(),
                    before,
                    after: Clocks::read(&device),
                });
            }
            report.put(&rows);
            self.keep(target.as_mut(), &report)?;
            let parts = view.parts(layer, &rows);
            self.show(&parts, &report.environment, &progress)?;
            progress.step();
        }
        drop(progress);

        if let Some(target) = &mut target {
            target.finish(report.text(self.format()).as_bytes())?;
        }
        if self.prints_tables() {
            networks(&mut terminal::out(), &report.networks)?;
            print_end(Some(&device), self.out.as_deref(), |status| {
                report.count(status)
            })?;
        } else {
            write!(terminal::out(), "{}", report.text(self.format()))?;
        }
        if let Some(first) = report.rows.first()
            && report.count(Status::Unsupported) == report.rows.len()
        {
            return Err(Failure::Error(nothing(first).into()));
        }
        Ok(match terminal::interrupted() {
            true => ExitCode::from(terminal::INTERRUPTED),
            false if report.count(Status::Failed) > 0 => ExitCode::FAILURE,
            false => ExitCode::SUCCESS,
        })
    }

    /// The problems, each with those of the groups whom --within leaves.
    fn units(
        &self,
        layers: Vec<Layer>,
        groups: &[Vec<Contender>],
        recorded: &Recorded,
        cold: bool,
    ) -> Result<Vec<Unit>, Failure> {
        let near = |layer: &Layer, group: &Vec<Contender>| match self.within {
            Some(times) => recorded.within(f64::from(times), layer, group, cold),
            None => group.clone(),
        };
        let of_layer = |layer: Layer| {
            let groups = groups.iter().map(|group| near(&layer, group));
            let groups: Vec<_> = groups.filter(|group| !group.is_empty()).collect();
            (layer, groups)
        };
        let all = layers.len();
        let units = layers.into_iter().map(of_layer);
        let units: Vec<Unit> = units.filter(|(_, groups)| !groups.is_empty()).collect();
        if units.len() < all {
            let note = format!("--within leaves nobody of {} problems", all - units.len());
            terminal::remark(&note, self.prints_tables())?;
        }
        Ok(units)
    }

    /// A line per problem that is left of `all`: about how many seconds, and its name. Then the sum.
    fn tell_plan(
        &self,
        options: &Options,
        units: &[Unit],
        recorded: &Recorded,
        all: usize,
    ) -> Result<ExitCode, Failure> {
        let mut out = terminal::out();
        let (mut total, mut searches) = (0.0, 0);
        for (layer, groups) in units {
            let seconds = groups
                .iter()
                .map(|group| recorded.seconds(layer, group, options));
            let seconds: f64 = seconds.sum();
            let wants = |group: &Vec<Contender>| recorded.wants_search(&layer.problem, group);
            let search = groups.iter().any(wants);
            let note = if search {
                "; cuDNN is searched in full"
            } else {
                ""
            };
            writeln!(out, "{seconds:6.0} s  {}{note}", layer.title())?;
            total += seconds;
            searches += usize::from(search);
        }
        let fresh = all - units.len();
        let more = match searches {
            0 => String::new(),
            searches => format!("; cuDNN is searched in full for {searches}"),
        };
        writeln!(
            out,
            "{total:6.0} s for {} problems, {fresh} are fresh{more}",
            units.len()
        )?;
        Ok(ExitCode::SUCCESS)
    }

    fn keep(&self, target: Option<&mut Target>, report: &Report) -> Result<(), Failure> {
        match target {
            Some(target) => Ok(target.keep(|| report.text(self.format()))?),
            None => Ok(()),
        }
    }

    fn show(
        &self,
        parts: &[Part],
        environment: &Environment,
        progress: &Progress,
    ) -> Result<(), Failure> {
        for part in parts {
            if let Some(folder) = &self.svg {
                charts::write(folder, part, environment)?;
            }
            if self.prints_tables() {
                let table = part.table(terminal::look());
                progress.print(&format!("\n{}\n{table}", part.title))?;
            }
        }
        Ok(())
    }
}

/// That no contender can do any of the problems, by the first of them.
fn nothing(row: &Row) -> String {
    let (name, problem) = (&row.variant, &row.problem);
    let why = row.reason.as_deref().unwrap_or("it says no");
    format!(
        "nothing was measured: {name} {problem}: {why}; `convforge list --problem {problem}` shows \
         who can"
    )
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
    use std::sync::Arc;

    use clap::Parser;
    use convforge::{
        Error, Result,
        variant::{Info, Plan, Prepared, Query, Variant},
        variants,
    };
    use convforge_tools::files::write_whole;

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

    /// The CPU's plain loops with configurations that change nothing; the last is not supported.
    struct Configured(Info, Arc<dyn Variant>);

    // SAFETY: what it prepares is the library's own.
    unsafe impl Variant for Configured {
        fn info(&self) -> &Info {
            &self.0
        }

        fn plan(&self, query: &Query) -> Result<Plan, String> {
            match query.config + 1 < self.0.configs.len() {
                true => self.1.plan(query),
                false => Err("is too large".to_owned()),
            }
        }

        fn prepare(&self, device: &Device, query: &Query, plan: Plan) -> Result<Box<dyn Prepared>> {
            self.1.prepare(device, query, plan)
        }
    }

    fn group(name: &str) -> Vec<Contender> {
        let plain = variants::find("cpu_direct").unwrap();
        let mut info = plain.info().clone();
        info.name = name.to_owned();
        info.configs = ["tile=8", "tile=4", "tile=16"].map(str::to_owned).into();
        let variant: Arc<dyn Variant> = Arc::new(Configured(info, plain));
        let contenders = (0..3).map(|config| Contender::Variant {
            variant: variant.clone(),
            config,
        });
        contenders.collect()
    }

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: MeasuringArgs,
    }

    fn measure(args: &[&str], groups: &[Vec<Contender>], view: View) -> Result<ExitCode, Failure> {
        let cli = Cli::parse_from([&["test", "--device", "cpu", "--samples", "5"], args].concat());
        let layers = ["mb1ic1ih3oc1kh1", "mb2ic1ih3oc1kh1"];
        let layers = layers.map(|text| Layer::alone(text.parse().unwrap()));
        cli.args
            .measure((Device::cpu(), None), layers.into(), groups, view)
    }

    #[test]
    fn a_sweep_goes_on_with_what_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sweep.json");
        let charts = folder.path().join("charts");
        let (out, svg) = (path.to_str().unwrap(), charts.to_str().unwrap());
        let args = ["--out", out, "--svg", svg, "--resume"];
        let fine = ExitCode::SUCCESS;
        let answer = measure(&args, &[group("one")], View::Sweep).ok().unwrap();
        assert_eq!(answer, fine);
        let first = Report::read(&path).unwrap();
        assert_eq!(first.rows.len(), 6);
        assert_eq!(first.count(Status::Passed), 4);
        assert_eq!(first.count(Status::Unsupported), 2);

        // Another variant is added, an interrupted row comes again, what is there stays.
        let mut stopped = first.clone();
        stopped.rows[1].reason = Some(Error::Interrupted.to_string());
        stopped.rows[4].plan = Some("kept".to_owned());
        write_whole(&path, stopped.text(Format::Json)).unwrap();
        let groups = [group("one"), group("two")];
        assert_eq!(measure(&args, &groups, View::Sweep).ok().unwrap(), fine);
        let second = Report::read(&path).unwrap();
        assert_eq!(second.rows.len(), 12);
        assert!(second.rows.iter().all(|row| row.is_whole()));
        assert_eq!(second.rows[4].plan.as_deref(), Some("kept"));
        let parts = second.parts();
        let titles: Vec<&str> = parts.iter().map(|part| &*part.title).collect();
        assert!(titles.contains(&"mb2ic1ih3oc1oh3kh1 one"), "{titles:?}");
        assert_eq!(titles.len(), 4);
        assert_eq!(std::fs::read_dir(&charts).unwrap().count(), 4);

        // The two do not mix.
        match measure(&args, &groups, View::Compare) {
            Err(Failure::Usage(why)) => assert!(why.contains("results of `sweep`"), "{why}"),
            _ => panic!("it was continued"),
        }
    }
}
