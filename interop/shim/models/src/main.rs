//! Models of candle-transformers, unmodified, with convforge's convolutions beside candle's own.

use std::{process::ExitCode, time::Duration};

use candle_core::{DType, Device};
use clap::{Parser, ValueEnum};
use convforge_candle::Pick;
use models::{Answer, Net, Options, measure};

/// Models of candle-transformers, unmodified, with convforge's convolutions beside candle's own:
/// outputs compared, times, and on a GPU the memory. Weights are made on the spot.
///
/// Ends with status 1 where an output is wrong.
#[derive(Parser)]
struct Args {
    /// The models; all but resnet18 where none is named.
    #[arg(long = "model", value_enum)]
    models: Vec<Net>,
    /// `cpu`, `cuda` or `cuda:1` (feature `cuda`).
    #[arg(long, default_value = "cpu", value_parser = device)]
    device: Device,
    /// Type of weights and activations.
    #[arg(long, value_enum, default_value = "f32")]
    dtype: Type,
    /// Images.
    #[arg(long, default_value_t = 1)]
    batch: usize,
    /// Rows and columns of an image, a multiple of 32.
    #[arg(long, default_value_t = 224, value_parser = clap::value_parser!(u32).range(32..))]
    size: u32,
    /// Seconds that each time is taken over, at least three calls.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Times every convolution by itself, too.
    #[arg(long)]
    layers: bool,
    /// How convforge finds the kernel of a convolution by itself, as `cudnn` or `implicit_gemm_nchw`; left out,
    /// as in the model.
    #[arg(long, requires = "layers")]
    pick: Option<Pick>,
    /// Of weights and input.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One JSON object per model, for programs.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Type {
    F32,
    F16,
    Bf16,
}

fn device(text: &str) -> anyhow::Result<Device> {
    match text.split_once(':').unwrap_or((text, "0")) {
        ("cpu", _) => Ok(Device::Cpu),
        ("cuda", ordinal) => Ok(Device::new_cuda(ordinal.parse()?)?),
        _ => anyhow::bail!("a device is cpu, cuda or cuda:1"),
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let options = Options {
        device: args.device,
        dtype: match args.dtype {
            Type::F32 => DType::F32,
            Type::F16 => DType::F16,
            Type::Bf16 => DType::BF16,
        },
        batch: args.batch,
        size: args.size as usize,
        seed: args.seed,
        least: Duration::try_from_secs_f64(args.seconds)?,
        layers: args.layers,
        pick: args.pick,
    };
    let all = [Net::Resnet50, Net::ConvnextT, Net::EfficientnetB0, Net::Vae];
    let models = match &args.models[..] {
        [] => &all[..],
        some => some,
    };
    let mut code = ExitCode::SUCCESS;
    for net in models {
        let answer = measure(*net, &options)?;
        match args.json {
            true => println!("{}", serde_json::to_string(&answer)?),
            false => print(&answer),
        }
        if let Some(why) = answer.wrong() {
            eprintln!("{net:?}: the output {why}");
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

fn print(answer: &Answer) {
    let Answer {
        net,
        convolutions,
        difference,
        convforge_ms,
        candle_ms,
        ..
    } = answer;
    let with = if answer.cudnn { " with cuDNN" } else { "" };
    println!(
        "{net:?}: {convolutions} convolutions, {convforge_ms:.2} ms; candle's own{with} \
         {candle_ms:.2} ms, {:.2} times as long; outputs differ by {difference:.1e}",
        candle_ms / convforge_ms
    );
    if let (Some(ours), Some(candles)) = (answer.convforge_bytes, answer.candle_bytes) {
        let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
        println!(
            "  {:.1} MiB beside the weights; candle's own {:.1} MiB",
            mib(ours),
            mib(candles)
        );
    }
    for layer in &answer.layers {
        println!(
            "  {:2} x {:<48} {:8.3} ms {:<32} candle {:8.3} ms, {:5.2}; differ by {:.1e}",
            layer.count,
            layer.problem,
            layer.convforge_ms,
            layer.variant,
            layer.candle_ms,
            layer.candle_ms / layer.convforge_ms,
            layer.difference
        );
    }
}
