//! `convforge infer`: classifies images with the network of the accuracy study.

use std::{path::PathBuf, process::ExitCode};

use convforge::{
    Device, Error, Math, Pick,
    measure::{Environment, duration},
    net::{Network, Outcome, npy::Array2},
};
use serde::Serialize;

use crate::{
    args::DeviceArgs,
    data::{Data, DataArgs},
    failure::Failure,
    terminal::{INTERRUPTED, Progress, catch_interrupts, interrupted, print_json},
};

/// Classifies Fashion-MNIST images, enlarged to 86x86, with a small LeNet whose two convolutions
/// any variant can do; everything stays on one device from pixels to classes. Without files it
/// runs on synthetic images and weights.
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
    /// How the convolutions multiply: fp32, tf32, f16, bf16 or f16acc
    #[arg(long, default_value = "fp32")]
    math: Math,
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

/// What a run found, for programs.
#[derive(Serialize)]
struct Findings {
    environment: Environment,
    device: String,
    synthetic: bool,
    count: usize,
    math: String,
    variants: [String; 2],
    correct: usize,
    accuracy: f64,
    op_us: [f64; 2],
    layer_us: [f64; 2],
    total_us: f64,
    max_logit_deviation: Option<f64>,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    if args.count == Some(0) || args.batch == Some(0) {
        return Err(Failure::Usage(
            "--count and --batch must be at least 1".to_owned(),
        ));
    }
    let (device, why_no_gpu) = args.device.open()?;
    if let Some(why) = why_no_gpu {
        eprintln!("{why}\nThe CPU backend runs instead.");
    }
    let data = args.data.read(args.count, "--count")?;

    let outcome = classify(args, &device, &data)?;
    let Some(outcome) = outcome else {
        return Ok(ExitCode::from(INTERRUPTED));
    };
    if let Some(path) = &args.logits {
        Array2 {
            rows: data.images.count,
            cols: 10,
            data: outcome.logits.clone(),
        }
        .write(path)?;
    }
    let options = [
        "infer",
        "--variant",
        &args.variant.to_string(),
        "--math",
        &args.math.to_string(),
    ];
    let options = options.map(str::to_owned).to_vec();
    let correct = outcome
        .classes()
        .iter()
        .zip(&data.labels.values)
        .filter(|(c, l)| c == l)
        .count();
    let findings = Findings {
        environment: Environment::of(&device, options),
        device: device.to_string(),
        synthetic: data.synthetic,
        count: data.images.count,
        math: args.math.to_string(),
        correct,
        accuracy: correct as f64 / data.images.count as f64,
        max_logit_deviation: data
            .expected
            .map(|e| outcome.deviation(&e.data))
            .transpose()?,
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
    let mut network = Network::new(device, &data.weights, args.variant.clone(), args.math)?;
    catch_interrupts();
    let mut progress = Progress::new(images.count.div_ceil(batch));
    let outcome = network.classify(images, batch, &mut |done| {
        progress.step();
        progress.say(&format!("{done} of {} images", images.count));
        !interrupted()
    });
    match outcome {
        Err(Error::Interrupted) => Ok(None),
        outcome => Ok(Some(outcome?)),
    }
}

fn print(f: &Findings) {
    println!("{} images on {}, {} math", f.count, f.device, f.math);
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
    if let Some(deviation) = f.max_logit_deviation {
        println!(
            "largest deviation from the expected logits: {deviation:.1e} of the row's largest"
        );
    }
    let meaning = if f.synthetic {
        " (synthetic: it means nothing)"
    } else {
        ""
    };
    println!(
        "accuracy: {} of {} = {:.4}{meaning}",
        f.correct, f.count, f.accuracy
    );
}
