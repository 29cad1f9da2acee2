//! `convforge tune`: measures what this device does fastest, and keeps it for every program of this user.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::Subcommand;
use convforge::{
    Device, Tuner, chain,
    tuner::Wanted,
    tuning::{Conditions, Record, Store, shipped},
};
use convforge_tools::{
    Error,
    files::write_whole,
    measure::{self, Row, Status, duration},
    suite::{self, Layer},
    tune::{self, Exchanged},
};
use serde::Serialize;

use crate::{
    args::{DeviceArgs, ProblemArgs},
    failure::{Failure, even_unread},
    sampling::SamplingArgs,
    terminal::{self, Progress},
};

#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "The pick `auto`, which is the library's default, goes by these results. What is there \
                  already and of the same code and libraries is not measured again, so that a run \
                  that was interrupted goes on where it was. A variant that fails its check is \
                  remembered too. Without --store the results are in the folder tuning of convforge's \
                  cache, which CONVFORGE_CACHE names.\n\n\
                  For example:\n\
                  \x20 convforge tune --suite resnet50 --storage f16 --layout nhwc\n\
                  \x20 convforge tune export results.txt"
)]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    problems: ProblemArgs,
    #[command(flatten)]
    device: DeviceArgs,
    /// The folder of the results [default: this user's]
    #[arg(long, value_name = "DIR", global = true)]
    store: Option<PathBuf>,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Action {
    /// Write all results into one file, for another machine with the same GPU
    Export {
        /// The file
        file: PathBuf,
    },
    /// Add the results of such a file; what is no result is counted and named
    Import {
        /// The file
        file: PathBuf,
    },
    /// Write what ships with the library, of the committed results, for each GPU that they are of
    Ship {
        /// The folder of results
        #[arg(long, value_name = "DIR", default_value = "benches/results")]
        results: PathBuf,
        /// The folder that is compiled into the library
        #[arg(long, value_name = "DIR", default_value = "src/tuning")]
        into: PathBuf,
    },
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let store = args.store.as_ref().map_or_else(Store::of_user, Store::at);
    match &args.action {
        None => tune(args, store),
        Some(Action::Export { file }) => export(&store, file),
        Some(Action::Import { file }) => import(&store, file),
        Some(Action::Ship { results, into }) => ship(results, into),
    }
}

/// What became of a problem.
#[derive(Serialize)]
struct Told<'a> {
    #[serde(flatten)]
    layer: &'a Layer,
    /// How many variants were measured now.
    measured: usize,
    /// How many had a result before.
    known: usize,
    /// The fastest of all of them.
    fastest: Option<String>,
    /// Its median.
    us: Option<f64>,
    /// From the fastest tenth of its samples to the slowest, as a share of the median.
    spread: Option<f64>,
    /// What went wrong.
    notes: Vec<String>,
    /// How many failed their check now.
    failed: usize,
    /// Whether all results that it has are in the store.
    kept: bool,
}

/// All of a run.
#[derive(Serialize)]
struct Run<'a> {
    device: String,
    store: Option<PathBuf>,
    notes: Vec<String>,
    problems: Vec<Told<'a>>,
    interrupted: bool,
}

impl Run<'_> {
    /// Where the results are, or that not all of them are anywhere.
    fn tell_place(&self, kept: bool) -> Result<(), Failure> {
        let text = match &self.store {
            _ if !kept => {
                "Not all results were kept: name a folder that can be written with --store."
                    .to_owned()
            }
            Some(folder) => format!("The results are in {}.", folder.display()),
            None => return Ok(()),
        };
        Ok(terminal::remark(&text, true)?)
    }
}

fn tune(args: &Args, store: Store) -> Result<ExitCode, Failure> {
    if args.problems.is_empty() {
        return Err(Failure::Usage(
            "nothing to tune: name problems with --problem or --suite".to_owned(),
        ));
    }
    terminal::catch_interrupts();
    let (device, no_gpu) = args.device.open()?;
    let mut layers = args.problems.layers()?;
    let mut notes: Vec<String> = no_gpu.iter().map(terminal::no_gpu).collect();
    if !device.is_gpu() {
        let reduced = suite::reduce_for_cpu(&layers);
        layers = reduced.0;
        notes.extend(reduced.1);
    }
    for note in &notes {
        even_unread(terminal::remark(note, !args.json))?;
    }
    let store = store.under(Conditions::default().cold(!args.sampling.warm));
    let folder = store.folder().map(Path::to_owned);
    // Results of a tuner whose time ran out are measured here.
    let tuner = Tuner::new(Duration::MAX).store(store);
    let mut progress = Progress::new(layers.len());
    let mut problems = Vec::new();
    for layer in &layers {
        if terminal::interrupted() {
            break;
        }
        let told = args.tune_one(&tuner, &device, layer, &mut progress);
        if !args.json {
            // The results are in the store.
            even_unread(progress.print(&told.text()))?;
        }
        problems.push(told);
        progress.step();
    }
    drop(progress);
    let kept = problems.iter().all(|told| told.kept);
    let failed = !kept || problems.iter().any(|told| told.failed > 0);
    let run = Run {
        device: device.model(),
        store: folder,
        notes,
        problems,
        interrupted: terminal::interrupted(),
    };
    even_unread(match args.json {
        true => terminal::print_json(&run),
        false => run.tell_place(kept),
    })?;
    Ok(terminal::exit_code(failed))
}

impl Args {
    /// Measures what a problem has no results of, and keeps them before the next one begins.
    fn tune_one<'a>(
        &self,
        tuner: &Tuner,
        device: &Device,
        layer: &'a Layer,
        progress: &mut Progress,
    ) -> Told<'a> {
        let wanted = match tuner.wanted(device, &layer.problem) {
            Ok(wanted) => wanted,
            Err(why) => return Told::new(layer, None, vec![chain(&why)]),
        };
        let Wanted {
            known,
            missing,
            mut notes,
            ..
        } = wanted;
        let mut told = Told::new(layer, Some(&known), Vec::new());
        if !missing.is_empty() {
            let contenders = tune::contenders(&missing);
            let title = layer.title();
            let mut say = |doing: &str| progress.say(&format!("{title}: {doing}"));
            let (options, stop) = (self.sampling.options(device.is_gpu()), terminal::stop());
            let rows = measure::compare(device, layer, &contenders, &options, stop, &mut say);
            let mut record = known;
            for (entrant, row) in missing.iter().zip(&rows) {
                let line = tune::line(entrant, row);
                told.measured += usize::from(line.is_some());
                line.into_iter().for_each(|line| record.put(line));
                notes.extend(why_not(row));
            }
            told.failed = rows
                .iter()
                .filter(|row| row.status == Status::Failed)
                .count();
            if told.measured > 0 {
                let note = tuner.keep(&record).err();
                told.kept = note.is_none();
                notes.extend(note);
            }
            told.fastest_of(&record);
        }
        Told { notes, ..told }
    }
}

/// What is to be said of a row that has no time.
fn why_not(row: &Row) -> Option<String> {
    let reason = row
        .reason
        .as_ref()
        .filter(|_| row.status != Status::Unsupported)?;
    Some(format!("{} {}: {reason}", row.name(), row.status.word()))
}

impl<'a> Told<'a> {
    fn new(layer: &'a Layer, known: Option<&Record>, notes: Vec<String>) -> Self {
        let mut told = Told {
            layer,
            measured: 0,
            known: known.map_or(0, |record| record.lines.len()),
            fastest: None,
            us: None,
            spread: None,
            notes,
            failed: 0,
            kept: true,
        };
        known.into_iter().for_each(|record| told.fastest_of(record));
        told
    }

    fn fastest_of(&mut self, record: &Record) {
        if let Some((us, line)) = record.fastest_first().first() {
            (self.fastest, self.us) = (Some(line.name.clone()), Some(*us));
            self.spread = line.outcome.spread();
        }
    }

    /// A line of what is fastest and what was measured, and one for each note.
    fn text(&self) -> String {
        let fastest = match (&self.fastest, self.us) {
            (Some(name), Some(us)) => format!("{name} {}", duration(us)),
            _ if terminal::interrupted() => "not measured".to_owned(),
            _ => "nothing serves".to_owned(),
        };
        let counts = match (self.measured, self.known) {
            (0, 0) => String::new(),
            (0, known) => format!(" ({known} already there)"),
            (measured, 0) => format!(" ({measured} measured)"),
            (measured, known) => format!(" ({measured} measured, {known} already there)"),
        };
        let notes = self.notes.iter().map(|note| format!("\n  {note}"));
        format!(
            "{}: {fastest}{counts}{}",
            self.layer.title(),
            notes.collect::<String>()
        )
    }
}

fn export(store: &Store, file: &Path) -> Result<ExitCode, Failure> {
    let (records, notes) = store.all();
    if records.is_empty() {
        tell(&notes)?;
        let folder = store.folder().unwrap_or(Path::new("any folder"));
        return Err(Failure::Usage(format!(
            "no results in {}: `convforge tune --problem P` makes them, --store names another folder",
            folder.display()
        )));
    }
    write_whole(
        file,
        records.iter().map(Record::to_string).collect::<String>(),
    )?;
    tell(&notes)?;
    let text = format!("Problems in {}: {}.", file.display(), records.len());
    terminal::remark(&text, true)?;
    Ok(ExitCode::SUCCESS)
}

fn import(store: &Store, file: &Path) -> Result<ExitCode, Failure> {
    let text = fs::read(file).map_err(|why| Error::file_because(file, "cannot be read", why))?;
    let Exchanged {
        records,
        mut notes,
        foreign,
        foreign_names,
    } = tune::read(&String::from_utf8_lossy(&text));
    let mut kept = 0;
    for record in &records {
        match store.put(record) {
            Ok(()) => kept += 1,
            Err(note) => notes.push(note),
        }
    }
    if foreign > 0 {
        let names = foreign_names.into_iter().collect::<Vec<_>>().join(", ");
        notes.push(format!(
            "{foreign} lines are of variants that this program does not have: {names}"
        ));
    }
    tell(&notes)?;
    let from = file.display();
    terminal::remark(&format!("Problems added from {from}: {kept}."), true)?;
    Ok(match kept == records.len() && kept > 0 {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn ship(results: &Path, into: &Path) -> Result<ExitCode, Failure> {
    for of in shipped::ALL {
        let records = tune::shipped(results, &of)?;
        let path = into.join(format!("{}.txt", of.chip));
        write_whole(&path, shipped::text(&records))?;
        let text = format!("{}: {} problems", path.display(), records.len());
        terminal::remark(&text, true)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn tell(notes: &[String]) -> std::io::Result<()> {
    notes
        .iter()
        .try_for_each(|note| terminal::remark(note, true))
}
