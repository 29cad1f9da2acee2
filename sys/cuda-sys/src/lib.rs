//! Raw bindings of the CUDA driver API, made from the toolkit's own cuda.h.
//!
//! Nothing is linked: [`LIBRARY`] (libcuda.so.1) is opened at the first call, each symbol is
//! looked up when it is first used, and a missing one is a [`loader::Missing`]. A program that
//! uses this crate therefore starts on a machine without a driver. Functions have the names that
//! a C program writes; where cuda.h maps `cuMemAlloc` to `cuMemAlloc_v2`, so does
//! `cuMemAlloc` here. This crate's build script also finds the CUDA toolkit for the other
//! crates of convforge.

mod cache;
pub mod edges;
pub mod loader;

pub use bindings::*;

/// The driver's library. It comes with the driver, never with a toolkit.
pub static LIBRARY: loader::Library = loader::Library::new(loader::Names {
    name: "the CUDA driver",
    soname: "libcuda.so.1",
    variable: "CONVFORGE_CUDA_LIB",
    packaged: false,
    remedy: "install NVIDIA's driver (580 or newer for CUDA 13)",
});

#[allow(clippy::all, clippy::undocumented_unsafe_blocks)]
#[allow(missing_docs, dead_code, unused_imports, unsafe_op_in_unsafe_fn)]
#[allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]
mod bindings {
    use super::{LIBRARY, loader};

    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_answers_or_says_where_it_was_looked_for() {
        let mut version = 0;
        // SAFETY: the function writes one integer to a valid address.
        match unsafe { cuDriverGetVersion(&mut version) } {
            Ok(result) => assert_eq!(result, CUresult::CUDA_SUCCESS),
            Err(missing) => {
                let text = format!("{missing}: {}", missing.tried);
                assert!(text.contains("libcuda.so.1") && text.contains("CONVFORGE_CUDA_LIB"));
            }
        }
    }
}
