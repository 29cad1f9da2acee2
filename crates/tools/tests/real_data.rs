//! The readers and the resizer on the real data, every file's content against its SHA-256, and the
//! network on it.
//!
//! Images and weights come with the repository. The weights and logits of the source reports do not:
//! without them their cases are ignored, with the reason.

mod common;

use std::{fs, path::Path, process::ExitCode};

use common::{Answer, count_right, own_weights, real_images, reports_file, shipped};
use convforge::{Device, Math, Pick};
use convforge_tools::{
    Contender,
    net::{
        Network, Outcome,
        idx::{Images, Labels},
        npy::Array2,
        weights::Weights,
    },
};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use sha2::{Digest, Sha256};

type Bytes = Result<Vec<u8>, Failed>;

fn main() -> ExitCode {
    let trials = vec![
        Trial::test("t10k-images-idx3-ubyte", || {
            check_hash("t10k-images-idx3-ubyte", &unpacked_images()?)
        }),
        Trial::test("t10k-labels-idx1-ubyte", || {
            check_hash("t10k-labels-idx1-ubyte", &unpacked_labels()?)
        }),
        Trial::test("t10k-86-images-idx3-ubyte", || {
            check_hash("t10k-86-images-idx3-ubyte", &enlarged_images()?)
        }),
        Trial::test("the accuracies of the shipped weights", shipped_accuracies),
        Trial::ignorable_test("the reports' accuracies", reports_accuracies),
        of_reports("weights-86.bin", read_weights),
        of_reports("logits-86.npy", rewritten_logits),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Compares what was made with the hash that SHA256SUMS lists for it; notes may stand behind names.
fn check_hash(name: &str, bytes: &[u8]) -> Result<(), Failed> {
    let sums = fs::read_to_string(shipped("fashion-mnist/SHA256SUMS"))?;
    let listed = sums.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let hash = words.next()?;
        (words.next()? == name).then_some(hash)
    });
    let found = sha256(bytes);
    match listed {
        Some(expected) if expected == found => Ok(()),
        _ => Err(format!("expected SHA-256 {listed:?}, found {found}").into()),
    }
}

fn sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unpacked_images() -> Bytes {
    let images = Images::read(shipped("fashion-mnist/t10k-images-idx3-ubyte.gz"))?;
    let header = [2051, images.count, images.rows, images.cols];
    Ok(joined(
        &header.map(|word| (word as u32).to_be_bytes()),
        &images.pixels,
    ))
}

fn unpacked_labels() -> Bytes {
    let labels = Labels::read(shipped("fashion-mnist/t10k-labels-idx1-ubyte.gz"))?.values;
    Ok(joined(
        &[2049, labels.len()].map(|word| (word as u32).to_be_bytes()),
        &labels,
    ))
}

/// The enlarged set as it was hashed: its header is little-endian.
fn enlarged_images() -> Bytes {
    let (images, _) = real_images()?;
    let header = [0, images.count, images.rows, images.cols];
    Ok(joined(
        &header.map(|word| (word as u32).to_le_bytes()),
        &images.pixels,
    ))
}

fn joined(header: &[[u8; 4]], data: &[u8]) -> Vec<u8> {
    [header.as_flattened(), data].concat()
}

/// All images through the network in fp32 on the CPU.
fn classified(weights: &Weights) -> Result<(Outcome, Vec<u8>), Failed> {
    let (images, labels) = real_images()?;
    let rule = Contender::Pick(Pick::Rule);
    let mut network = Network::new(&Device::cpu(), weights, &rule, Math::Fp32)?;
    Ok((network.classify(&images, 500, &mut |_| true)?, labels))
}

/// As counted in f64 (data/README.md). There the two largest logits of every image are at least 2e-6
/// of the largest apart; fp32 is off by a third of that.
fn shipped_accuracies() -> Result<(), Failed> {
    let (outcome, labels) = classified(&own_weights()?)?;
    let wanted = [(100, 90), (1000, 906), (5000, 4511), (10_000, 9106)];
    count_right(&outcome.classes(), &labels, &wanted)
}

fn reports_accuracies() -> Answer {
    let (weights, logits) = match ["weights-86.bin", "logits-86.npy"].map(reports_file) {
        [Ok(weights), Ok(logits)] => (weights, logits),
        [Err(why), _] | [_, Err(why)] => return Ok(Completion::ignored_with(why)),
    };
    let (outcome, labels) = classified(&Weights::read(weights)?)?;
    let deviation = outcome.deviation(&Array2::read(logits)?.data)?;
    if deviation > 2e-6 {
        return Err(format!("logits differ by {deviation:.1e} of the largest").into());
    }
    let wanted = [(100, 86), (1000, 886), (5000, 4355), (10_000, 8714)];
    count_right(&outcome.classes(), &labels, &wanted)?;
    Ok(Completion::Completed)
}

/// A file of the reports, for whose reader `check` is.
fn of_reports(name: &'static str, check: fn(&Path) -> Result<(), Failed>) -> Trial {
    Trial::ignorable_test(name, move || match reports_file(name) {
        Err(why) => Ok(Completion::ignored_with(why)),
        Ok(path) => check(&path).map(|()| Completion::Completed),
    })
}

/// Every value that was read is the file's; the biases of the convolutions are not read.
fn read_weights(path: &Path) -> Result<(), Failed> {
    let weights = Weights::read(path)?;
    let bytes = fs::read(path)?;
    // Where each part starts: behind a count per layer, and the biases of the layers before it.
    let parts = [
        (8, &weights.conv1),
        (820, &weights.conv2),
        (13440, &weights.fc1_weight),
        (179328, &weights.fc1_bias),
        (179464, &weights.fc2_weight),
        (180744, &weights.fc2_bias),
    ];
    for (at, values) in parts {
        let found: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        if bytes.get(at..at + found.len()) != Some(&found[..]) {
            return Err(format!("the values read differ from those at byte {at}").into());
        }
    }
    Ok(())
}

/// Written again, the same array must come out.
fn rewritten_logits(path: &Path) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let copy = folder.path().join("copy.npy");
    let array = Array2::read(path)?;
    array.write(&copy)?;
    match Array2::read(copy)? == array {
        true => Ok(()),
        false => Err("another array comes out".into()),
    }
}
