//! `convforge sweep`: every configuration of a variant, checked, then timed side by side.

use std::{process::ExitCode, sync::Arc};

use convforge::{Device, Pick, variant::Variant};
use convforge_tools::{
    Contender, Contenders,
    measure::View,
    suite::{Layer, Overrides, Suite},
};

use crate::{
    args::{self, Configs, ProblemArgs, SearchArgs},
    compare,
    failure::Failure,
    measuring::{MeasuringArgs, Run, Unit},
};

/// What is swept on a GPU when nothing is asked for, and with how many images.
const DEFAULT_SUITES: [&str; 2] = ["report-86", "report-70"];
const DEFAULT_BATCH: usize = 1000;

#[derive(clap::Args)]
#[command(
    after_help = "Without --problem, --suite and --model it takes the layers of report-86 and report-70 \
                        with 1000 images; on the CPU the suite `quick`. A configuration is timed \
                        only after it has passed its check in the same run. --svg draws a curve \
                        where configurations are numbers, as tile=4 to tile=32, bars elsewhere.\n\n\
                  For example:\n\
                  \x20 convforge sweep fused_shared --problem mb1000ic4ih40oc16oh34kh7 --svg charts"
)]
pub struct Args {
    /// Variants of which every configuration is timed [default: those of the device that have more
    /// than one]
    #[arg(value_name = "VARIANT")]
    variants: Vec<Pick>,
    #[command(flatten)]
    search: SearchArgs,
    #[command(flatten)]
    problems: ProblemArgs,
    #[command(flatten)]
    measuring: MeasuringArgs,
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let (device, no_gpu) = args.measuring.open()?;
    let groups = groups(&args.search.contenders(), &args.variants, &device)?;
    let (layers, gpu) = (layers(&args.problems, &device)?, device.is_gpu());
    let target = args.measuring.target()?;
    let mut run = Run::new(&args.measuring, device, View::Sweep, target)?;
    let mut units: Vec<Unit> = Vec::new();
    for layer in run.fit(layers, gpu) {
        units.extend(groups.iter().map(|group| (layer.clone(), group.clone())));
    }
    run.measure(no_gpu, &units)
}

fn layers(problems: &ProblemArgs, device: &Device) -> Result<Vec<Layer>, Failure> {
    if !problems.is_empty() {
        return problems.layers();
    }
    if !device.is_gpu() {
        return problems.adapt(&Suite::find(compare::DEFAULT_SUITE)?.layers);
    }
    let mut layers = Vec::new();
    for suite in DEFAULT_SUITES {
        layers.extend(Suite::find(suite)?.layers);
    }
    let one_batch = Overrides {
        batch: Some(DEFAULT_BATCH),
        ..Overrides::default()
    };
    problems.adapt(&one_batch.apply(&layers)?)
}

/// The configurations of each variant.
fn groups(
    all: &Contenders,
    named: &[Pick],
    device: &Device,
) -> Result<Vec<Vec<Contender>>, Failure> {
    let variants: Vec<Arc<dyn Variant>> = match named {
        [] => {
            let fitting = all.on(device.is_gpu());
            fitting.filter(has_several).cloned().collect()
        }
        named => {
            let named = named.iter().map(|pick| to_sweep(all, pick));
            named.collect::<Result<_, _>>()?
        }
    };
    if variants.is_empty() {
        return Err(nothing(all, &format!("no variant on {device} has")));
    }
    let group = |variant| Configs::All.of(variant).collect();
    Ok(variants.iter().map(group).collect())
}

/// A variant that was named, if a sweep of it makes sense.
fn to_sweep(all: &Contenders, pick: &Pick) -> Result<Arc<dyn Variant>, Failure> {
    let (name, config) = match pick {
        Pick::Named { variant, config } => (variant, config),
        _ => return Err(args::no_variant(pick)),
    };
    let variant = all.find(name)?;
    match config {
        Some(_) => Err(Failure::Usage(format!(
            "a sweep takes every configuration of a variant: name `{name}` alone, or time this \
             one with `convforge compare --variant {pick}`"
        ))),
        None if has_several(&&variant) => Ok(variant),
        None => Err(nothing(all, &format!("`{name}` does not have"))),
    }
}

fn has_several(variant: &&Arc<dyn Variant>) -> bool {
    variant.info().configs.len() > 1
}

/// That there is nothing to sweep, and what could be instead.
fn nothing(all: &Contenders, who: &str) -> Failure {
    let several = all.all().iter().filter(has_several);
    let names: Vec<&str> = several.map(|variant| &*variant.info().name).collect();
    let instead = match &names[..] {
        [] => "nor has any other variant of this build".to_owned(),
        names => format!("these have: {}", names.join(", ")),
    };
    Failure::Usage(format!(
        "{who} more than one configuration to sweep; {instead}"
    ))
}
