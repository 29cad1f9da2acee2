//! Raw bindings of cuDNN 9, made from its own headers: the graph API by its backend descriptors,
//! and the older convolution API.
//!
//! Nothing is linked: [`LIBRARY`] is opened at the first call, each symbol is looked up when it is
//! first used, and a missing one is a [`loader::Missing`]. cuDNN itself opens its parts and NVRTC
//! when it needs them, from the folder it lies in or beside it.

pub use bindings::*;
pub use cuda_sys::loader;

/// cuDNN.
pub static LIBRARY: loader::Library = loader::Library::new(loader::Names {
    name: "cuDNN",
    soname: "libcudnn.so.9",
    variable: "CONVFORGE_CUDNN_LIB",
    packaged: true,
    remedy: "install it (`pip install nvidia-cudnn-cu13`; in a checkout of convforge, `python3 \
             scripts/toolkit.py --need cudnn`)",
});

/// NVRTC, which cuDNN opens by itself to compile some of its plans; here only to say whether it is
/// there. The variable is convforge's: once the library is open, cuDNN finds it by its name.
pub static NVRTC: loader::Library = loader::Library::new(loader::Names {
    name: "NVRTC",
    soname: "libnvrtc.so.13",
    variable: "CONVFORGE_NVRTC_LIB",
    packaged: true,
    remedy: "install it (`pip install nvidia-cuda-nvrtc`; in a checkout of convforge, `python3 \
             scripts/toolkit.py --need cudnn`)",
});

/// Major and minor version of NVRTC.
///
/// # Errors
/// [`loader::Missing`], if it cannot be opened.
pub fn nvrtc_version() -> Result<(i32, i32), loader::Missing> {
    static SYMBOL: loader::Symbol = loader::Symbol::new(&NVRTC, c"nvrtcVersion");
    let address = SYMBOL.address()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: nvrtcVersion has had this type since CUDA 7; it writes two integers.
    unsafe {
        let version: unsafe extern "C" fn(*mut i32, *mut i32) -> i32 = std::mem::transmute(address);
        version(&mut major, &mut minor);
    }
    Ok((major, minor))
}

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
    fn cudnn_answers_or_says_where_it_was_looked_for() {
        // SAFETY: the function takes no argument.
        match unsafe { cudnnGetVersion() } {
            Ok(version) => assert!(version >= 90_000, "{version}"),
            Err(missing) => {
                let text = format!("{missing}: {}", missing.source().unwrap());
                assert!(text.contains("libcudnn.so.9") && text.contains("CONVFORGE_CUDNN_LIB"));
            }
        }
    }

    #[test]
    fn an_unknown_status_is_a_value() {
        assert_ne!(cudnnStatus_t(12345), cudnnStatus_t::CUDNN_STATUS_SUCCESS);
    }
}
