//! The judge and the generator.

#[cfg(feature = "cuda")]
#[allow(clippy::all, clippy::undocumented_unsafe_blocks)]
#[allow(missing_docs, dead_code, non_camel_case_types, non_upper_case_globals)]
mod bindings {
    use convforge::ffi::{cf_args, cf_problem};

    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}
