//! `convforge compare`: check, then time side by side.

use std::process::ExitCode;

use convforge::Pick;
use convforge_tools::{Contender, measure::View, suite::Suite};

use crate::{
    args::{ProblemArgs, VariantArgs},
    failure::Failure,
    measuring::MeasuringArgs,
};

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
    #[command(flatten)]
    variants: VariantArgs,
    #[command(flatten)]
    measuring: MeasuringArgs,
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let (device, no_gpu) = args.measuring.open()?;
    let mut contenders = args
        .variants
        .compared(&args.variants.all(), args.measuring.is_gpu(&device))?;
    if args.variants.is_empty() {
        contenders.push(Contender::Pick(Pick::Rule));
    }
    let layers = match args.problems.is_empty() {
        true => args.problems.adapt(&Suite::find(DEFAULT_SUITE)?.layers),
        false => args.problems.layers(),
    };
    let groups = [contenders];
    args.measuring
        .measure((device, no_gpu), layers?, &groups, View::Compare)
}
