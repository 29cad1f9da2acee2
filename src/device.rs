//! Where a convolution runs: the CPU or one GPU, behind one set of types, so that everything above
//! is written once.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `device` | [`Device`]: the CPU or one GPU |
//! | `stream` | [`Stream`]: a queue of work; [`Mark`]: a point in its time |
//! | `buffer` | [`Buffer`]: elements in its memory |
//! | `view` | [`View`], [`ViewMut`]: such elements borrowed, a part of a buffer or anybody's memory |
//! | `element` | [`Element`]: the types that tensors are stored in |
//! | `host_buffer` | host memory as aligned as a device's |
//! | `host_copies` | [`HostCopies`]: copies from and to borrowed host memory |
//!
//! The types are the same with and without the feature `cuda`, which adds their `as_gpu`.

mod buffer;
mod element;
pub(crate) mod host_buffer;
mod host_copies;
mod stream;
mod view;

#[cfg(feature = "cuda")]
use std::panic::AssertUnwindSafe;
use std::{ffi::c_void, fs::File, io::Read};

#[cfg(feature = "cuda")]
use crate::gpu;
use crate::{Error, Limits, Result};

pub use buffer::Buffer;
pub use element::Element;
pub use host_copies::{HostCopies, with_host_copies};
pub use stream::{Mark, Stream};
pub use view::{View, ViewMut};

/// The CPU, or one GPU: [`cpu`](Self::cpu), [`gpu`](Self::gpu).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Device(Place);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Place {
    Cpu,
    /// Through its primary context.
    #[cfg(feature = "cuda")]
    Gpu(gpu::Gpu),
}

impl Device {
    /// The CPU, all its cores.
    pub const fn cpu() -> Self {
        Device(Place::Cpu)
    }

    /// The GPU with this ordinal.
    ///
    /// # Errors
    /// [`Error::NoGpu`] where there is none, or not so many; its source says what was looked for.
    pub fn gpu(ordinal: usize) -> Result<Self> {
        #[cfg(feature = "cuda")]
        return Ok(gpu::Gpu::new(ordinal)?.into());
        #[cfg(not(feature = "cuda"))]
        Err(Error::no_gpu(format!(
            "GPU {ordinal} was asked for, but this build has no CUDA (feature `cuda`)"
        )))
    }

    /// The first GPU, or the CPU and the reason why there is no GPU.
    pub fn best() -> (Self, Option<Error>) {
        match Device::gpu(0) {
            Ok(device) => (device, None),
            Err(error) => (Device::cpu(), Some(error)),
        }
    }

    /// Whether this is a GPU.
    pub fn is_gpu(&self) -> bool {
        self.0 != Place::Cpu
    }

    /// The GPU, if it is one.
    #[cfg(feature = "cuda")]
    pub fn as_gpu(&self) -> Option<&gpu::Gpu> {
        match &self.0 {
            Place::Cpu => None,
            Place::Gpu(gpu) => Some(gpu),
        }
    }

    /// Its number among the GPUs, the first is 0; none for the CPU.
    pub fn ordinal(&self) -> Option<usize> {
        match &self.0 {
            Place::Cpu => None,
            #[cfg(feature = "cuda")]
            Place::Gpu(gpu) => Some(gpu.ordinal()),
        }
    }

    /// The name a person knows it by: `NVIDIA H200`, `CPU (2 threads)`.
    pub fn name(&self) -> String {
        match &self.0 {
            Place::Cpu => format!("CPU ({} threads)", cpu_threads()),
            #[cfg(feature = "cuda")]
            Place::Gpu(gpu) => gpu.name().to_owned(),
        }
    }

    /// What results of measurements on it are kept under: of a GPU its name, of the CPU the processor's
    /// and the number of threads.
    pub fn model(&self) -> String {
        match &self.0 {
            Place::Cpu => format!("{}, {} threads", processor(), cpu_threads()),
            #[cfg(feature = "cuda")]
            Place::Gpu(gpu) => gpu.name().to_owned(),
        }
    }

    /// What a kernel may use.
    pub fn limits(&self) -> Limits {
        match &self.0 {
            Place::Cpu => Limits {
                sm_count: cpu_threads() as u32,
                ..Limits::default()
            },
            #[cfg(feature = "cuda")]
            Place::Gpu(gpu) => gpu.limits().clone(),
        }
    }

    /// Refuses an address that is null, or that the driver does not know as memory of this GPU; of the CPU
    /// any other serves. It calls the driver, so no run does it.
    pub(crate) fn expect_own(&self, what: &'static str, address: *const c_void) -> Result<()> {
        let error = |why: &str, source| Error::Memory {
            what,
            device: self.to_string(),
            address: address as usize,
            why: why.to_owned(),
            source,
        };
        if address.is_null() {
            return Err(error("a null address", None));
        }
        #[cfg(feature = "cuda")]
        if let Some(gpu) = self.as_gpu() {
            return match gpu.owner(address) {
                Ok(owner) if owner == gpu.ordinal() => Ok(()),
                Ok(owner) => Err(error(&format!("it is memory of GPU {owner}"), None)),
                Err(why) => {
                    let why = Some(AssertUnwindSafe(why.into()));
                    Err(error("the driver does not say whose it is", why))
                }
            };
        }
        Ok(())
    }

    /// Refuses what lives on another device.
    pub(crate) fn expect(&self, what: &'static str, found: &Device) -> Result<()> {
        if self == found {
            return Ok(());
        }
        Err(Error::WrongDevice {
            what,
            expected: self.to_string(),
            found: found.to_string(),
        })
    }
}

#[cfg(feature = "cuda")]
impl From<gpu::Gpu> for Device {
    fn from(gpu: gpu::Gpu) -> Self {
        Device(Place::Gpu(gpu))
    }
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match &self.0 {
            Place::Cpu => f.write_str("the CPU"),
            #[cfg(feature = "cuda")]
            Place::Gpu(gpu) => write!(f, "GPU {} ({})", gpu.ordinal(), gpu.name()),
        }
    }
}

/// The processor, as Linux calls it.
fn processor() -> String {
    // The first processor's lines: with many of them the file takes milliseconds to make.
    let mut head = Vec::new();
    let read = File::open("/proc/cpuinfo").and_then(|file| file.take(4096).read_to_end(&mut head));
    let text = String::from_utf8_lossy(&head);
    let name = |line: &str| {
        Some(
            line.strip_prefix("model name")?
                .split_once(": ")?
                .1
                .to_owned(),
        )
    };
    let name = read.ok().and_then(|_| text.lines().find_map(name));
    name.unwrap_or_else(|| "CPU".to_owned())
}

/// Threads that the CPU's variants run on.
fn cpu_threads() -> usize {
    #[cfg(feature = "cpu")]
    return rayon::current_num_threads();
    #[cfg(not(feature = "cpu"))]
    1
}
