//! Raw bindings of cuBLAS, made from the toolkit's own headers.
//!
//! Nothing is linked: [`LIBRARY`] is opened at the first call, each symbol is looked up when it is
//! first used, and a missing one is a [`loader::Missing`]. Functions have the names that a C
//! program writes: `cublasCreate` is `cublasCreate_v2`.

pub use bindings::*;
pub use cuda_sys::loader;

/// cuBLAS. It depends on cuBLASLt, whose symbols are found through it.
pub static LIBRARY: loader::Library = loader::Library::new(loader::Names {
    name: "cuBLAS",
    soname: env!("CONVFORGE_CUBLAS_SONAME"),
    variable: "CONVFORGE_CUBLAS_LIB",
    packaged: true,
    remedy: "install it (`pip install nvidia-cublas`; in a checkout of convforge, `python3 \
             scripts/toolkit.py --need toolkit`)",
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
    use std::error::Error;

    use super::*;

    #[test]
    fn cublas_answers_or_says_where_it_was_looked_for() {
        // SAFETY: the function takes no argument.
        match unsafe { cublasLtGetVersion() } {
            Ok(version) => assert!(version >= 120_000, "{version}"),
            Err(missing) => {
                let text = format!("{missing}: {}", missing.source().unwrap());
                assert!(text.contains("libcublas.so") && text.contains("CONVFORGE_CUBLAS_LIB"));
            }
        }
    }

    #[test]
    fn an_unknown_status_is_a_value() {
        assert_ne!(cublasStatus_t(12345), cublasStatus_t::CUBLAS_STATUS_SUCCESS);
    }
}
