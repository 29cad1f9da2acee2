//! Where a convolution runs: the CPU or one GPU, behind one set of types, so that everything above
//! is written once.

mod host_copies;

use std::{ffi::c_void, sync::Arc, time::Instant};

use bytemuck::Pod;

#[cfg(feature = "cuda")]
use crate::gpu;
use crate::{Error, Result, Storage};

pub use host_copies::{HostCopies, with_host_copies};

/// What a kernel may use; read once per device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Limits {
    /// Compute capability times ten: 90 for 9.0. 0 for the CPU.
    pub arch: u32,
    /// Streaming multiprocessors; threads for the CPU.
    pub sm_count: u32,
    /// Shared memory of one block in bytes, with opt-in.
    pub shared_per_block: u32,
    /// Shared memory of one multiprocessor in bytes.
    pub shared_per_sm: u32,
    /// 32-bit registers of one multiprocessor.
    pub registers_per_sm: u32,
    /// Bytes of L2 cache.
    pub l2_bytes: u64,
    /// Bytes of device memory.
    pub memory_bytes: u64,
    /// Highest clock of the multiprocessors in kHz.
    pub clock_khz: u32,
    /// Highest clock of the memory in kHz; it moves data twice in each.
    pub memory_clock_khz: u32,
    /// Width of the memory in bits.
    pub memory_bits: u32,
}

impl Limits {
    /// Whether these are a GPU's.
    pub fn is_gpu(&self) -> bool {
        self.arch > 0
    }

    /// Clocks of a multiprocessor in a microsecond, at its highest.
    pub fn clocks_per_us(&self) -> f64 {
        f64::from(self.clock_khz) / 1e3
    }

    /// Bytes that the memory's pins move in a microsecond.
    pub fn bytes_per_us(&self) -> f64 {
        2.0 * f64::from(self.memory_clock_khz) / 1e3 * f64::from(self.memory_bits) / 8.0
    }

    /// The chips that [`of_chip`](Self::of_chip) knows.
    pub const CHIPS: [&str; 5] = ["h200", "h100", "a100", "l40s", "rtx4090"];

    /// What a chip of this name tells of itself, for planning without one: an H200, an H100 (both
    /// SXM), an A100 of 80 GB, an L40S, an RTX 4090.
    pub fn of_chip(name: &str) -> Option<Self> {
        let [
            arch,
            sm_count,
            shared_per_block,
            shared_per_sm,
            l2_mib,
            memory_gib,
            mhz,
            memory_mhz,
            bits,
        ] = match name {
            "h200" => [90, 132, 232_448, 233_472, 60, 140, 1980, 3201, 6144],
            "h100" => [90, 132, 232_448, 233_472, 50, 79, 1980, 2619, 5120],
            "a100" => [80, 108, 166_912, 167_936, 40, 79, 1410, 1593, 5120],
            "l40s" => [89, 142, 101_376, 102_400, 96, 44, 2520, 9001, 384],
            "rtx4090" => [89, 128, 101_376, 102_400, 72, 23, 2520, 10501, 384],
            _ => return None,
        };
        Some(Limits {
            arch,
            sm_count,
            shared_per_block,
            shared_per_sm,
            registers_per_sm: 65536,
            l2_bytes: u64::from(l2_mib) << 20,
            memory_bytes: u64::from(memory_gib) << 30,
            clock_khz: mhz * 1000,
            memory_clock_khz: memory_mhz * 1000,
            memory_bits: bits,
        })
    }
}

/// The CPU, or one GPU.
#[derive(Clone, Debug, PartialEq)]
pub enum Device {
    /// All cores, through rayon.
    Cpu,
    /// One GPU, through its primary context.
    #[cfg(feature = "cuda")]
    Gpu(gpu::Gpu),
}

impl Device {
    /// The GPU with this ordinal.
    ///
    /// # Errors
    /// [`Error::NoGpu`] where there is none, or not so many; it says what was looked for.
    pub fn gpu(ordinal: usize) -> Result<Self> {
        #[cfg(feature = "cuda")]
        return Ok(Device::Gpu(gpu::Gpu::new(ordinal)?));
        #[cfg(not(feature = "cuda"))]
        Err(Error::NoGpu(format!(
            "GPU {ordinal} was asked for, but this build has no CUDA (feature `cuda`)"
        )))
    }

    /// The first GPU, or the CPU and the reason why there is no GPU.
    pub fn best() -> (Self, Option<Error>) {
        match Device::gpu(0) {
            Ok(device) => (device, None),
            Err(error) => (Device::Cpu, Some(error)),
        }
    }

    /// Whether this is a GPU.
    pub fn is_gpu(&self) -> bool {
        *self != Device::Cpu
    }

    /// The name a person knows it by: `NVIDIA H200`, `CPU (2 threads)`.
    pub fn name(&self) -> String {
        match self {
            Device::Cpu => format!("CPU ({} threads)", cpu_threads()),
            #[cfg(feature = "cuda")]
            Device::Gpu(gpu) => gpu.name().to_owned(),
        }
    }

    /// What a kernel may use.
    pub fn limits(&self) -> Limits {
        match self {
            Device::Cpu => Limits {
                sm_count: cpu_threads() as u32,
                ..Limits::default()
            },
            #[cfg(feature = "cuda")]
            Device::Gpu(gpu) => gpu.limits().clone(),
        }
    }

    /// Memory for `len` elements, not initialised to anything in particular.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], saying how much was asked for and how much was free.
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<Buffer<T>> {
        match self {
            Device::Cpu => Ok(Buffer::Cpu(HostBuffer::zeroed(len)?)),
            #[cfg(feature = "cuda")]
            Device::Gpu(gpu) => Ok(Buffer::Gpu(gpu::DeviceBuffer::alloc(gpu, len)?)),
        }
    }

    /// Memory holding a copy of `data`.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    pub fn upload<T: Pod>(&self, data: &[T]) -> Result<Buffer<T>> {
        let mut buffer = self.alloc(data.len())?;
        match &mut buffer {
            Buffer::Cpu(host) => host.as_mut_slice().copy_from_slice(data),
            #[cfg(feature = "cuda")]
            Buffer::Gpu(device) => device.upload(data)?,
        }
        Ok(buffer)
    }

    /// A queue of work. On the CPU work is done when it is queued.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn stream(&self) -> Result<Stream> {
        match self {
            Device::Cpu => Ok(Stream::Cpu(Arc::new(()))),
            #[cfg(feature = "cuda")]
            Device::Gpu(gpu) => Ok(Stream::Gpu(gpu::Stream::new(gpu)?)),
        }
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

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Device::Cpu => f.write_str("the CPU"),
            #[cfg(feature = "cuda")]
            Device::Gpu(gpu) => write!(f, "GPU {} ({})", gpu.ordinal(), gpu.name()),
        }
    }
}

/// Threads that the CPU's variants run on.
fn cpu_threads() -> usize {
    #[cfg(feature = "cpu")]
    return rayon::current_num_threads();
    #[cfg(not(feature = "cpu"))]
    1
}

/// An element type that tensors are stored in: f32, or f16 and bf16 of the crate half.
pub trait Element: Pod + Send + Sync + sealed::Sealed {
    /// Its name among the storages.
    const STORAGE: Storage;
}

/// Buffers' lengths are checked in elements, so nobody else may say how large one is.
mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for half::f16 {}
    impl Sealed for half::bf16 {}
}

impl Element for f32 {
    const STORAGE: Storage = Storage::F32;
}

impl Element for half::f16 {
    const STORAGE: Storage = Storage::F16;
}

impl Element for half::bf16 {
    const STORAGE: Storage = Storage::Bf16;
}

/// A queue of work on a device. Clones are the same queue.
#[derive(Clone, Debug)]
pub enum Stream {
    /// Work is done when it is queued; the value tells streams apart.
    Cpu(Arc<()>),
    /// A CUDA stream.
    #[cfg(feature = "cuda")]
    Gpu(gpu::Stream),
}

impl Stream {
    /// Waits until everything queued is done.
    ///
    /// # Errors
    /// A failure of work queued earlier shows here.
    pub fn synchronize(&self) -> Result<()> {
        match self {
            Stream::Cpu(_) => Ok(()),
            #[cfg(feature = "cuda")]
            Stream::Gpu(stream) => stream.synchronize(),
        }
    }

    /// The device it belongs to.
    pub fn device(&self) -> Device {
        match self {
            Stream::Cpu(_) => Device::Cpu,
            #[cfg(feature = "cuda")]
            Stream::Gpu(stream) => Device::Gpu(stream.gpu().clone()),
        }
    }

    /// The `cudaStream_t`; null on the CPU.
    pub fn raw(&self) -> *mut c_void {
        match self {
            Stream::Cpu(_) => std::ptr::null_mut(),
            #[cfg(feature = "cuda")]
            Stream::Gpu(stream) => stream.raw(),
        }
    }

    /// A point in the stream's time.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn mark(&self) -> Result<Mark> {
        match self {
            Stream::Cpu(_) => Ok(Mark::Cpu(Instant::now())),
            #[cfg(feature = "cuda")]
            Stream::Gpu(stream) => {
                let event = gpu::Event::new(stream.gpu())?;
                stream.record(&event)?;
                Ok(Mark::Gpu(event))
            }
        }
    }

    /// Moves a mark of this device to here; unlike [`mark`](Self::mark) it allocates nothing.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn move_mark(&self, mark: &mut Mark) -> Result<()> {
        match (self, &mut *mark) {
            #[cfg(feature = "cuda")]
            (Stream::Gpu(stream), Mark::Gpu(event)) => stream.record(event),
            _ => {
                *mark = self.mark()?;
                Ok(())
            }
        }
    }

    /// Lets what is queued from here on begin when a mark is reached.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn wait_for(&self, mark: &Mark) -> Result<()> {
        match (self, mark) {
            #[cfg(feature = "cuda")]
            (Stream::Gpu(stream), Mark::Gpu(event)) => stream.wait(event),
            #[cfg(feature = "cuda")]
            (Stream::Cpu(_), Mark::Gpu(event)) => event.synchronize(),
            (_, Mark::Cpu(_)) => Ok(()),
        }
    }

    /// What tells this stream from others for as long as it lives.
    pub fn id(&self) -> u64 {
        match self {
            Stream::Cpu(id) => Arc::as_ptr(id) as u64,
            #[cfg(feature = "cuda")]
            Stream::Gpu(stream) => stream.id(),
        }
    }
}

/// A point in a stream's time, to measure what was queued between two of them.
#[derive(Debug)]
pub enum Mark {
    /// Work is done when it is queued, so wall time serves.
    Cpu(Instant),
    /// A CUDA event.
    #[cfg(feature = "cuda")]
    Gpu(gpu::Event),
}

impl Mark {
    /// Microseconds from `earlier` to this mark; waits until it is reached.
    ///
    /// # Errors
    /// Marks of two devices, or a failure of work queued between them.
    pub fn us_since(&self, earlier: &Mark) -> Result<f64> {
        match (self, earlier) {
            (Mark::Cpu(now), Mark::Cpu(then)) => Ok((*now - *then).as_secs_f64() * 1e6),
            #[cfg(feature = "cuda")]
            (Mark::Gpu(now), Mark::Gpu(then)) => {
                now.synchronize()?;
                now.elapsed_us(then)
            }
            #[cfg(feature = "cuda")]
            _ => Err(Error::NoCommonClock),
        }
    }
}

/// Elements in the memory of a device.
#[derive(Debug)]
pub enum Buffer<T: Pod> {
    /// Host memory, aligned to 128 bytes.
    Cpu(HostBuffer<T>),
    /// Device memory.
    #[cfg(feature = "cuda")]
    Gpu(gpu::DeviceBuffer<T>),
}

impl<T: Pod> Buffer<T> {
    /// Elements.
    pub fn len(&self) -> usize {
        match self {
            Buffer::Cpu(host) => host.len,
            #[cfg(feature = "cuda")]
            Buffer::Gpu(device) => device.len(),
        }
    }

    /// Whether it holds no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The device whose memory it is.
    pub fn device(&self) -> Device {
        match self {
            Buffer::Cpu(_) => Device::Cpu,
            #[cfg(feature = "cuda")]
            Buffer::Gpu(device) => Device::Gpu(device.gpu().clone()),
        }
    }

    /// Address of the first element, on its device.
    pub fn as_ptr(&self) -> *const c_void {
        match self {
            Buffer::Cpu(host) => host.blocks.as_ptr().cast(),
            #[cfg(feature = "cuda")]
            Buffer::Gpu(device) => device.address() as *const c_void,
        }
    }

    /// Address of the first element, for writing.
    pub fn as_mut_ptr(&mut self) -> *mut c_void {
        match self {
            Buffer::Cpu(host) => host.blocks.as_mut_ptr().cast(),
            #[cfg(feature = "cuda")]
            Buffer::Gpu(device) => device.address() as *mut c_void,
        }
    }

    /// A copy of the elements in host memory, once `stream`'s work is done.
    ///
    /// # Errors
    /// What the driver answers, failures of earlier work on the stream included.
    pub fn to_vec(&self, stream: &Stream) -> Result<Vec<T>> {
        stream.synchronize()?;
        match self {
            Buffer::Cpu(host) => Ok(host.as_slice().to_vec()),
            #[cfg(feature = "cuda")]
            Buffer::Gpu(device) => device.download(),
        }
    }

    /// Copies the elements into `data`, once `stream`'s work is done.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a slice of another length; otherwise as [`to_vec`](Self::to_vec).
    pub fn copy_to(&self, data: &mut [T], stream: &Stream) -> Result<()> {
        stream.synchronize()?;
        same_length("download", data.len(), self.len())?;
        match self {
            Buffer::Cpu(host) => data.copy_from_slice(host.as_slice()),
            #[cfg(feature = "cuda")]
            Buffer::Gpu(device) => device.download_into(data)?,
        }
        Ok(())
    }

    /// Replaces the elements by those of `data`, once `stream`'s work is done.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a slice of another length, or what the driver answers.
    pub fn copy_from(&mut self, data: &[T], stream: &Stream) -> Result<()> {
        stream.synchronize()?;
        same_length("upload", data.len(), self.len())?;
        match self {
            Buffer::Cpu(host) => host.as_mut_slice().copy_from_slice(data),
            #[cfg(feature = "cuda")]
            Buffer::Gpu(device) => device.upload(data)?,
        }
        Ok(())
    }
}

/// Refuses a slice that has not as many elements as the buffer.
fn same_length(what: &'static str, given: usize, len: usize) -> Result<()> {
    if given == len {
        return Ok(());
    }
    Err(Error::OutOfRange {
        what,
        start: 0,
        end: given,
        len,
    })
}

/// Host memory whose start is a multiple of 128 bytes, as device memory's is of 256.
#[derive(Debug)]
pub struct HostBuffer<T: Pod> {
    blocks: Vec<Block>,
    len: usize,
    elements: std::marker::PhantomData<T>,
}

#[derive(Clone, Copy, Debug)]
#[repr(C, align(128))]
struct Block([u8; 128]);

// SAFETY: a plain array of bytes without padding, valid for every bit pattern.
unsafe impl bytemuck::Zeroable for Block {}
// SAFETY: as above.
unsafe impl Pod for Block {}

impl<T: Pod> HostBuffer<T> {
    /// `len` elements of zero bytes.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn zeroed(len: usize) -> Result<Self> {
        let out_of_memory = || Error::OutOfMemory {
            device: Device::Cpu.to_string(),
            asked: len.saturating_mul(size_of::<T>()),
            free: 0,
            total: 0,
        };
        let bytes = len.checked_mul(size_of::<T>()).ok_or_else(out_of_memory)?;
        let count = bytes.div_ceil(size_of::<Block>());
        let mut blocks = Vec::new();
        blocks
            .try_reserve_exact(count)
            .map_err(|_| out_of_memory())?;
        blocks.resize(count, Block([0; 128]));
        Ok(HostBuffer {
            blocks,
            len,
            elements: std::marker::PhantomData,
        })
    }

    /// The elements.
    pub fn as_slice(&self) -> &[T] {
        &bytemuck::cast_slice(&self.blocks)[..self.len]
    }

    /// The elements.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        &mut bytemuck::cast_slice_mut(&mut self.blocks)[..self.len]
    }
}
