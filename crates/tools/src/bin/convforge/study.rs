//! `convforge study`: what the source reports measured, measured again, in pieces that a run which
//! was cut short goes on with.

mod errors;
mod part;
mod plan;
mod units;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use convforge::{Device, Math, Pick};
use convforge_tools::{
    files::{self, Target},
    measure::{self, ClockLog, Clocks, Status},
    study::{NetworkData, NetworkOptions, Study},
};

use crate::{
    args::{Configs, DeviceArgs, Shard, VariantArgs},
    data::{Data, DataArgs},
    failure::{Failure, even_unread},
    measuring::{self, continued, find_ceilings, print_end},
    numbers, report,
    terminal::{self, Progress},
};
use part::Part;
use plan::Plan;
use units::{Measuring, Unit};

/// The reports' batches.
const BATCHES: [usize; 4] = [100, 1000, 5000, 10000];

/// Measures the layers of the reports as `compare` does, the network of the accuracy study with
/// each variant, and batches split over streams; with --parts errors how far results are from f64. No
/// number is kept of a variant that has not passed its check in the same run.
#[derive(clap::Args)]
#[command(
    after_help = "On synthetic images and weights accuracy is left out. Shares of the work (--shard) \
                  may go into one file one after the other, or into several on several machines of \
                  one kind, which --merge makes one.\n\n\
                  For example:\n\
                  \x20 convforge study --batches 100 --parts layers,network --out study.json\n\
                  \x20 convforge study --parts errors"
)]
pub struct Args {
    #[command(flatten)]
    data: DataArgs,
    /// Batches of the network and of the layers of report-86; streams take the largest
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_values_t = BATCHES)]
    #[arg(value_parser = numbers::positive::<usize>, allow_negative_numbers = true)]
    batches: Vec<usize>,
    #[command(flatten)]
    variants: VariantArgs,
    /// How variants multiply; may be repeated [default: fp32, or the problem's own; what cannot do
    /// that f16, and what cannot do that f16acc; for errors each of fp32, tf32, f16 and bf16 that a
    /// variant can do]
    #[arg(long)]
    math: Vec<Math>,
    /// A variant or pick that streams are tried with, the first one with a timeline; may be repeated
    /// [default: those named with --variant; without, the fastest kernels of each layer
    /// (policy:per-layer), direct_naive, im2col_gemm_shared, fused_shared and cudnn]
    #[arg(long, value_name = "VARIANT")]
    overlap_variant: Vec<Pick>,
    /// What is measured; errors have to be asked for
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Part::DEFAULT)]
    parts: Vec<Part>,
    /// Only one of several shares of the work, as in 2/8
    #[arg(long, value_name = "I/N", default_value = "1/1")]
    shard: Shard,
    /// Runs of the network, and of each number of streams
    #[arg(long, default_value_t = 5, value_parser = numbers::positive::<u32>, allow_negative_numbers = true)]
    runs: u32,
    /// Time for the samples of one layer's table, or for the runs of one row of the network
    /// [default: 60 on a GPU, 2 on the CPU]
    #[arg(long, value_name = "SECONDS", value_parser = numbers::seconds, allow_negative_numbers = true)]
    seconds: Option<Duration>,
    /// Seed of the data
    #[arg(long, default_value_t = 1, value_parser = numbers::number::<u64>, allow_negative_numbers = true)]
    seed: u64,
    #[command(flatten)]
    device: DeviceArgs,
    /// One JSON object instead of tables
    #[arg(long)]
    json: bool,
    /// Write the results into FILE, after each piece of work, and tables to standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Go on with what FILE does not have yet
    #[arg(long, requires = "out")]
    resume: bool,
    /// Measure nothing: put what shares of one study found together
    #[arg(long, value_name = "FILE", num_args = 2.., conflicts_with_all = ["resume", "shard"])]
    merge: Vec<PathBuf>,
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    if !args.merge.is_empty() {
        return merge(args);
    }
    terminal::catch_interrupts();
    let (device, no_gpu) = args.device.open()?;
    let plan = args.plan(&device)?;
    // A place that cannot be written to should show now, and what is read there be no other run's.
    let mut target = args.target()?;
    let mut study = args.start(&device)?;
    study.notes = plan.notes.clone();
    if let Some(why) = no_gpu {
        study.notes.insert(0, terminal::no_gpu(&why));
    }
    keep(target.as_mut(), &study)?;
    let (there, units): (Vec<&Unit>, Vec<&Unit>) = args
        .shard
        .of(&plan.units)
        .partition(|unit| unit.is_done(&study));
    for unit in there {
        args.remark(&format!("{}: already there", unit.title()))?;
    }
    let mut progress = Progress::new(units.len());
    let any = |part| units.iter().any(|unit| unit.part() == part);
    if any(Part::Layers) {
        let (environment, notes) = (&mut study.environment, &mut study.notes);
        find_ceilings(&device, environment, notes, &mut progress);
    }
    for note in &study.notes {
        args.remark(note)?;
    }
    let largest = plan.batches.iter().copied().max();
    let data = any(Part::Network).then(|| args.data.read(largest, "--batches"));
    let data = data.transpose()?;
    let measuring = args.measuring(&device, &study, data.as_ref());
    let walked = walk(
        &units,
        &measuring,
        &mut study,
        target.as_mut(),
        &mut progress,
    );
    drop(progress);

    let ended = finish(target.as_mut(), &study);
    let timed = plan.units.iter().any(|unit| unit.part() != Part::Errors);
    let place = args.out.as_deref().filter(|_| ended.is_ok());
    let shown = args.show_with_end(&study, timed.then_some(&device), place);
    even_unread(walked.and(ended).and(shown))?;
    Ok(terminal::exit_code(study.count(Status::Failed) > 0))
}

/// Measures unit by unit, and keeps what there is so far.
fn walk(
    units: &[&Unit],
    measuring: &Measuring,
    study: &mut Study,
    mut target: Option<&mut Target>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let device = measuring.device;
    for unit in units {
        if terminal::interrupted() {
            break;
        }
        let before = Clocks::read(device);
        let mut say = |doing: &str| progress.say(&format!("{}: {doing}", unit.title()));
        unit.run(measuring, study, &mut say);
        if device.is_gpu() {
            study.clocks.push(ClockLog {
                problem: unit.title(),
                before,
                after: Clocks::read(device),
            });
        }
        keep(target.as_deref_mut(), study)?;
        progress.step();
    }
    Ok(())
}

/// Puts files together that were measured under the same conditions.
fn merge(args: &Args) -> Result<ExitCode, Failure> {
    let mut files = args.merge.iter();
    let Some(first) = files.next() else {
        return Ok(ExitCode::SUCCESS);
    };
    let mut study = Study::read(first)?;
    for path in files {
        let other = Study::read(path)?;
        if let Some(what) = other.environment.differs_from(&study.environment) {
            return Err(Failure::Usage(format!(
                "{} was made with another {what} than {}; their times are not comparable",
                path.display(),
                first.display()
            )));
        }
        study.merge(other);
    }
    finish(args.target()?.as_mut(), &study)?;
    args.show(&study)?;
    Ok(ExitCode::SUCCESS)
}

fn keep(target: Option<&mut Target>, study: &Study) -> Result<(), Failure> {
    match target {
        Some(target) => Ok(target.keep(|| study.text())?),
        None => Ok(()),
    }
}

fn finish(target: Option<&mut Target>, study: &Study) -> Result<(), Failure> {
    match target {
        Some(target) => Ok(target.finish(study.text().as_bytes())?),
        None => Ok(()),
    }
}

impl Args {
    /// Whether standard output is for people.
    fn prints_tables(&self) -> bool {
        self.out.is_some() || !self.json
    }

    /// The work, all shares of it.
    fn plan(&self, device: &Device) -> Result<Plan, Failure> {
        // One list, so that what is searched for one part serves the others.
        let all = self.variants.all();
        let mut contenders = self.variants.compared(&all, device.is_gpu())?;
        if self.variants.is_empty() {
            contenders.extend(plan::picks(device));
        }
        let overlap = match (&self.overlap_variant[..], self.variants.is_empty()) {
            ([], true) => plan::overlap_by_default(device, &all),
            ([], false) => contenders.clone(),
            (named, _) => Configs::First.named(&all, named)?,
        };
        let (parts, batches) = (&self.parts, &self.batches);
        let plan = Plan::new(device, parts, batches, &self.math, &contenders, &overlap)?;
        Ok(plan)
    }

    /// An empty study, or the one to be continued.
    fn start(&self, device: &Device) -> Result<Study, Failure> {
        let environment = measuring::environment(device);
        match &self.out {
            Some(path) if self.resume && files::is_filled(path) => {
                let earlier = Study::read(path)?;
                let mut study = Study {
                    environment: continued(environment, &earlier.environment)?,
                    ..earlier
                };
                if self.data.is_real() {
                    // What ran on made-up images is no part of it.
                    study
                        .network
                        .retain(|row| row.accuracy.is_some() || row.status != Status::Passed);
                }
                Ok(study)
            }
            _ => Ok(Study::new(environment)),
        }
    }

    fn measuring<'a>(
        &self,
        device: &'a Device,
        study: &Study,
        data: Option<&'a Data>,
    ) -> Measuring<'a> {
        let layers = measure::Options::of(device);
        let budget = self.seconds.unwrap_or(layers.budget);
        Measuring {
            device,
            data: data.map(|data| NetworkData {
                weights: &data.weights,
                images: &data.images,
                labels: (!data.synthetic).then_some(&data.labels),
                expected: data.expected.as_ref().map(|logits| &logits.data[..]),
            }),
            layers: measure::Options {
                budget,
                seed: self.seed,
                ceilings: study.environment.ceilings,
                ..layers
            },
            network: NetworkOptions {
                runs: self.runs as usize,
                budget,
                seed: self.seed,
                ..NetworkOptions::default()
            },
        }
    }

    /// Where the results go.
    fn target(&self) -> Result<Option<Target>, Failure> {
        Ok(self.out.as_deref().map(Target::open).transpose()?)
    }

    /// With --out the results go elsewhere, and what is printed need not be read.
    fn remark(&self, text: &str) -> Result<(), Failure> {
        let told = terminal::remark(text, self.prints_tables());
        match &self.out {
            Some(_) => even_unread(told),
            None => Ok(told?),
        }
    }

    /// The tables, and what is said below them.
    fn show_with_end(
        &self,
        study: &Study,
        timed_on: Option<&Device>,
        place: Option<&Path>,
    ) -> Result<(), Failure> {
        self.show(study)?;
        if self.prints_tables() {
            let count = |status| study.count(status);
            print_end(timed_on, place, count)?;
        }
        Ok(())
    }

    fn show(&self, study: &Study) -> Result<(), Failure> {
        match self.prints_tables() {
            true => Ok(report::tables(
                &mut terminal::out(),
                &study.report().parts(),
                &study.tables(),
            )?),
            false => terminal::print_json(study),
        }
    }
}
