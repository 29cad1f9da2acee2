//! The network with its layers fused against the layers one by one, whose convolutions are checked
//! against the oracle elsewhere.
//!
//! Without a GPU every case is `ignored`, with the reason; `CONVFORGE_REQUIRE_GPU=1` makes that a
//! failure.

mod common;

use std::process::ExitCode;

use common::{Answer, count_right, own_weights, real_images, reports_file};
use convforge::{Device, Math, Pick};
use convforge_tools::{
    Contender,
    net::{
        FusedNetwork, Network, Outcome, SIDE, idx::Images, npy::Array2, resize::resize,
        weights::Weights,
    },
};
use libtest_mimic::{Arguments, Completion, Failed};

/// Of the largest logit of an image. Sums of 1296 features, each a sum of 196 products, round by
/// about 1e-6 in fp32, in either network; f16 alone is beyond 3e-4.
const BOUND: f64 = 5e-6;

type Case = fn(&Device) -> Answer;

const CASES: &[(&str, Case)] = &[
    ("batches_of_odd_sizes", batches_of_odd_sizes),
    ("weights_of_any_magnitude", weights_of_any_magnitude),
    ("a_channel_of_zeros", a_channel_of_zeros),
    ("the_brightest_images", the_brightest_images),
    ("what_does_not_fit_is_refused", what_does_not_fit_is_refused),
    ("the_real_images", the_real_images),
    ("the_reports_accuracies", the_reports_accuracies),
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    let gpu = Device::gpu(0).map_err(|why| convforge::chain(&why));
    if gpu.is_ok() {
        arguments.test_threads.get_or_insert(1);
    }
    let trials = CASES.iter().map(|&(name, case)| {
        common::trial(name, gpu.clone(), move |device| {
            if device.limits().arch < 90 {
                let why = "the fused network takes a GPU of compute capability 9.0 or newer";
                return Ok(Completion::ignored_with(why));
            }
            case(device)
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn images(count: usize) -> Result<Images, Failed> {
    Ok(resize(&Images::synthetic(count, 3)?.0, SIDE)?)
}

/// That both networks give the same logits, as far as fp32 goes.
fn agree(device: &Device, weights: &Weights, images: &Images) -> Answer {
    let kernels = Contender::Pick(Pick::Kernels);
    let mut layers = Network::new(device, weights, &kernels, Math::Fp32)?;
    let expected = layers.classify(images, images.count, &mut |_| true)?.logits;
    if expected.iter().all(|logit| *logit == expected[0]) {
        return Err("all logits are equal, which shows nothing".into());
    }
    let mut network = FusedNetwork::new(device, weights, images.count)?;
    // Three times, since a missing wait seldom shows at once.
    let outcome = Outcome {
        logits: network.measure(images, 3)?.logits,
        ..Outcome::default()
    };
    let deviation = outcome.deviation(&expected)?;
    ensure(
        deviation <= BOUND,
        format!(
            "of {} images, logits differ by {deviation:.1e} of the largest",
            images.count
        ),
    )
}

fn ensure(holds: bool, otherwise: impl Into<String>) -> Answer {
    if holds {
        Ok(Completion::Completed)
    } else {
        Err(otherwise.into().into())
    }
}

fn batches_of_odd_sizes(device: &Device) -> Answer {
    for count in [1, 3, 133, 1000, 2777] {
        agree(device, &Weights::synthetic(1), &images(count)?)?;
    }
    Ok(Completion::Completed)
}

/// The parts of a number are f16, whose exponents end where fp32's go on.
fn weights_of_any_magnitude(device: &Device) -> Answer {
    let images = images(67)?;
    for (seed, first, second) in [
        (1, 1e18, 1e-20),
        (2, 1e-30, 1e25),
        (3, 3e4, 1.0),
        (4, 1.0, 1e-9),
    ] {
        let mut weights = Weights::synthetic(seed);
        // Channels differ, too.
        for (i, w) in weights.conv1.iter_mut().enumerate() {
            *w *= first * 10f32.powi((i / 49) as i32);
        }
        for (i, w) in weights.conv2.iter_mut().enumerate() {
            *w *= second * 0.1f32.powi((i / 49 % 4) as i32) * 2f32.powi((i / 196) as i32 - 8);
        }
        agree(device, &weights, &images)?;
    }
    Ok(Completion::Completed)
}

fn a_channel_of_zeros(device: &Device) -> Answer {
    let mut weights = Weights::synthetic(5);
    weights.conv1[49..98].fill(0.0);
    weights.conv2[3 * 196..4 * 196].fill(0.0);
    weights.fc1_weight[7 * 1296..8 * 1296].fill(0.0);
    agree(device, &weights, &images(20)?)
}

/// White images and positive weights make the largest operands.
fn the_brightest_images(device: &Device) -> Answer {
    let mut weights = Weights::synthetic(6);
    let tensors = [
        &mut weights.conv1,
        &mut weights.conv2,
        &mut weights.fc1_weight,
    ];
    for w in tensors.into_iter().flatten() {
        *w = w.abs();
    }
    let mut images = images(9)?;
    images.pixels.fill(255);
    agree(device, &weights, &images)
}

fn what_does_not_fit_is_refused(device: &Device) -> Answer {
    let mut short = Weights::synthetic(1);
    short.conv2.pop();
    let made = FusedNetwork::new(device, &short, 4);
    ensure(made.is_err(), "a filter that is too short was taken")?;
    let mut infinite = Weights::synthetic(1);
    infinite.fc1_weight[5] = f32::INFINITY;
    let made = FusedNetwork::new(device, &infinite, 4);
    ensure(made.is_err(), "an infinite weight was taken")?;
    let mut network = FusedNetwork::new(device, &Weights::synthetic(1), 4)?;
    let pixels = vec![0; 4 * SIDE * SIDE];
    let ran = network.run(&pixels, &mut [0.0; 39]);
    ensure(ran.is_err(), "too few logits were taken")?;
    let ran = network.run(&pixels[1..], &mut [0.0; 40]);
    ensure(ran.is_err(), "too few pixels were taken")?;
    let measured = network.measure(&images(5)?, 1);
    ensure(measured.is_err(), "another number of images was taken")?;
    let measured = network.measure(&images(4)?, 0);
    ensure(measured.is_err(), "no run was measured")
}

fn the_real_images(device: &Device) -> Answer {
    agree(device, &own_weights()?, &real_images()?.0)
}

/// With the reports' weights; and logits computed in f64.
fn the_reports_accuracies(device: &Device) -> Answer {
    let (weights, logits) = match ["weights-86.bin", "logits-86.npy"].map(reports_file) {
        [Ok(weights), Ok(logits)] => (weights, logits),
        [Err(why), _] | [_, Err(why)] => return Ok(Completion::ignored_with(why)),
    };
    let (images, labels) = real_images()?;
    let mut network = FusedNetwork::new(device, &Weights::read(weights)?, images.count)?;
    let outcome = Outcome {
        logits: network.measure(&images, 1)?.logits,
        ..Outcome::default()
    };
    let deviation = outcome.deviation(&Array2::read(logits)?.data)?;
    ensure(
        deviation <= BOUND,
        format!("logits differ by {deviation:.1e} of the largest"),
    )?;
    let wanted = [(100, 86), (1000, 886), (5000, 4355), (10_000, 8714)];
    count_right(&outcome.classes(), &labels, &wanted)?;
    Ok(Completion::Completed)
}
