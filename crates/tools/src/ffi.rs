//! The C interface of this crate's kernels, as bindgen reads csrc/ceilings.h, csrc/clock.h and csrc/network.h.
#![allow(
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    dead_code,
    clippy::all,
    clippy::undocumented_unsafe_blocks
)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
