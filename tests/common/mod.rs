//! What tests share that need a GPU, or go through every variant.
#![allow(dead_code, reason = "each test takes what it needs")]

use std::{env, sync::Arc};

use convforge::{
    Conv, Device, Error, Problem,
    variant::{Kind, Variant},
    variants,
};
use libtest_mimic::{Completion, Failed, Trial};

/// What a trial ends with.
pub type Answer = Result<Completion, Failed>;

/// A trial on `device`; without one it is ignored with the reason, or fails under
/// `CONVFORGE_REQUIRE_GPU=1`.
pub fn trial(
    name: &str,
    device: Result<Device, String>,
    test: impl FnOnce(&Device) -> Answer + Send + 'static,
) -> Trial {
    Trial::ignorable_test(name, move || match &device {
        Ok(device) => test(device),
        Err(why) if gpu_is_required() => Err(why.into()),
        Err(why) => Ok(Completion::ignored_with(why)),
    })
}

/// A variant and the index of one of its configurations.
pub type Configured = (Arc<dyn Variant>, usize);

/// Every configuration of every variant.
pub fn configured() -> impl Iterator<Item = Configured> {
    variants::all().iter().flat_map(|variant| {
        let configs = variant.info().configs.len().max(1);
        (0..configs).map(|config| (variant.clone(), config))
    })
}

/// The device of a variant's kind, or why there is none.
pub fn device_of(variant: &dyn Variant, gpu: &Result<Device, String>) -> Result<Device, String> {
    match variant.info().kind {
        Kind::Cpu => Ok(Device::cpu()),
        _ => gpu.clone(),
    }
}

/// A trial for each configuration of each variant, on the device of its kind.
pub fn trials<'a>(
    gpu: &'a Result<Device, String>,
    what: &'a str,
    test: fn(&Device, &Configured) -> Answer,
) -> impl Iterator<Item = Trial> + 'a {
    configured().map(move |configured| {
        let (variant, config) = &configured;
        let name = format!("{} {what}", variant.info().spelled(*config));
        let device = device_of(&**variant, gpu);
        trial(&name, device, move |device| test(device, &configured))
    })
}

/// What a trial fails with where something does not hold.
pub fn ensure(holds: bool, otherwise: &str) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}

/// Whether a missing GPU is a failure, as the command reads it.
pub fn gpu_is_required() -> bool {
    env::var("CONVFORGE_REQUIRE_GPU").is_ok_and(|value| !value.is_empty() && value != "0")
}

/// The first of the problems that the variant can do, ready to run; or what the trial ends with.
pub fn conv(
    device: &Device,
    (variant, config): &Configured,
    problems: &[&str],
) -> Result<Conv, Answer> {
    let mut refused = "can do none of the problems".to_owned();
    for text in problems {
        let problem: Problem = text.parse().expect("a problem");
        match Conv::with_variant(device, &problem, variant.clone(), *config) {
            Ok(conv) => return Ok(conv),
            // A library that is not there, or that has no such plan.
            Err(error @ (Error::Library { .. } | Error::Unsupported { .. })) => {
                refused = error.to_string();
            }
            Err(error) => return Err(Err(error.into())),
        }
    }
    Err(Ok(Completion::ignored_with(refused)))
}
