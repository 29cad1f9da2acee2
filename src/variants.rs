//! The one list of variants: kernels, baselines, the CPU.

use std::sync::{Arc, LazyLock};

use crate::{Error, Result, variant::Variant};

/// Every variant of this build, in reading order: kernels, then baselines, then the CPU.
pub fn all() -> &'static [Arc<dyn Variant>] {
    static ALL: LazyLock<Vec<Arc<dyn Variant>>> = LazyLock::new(|| {
        let mut all: Vec<Arc<dyn Variant>> = Vec::new();
        #[cfg(feature = "cuda")]
        all.extend(crate::kernels::rows());
        all.extend(crate::baselines::all());
        all
    });
    &ALL
}

/// The variant of this name.
///
/// # Errors
/// [`Error::UnknownVariant`] with the nearest name there is.
pub fn find(name: &str) -> Result<Arc<dyn Variant>> {
    let found = all().iter().find(|v| v.info().name == name);
    found.cloned().ok_or_else(|| Error::UnknownVariant {
        name: name.to_owned(),
        close: Error::closest(name, all().iter().map(|v| v.info().name.as_str())),
    })
}
