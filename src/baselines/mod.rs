//! What the handwritten kernels stand beside: cuBLAS, cuDNN, and the CPU's own loops
//! and GEMM.

use std::sync::Arc;

use crate::variant::Variant;

mod cpu;
#[cfg(feature = "cuda")]
mod estimate;
// docs.rs has no bindings for cuBLAS's calls to name, and nothing of them is public.
#[cfg(all(feature = "cuda", not(no_toolkit)))]
mod cublas;
#[cfg(feature = "cudnn")]
pub(crate) mod cudnn;

pub(crate) use cpu::Reads;

/// Every baseline of this build, in reading order.
pub(crate) fn all() -> Vec<Arc<dyn Variant>> {
    vec![
        #[cfg(all(feature = "cuda", not(no_toolkit)))]
        Arc::new(cublas::CublasGemm::new()),
        #[cfg(all(feature = "cudnn", not(no_toolkit)))]
        Arc::new(cudnn::Cudnn::new()),
        #[cfg(feature = "cpu")]
        Arc::new(cpu::Gemm::new()),
        Arc::new(cpu::Direct::new()),
    ]
}
