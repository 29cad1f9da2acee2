//! `convforge check`: variants against the oracle.

use std::{
    io::{self, Write},
    process::ExitCode,
    str::FromStr,
};

use convforge::{
    Problem,
    check::{self, Data, Outcome, Profile},
    measure::Status,
};
use serde::Serialize;
use serde_json::json;

use crate::{
    args::{Configs, DeviceArgs, ProblemArgs, VariantArgs},
    failure::Failure,
    terminal::{self, Progress},
};

/// Generated problems where nothing is asked for.
const DEFAULT_GENERATED: usize = 100;

#[derive(clap::Args)]
#[command(
    after_help = "Without --problem, --suite and --generated it takes 100 generated \
                        problems. A failure is printed with the command that repeats it."
)]
pub struct Args {
    #[command(flatten)]
    problems: ProblemArgs,
    /// That many random valid problems
    #[arg(long, value_name = "N")]
    generated: Option<usize>,
    /// Seed of the problems and of the data
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only one of several shares of the problems, as in 2/8
    #[arg(long, value_name = "I/N", default_value = "1/1")]
    shard: Shard,
    /// A kind of data: integer, normal, positive, wide or subnormal; may be repeated, and leaves out
    /// the problems that none of them fits [default: every kind that fits]
    #[arg(long, value_name = "KIND", value_parser = data)]
    data: Vec<Data>,
    #[command(flatten)]
    variants: VariantArgs,
    #[command(flatten)]
    device: DeviceArgs,
    /// Who compares with the f64 oracle
    #[arg(long, value_enum, default_value_t = Judge::Auto)]
    judge: Judge,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The i-th of n shares, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shard {
    index: usize,
    count: usize,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text
            .split_once('/')
            .and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        match parts {
            Some((index, count)) if (1..=count).contains(&index) => Ok(Shard { index, count }),
            _ => Err("a shard is the i-th of n, from 1/n to n/n".to_owned()),
        }
    }
}

/// Where the oracle runs.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Judge {
    /// The CPU for small problems, the GPU for large ones
    Auto,
    /// The CPU, however long it takes
    Cpu,
    /// The GPU, whose oracle the tests prove against the CPU's: many variants are judged sooner
    Gpu,
}

impl Judge {
    fn options(self) -> check::Options {
        let default = check::Options::default();
        let cpu_flops = match self {
            Judge::Auto => default.cpu_flops,
            Judge::Cpu => f64::INFINITY,
            Judge::Gpu => 0.0,
        };
        check::Options {
            cpu_flops,
            ..default
        }
    }
}

/// What --data takes.
fn data(name: &str) -> Result<Data, String> {
    let known = || Data::ALL.iter().map(Data::to_string);
    let found = Data::ALL.into_iter().find(|data| data.to_string() == name);
    found.ok_or_else(|| format!("the kinds are {}", known().collect::<Vec<_>>().join(", ")))
}

/// A case that did not pass.
#[derive(Serialize)]
struct Case {
    problem: Problem,
    variant: String,
    status: Status,
    /// With the command that repeats it, if it failed.
    reason: String,
}

#[derive(Default, Serialize)]
struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
    unsupported: usize,
}

impl Args {
    fn problems(&self) -> Result<Vec<Problem>, Failure> {
        let layers = self.problems.layers()?;
        let mut problems: Vec<Problem> = layers.into_iter().map(|layer| layer.problem).collect();
        let default = if problems.is_empty() {
            DEFAULT_GENERATED
        } else {
            0
        };
        let profile = Profile::default();
        let generated = 0..self.generated.unwrap_or(default) as u64;
        problems.extend(generated.map(|index| profile.problem(self.seed, index)));
        let fits = |problem: &Problem| self.kinds().iter().any(|data| data.fits(problem));
        problems.retain(fits);
        if problems.is_empty() && !self.data.is_empty() {
            return Err(Failure::Usage(
                "the data that was asked for fits none of the problems; subnormal data is for f16 \
                 operands with sums in f32"
                    .to_owned(),
            ));
        }
        let Shard { index, count } = self.shard;
        Ok(problems
            .into_iter()
            .skip(index - 1)
            .step_by(count)
            .collect())
    }

    /// The kinds of data.
    fn kinds(&self) -> &[Data] {
        match &self.data[..] {
            [] => &Data::ALL,
            asked => asked,
        }
    }
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    terminal::catch_interrupts();
    let (device, no_gpu) = args.device.open()?;
    if let Some(why) = no_gpu {
        terminal::remark(&terminal::no_gpu(&why), !args.json)?;
    }
    let variants = args.variants.variants(&device, Configs::All)?;
    let problems = args.problems()?;
    let options = check::Options {
        data: args.kinds().to_vec(),
        ..args.judge.options()
    };

    let mut counts = Counts::default();
    let mut cases = Vec::new();
    let mut progress = Progress::new(problems.len() * variants.len());
    'all: for problem in &problems {
        for (variant, config) in &variants {
            if terminal::interrupted() {
                break 'all;
            }
            let name = variant.info().spelled(*config);
            progress.say(&format!("{name} {problem}"));
            let outcome = check::case(&device, variant, *config, problem, args.seed, &options);
            progress.step();
            let (count, status, reason) = match outcome {
                Outcome::Passed(_) => {
                    counts.passed += 1;
                    continue;
                }
                Outcome::Failed(why) => (&mut counts.failed, Status::Failed, why),
                Outcome::Skipped(why) => (&mut counts.skipped, Status::Skipped, why),
                Outcome::Unsupported(why) => (&mut counts.unsupported, Status::Unsupported, why),
            };
            *count += 1;
            if status == Status::Failed && !args.json {
                progress.print(&format!("FAILED {name} {problem}\n    {reason}"))?;
            }
            cases.push(Case {
                problem: problem.clone(),
                variant: name,
                status,
                reason,
            });
        }
    }
    drop(progress);

    let mut out = io::stdout().lock();
    let Counts {
        passed,
        failed,
        skipped,
        unsupported,
    } = counts;
    if args.json {
        drop(out);
        terminal::print_json(&json!({
            "device": device.name(),
            "seed": args.seed,
            "data": args.kinds(),
            "interrupted": terminal::interrupted(),
            "counts": counts,
            "cases": cases,
        }))?;
    } else {
        for case in cases.iter().filter(|case| case.status == Status::Skipped) {
            writeln!(
                out,
                "skipped {} {}: {}",
                case.variant, case.problem, case.reason
            )?;
        }
        if terminal::interrupted() {
            writeln!(out, "interrupted")?;
        }
        writeln!(
            out,
            "Problems: {}, on {device}, seed {}, data: {}",
            problems.len(),
            args.seed,
            args.kinds()
                .iter()
                .map(Data::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        )?;
        writeln!(
            out,
            "{passed} passed, {failed} failed, {skipped} skipped, {unsupported} unsupported"
        )?;
    }
    Ok(match terminal::interrupted() {
        true => ExitCode::from(terminal::INTERRUPTED),
        false if failed > 0 => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}
