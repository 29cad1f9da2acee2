//! The C interface of csrc/oracle.h, as bindgen reads it; the types of the library's headers are
//! its own.
#![allow(
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    dead_code,
    clippy::all,
    clippy::undocumented_unsafe_blocks
)]

use convforge::kernels::{CArgs as cf_args, CProblem as cf_problem};

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
