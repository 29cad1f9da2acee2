//! `convforge devices`: what there is to run on, and with.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use convforge::{
    Device, Limits,
    measure::{self, bytes},
};
use serde_json::json;

use crate::{failure::Failure, terminal};

#[derive(clap::Args)]
pub struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let mut gpus = Vec::new();
    let no_gpu = loop {
        match Device::gpu(gpus.len()) {
            Ok(gpu) => gpus.push(gpu),
            // Beyond the last one this only says that there are no more.
            Err(why) => break gpus.is_empty().then(|| why.to_string()),
        }
    };
    if args.json {
        return print_json(&gpus, no_gpu);
    }

    let mut out = io::stdout().lock();
    writeln!(
        out,
        "cpu    {}, {}",
        measure::cpu_name(),
        Device::Cpu.name()
    )?;
    for (ordinal, gpu) in gpus.iter().enumerate() {
        writeln!(
            out,
            "gpu:{ordinal}  {}, {}",
            gpu.name(),
            describe(&gpu.limits())
        )?;
    }
    if let Some(why) = no_gpu {
        writeln!(out, "gpu    none: {}", why.trim_start_matches("no GPU: "))?;
    }
    writeln!(out)?;
    if let Some(version) = measure::driver_version() {
        writeln!(out, "NVIDIA driver {version}")?;
    }
    for library in measure::libraries() {
        match library.version {
            Ok(version) => writeln!(out, "{} {version}", library.name)?,
            Err(why) => writeln!(out, "{} not found: {why}", library.name)?,
        }
    }
    for (feature, built) in [
        ("cuda", cfg!(feature = "cuda")),
        ("cudnn", cfg!(feature = "cudnn")),
    ] {
        if !built {
            writeln!(out, "This build is without the feature `{feature}`.")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn describe(limits: &Limits) -> String {
    format!(
        "sm_{}, {} SMs at up to {:.2} GHz, {} memory, {} L2, {} shared memory per block ({} per \
         SM)",
        limits.arch,
        limits.sm_count,
        f64::from(limits.clock_khz) / 1e6,
        bytes(limits.memory_bytes as usize),
        bytes(limits.l2_bytes as usize),
        bytes(limits.shared_per_block as usize),
        bytes(limits.shared_per_sm as usize),
    )
}

fn print_json(gpus: &[Device], no_gpu: Option<String>) -> Result<ExitCode, Failure> {
    let cpu = json!({
        "device": "cpu",
        "name": measure::cpu_name(),
        "limits": Device::Cpu.limits(),
    });
    let gpus = gpus.iter().enumerate().map(|(ordinal, gpu)| {
        json!({"device": format!("gpu:{ordinal}"), "name": gpu.name(), "limits": gpu.limits()})
    });
    let libraries = measure::libraries().into_iter().map(|library| {
        let (version, error) = match library.version {
            Ok(version) => (Some(version), None),
            Err(why) => (None, Some(why)),
        };
        json!({"name": library.name, "version": version, "error": error})
    });
    terminal::print_json(&json!({
        "devices": std::iter::once(cpu).chain(gpus).collect::<Vec<_>>(),
        "no_gpu": no_gpu,
        "driver": measure::driver_version(),
        "libraries": libraries.collect::<Vec<_>>(),
    }))?;
    Ok(ExitCode::SUCCESS)
}
