//! What tests share: what those of the library do, and where the real data is.
#![allow(dead_code, unused_imports, reason = "each test takes what it needs")]

use std::{
    env,
    path::{Path, PathBuf},
};

#[path = "../../../../tests/common/mod.rs"]
mod library;

pub use library::*;

/// Where the real data is, if anywhere: CONVFORGE_DATA, or beside the checkout.
pub fn data_folder() -> PathBuf {
    let beside = || checkout().join("../shared/data/fashion-mnist");
    env::var_os("CONVFORGE_DATA").map_or_else(beside, PathBuf::from)
}

/// The root of the checkout.
pub fn checkout() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap_or(package)
}
