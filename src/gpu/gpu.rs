//! One device and its primary context.

use std::{
    ffi::{c_char, c_void},
    fmt,
    hash::{Hash, Hasher},
    panic::AssertUnwindSafe,
    ptr,
    sync::Arc,
};

use cuda_sys::{CUcontext, CUdevice, CUdevice_attribute, CUpointer_attribute, CUresult, CUstream};

use super::call::{self, Entered, Unrecorded};
use crate::{Error, Limits, Result};

/// A GPU. Clones share the device's primary context, the one that the CUDA runtime and most other
/// libraries use; the last clone, and the last stream, event, buffer or graph, gives it back.
#[derive(Clone)]
pub struct Gpu(Arc<Inner>);

struct Inner {
    ordinal: usize,
    device: CUdevice,
    context: CUcontext,
    // For copies from and to ordinary host memory, beside all other work.
    copies: CUstream,
    name: String,
    limits: Limits,
}

// SAFETY: the driver's contexts and streams may be used from any thread; everything else is plain data.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Gpu {
    /// How many GPUs the driver lets this process use.
    ///
    /// # Errors
    /// [`Error::NoGpu`], whose source says what was looked for, if there is no working driver.
    pub fn count() -> Result<usize> {
        // SAFETY: it may be called any number of times, from any thread.
        match unsafe { cuda_sys::cuInit(0) } {
            Ok(CUresult::CUDA_ERROR_NO_DEVICE) => return Ok(0),
            Ok(result) => call::check("cuInit", Ok(result)).map_err(no_gpu)?,
            Err(missing) if missing.symbol.is_none() => {
                return Err(Error::NoGpu {
                    why: missing.to_string(),
                    source: Some(AssertUnwindSafe(missing.tried.into())),
                });
            }
            Err(missing) => return Err(call::missing(missing)),
        }
        let mut count = 0;
        // SAFETY: it writes one integer.
        unsafe { cu!(cuDeviceGetCount(&mut count)) }?;
        Ok(count as usize)
    }

    /// The GPU with this number; the first is 0.
    ///
    /// # Errors
    /// [`Error::NoGpu`] if there are not so many; otherwise what the driver answers.
    pub fn new(ordinal: usize) -> Result<Self> {
        let count = Gpu::count()?;
        if ordinal >= count {
            return Err(Error::no_gpu(match count {
                0 => "the driver is there but sees no GPU (is CUDA_VISIBLE_DEVICES set?)".into(),
                1 => format!("GPU {ordinal} was asked for, but there is only GPU 0"),
                _ => format!(
                    "GPU {ordinal} was asked for, but there are 0 to {}",
                    count - 1
                ),
            }));
        }
        let mut device = 0;
        // SAFETY: it writes one integer.
        unsafe { cu!(cuDeviceGet(&mut device, ordinal as i32)) }?;
        let (name, limits) = (name(device)?, limits(device)?);
        let mut context = ptr::null_mut();
        // SAFETY: it writes one handle, which `Inner` releases.
        unsafe { cu!(cuDevicePrimaryCtxRetain(&mut context, device)) }?;
        let mut inner = Inner {
            ordinal,
            device,
            context,
            copies: ptr::null_mut(),
            name,
            limits,
        };
        let current = Entered::new(context)?;
        // SAFETY: it writes one handle, which `Inner` destroys.
        unsafe { cu!(cuStreamCreate(&mut inner.copies, Self::NON_BLOCKING)) }?;
        drop(current);
        Ok(Gpu(Arc::new(inner)))
    }

    /// A stream that does not wait for CUDA's default stream, nor that for it.
    pub(super) const NON_BLOCKING: u32 = 1;

    /// The driver's number of this GPU.
    pub fn ordinal(&self) -> usize {
        self.0.ordinal
    }

    /// Its name: `NVIDIA H200`.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Compute capability times ten: 90 for 9.0.
    pub fn arch(&self) -> u32 {
        self.0.limits.arch
    }

    /// What a kernel may use.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// Free and total bytes of device memory.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn memory_info(&self) -> Result<(usize, usize)> {
        let _current = self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: it writes two sizes.
        unsafe { cu!(cuMemGetInfo(&mut free, &mut total)) }?;
        Ok((free, total))
    }

    /// The newest CUDA that the driver serves: `13.0`.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn driver_version() -> Result<String> {
        let mut version = 0;
        // SAFETY: it writes one integer.
        unsafe { cu!(cuDriverGetVersion(&mut version)) }?;
        Ok(format!("{}.{}", version / 1000, version % 1000 / 10))
    }

    /// Waits until the device has done everything that this process queued on it.
    ///
    /// # Errors
    /// A failure of work queued earlier shows here. The driver refuses, and spoils the recording,
    /// while any thread records a stream of this device.
    pub fn synchronize(&self) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: it takes no argument.
        unsafe { cu!(cuCtxSynchronize()) }
    }

    /// Runs a copy from or to ordinary host memory, and waits for it. It takes two calls: the
    /// driver's blocking copy may return before the device has the last bytes.
    pub(super) fn copy(&self, enqueue: impl FnOnce(CUstream) -> Result<()>) -> Result<()> {
        let _current = self.enter()?;
        let _unrecorded = Unrecorded::new();
        let enqueued = enqueue(self.0.copies);
        // SAFETY: the stream is alive.
        unsafe { cu!(cuStreamSynchronize(self.0.copies)) }?;
        enqueued
    }

    /// The GPU, by its ordinal, that an address is known as memory of.
    ///
    /// # Errors
    /// The driver does not know the address.
    pub(crate) fn owner(&self, address: *const c_void) -> Result<usize> {
        let _current = self.enter()?;
        let mut ordinal = 0_i32;
        let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
        let (out, address) = (ptr::from_mut(&mut ordinal).cast(), address as u64);
        // SAFETY: it writes one integer, for any address.
        unsafe { cu!(cuPointerGetAttribute(out, attribute, address)) }?;
        Ok(ordinal as usize)
    }

    /// Refuses a stream of another context, whose addresses mean nothing in this one.
    pub(super) fn check_context(&self, stream: CUstream) -> Result<()> {
        let mut context = ptr::null_mut();
        // SAFETY: the stream is alive; it writes one handle.
        unsafe { cu!(cuStreamGetCtx(stream, &mut context)) }?;
        if context == self.0.context {
            return Ok(());
        }
        Err(Error::WrongDevice {
            what: "the stream",
            expected: format!(
                "the primary context of GPU {} ({})",
                self.0.ordinal, self.0.name
            ),
            found: "another context".to_owned(),
        })
    }

    /// Makes the primary context current on this thread, until the answer is dropped: for calls of
    /// the CUDA runtime, as kernels of other crates make them.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn enter(&self) -> Result<Entered<'_>> {
        Entered::new(self.0.context)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Ok(_current) = Entered::new(self.context)
            && !self.copies.is_null()
        {
            // SAFETY: made in `Gpu::new`, destroyed once.
            let _ = unsafe { cuda_sys::cuStreamDestroy(self.copies) };
        }
        // SAFETY: retained in `Gpu::new`; whatever lives in the context holds a clone of the `Gpu`.
        let _ = unsafe { cuda_sys::cuDevicePrimaryCtxRelease(self.device) };
    }
}

impl Hash for Gpu {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.ordinal.hash(state);
    }
}

impl PartialEq for Gpu {
    fn eq(&self, other: &Self) -> bool {
        self.0.ordinal == other.0.ordinal
    }
}

impl Eq for Gpu {}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gpu({}, {})", self.0.ordinal, self.0.name)
    }
}

fn no_gpu(error: Error) -> Error {
    Error::NoGpu {
        why: "the driver does not start".to_owned(),
        source: Some(AssertUnwindSafe(error.into())),
    }
}

fn name(device: CUdevice) -> Result<String> {
    let mut name = [0_u8; 256];
    let (address, len) = (name.as_mut_ptr().cast::<c_char>(), name.len() as i32);
    // SAFETY: it writes at most `len` bytes, the closing zero included.
    unsafe { cu!(cuDeviceGetName(address, len, device)) }?;
    let end = name
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(name.len());
    Ok(String::from_utf8_lossy(&name[..end]).into_owned())
}

fn limits(device: CUdevice) -> Result<Limits> {
    let get = |attribute: CUdevice_attribute| -> Result<u32> {
        let mut value = 0;
        // SAFETY: it writes one integer.
        unsafe { cu!(cuDeviceGetAttribute(&mut value, attribute, device)) }?;
        Ok(value as u32)
    };
    let mut memory = 0;
    // SAFETY: it writes one size.
    unsafe { cu!(cuDeviceTotalMem(&mut memory, device)) }?;
    type A = CUdevice_attribute;
    Ok(Limits {
        arch: 10 * get(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?
            + get(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        sm_count: get(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        shared_per_block: get(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        shared_per_sm: get(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)?,
        registers_per_sm: get(A::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR)?,
        l2_bytes: get(A::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?.into(),
        memory_bytes: memory as u64,
        clock_khz: get(A::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?,
        memory_clock_khz: get(A::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?,
        memory_bits: get(A::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain;

    #[test]
    fn no_driver_is_an_error_that_says_what_was_looked_for() {
        if let Err(error) = Gpu::count() {
            assert!(matches!(error, Error::NoGpu { .. }), "{error:?}");
            // Where the driver is there but broken, the text is the driver's own.
            let text = chain(&error);
            assert!(
                text.contains("libcuda.so.1") || text.contains("cuInit"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_gpu_that_is_not_there_is_an_error() {
        assert!(matches!(Gpu::new(1_000_000), Err(Error::NoGpu { .. })));
    }
}
