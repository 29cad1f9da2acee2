//! What the network classifies: files, or made-up images and weights.

use std::path::{Path, PathBuf};

use convforge_tools::{
    Error,
    net::{
        SIDE,
        idx::{Images, Labels},
        npy::Array2,
        resize::resize,
        weights::Weights,
    },
};

use crate::failure::Failure;

/// Images of a run without files.
const SYNTHETIC: usize = 1000;
/// Seed of synthetic images and weights.
const SEED: u64 = 1;

#[derive(clap::Args)]
pub struct DataArgs {
    /// IDX file of images, plain or gzip; 28x28, or already 86x86
    #[arg(long, value_name = "FILE", requires = "labels")]
    images: Option<PathBuf>,
    /// IDX file of their labels, plain or gzip
    #[arg(long, value_name = "FILE", requires = "images")]
    labels: Option<PathBuf>,
    /// Weight file of the network: safetensors as scripts/train.py writes it (its result is
    /// benches/weights/fashion-mnist-86.safetensors), or counted layers of float32
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// Compare the logits with those of a NumPy file
    #[arg(long, value_name = "FILE.npy")]
    expect: Option<PathBuf>,
}

/// What was read or made up.
pub struct Data {
    /// 86x86.
    pub images: Images,
    /// At least as many as there are images.
    pub labels: Labels,
    pub weights: Weights,
    /// Ten columns, at least as many rows as there are images.
    pub expected: Option<Array2>,
    /// Whether images or weights are made up, so that accuracy means nothing.
    pub synthetic: bool,
}

impl DataArgs {
    /// Whether images and weights are files, so that accuracy means something.
    pub fn is_real(&self) -> bool {
        self.images.is_some() && self.weights.is_some()
    }

    /// The first `count` images, which `option` asked for, or all; what goes with them.
    pub fn read(&self, count: Option<usize>, option: &str) -> Result<Data, Failure> {
        let (mut images, labels) = match (&self.images, &self.labels) {
            (Some(images), Some(labels)) => read_images(images, labels)?,
            _ => {
                eprintln!("No files were given: the images are synthetic.");
                Images::synthetic(count.unwrap_or(SYNTHETIC), SEED)?
            }
        };
        if let Some(count) = count {
            if count > images.count {
                return Err(Failure::Usage(format!(
                    "{option} {count}, but there are only {} images",
                    images.count
                )));
            }
            images.truncate(count);
        }
        if (images.rows, images.cols) != (SIDE, SIDE) {
            images = resize(&images, SIDE)?;
        }
        let weights = match &self.weights {
            Some(path) => Weights::read(path)?,
            None => {
                eprintln!(
                    "No weight file was given: the weights are synthetic, accuracy means nothing."
                );
                Weights::synthetic(SEED)
            }
        };
        let expected = self.expect.as_ref().map(Array2::read).transpose()?;
        if let Some(expected) = &expected
            && (expected.cols != 10 || expected.rows < images.count)
        {
            return Err(Failure::Usage(format!(
                "the expected logits are {} x {}; {} x 10 or more are needed",
                expected.rows, expected.cols, images.count
            )));
        }
        Ok(Data {
            images,
            labels,
            weights,
            expected,
            synthetic: !self.is_real(),
        })
    }
}

/// The images of a file, and their labels.
fn read_images(images: &Path, path: &Path) -> Result<(Images, Labels), Error> {
    let (images, labels) = (Images::read(images)?, Labels::read(path)?);
    let why = if images.count != labels.values.len() {
        format!(
            "{} labels, but there are {} images: the files do not belong together",
            labels.values.len(),
            images.count
        )
    } else if images.count == 0 {
        "no label in it: there is nothing to classify".to_owned()
    } else {
        return Ok((images, labels));
    };
    Err(Error::file(path, why))
}
