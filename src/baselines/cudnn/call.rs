//! One call of cuDNN: its error in cuDNN's own words, its version, and its handle.

use std::{
    ffi::{CStr, c_void},
    fmt,
    path::Path,
    ptr,
};

use cudnn_sys::{cudnnHandle_t, cudnnStatus_t, loader::Missing};

use crate::{
    Error, Result,
    gpu::{Gpu, missing},
};

/// `cudnn!(cudnnCreate(&mut handle))`: the call, with its failure as an [`Error`]. Unsafe as the
/// function.
macro_rules! cudnn {
    ($name:ident($($argument:expr),* $(,)?)) => {
        $crate::baselines::cudnn::call::check(
            stringify!($name),
            cudnn_sys::$name($($argument),*),
        )
    };
}

/// What cuDNN answered to `call`, as a result.
pub(super) fn check(call: &'static str, answer: Result<cudnnStatus_t, Missing>) -> Result<()> {
    let status = answer.map_err(missing)?;
    if status.0 == 0 {
        return Ok(());
    }
    // SAFETY: it answers with a constant string, for any status.
    let name = match unsafe { cudnn_sys::cudnnGetErrorString(status) } {
        // SAFETY: as above.
        Ok(name) if !name.is_null() => unsafe { CStr::from_ptr(name) }.to_string_lossy().into(),
        _ => format!("status {}", status.0),
    };
    let mut text = [0_u8; 1024];
    // SAFETY: it writes a string of at most the given size: why this thread's last call failed.
    let said = unsafe { cudnn_sys::cudnnGetLastErrorString(text.as_mut_ptr().cast(), text.len()) };
    let text = match (said, CStr::from_bytes_until_nul(&text)) {
        (Ok(()), Ok(text)) => text.to_string_lossy().trim().to_owned(),
        _ => String::new(),
    };
    Err(Error::Gpu {
        call,
        code: status.0 as i32,
        name,
        text,
    })
}

/// The version of the library that was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(usize);

impl Version {
    /// The graph API as it is used here, and its handles that serve several threads.
    pub(super) const LEAST: Version = Version(90_000);

    /// Opens cuDNN and asks.
    ///
    /// # Errors
    /// [`Error::Library`] where there is none or an old one.
    pub(super) fn found() -> Result<Self> {
        // SAFETY: the function takes no argument.
        let version = Version(unsafe { cudnn_sys::cudnnGetVersion() }.map_err(missing)?);
        version.new_enough(cudnn_sys::LIBRARY.path().map_err(missing)?)
    }

    fn new_enough(self, path: &Path) -> Result<Self> {
        if self >= Self::LEAST {
            return Ok(self);
        }
        let why = format!(
            "{0} is version {self}, which is too old: {1} or newer is needed; this program was built \
             for {2}.{3}.{4}, which `pip install nvidia-cudnn-cu13=={2}.{3}.{4}.*` installs",
            path.display(),
            Self::LEAST,
            cudnn_sys::CUDNN_MAJOR,
            cudnn_sys::CUDNN_MINOR,
            cudnn_sys::CUDNN_PATCHLEVEL
        );
        Err(Error::Library {
            library: "cuDNN",
            why,
            source: None,
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        // Since 9, the parts have two digits more.
        let (major, minor) = if self.0 < 10_000 {
            (1_000, 100)
        } else {
            (10_000, 100)
        };
        write!(
            f,
            "{}.{}.{}",
            self.0 / major,
            self.0 % major / minor,
            self.0 % minor
        )
    }
}

/// A `cudnnHandle_t`: cuDNN's state for one stream.
pub(super) struct Handle {
    raw: cudnnHandle_t,
    gpu: Gpu,
}

// SAFETY: a handle may be used from any thread, one at a time. Whoever launches with it holds it by
// a workspace's `&mut`; the handle that descriptors are made with is only named by them.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    /// A handle whose work goes to `stream`, a `cudaStream_t` of `gpu`.
    pub(super) fn new(gpu: &Gpu, stream: *mut c_void) -> Result<Self> {
        let _current = gpu.enter()?;
        let mut handle = Handle {
            raw: ptr::null_mut(),
            gpu: gpu.clone(),
        };
        // SAFETY: it writes one handle of the current context, which `drop` destroys.
        unsafe { cudnn!(cudnnCreate(&mut handle.raw)) }?;
        // SAFETY: the handle is alive, and the stream is the caller's.
        unsafe { cudnn!(cudnnSetStream(handle.raw, stream.cast())) }?;
        Ok(handle)
    }

    pub(super) fn raw(&self) -> cudnnHandle_t {
        self.raw
    }

    pub(super) fn gpu(&self) -> &Gpu {
        &self.gpu
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.raw.is_null()
            && let Ok(_current) = self.gpu.enter()
        {
            // SAFETY: made in `new`, destroyed once.
            let _ = unsafe { cudnn_sys::cudnnDestroy(self.raw) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain;

    #[test]
    fn an_old_library_is_an_error_that_says_so() {
        assert_eq!(Version(91_900).to_string(), "9.19.0");
        let path = Path::new("libcudnn.so.9");
        let found = Version(90_102).new_enough(path).unwrap();
        assert_eq!(found.to_string(), "9.1.2");
        let text = Version(8_907).new_enough(path).unwrap_err().to_string();
        assert!(
            text.contains("libcudnn.so.9 is version 8.9.7, which is too old: 9.0.0 or newer"),
            "{text}"
        );
    }

    #[test]
    fn no_library_is_an_error_that_names_what_was_looked_for() {
        if let Err(error) = Version::found() {
            let text = chain(&error);
            assert!(
                matches!(
                    error,
                    Error::Library {
                        library: "cuDNN",
                        ..
                    }
                ),
                "{text}"
            );
            assert!(text.contains("libcudnn.so.9") && text.contains("CONVFORGE_CUDNN_LIB"));
        }
    }
}
