//! The folder that toolkit.py installs into; shared by the build script and the loader.

use std::{env, path::PathBuf};

/// `${CONVFORGE_CACHE:-${XDG_CACHE_HOME:-~/.cache}/convforge}/cuda-13.0`, whether it is there or
/// not. Nothing where not even a home folder is known.
pub fn toolkit_folder() -> Option<PathBuf> {
    let var = |name| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let cache = var("CONVFORGE_CACHE")
        .or_else(|| Some(var("XDG_CACHE_HOME")?.join("convforge")))
        .or_else(|| Some(var("HOME")?.join(".cache/convforge")))?;
    Some(cache.join("cuda-13.0"))
}
