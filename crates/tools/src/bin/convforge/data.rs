//! What the network classifies: the repository's images and weights, other files, or made-up ones.

use std::{
    env,
    path::{Path, PathBuf},
};

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

/// Images of a synthetic run.
const SYNTHETIC: usize = 1000;
/// Seed of synthetic images and weights.
const SEED: u64 = 1;

#[derive(clap::Args)]
pub struct DataArgs {
    /// IDX file of images, plain or gzip; 28x28, or already 86x86 [default: the test images of
    /// Fashion-MNIST in the repository's folder data]
    #[arg(long, value_name = "FILE", requires = "labels")]
    images: Option<PathBuf>,
    /// IDX file of their labels, plain or gzip
    #[arg(long, value_name = "FILE", requires = "images")]
    labels: Option<PathBuf>,
    /// Weight file of the network: safetensors as scripts/train.py writes it, or counted layers of
    /// float32 [default: the weights in the repository's folder data]
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// Compare the logits with those of a NumPy file
    #[arg(long, value_name = "FILE.npy")]
    expect: Option<PathBuf>,
    /// Make images and weights up, in any number; accuracy means nothing then
    #[arg(long, conflicts_with_all = ["images", "weights", "expect"])]
    synthetic: bool,
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
        !self.synthetic
    }

    /// The first `count` images, which `option` asked for, or all; what goes with them.
    pub fn read(&self, count: Option<usize>, option: &str) -> Result<Data, Failure> {
        let (mut images, labels) = match (&self.images, &self.labels) {
            (Some(images), Some(labels)) => read_images(images, labels)?,
            _ if self.synthetic => Images::synthetic(count.unwrap_or(SYNTHETIC), SEED)?,
            _ => read_images(
                &shipped("fashion-mnist/t10k-images-idx3-ubyte.gz")?,
                &shipped("fashion-mnist/t10k-labels-idx1-ubyte.gz")?,
            )?,
        };
        if let Some(count) = count {
            if count > images.count {
                return Err(Failure::Usage(format!(
                    "{option} {count}, but there are only {} images; --synthetic makes up any \
                     number",
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
            None if self.synthetic => Weights::synthetic(SEED),
            None => Weights::read(shipped("fashion-mnist-86.safetensors")?)?,
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
            synthetic: self.synthetic,
        })
    }
}

/// A file of the repository's folder `data`, which is looked for where the user is and where the
/// program lies, and above: in a checkout, and in what scripts/pack.sh packed.
fn shipped(file: &str) -> Result<PathBuf, Failure> {
    let places = [env::current_dir(), env::current_exe()];
    let mut folders = places.iter().flatten().flat_map(|place| place.ancestors());
    folders
        .find_map(|folder| Some(folder.join("data").join(file)).filter(|path| path.is_file()))
        .ok_or_else(|| {
            Failure::Usage(format!(
                "data/{file} is neither here nor with the program, nor in a folder above: run this in \
                 a checkout of convforge, name files with --images, --labels and --weights, or have \
                 them made up with --synthetic"
            ))
        })
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
