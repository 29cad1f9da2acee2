//! `convforge infer`: classifies images with the network of the accuracy study.

use std::{path::PathBuf, process::ExitCode};

use convforge::{
    Device, Error, Math, Pick,
    measure::{Environment, duration},
    net::{
        Network, Outcome, SIDE,
        idx::{Images, Labels},
        npy::Array2,
        resize::resize,
        weights::Weights,
    },
};
use serde::Serialize;

use crate::{
    args::DeviceArgs,
    failure::Failure,
    terminal::{INTERRUPTED, Progress, catch_interrupts, interrupted, print_json},
};

/// Images of a run without files.
const SYNTHETIC: usize = 1000;
/// Seed of synthetic images and weights.
const SEED: u64 = 1;

/// Classifies Fashion-MNIST images, enlarged to 86x86, with a small LeNet whose two convolutions
/// any variant can do; everything stays on one device from pixels to classes. Without files it
/// runs on synthetic images and weights.
#[derive(clap::Args)]
pub struct Args {
    /// IDX file of images, plain or gzip; 28x28, or already 86x86
    #[arg(long, value_name = "FILE", requires = "labels")]
    images: Option<PathBuf>,
    /// IDX file of their labels, plain or gzip
    #[arg(long, value_name = "FILE", requires = "images")]
    labels: Option<PathBuf>,
    /// Weight file of the network: safetensors as scripts/train.py writes it (its result is
    /// benches/weights/fashion-mnist-86.safetensors), or counted layers of float32
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
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
    /// Compare the logits with those of a NumPy file
    #[arg(long, value_name = "FILE.npy")]
    expect: Option<PathBuf>,
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
    let (images, labels) = read_images(args)?;
    let weights = match &args.weights {
        Some(path) => Weights::read(path)?,
        None => {
            eprintln!(
                "No weight file was given: the weights are synthetic, accuracy means nothing."
            );
            Weights::synthetic(SEED)
        }
    };
    let expected = args.expect.as_ref().map(Array2::read).transpose()?;
    if let Some(expected) = &expected
        && (expected.cols != 10 || expected.rows < images.count)
    {
        return Err(Failure::Usage(format!(
            "the expected logits are {} x {}; {} x 10 or more are needed",
            expected.rows, expected.cols, images.count
        )));
    }

    let outcome = classify(args, &device, &weights, &images)?;
    let Some(outcome) = outcome else {
        return Ok(ExitCode::from(INTERRUPTED));
    };
    if let Some(path) = &args.logits {
        Array2 {
            rows: images.count,
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
        .zip(&labels.values)
        .filter(|(c, l)| c == l)
        .count();
    let findings = Findings {
        environment: Environment::of(&device, options),
        device: device.to_string(),
        synthetic: args.images.is_none() || args.weights.is_none(),
        count: images.count,
        math: args.math.to_string(),
        correct,
        accuracy: correct as f64 / images.count as f64,
        max_logit_deviation: expected.map(|e| outcome.deviation(&e.data)).transpose()?,
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

/// The images, enlarged, and their labels.
fn read_images(args: &Args) -> Result<(Images, Labels), Failure> {
    let (mut images, labels) = match (&args.images, &args.labels) {
        (Some(images), Some(labels)) => {
            let (path, images, labels) = (labels, Images::read(images)?, Labels::read(labels)?);
            if images.count != labels.values.len() {
                let why = format!(
                    "{} labels, but there are {} images: the files do not belong together",
                    labels.values.len(),
                    images.count
                );
                return Err(Error::File {
                    path: path.clone(),
                    why,
                }
                .into());
            }
            if images.count == 0 {
                let why = "no label in it: there is nothing to classify".to_owned();
                return Err(Error::File {
                    path: path.clone(),
                    why,
                }
                .into());
            }
            (images, labels)
        }
        _ => {
            eprintln!("No files were given: the images are synthetic.");
            Images::synthetic(args.count.unwrap_or(SYNTHETIC), SEED)?
        }
    };
    if let Some(count) = args.count {
        if count > images.count {
            return Err(Failure::Usage(format!(
                "--count {count}, but there are only {} images",
                images.count
            )));
        }
        images.pixels.truncate(count * images.rows * images.cols);
        images.count = count;
    }
    if (images.rows, images.cols) != (SIDE, SIDE) {
        images = resize(&images, SIDE)?;
    }
    Ok((images, labels))
}

/// Nothing where Ctrl-C ended it.
fn classify(
    args: &Args,
    device: &Device,
    weights: &Weights,
    images: &Images,
) -> Result<Option<Outcome>, Failure> {
    let batch = args
        .batch
        .unwrap_or(if device.is_gpu() { images.count } else { 500 });
    let mut network = Network::new(device, weights, args.variant.clone(), args.math)?;
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
