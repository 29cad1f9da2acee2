//! `convforge check`: variants against the oracle.

use std::{
    collections::HashSet,
    io::{self, Write},
    process::ExitCode,
    sync::{Mutex, PoisonError},
    thread,
};

use convforge::{Device, Problem, variant::Configured};
use convforge_check::{self as check, Data, Domain, Outcome, Profile};
use convforge_tools::measure::Status;
use rayon::prelude::*;
use serde::Serialize;
use serde_json::json;

use crate::{
    args::{Configs, DeviceArgs, ProblemArgs, Shard, VariantArgs},
    failure::{Failure, even_unread},
    numbers::{number, positive},
    terminal::{self, Progress},
};

/// Generated problems where nothing is asked for.
const DEFAULT_GENERATED: usize = 100;
/// So many random problems are drawn for each that --each asks for, before it gives up.
const DRAWS: u64 = 2000;
/// So many are drawn at once where few fit.
const MOST_DRAWN: u64 = 4096;
/// Cases at a time on a GPU: more than these wait for each other's memory.
const JOBS: usize = 8;

#[derive(clap::Args)]
#[command(
    after_help = "Without --problem, --suite, --model, --generated, --each and --tails it takes \
                        100 generated problems. A failure is printed with the command that repeats it.\n\n\
                  For example:\n\
                  \x20 convforge check --problem mb2ic16ih32oc32kh3ph1+relu\n\
                  \x20 convforge check --variant direct_naive --each 100\n\
                  \x20 convforge check --variant direct_naive --tails --shard 1/100"
)]
pub struct Args {
    #[command(flatten)]
    problems: ProblemArgs,
    /// That many random valid problems
    #[arg(long, value_name = "N", value_parser = number::<usize>, allow_negative_numbers = true)]
    generated: Option<usize>,
    /// For every variant so many random problems that it can do, however rare they are; a variant that
    /// meets fewer fails
    #[arg(long, value_name = "N", value_parser = number::<usize>, allow_negative_numbers = true)]
    each: Option<usize>,
    /// Thousands of problems, the same for every seed, in which one size is one below, at or one above
    /// that of a tile; --shard takes fewer
    #[arg(long, conflicts_with_all = ["problem", "suite", "model", "c", "generated", "each"])]
    #[arg(conflicts_with_all = ["storage", "layout", "math", "batch"])]
    tails: bool,
    /// Seed of the problems and of the data
    #[arg(long, default_value_t = 1, value_parser = number::<u64>, allow_negative_numbers = true)]
    seed: u64,
    /// Only one of several shares of the problems, as in 2/8; one that checks nothing is no failure, as
    /// others have the work
    #[arg(long, value_name = "I/N", default_value = "1/1")]
    shard: Shard,
    /// A kind of data: integer, normal, positive, wide, subnormal or extreme; may be repeated, and
    /// leaves out the problems that none of them fits [default: every kind that fits]
    #[arg(long, value_name = "KIND", value_parser = data)]
    data: Vec<Data>,
    #[command(flatten)]
    variants: VariantArgs,
    #[command(flatten)]
    device: DeviceArgs,
    /// Who compares with the f64 oracle
    #[arg(long, value_enum, default_value_t = Judge::Auto)]
    judge: Judge,
    /// Cases at a time [default: one for each core on a GPU, at most 8; one on the CPU, which shares
    /// out each case]
    #[arg(long, value_name = "N", value_parser = positive::<usize>, allow_negative_numbers = true)]
    jobs: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
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

/// What is to be done.
struct Work<'a> {
    cases: Vec<(Problem, &'a Configured)>,
    /// That variants meet too few problems, each with the command that shows it.
    short: Vec<String>,
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
    /// What is checked, in order; and which variants met too few problems of --each.
    fn cases<'a>(&self, device: &Device, variants: &'a [Configured]) -> Result<Work<'a>, Failure> {
        let problems = self.problems()?;
        let (mut cases, mut short) = (Vec::new(), Vec::new());
        for problem in self.shard.of(problems) {
            cases.extend(variants.iter().map(|variant| (problem.clone(), variant)));
        }
        let all: Vec<Vec<Problem>> = (variants.par_iter())
            .map(|variant| self.possible(device, variant))
            .collect();
        let mut drawn = Vec::new();
        for (variant, possible) in variants.iter().zip(all) {
            short.extend(self.shortage(variant, possible.len()));
            drawn.extend(possible.into_iter().map(|problem| (problem, variant)));
        }
        cases.extend(self.shard.of(drawn));
        if cases.is_empty() && !self.data.is_empty() {
            return Err(Failure::Usage(
                "the data that was asked for fits none of the problems; subnormal data is for f16 \
                 operands with sums in f32"
                    .to_owned(),
            ));
        }
        Ok(Work { cases, short })
    }

    /// That a variant can do fewer of the problems drawn for it than --each asks for.
    fn shortage(&self, configured: &Configured, met: usize) -> Option<String> {
        let wanted = self.each.unwrap_or(0);
        let name = configured.name();
        // Of all variants some are for other devices or other data; one that was named is meant.
        let least = usize::from(self.variants.is_empty());
        (least <= met && met < wanted).then(|| {
            format!(
                "{name} meets {met} of {wanted} problems in {} draws: draw its kind of shapes in \
                 crates/check/src/domain.rs, and try\n    convforge check --variant {name} --each \
                 {wanted} --seed {}",
                wanted as u64 * DRAWS,
                self.seed
            )
        })
    }

    /// The problems for every variant.
    fn problems(&self) -> Result<Vec<Problem>, Failure> {
        let layers = self.problems.layers()?;
        let mut problems: Vec<Problem> = layers.into_iter().map(|layer| layer.problem).collect();
        if self.tails {
            problems.extend(check::tails());
        }
        let default = match problems.is_empty() && self.each.is_none() {
            true => DEFAULT_GENERATED,
            false => 0,
        };
        problems.extend(self.drawn(self.generated.unwrap_or(default) as u64));
        problems.retain(|problem| self.fits(problem));
        Ok(problems)
    }

    /// The random problems of --each that this variant can do: the first ones of the seed, drawn by all cores. What a
    /// variant refuses costs a plan, and one in a hundred may be left.
    fn possible(&self, device: &Device, configured: &Configured) -> Vec<Problem> {
        let count = self.each.unwrap_or(0);
        let limits = device.limits();
        let domain = Domain::new(configured, &limits);
        let draws = (count as u64).saturating_mul(DRAWS);
        let block = MOST_DRAWN.min((count as u64).saturating_mul(2));
        let (mut found, mut first, mut block) = (Vec::new(), 0, block);
        while found.len() < count && first < draws {
            let end = draws.min(first.saturating_add(block));
            let drawn = (first..end).into_par_iter();
            let possible = drawn.filter_map(|index| domain.problem(self.seed, index));
            found.par_extend(possible.filter(|problem| self.fits(problem)));
            (first, block) = (end, MOST_DRAWN.min(2 * block));
        }
        found.truncate(count);
        found
    }

    fn drawn(&self, count: u64) -> impl Iterator<Item = Problem> {
        let profile = Profile::default();
        (0..count).map(move |index| profile.problem(self.seed, index))
    }

    /// Checks all, several at a time; the cases that did not pass, in their order.
    fn checked(
        &self,
        device: &Device,
        work: &[(Problem, &Configured)],
        options: &check::Options,
    ) -> Result<(Counts, Vec<Case>), Failure> {
        let cores = || thread::available_parallelism().map_or(1, usize::from);
        let jobs = match (self.jobs, device.is_gpu()) {
            (Some(jobs), _) => jobs,
            (None, true) => cores().min(JOBS),
            (None, false) => 1,
        };
        let progress = Mutex::new(Progress::new(work.len()));
        let progress = || progress.lock().unwrap_or_else(PoisonError::into_inner);
        let tried = |(problem, configured): &(Problem, &Configured)| -> io::Result<Outcome> {
            let name = configured.name();
            progress().say(&format!("{name} {problem}"));
            let outcome = check::case(device, configured, problem, self.seed, options);
            if let (Outcome::Failed(why), false) = (&outcome, self.json) {
                progress().print(&format!("FAILED {name} {problem}\n    {why}"))?;
            }
            Ok(outcome)
        };
        let one = |case: &(Problem, &Configured)| {
            if terminal::interrupted() {
                return Ok(None);
            }
            let outcome = tried(case)?;
            progress().step();
            let cut_short = terminal::interrupted() && matches!(outcome, Outcome::Skipped(_));
            Ok((!cut_short).then_some(outcome))
        };
        let mut outcomes: Vec<Option<Outcome>> = match jobs {
            // The CPU's oracle and variants then have all threads.
            1 => work.iter().map(one).collect::<io::Result<_>>()?,
            _ => {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(jobs).build();
                let pool = pool.map_err(|why| Failure::Error(why.into()))?;
                let outcomes = pool.install(|| work.par_iter().map(one).collect::<io::Result<_>>());
                pool.broadcast(|_| check::forget_memory());
                outcomes?
            }
        };
        // What found no room beside the others, in constant memory or at all, has it alone.
        let skipped = |outcome: &Option<Outcome>| matches!(outcome, Some(Outcome::Skipped(_)));
        for (outcome, case) in outcomes.iter_mut().zip(work) {
            if jobs > 1 && skipped(outcome) && !terminal::interrupted() {
                *outcome = Some(tried(case)?);
            }
        }

        let (mut counts, mut cases) = (Counts::default(), Vec::new());
        for ((problem, configured), outcome) in work.iter().zip(outcomes) {
            let (count, status, reason) = match outcome {
                None => continue,
                Some(Outcome::Passed(_)) => {
                    counts.passed += 1;
                    continue;
                }
                Some(Outcome::Failed(why)) => (&mut counts.failed, Status::Failed, why),
                Some(Outcome::Skipped(why)) => (&mut counts.skipped, Status::Skipped, why),
                Some(Outcome::Unsupported(why)) => {
                    (&mut counts.unsupported, Status::Unsupported, why)
                }
            };
            *count += 1;
            cases.push(Case {
                problem: problem.clone(),
                variant: configured.name(),
                status,
                reason,
            });
        }
        Ok((counts, cases))
    }

    /// Prints what was not checked, and how many cases ended how.
    fn tell(
        &self,
        device: &Device,
        counts: &Counts,
        (work, cases): (&[(Problem, &Configured)], &[Case]),
        short: &[String],
    ) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        for why in short {
            writeln!(out, "FAILED {why}")?;
        }
        for case in cases.iter().filter(|case| case.status == Status::Skipped) {
            let (variant, problem) = (&case.variant, &case.problem);
            writeln!(out, "skipped {variant} {problem}: {}", case.reason)?;
        }
        if terminal::interrupted() {
            writeln!(out, "interrupted")?;
        }
        let problems: HashSet<String> = work.iter().map(|(p, _)| p.to_string()).collect();
        let kinds: Vec<String> = self.kinds().iter().map(Data::to_string).collect();
        writeln!(
            out,
            "Problems: {}, on {device}, seed {}, data: {}",
            problems.len(),
            self.seed,
            kinds.join(", ")
        )?;
        let Counts {
            passed,
            failed,
            skipped,
            unsupported,
        } = counts;
        writeln!(
            out,
            "{passed} passed, {failed} failed, {skipped} skipped, {unsupported} unsupported"
        )?;
        Ok(())
    }

    /// Whether any of the data that was asked for fits the problem.
    fn fits(&self, problem: &Problem) -> bool {
        self.kinds().iter().any(|data| data.fits(problem))
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
    if matches!(args.judge, Judge::Gpu) && !device.is_gpu() {
        return Err(match no_gpu {
            Some(why) => why.into(),
            None => Failure::Usage("--judge gpu takes a GPU, and not --device cpu".to_owned()),
        });
    }
    if let Some(why) = no_gpu {
        terminal::remark(&terminal::no_gpu(&why), !args.json)?;
    }
    let variants = args.variants.variants(&device, Configs::All)?;
    let Work { cases: work, short } = args.cases(&device, &variants)?;
    let options = check::Options {
        data: args.kinds().to_vec(),
        stop: Some(terminal::stop()),
        ..args.judge.options()
    };

    // Nothing but failures is printed in passing.
    let (counts, cases) = match args.checked(&device, &work, &options) {
        Err(Failure::ClosedPipe) => return Ok(ExitCode::FAILURE),
        checked => checked?,
    };
    let is_empty = counts.passed + counts.failed == 0;
    let failed = counts.failed > 0 || !short.is_empty();
    even_unread(match args.json {
        true => terminal::print_json(&json!({
            "device": device.name(),
            "seed": args.seed,
            "data": args.kinds(),
            "interrupted": terminal::interrupted(),
            "counts": counts,
            "cases": cases,
            "short": short,
        })),
        false => args.tell(&device, &counts, (&work, &cases), &short),
    })?;
    // An empty share is no news where the others have the work.
    if is_empty && short.is_empty() && !terminal::interrupted() && args.shard.is_all() {
        return Err(Failure::Error(nothing(&work, &cases).into()));
    }
    Ok(terminal::exit_code(failed))
}

/// That nothing was checked, and why.
fn nothing(work: &[(Problem, &Configured)], cases: &[Case]) -> String {
    let why = match (work, cases) {
        ([], _) => "no problem was asked for".to_owned(),
        (_, [first, ..]) => format!(
            "{} {} {}: {}; `convforge list --problem {}` shows who can",
            first.variant,
            first.status.word(),
            first.problem,
            first.reason,
            first.problem
        ),
        (_, []) => "no case was tried".to_owned(),
    };
    format!("nothing was checked: {why}")
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use convforge::variants;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn what_is_drawn_at_once_is_what_is_drawn_one_by_one() {
        let args =
            Cli::parse_from(["test", "--each", "40", "--seed", "3", "--data", "subnormal"]).args;
        let variant = Configured::from(variants::find("cpu_direct").unwrap());
        let device = Device::cpu();
        let limits = device.limits();
        let drawn = Domain::new(&variant, &limits).problems(3, 40 * DRAWS);
        let expected: Vec<Problem> = drawn.filter(|p| args.fits(p)).take(40).collect();
        assert_eq!(expected.len(), 40);
        assert_eq!(args.possible(&device, &variant), expected);
    }

    #[test]
    fn too_few_problems_are_said_with_the_command_that_shows_it() {
        let args = Cli::parse_from(["test", "--each", "30", "--seed", "7"]).args;
        let variant = Configured::from(variants::find("cpu_direct").unwrap());
        let why = args.shortage(&variant, 12).unwrap();
        for part in [
            "cpu_direct meets 12 of 30 problems in 60000 draws",
            "convforge check --variant cpu_direct --each 30 --seed 7",
        ] {
            assert!(why.contains(part), "{why}");
        }
        assert_eq!(args.shortage(&variant, 30), None);
        assert_eq!(args.shortage(&variant, 0), None);
        let named = ["test", "--each", "30", "--variant", "cpu_direct"];
        let named = Cli::parse_from(named).args.shortage(&variant, 0);
        assert!(named.unwrap().contains("meets 0 of 30"));
    }
}
