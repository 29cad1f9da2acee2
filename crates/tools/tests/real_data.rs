//! The readers and the resizer on the real data: every file's content against its SHA-256; and how
//! well the weights of scripts/train.py classify it.
//!
//! The folder is named by CONVFORGE_DATA, or lies beside the checkout. Cases whose files are not
//! there are ignored, with the reason; they never pass.

mod common;

use std::{fs, path::Path, process::ExitCode};

use common::{checkout, data_folder};
use convforge::{Device, Math, Pick};
use convforge_tools::{
    Contender,
    net::{
        Network, SIDE,
        idx::{Images, Labels},
        npy::Array2,
        resize::resize,
        weights::Weights,
    },
};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use sha2::{Digest, Sha256};

type Bytes = Result<Vec<u8>, Failed>;

fn main() -> ExitCode {
    let trials = vec![
        case(
            "t10k-images-idx3-ubyte.gz",
            "t10k-images-idx3-ubyte",
            unpacked_images,
        ),
        case(
            "t10k-labels-idx1-ubyte.gz",
            "t10k-labels-idx1-ubyte",
            unpacked_labels,
        ),
        case(
            "train-images-idx3-ubyte.gz",
            "train-images-idx3-ubyte",
            unpacked_images,
        ),
        case(
            "train-labels-idx1-ubyte.gz",
            "train-labels-idx1-ubyte",
            unpacked_labels,
        ),
        case(
            "t10k-images-idx3-ubyte.gz",
            "t10k-86-images-idx3-ubyte",
            resized_images,
        ),
        case("weights-86.bin", "weights-86.bin", checked_weights),
        case("logits-86.npy", "logits-86.npy", rewritten_logits),
        Trial::ignorable_test("shipped weights", shipped_weights),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// A case that makes bytes of `file` and compares their hash with the one listed for `content`.
fn case(file: &'static str, content: &'static str, make: fn(&Path) -> Bytes) -> Trial {
    Trial::ignorable_test(content, move || {
        let folder = data_folder();
        for needed in [file, "SHA256SUMS"] {
            if !folder.join(needed).is_file() {
                let why = format!("{} has no {needed}; set CONVFORGE_DATA", folder.display());
                return Ok(Completion::ignored_with(why));
            }
        }
        let found: String = Sha256::digest(make(&folder.join(file))?)
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        let expected = listed_hash(&folder, content)?;
        if found != expected {
            return Err(format!("expected SHA-256 {expected}, found {found}").into());
        }
        Ok(Completion::Completed)
    })
}

/// The hash that SHA256SUMS lists for `content`; notes may stand behind the name.
fn listed_hash(folder: &Path, content: &str) -> Result<String, Failed> {
    let sums = fs::read_to_string(folder.join("SHA256SUMS"))?;
    sums.lines()
        .map(str::split_whitespace)
        .find_map(|mut words| {
            let hash = words.next()?;
            (words.next()? == content).then(|| hash.to_owned())
        })
        .ok_or_else(|| format!("SHA256SUMS does not list {content}").into())
}

fn unpacked_images(path: &Path) -> Bytes {
    let images = Images::read(path)?;
    let header = [2051, images.count, images.rows, images.cols];
    Ok(joined(
        &header.map(|word| (word as u32).to_be_bytes()),
        &images.pixels,
    ))
}

fn unpacked_labels(path: &Path) -> Bytes {
    let labels = Labels::read(path)?.values;
    Ok(joined(
        &[2049, labels.len()].map(|word| (word as u32).to_be_bytes()),
        &labels,
    ))
}

/// The enlarged set as it was hashed: its header is little-endian.
fn resized_images(path: &Path) -> Bytes {
    let images = resize(&Images::read(path)?, 86)?;
    let header = [0, images.count, images.rows, images.cols];
    Ok(joined(
        &header.map(|word| (word as u32).to_le_bytes()),
        &images.pixels,
    ))
}

fn joined(header: &[[u8; 4]], data: &[u8]) -> Vec<u8> {
    [header.as_flattened(), data].concat()
}

/// The reader drops the convolutions' biases, so the file itself is hashed once it was read, and
/// every value compared with the file's.
fn checked_weights(path: &Path) -> Bytes {
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
    Ok(bytes)
}

/// Written again, NumPy's own file must come out.
fn rewritten_logits(path: &Path) -> Bytes {
    let folder = tempfile::tempdir()?;
    let copy = folder.path().join("copy.npy");
    Array2::read(path)?.write(&copy)?;
    Ok(fs::read(copy)?)
}

/// What scripts/train.py made is good enough for the study.
fn shipped_weights() -> Result<Completion, Failed> {
    let shipped = "benches/weights/fashion-mnist-86.safetensors";
    let weights = checkout().join(shipped);
    let folder = data_folder();
    let [images, labels] =
        ["images-idx3", "labels-idx1"].map(|name| folder.join(format!("t10k-{name}-ubyte.gz")));
    for needed in [&weights, &images, &labels] {
        if !needed.is_file() {
            let why = format!("there is no {}", needed.display());
            return Ok(Completion::ignored_with(why));
        }
    }
    let weights = Weights::read(weights)?;
    let images = resize(&Images::read(images)?, SIDE)?;
    let rule = Contender::Pick(Pick::Rule);
    let mut network = Network::new(&Device::cpu(), &weights, &rule, Math::Fp32)?;
    let classes = network.classify(&images, 500, &mut |_| true)?.classes();
    let labels = Labels::read(labels)?.values;
    let pairs = classes.iter().zip(&labels);
    let right = pairs.filter(|(class, label)| class == label).count();
    if right * 100 < labels.len() * 87 {
        return Err(format!("{right} of {} images are classified right", labels.len()).into());
    }
    Ok(Completion::Completed)
}
