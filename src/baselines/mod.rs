//! What the handwritten kernels stand beside: the CPU's own loops and GEMM; later cuBLAS and cuDNN.

use std::sync::Arc;

use crate::variant::Variant;

mod cpu;

/// Every baseline of this build, in reading order.
pub(crate) fn all() -> Vec<Arc<dyn Variant>> {
    vec![Arc::new(cpu::Gemm::new()), Arc::new(cpu::Direct::new())]
}
