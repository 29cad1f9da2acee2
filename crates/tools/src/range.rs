//! Names on a profiler's timeline.

#[cfg(feature = "cuda")]
use std::marker::PhantomData;

/// What this thread does until the value is dropped, by its name on the timeline of an NVTX tool
/// (Nsight Systems, Nsight Compute). Ranges nest as scopes do. Without such a tool, and in a build
/// without CUDA, it is nothing.
///
/// ```
/// let _layer = convforge_tools::Range::enter("layer 1");
/// ```
#[derive(Debug)]
#[must_use = "the range ends when the value is dropped"]
pub struct Range {
    // The stack of ranges belongs to the thread.
    #[cfg(feature = "cuda")]
    _not_send: PhantomData<*mut ()>,
}

impl Range {
    /// Begins a range of this name, as far as its first zero byte.
    pub fn enter(name: &str) -> Self {
        #[cfg(feature = "cuda")]
        nvtx::range_push!("{}", name.split('\0').next().unwrap_or_default());
        #[cfg(not(feature = "cuda"))]
        let _ = name;
        Range {
            #[cfg(feature = "cuda")]
            _not_send: PhantomData,
        }
    }
}

#[cfg(feature = "cuda")]
impl Drop for Range {
    fn drop(&mut self) {
        nvtx::range_pop!();
    }
}
