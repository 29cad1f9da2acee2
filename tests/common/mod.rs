//! What tests share that need a GPU, or go through every variant.
#![allow(dead_code, reason = "each test takes what it needs")]

use std::{
    env,
    path::{Path, PathBuf},
    sync::Arc,
};

use convforge::{
    Conv, Device, Error, Problem,
    variant::{self, Kind, Query, Variant},
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

/// A trial for each variant, on the device of its kind.
pub fn trials(
    gpu: &Result<Device, String>,
    test: fn(&Device, &Arc<dyn Variant>) -> Answer,
) -> impl Iterator<Item = Trial> {
    variants::all().iter().map(move |variant| {
        let device = match variant.info().kind {
            Kind::Cpu => Ok(Device::Cpu),
            _ => gpu.clone(),
        };
        let variant = variant.clone();
        let name = variant.info().name.clone();
        trial(&name, device, move |device| test(device, &variant))
    })
}

/// Whether a missing GPU is a failure, as the command reads it.
pub fn gpu_is_required() -> bool {
    env::var("CONVFORGE_REQUIRE_GPU").is_ok_and(|value| !value.is_empty() && value != "0")
}

/// Where the real data is, if anywhere: CONVFORGE_DATA, or beside the checkout.
pub fn data_folder() -> PathBuf {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/fashion-mnist");
    env::var_os("CONVFORGE_DATA").map_or_else(beside, PathBuf::from)
}

/// The first of the problems that the variant can do, planned; or what the trial ends with.
pub fn conv(
    device: &Device,
    variant: &Arc<dyn Variant>,
    problems: &[&str],
) -> Result<Conv, Answer> {
    let limits = device.limits();
    let mut problems = problems
        .iter()
        .map(|text| text.parse::<Problem>().expect("a problem"));
    let supported = problems.find(|problem| {
        let query = Query {
            problem,
            config: 0,
            limits: &limits,
        };
        variant::supports(&**variant, device, &query).is_ok()
    });
    let ignored = |why: String| Err(Ok(Completion::ignored_with(why)));
    let Some(problem) = supported else {
        return ignored("can do none of the problems".to_owned());
    };
    match Conv::with_variant(device, &problem, variant.clone(), 0) {
        Ok(conv) => Ok(conv),
        // A library that is not there, or that has no such plan.
        Err(error @ (Error::Library { .. } | Error::Unsupported { .. })) => {
            ignored(error.to_string())
        }
        Err(error) => Err(Err(error.into())),
    }
}
