//! The clock of a GPU's multiprocessors, as NVIDIA's management library tells it.

#[cfg(feature = "cuda")]
use std::sync::OnceLock;

use convforge::Device;
#[cfg(feature = "cuda")]
use nvml_wrapper_sys::bindings::{
    NvmlLib, nvmlClockType_enum_NVML_CLOCK_SM, nvmlDevice_t, nvmlReturn_enum_NVML_SUCCESS,
};

/// The clock of one device, to be read while it works. It tells nothing of the CPU, and where there is
/// no such library.
pub(super) struct SmClock {
    #[cfg(feature = "cuda")]
    of: Option<(&'static NvmlLib, nvmlDevice_t)>,
}

#[cfg(feature = "cuda")]
impl SmClock {
    pub(super) fn of(device: &Device) -> Self {
        let find = || {
            let index = u32::try_from(device.ordinal()?).ok()?;
            let library = library()?;
            let mut handle = std::ptr::null_mut();
            // SAFETY: the library was initialised; the handle is written before it is used.
            let found = unsafe { library.nvmlDeviceGetHandleByIndex_v2(index, &mut handle) };
            (found == nvmlReturn_enum_NVML_SUCCESS).then_some((library, handle))
        };
        SmClock { of: find() }
    }

    /// In MHz, now.
    pub(super) fn mhz(&self) -> Option<f64> {
        let (library, handle) = self.of?;
        let mut mhz = 0;
        // SAFETY: the handle is the library's own.
        let read = unsafe {
            library.nvmlDeviceGetClockInfo(handle, nvmlClockType_enum_NVML_CLOCK_SM, &mut mhz)
        };
        (read == nvmlReturn_enum_NVML_SUCCESS).then_some(mhz.into())
    }
}

/// The library, opened and initialised once; it comes with the driver.
#[cfg(feature = "cuda")]
fn library() -> Option<&'static NvmlLib> {
    static LIBRARY: OnceLock<Option<NvmlLib>> = OnceLock::new();
    let open = || {
        // SAFETY: it is NVIDIA's, whose initialisers may run anywhere.
        let library = unsafe { NvmlLib::new("libnvidia-ml.so.1") }.ok()?;
        // SAFETY: it takes nothing.
        let begun = unsafe { library.nvmlInit_v2() };
        (begun == nvmlReturn_enum_NVML_SUCCESS).then_some(library)
    };
    LIBRARY.get_or_init(open).as_ref()
}

#[cfg(not(feature = "cuda"))]
impl SmClock {
    pub(super) fn of(_: &Device) -> Self {
        SmClock {}
    }

    pub(super) fn mhz(&self) -> Option<f64> {
        None
    }
}
