//! `convforge infer`: classifies images with the network of the accuracy study.

mod args;
mod classified;
#[cfg(feature = "cuda")]
mod fused;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use convforge::{Device, Math};
use convforge_tools::{
    measure::duration,
    net::{Network, Outcome},
};
use serde::Serialize;

pub use args::Args;
use classified::Classified;

use crate::{
    data::Data,
    failure::Failure,
    terminal::{
        INTERRUPTED, Progress, catch_interrupts, interrupted, no_gpu, out, print_json, remark,
    },
};

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
        remark(&no_gpu(&why), !args.json)?;
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
        print_json(&findings)?;
    } else {
        print(&findings)?;
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

fn print(f: &Findings) -> io::Result<()> {
    let mut out = out();
    let of = &f.classified;
    writeln!(
        out,
        "{} images on {}, {} math",
        of.count, of.device, of.math
    )?;
    for (i, name) in ["conv 1 -> 4, 7x7 ", "conv 4 -> 16, 7x7"]
        .into_iter()
        .enumerate()
    {
        writeln!(
            out,
            "{name}  op time {:>10}, layer time {:>10}  ({})",
            duration(f.op_us[i]),
            duration(f.layer_us[i]),
            f.variants[i]
        )?;
    }
    writeln!(
        out,
        "total time, pixels to logits: {}",
        duration(f.total_us)
    )?;
    of.print(&mut out)
}
