//! `convforge infer`: classifies images with the network of the accuracy study.

#[cfg(feature = "cuda")]
mod fused;

use std::{path::PathBuf, process::ExitCode};

use convforge::{Device, Math, Pick};
use convforge_tools::{
    measure::{Environment, duration},
    net::{Network, Outcome, npy::Array2},
};
use serde::Serialize;

use crate::{
    args::{DeviceArgs, SearchArgs},
    data::{Data, DataArgs},
    failure::Failure,
    terminal::{INTERRUPTED, Progress, catch_interrupts, interrupted, print_json},
};

/// Classifies Fashion-MNIST images, enlarged to 86x86, with a small LeNet whose two convolutions
/// any variant can do; everything stays on one device from pixels to classes.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    data: DataArgs,
    /// Only the first COUNT images
    #[arg(long)]
    count: Option<usize>,
    /// The variant of both convolutions, or one configuration as in fused_shared:tile=24; `rule`,
    /// `kernels` or a policy as in policy:per-layer choose one for each
    #[arg(long, default_value = "rule")]
    variant: Pick,
    #[command(flatten)]
    search: SearchArgs,
    /// How the convolutions multiply: fp32, tf32, f16, bf16 or f16acc
    #[arg(long, default_value = "fp32")]
    math: Math,
    /// Run the network with its layers fused, in fp32 accuracy, for a GPU of compute capability 9.0 or
    /// newer: whole time, kernels alone and copy in alone, medians of --runs
    #[arg(long, conflicts_with_all = ["variant", "batch"])]
    fused: bool,
    /// Timed runs of --fused
    #[arg(long, default_value_t = 30, requires = "fused")]
    runs: usize,
    /// Images per batch [default: all of them on a GPU, 500 on the CPU]
    #[arg(long)]
    batch: Option<usize>,
    /// Write the logits to a NumPy file
    #[arg(long, value_name = "OUT.npy")]
    logits: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

/// What was classified and how well.
#[derive(Serialize)]
struct Classified {
    environment: Environment,
    device: String,
    synthetic: bool,
    count: usize,
    math: String,
    correct: usize,
    accuracy: f64,
    max_logit_deviation: Option<f64>,
}

impl Classified {
    /// Judges the logits, and writes them where that was asked.
    fn new(
        args: &Args,
        device: &Device,
        data: &Data,
        outcome: &Outcome,
        options: &[&str],
    ) -> Result<Self, Failure> {
        if let Some(path) = &args.logits {
            let array = Array2 {
                rows: outcome.logits.len() / 10,
                cols: 10,
                data: outcome.logits.clone(),
            };
            array.write(path)?;
        }
        let classes = outcome.classes();
        let pairs = classes.iter().zip(&data.labels.values);
        let correct = pairs.filter(|(class, label)| class == label).count();
        let options = options.iter().map(|word| (*word).to_owned()).collect();
        let deviation = |expected: &Array2| outcome.deviation(&expected.data);
        Ok(Classified {
            environment: Environment::of(device, options),
            device: device.to_string(),
            synthetic: data.synthetic,
            count: data.images.count,
            math: args.math.to_string(),
            correct,
            accuracy: correct as f64 / data.images.count as f64,
            max_logit_deviation: data.expected.as_ref().map(deviation).transpose()?,
        })
    }

    fn print(&self) {
        if let Some(deviation) = self.max_logit_deviation {
            println!(
                "largest deviation from the expected logits: {deviation:.1e} of the row's largest"
            );
        }
        let meaning = if self.synthetic {
            " (synthetic: it means nothing)"
        } else {
            ""
        };
        println!(
            "accuracy: {} of {} = {:.4}{meaning}",
            self.correct, self.count, self.accuracy
        );
    }
}

/// What a run found, for programs.
#[derive(Serialize)]
struct Findings {
    #[serde(flatten)]
    classified: Classified,
    variants: [String; 2],
    op_us: [f64; 2],
    layer_us: [f64; 2],
    total_us: f64,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    if args.count == Some(0) || args.batch == Some(0) || args.runs == 0 {
        return Err(Failure::Usage(
            "--count, --batch and --runs must be at least 1".to_owned(),
        ));
    }
    if args.fused && args.math != Math::Fp32 {
        return Err(Failure::Usage(format!(
            "--fused computes in fp32 accuracy, not with --math {}",
            args.math
        )));
    }
    #[cfg(not(feature = "cuda"))]
    if args.fused {
        return Err(Failure::Usage(
            "--fused takes a GPU, and this build has no CUDA (feature `cuda`)".to_owned(),
        ));
    }
    let (device, why_no_gpu) = args.device.open()?;
    if let Some(why) = why_no_gpu {
        if args.fused {
            return Err(why.into());
        }
        eprintln!("{why}\nThe CPU backend runs instead.");
    }
    let data = args.data.read(args.count, "--count")?;
    #[cfg(feature = "cuda")]
    if args.fused {
        return fused::run(args, &device, data);
    }

    let outcome = classify(args, &device, &data)?;
    let Some(outcome) = outcome else {
        return Ok(ExitCode::from(INTERRUPTED));
    };
    let options = [
        "infer",
        "--variant",
        &args.variant.to_string(),
        "--math",
        &args.math.to_string(),
    ];
    let findings = Findings {
        classified: Classified::new(args, &device, &data, &outcome, &options)?,
        op_us: outcome.op_us,
        layer_us: outcome.layer_us,
        total_us: outcome.total_us,
        variants: outcome.variants,
    };
    if args.json {
        print_json(&findings)?
    } else {
        print(&findings)
    }
    Ok(ExitCode::SUCCESS)
}

/// Nothing where Ctrl-C ended it.
fn classify(args: &Args, device: &Device, data: &Data) -> Result<Option<Outcome>, Failure> {
    let images = &data.images;
    let batch = args
        .batch
        .unwrap_or(if device.is_gpu() { images.count } else { 500 });
    let contender = args.search.contenders().named(&args.variant)?;
    let mut network = Network::new(device, &data.weights, &contender, args.math)?;
    catch_interrupts();
    let mut progress = Progress::new(images.count.div_ceil(batch));
    let outcome = network.classify(images, batch, &mut |done| {
        progress.step();
        progress.say(&format!("{done} of {} images", images.count));
        !interrupted()
    });
    match outcome {
        Err(error) if error.is_interruption() => Ok(None),
        outcome => Ok(Some(outcome?)),
    }
}

fn print(f: &Findings) {
    let of = &f.classified;
    println!("{} images on {}, {} math", of.count, of.device, of.math);
    for (i, name) in ["conv 1 -> 4, 7x7 ", "conv 4 -> 16, 7x7"]
        .into_iter()
        .enumerate()
    {
        println!(
            "{name}  op time {:>10}, layer time {:>10}  ({})",
            duration(f.op_us[i]),
            duration(f.layer_us[i]),
            f.variants[i]
        );
    }
    println!("total time, pixels to logits: {}", duration(f.total_us));
    of.print();
}
