//! What tests share that need a GPU, or go through every variant.
#![allow(dead_code, reason = "each test takes what it needs")]

pub mod drawn;

use std::env;

use bytemuck::Pod;
use convforge::{
    Device, Element, Problem, Storage,
    variant::{Configured, Info, Kind},
    variants,
};
use convforge_check::{Data, Recipe, Tensor};
use half::{bf16, f16};
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

/// Every configuration of every variant.
pub fn configured() -> impl Iterator<Item = Configured> {
    variants::all().iter().flat_map(Configured::all_of)
}

/// The device of a variant's kind, or why there is none.
pub fn device_of(info: &Info, gpu: &Result<Device, String>) -> Result<Device, String> {
    match info.kind {
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
        let name = format!("{} {what}", configured.name());
        let device = device_of(configured.info(), gpu);
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

/// `test::<T>(arguments)` with the type that a storage stands for.
#[allow(unused_macros, reason = "each test takes what it needs")]
macro_rules! with_element {
    ($storage:expr, $test:ident($($argument:expr),*)) => {
        match $storage {
            convforge::Storage::F32 => $test::<f32>($($argument),*),
            convforge::Storage::F16 => $test::<half::f16>($($argument),*),
            convforge::Storage::Bf16 => $test::<half::bf16>($($argument),*),
        }
    };
}
#[allow(unused_imports, reason = "each test takes what it needs")]
pub(crate) use with_element;

/// Operands of a recipe.
pub fn values<T: Pod>(problem: &Problem, data: Data, tensor: Tensor, seed: u64) -> Vec<T> {
    let bytes = Recipe::new(problem, data, seed).bytes(tensor);
    let elements = bytes.chunks_exact(size_of::<T>());
    elements.map(bytemuck::pod_read_unaligned).collect()
}

/// Those of the benchmark of the host's time.
pub fn host_problems() -> impl Iterator<Item = Problem> {
    let lines = include_str!("../../benches/host-problems.txt").lines();
    let problems = lines.filter(|line| !line.starts_with('#'));
    problems.map(|text| text.parse().unwrap_or_else(|error| panic!("{error}")))
}

/// NaN in every storage.
pub fn poison<T: Element>(len: usize) -> Vec<T> {
    let mut values = vec![T::zeroed(); len];
    bytemuck::cast_slice_mut::<T, u8>(&mut values).fill(0xff);
    values
}

/// Elements as f32, of which zeros of both signs are equal.
pub fn numbers<T: Element>(values: &[T]) -> Vec<f32> {
    match T::STORAGE {
        Storage::F32 => bytemuck::cast_slice::<T, f32>(values).to_vec(),
        Storage::F16 => {
            let values: &[f16] = bytemuck::cast_slice(values);
            values.iter().map(|v| v.to_f32()).collect()
        }
        Storage::Bf16 => {
            let values: &[bf16] = bytemuck::cast_slice(values);
            values.iter().map(|v| v.to_f32()).collect()
        }
    }
}
