//! What the handwritten kernels stand beside: cuBLAS, cuDNN, and the CPU's own loops
//! and GEMM.

use std::sync::Arc;

use crate::variant::Variant;

mod cpu;
// Nothing in the two is public, and docs.rs has no bindings for them to name.
#[cfg(all(feature = "cuda", not(no_toolkit)))]
mod cublas;
#[cfg(all(feature = "cudnn", not(no_toolkit)))]
mod cudnn;

/// The version of cuDNN, if it is one that can be used.
///
/// # Errors
/// [`Error::Library`](crate::Error::Library) where there is none or an old one.
#[cfg(all(feature = "cudnn", not(no_toolkit)))]
pub(crate) fn cudnn_version() -> crate::Result<String> {
    Ok(cudnn::Version::found()?.to_string())
}

/// Every baseline of this build, in reading order.
pub(crate) fn all() -> Vec<Arc<dyn Variant>> {
    #[cfg(all(feature = "cudnn", not(no_toolkit)))]
    let [cudnn, cudnn_transform] = cudnn::Cudnn::from_env();
    vec![
        #[cfg(all(feature = "cuda", not(no_toolkit)))]
        Arc::new(cublas::CublasGemm::new()),
        #[cfg(all(feature = "cudnn", not(no_toolkit)))]
        Arc::new(cudnn),
        #[cfg(all(feature = "cudnn", not(no_toolkit)))]
        Arc::new(cudnn_transform),
        Arc::new(cpu::Gemm::new()),
        Arc::new(cpu::Direct::new()),
    ]
}
