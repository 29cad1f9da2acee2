//! What tests share: what those of the library do, and where images and weights are.
#![allow(dead_code, unused_imports, reason = "each test takes what it needs")]

use std::{
    env,
    path::{Path, PathBuf},
};

use convforge_tools::net::{
    SIDE,
    idx::{Images, Labels},
    resize::resize,
    weights::Weights,
};
use libtest_mimic::Failed;

#[path = "../../../../tests/common/mod.rs"]
mod library;

pub use library::*;

/// A file of the folder `data`, which comes with the repository.
pub fn shipped(file: &str) -> PathBuf {
    checkout().join("data").join(file)
}

/// The test images of Fashion-MNIST, enlarged, and their classes.
pub fn real_images() -> Result<(Images, Vec<u8>), Failed> {
    let [images, labels] = ["images-idx3", "labels-idx1"]
        .map(|name| shipped(&format!("fashion-mnist/t10k-{name}-ubyte.gz")));
    let images = resize(&Images::read(images)?, SIDE)?;
    Ok((images, Labels::read(labels)?.values))
}

/// The project's own weights.
pub fn own_weights() -> Result<Weights, Failed> {
    Ok(Weights::read(shipped("fashion-mnist-86.safetensors"))?)
}

/// That so many of the first images are classified right.
pub fn count_right(classes: &[u8], labels: &[u8], wanted: &[(usize, usize)]) -> Result<(), Failed> {
    for &(count, expected) in wanted {
        let pairs = classes.iter().zip(labels).take(count);
        let right = pairs.filter(|(class, label)| class == label).count();
        if right != expected {
            let why = format!("{right} of the first {count} images are right, not {expected}");
            return Err(why.into());
        }
    }
    Ok(())
}

/// A file of the source reports: their weights and logits are not the project's to hand on. They are
/// in the folder that CONVFORGE_REPORTS names, or beside the checkout.
///
/// # Errors
/// The reason for which a test without it is ignored.
pub fn reports_file(name: &str) -> Result<PathBuf, String> {
    let beside = || checkout().join("../shared/data/fashion-mnist");
    let folder = env::var_os("CONVFORGE_REPORTS").map_or_else(beside, PathBuf::from);
    let path = folder.join(name);
    match path.is_file() {
        true => Ok(path),
        false => Err(format!(
            "{} has no {name}; set CONVFORGE_REPORTS",
            folder.display()
        )),
    }
}

/// The root of the checkout.
pub fn checkout() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap_or(package)
}
