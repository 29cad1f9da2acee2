//! `convforge compare`: check, then time side by side.

mod fresh;

use std::process::ExitCode;

use convforge::Pick;
use convforge_tools::{
    Contender,
    measure::{Options, View},
    suite::{Layer, Suite},
};

use crate::{
    args::{ProblemArgs, Shard, VariantArgs},
    failure::Failure,
    measuring::{MeasuringArgs, Run},
    terminal,
};
use fresh::{FreshArgs, tell_plan};

/// What is compared when nothing is asked for.
pub const DEFAULT_SUITE: &str = "quick";

#[derive(clap::Args)]
#[command(
    after_help = "Without --problem, --suite and --model it takes the suite `quick`, without --variant every \
                  variant of the device and `rule`. A variant is timed only after it has passed \
                  its check in the same run. A handwritten one that takes more than five times as \
                  long as the fastest gets three samples.\n\n\
                  For example:\n\
                  \x20 convforge compare --suite resnet50 --storage f16 --layout nhwc --out results.json\n\
                  \x20 convforge compare --problem mb64ic64ih56oc64oh56kh3ph1 --variant auto --variant cudnn"
)]
pub struct Args {
    #[command(flatten)]
    problems: ProblemArgs,
    /// Only the I-th of N shares of the problems, every N-th from the I-th on, as where several GPUs measure a suite
    #[arg(
        long,
        value_name = "I/N",
        default_value = "1/1",
        conflicts_with = "model"
    )]
    shard: Shard,
    #[command(flatten)]
    variants: VariantArgs,
    /// Compare the fastest configuration of a variant, too, where it is another than the default: of those near the
    /// fastest by their estimates, found by a few samples each, cuBLAS's too
    #[arg(long)]
    fastest_configs: bool,
    #[command(flatten)]
    measuring: MeasuringArgs,
    #[command(flatten)]
    fresh: FreshArgs,
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let Args {
        fresh, measuring, ..
    } = args;
    let (device, no_gpu) = measuring.open()?;
    let gpu = fresh.is_gpu(&device);
    let contenders = args.contenders(gpu)?;
    let layers = args.layers()?;
    // A place that cannot be written to should show now.
    let target = match fresh.plan {
        true => None,
        false => measuring.target()?,
    };
    let limits = device.limits();
    let mut run = Run::new(measuring, device, View::Compare, target)?;
    run.fastest_configs = args.fastest_configs;
    let layers = run.fit(layers, gpu);
    run.expect(&layers);
    let recorded = fresh.recorded(&limits, &run.report.environment)?;
    let cold = measuring.sampling.is_cold(gpu);
    let (mut units, empty) = fresh.near(layers, &contenders, &recorded, cold);
    if empty > 0 {
        let note = format!("--within leaves nobody of {empty} problems");
        terminal::remark(&note, measuring.prints_tables())?;
    }
    let all = units.len();
    units.retain(|(layer, group)| fresh.again || !recorded.has(layer, group, cold));
    if fresh.plan {
        units.retain(|unit| !run.has(unit));
        let options = Options {
            fastest_configs: args.fastest_configs,
            ..measuring.sampling.options(gpu)
        };
        return tell_plan(&options, &units, &recorded, all);
    }
    run.measure(no_gpu, &units)
}

impl Args {
    fn contenders(&self, gpu: bool) -> Result<Vec<Contender>, Failure> {
        let mut contenders = self.variants.compared(&self.variants.all(), gpu)?;
        if self.variants.is_empty() {
            contenders.push(Contender::Pick(Pick::Rule));
        }
        Ok(contenders)
    }

    fn layers(&self) -> Result<Vec<Layer>, Failure> {
        let all = match self.problems.is_empty() {
            true => self.problems.adapt(&Suite::find(DEFAULT_SUITE)?.layers)?,
            false => self.problems.layers()?,
        };
        Ok(self.shard.of(all).collect())
    }
}
