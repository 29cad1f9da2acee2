//! `convforge devices`: what there is to run on, and with.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use convforge::{Device, Limits, chain};
use convforge_tools::measure::{self, Ceilings, Library, bytes};
use serde_json::json;

use crate::{failure::Failure, terminal};

#[derive(clap::Args)]
pub struct Args {
    /// Measure what each GPU does at best: memory, arithmetic
    #[arg(long)]
    ceilings: bool,
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
            Err(why) => break gpus.is_empty().then(|| chain(&why)),
        }
    };
    if args.json {
        return print_json(args, &gpus, no_gpu);
    }

    let mut out = io::stdout().lock();
    writeln!(
        out,
        "cpu    {}, {}",
        measure::cpu_name(),
        Device::cpu().name()
    )?;
    for (ordinal, gpu) in gpus.iter().enumerate() {
        writeln!(
            out,
            "gpu:{ordinal}  {}, {}",
            gpu.name(),
            describe(&gpu.limits())
        )?;
        if args.ceilings {
            print_ceilings(&mut out, gpu)?;
        }
    }
    let libraries = measure::libraries();
    if let Some(why) = no_gpu {
        let told = |library: &&Library| {
            let version = library.version.as_ref();
            version.is_err_and(|reason| why.ends_with(reason.as_str()))
        };
        // What keeps a library from being used is told below.
        match libraries.iter().find(told) {
            Some(library) => writeln!(out, "gpu    none: no {} to use", library.name)?,
            None => writeln!(out, "gpu    none: {}", why.trim_start_matches("no GPU: "))?,
        }
    }
    writeln!(out)?;
    if let Some(version) = measure::driver_version() {
        writeln!(out, "NVIDIA driver {version}")?;
    }
    for library in libraries {
        match library.version {
            Ok(version) => writeln!(out, "{} {version}", library.name)?,
            Err(why) => writeln!(out, "{} cannot be used: {why}", library.name)?,
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

fn print_ceilings(out: &mut impl Write, gpu: &Device) -> io::Result<()> {
    match Ceilings::measure(gpu) {
        Ok(ceilings) => ceilings
            .lines()
            .into_iter()
            .try_for_each(|[what, rate, by]| writeln!(out, "       {what:7} {rate:>12}  {by}")),
        Err(why) => writeln!(out, "       not measured: {}", chain(&why)),
    }
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

fn print_json(args: &Args, gpus: &[Device], no_gpu: Option<String>) -> Result<ExitCode, Failure> {
    let cpu = json!({
        "device": "cpu",
        "name": measure::cpu_name(),
        "limits": Device::cpu().limits(),
    });
    let gpus = gpus.iter().enumerate().map(|(ordinal, gpu)| {
        let device = format!("gpu:{ordinal}");
        let mut object = json!({"device": device, "name": gpu.name(), "limits": gpu.limits()});
        if args.ceilings {
            object["ceilings"] = match Ceilings::measure(gpu) {
                Ok(ceilings) => json!(ceilings),
                Err(why) => json!({"error": chain(&why)}),
            };
        }
        object
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
        "csrc": convforge::CSRC_HASH,
        "libraries": libraries.collect::<Vec<_>>(),
    }))?;
    Ok(ExitCode::SUCCESS)
}
