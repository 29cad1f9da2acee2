//! Measuring, studies and the command.

#[cfg(feature = "cuda")]
#[allow(clippy::all, clippy::undocumented_unsafe_blocks)]
#[allow(missing_docs, dead_code, non_camel_case_types, non_upper_case_globals)]
mod bindings {
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}
