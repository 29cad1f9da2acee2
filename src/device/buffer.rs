//! Elements in the memory of a device.

use std::{ffi::c_void, marker::PhantomData, ops::RangeBounds};

use bytemuck::Pod;

use super::{Device, Place, Stream, View, ViewMut, host_buffer::HostBuffer};
#[cfg(feature = "cuda")]
use crate::gpu;
use crate::{Error, Result};

/// Elements in the memory of a device, from [`Device::alloc`] or [`Device::upload`].
///
/// A [`View`] is a part of it. Dropping it waits for the work that uses it.
#[derive(Debug)]
pub struct Buffer<T: Pod>(pub(super) Memory<T>);

#[derive(Debug)]
pub(super) enum Memory<T: Pod> {
    Cpu(HostBuffer<T>),
    #[cfg(feature = "cuda")]
    Gpu(gpu::DeviceBuffer<T>),
}

impl Device {
    /// Memory for `len` elements, not initialised to anything in particular.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], saying how much was asked for and how much was free;
    /// [`Error::Unavailable`] on the CPU for elements of no bytes, or aligned to more than 128.
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<Buffer<T>> {
        let memory = match &self.0 {
            Place::Cpu => Memory::Cpu(HostBuffer::zeroed(len)?),
            #[cfg(feature = "cuda")]
            Place::Gpu(gpu) => Memory::Gpu(gpu::DeviceBuffer::alloc(gpu, len)?),
        };
        Ok(Buffer(memory))
    }

    /// Memory holding a copy of `data`.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    pub fn upload<T: Pod>(&self, data: &[T]) -> Result<Buffer<T>> {
        let mut buffer = self.alloc(data.len())?;
        buffer.fill_from(data)?;
        Ok(buffer)
    }
}

impl<T: Pod> Buffer<T> {
    /// Elements.
    pub fn len(&self) -> usize {
        match &self.0 {
            Memory::Cpu(host) => host.as_slice().len(),
            #[cfg(feature = "cuda")]
            Memory::Gpu(device) => device.len(),
        }
    }

    /// Whether it holds no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The device whose memory it is.
    pub fn device(&self) -> Device {
        match &self.0 {
            Memory::Cpu(_) => Device::cpu(),
            #[cfg(feature = "cuda")]
            Memory::Gpu(device) => device.gpu().clone().into(),
        }
    }

    /// Address of the first element, on its device; a multiple of 128 bytes.
    pub fn as_ptr(&self) -> *const c_void {
        match &self.0 {
            Memory::Cpu(host) => host.as_slice().as_ptr().cast(),
            #[cfg(feature = "cuda")]
            Memory::Gpu(device) => device.address() as *const c_void,
        }
    }

    /// Address of the first element, for writing.
    pub fn as_mut_ptr(&mut self) -> *mut c_void {
        match &mut self.0 {
            Memory::Cpu(host) => host.as_mut_slice().as_mut_ptr().cast(),
            #[cfg(feature = "cuda")]
            Memory::Gpu(device) => device.address() as *mut c_void,
        }
    }

    /// The elements, where they are in the CPU's memory.
    pub fn as_slice(&self) -> Option<&[T]> {
        match &self.0 {
            Memory::Cpu(host) => Some(host.as_slice()),
            #[cfg(feature = "cuda")]
            Memory::Gpu(_) => None,
        }
    }

    /// As [`as_slice`](Self::as_slice), for writing.
    pub fn as_mut_slice(&mut self) -> Option<&mut [T]> {
        match &mut self.0 {
            Memory::Cpu(host) => Some(host.as_mut_slice()),
            #[cfg(feature = "cuda")]
            Memory::Gpu(_) => None,
        }
    }

    /// The memory on a GPU, where it is there.
    #[cfg(feature = "cuda")]
    pub fn as_gpu(&self) -> Option<&gpu::DeviceBuffer<T>> {
        match &self.0 {
            Memory::Cpu(_) => None,
            Memory::Gpu(device) => Some(device),
        }
    }

    /// As [`as_gpu`](Self::as_gpu), for writing.
    #[cfg(feature = "cuda")]
    pub fn as_gpu_mut(&mut self) -> Option<&mut gpu::DeviceBuffer<T>> {
        match &mut self.0 {
            Memory::Cpu(_) => None,
            Memory::Gpu(device) => Some(device),
        }
    }

    /// Some of the elements: the images of a batch from 10 to 19 are
    /// `x.view(10 * image..20 * image)`, with `image` the elements of one.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn view(&self, range: impl RangeBounds<usize>) -> Result<View<'_, T>> {
        View::from(self).slice(range)
    }

    /// Some of the elements, to be written.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn view_mut(&mut self, range: impl RangeBounds<usize>) -> Result<ViewMut<'_, T>> {
        ViewMut::from(self).slice(range)
    }

    /// A copy of the elements in host memory, once `stream`'s work is done.
    ///
    /// # Errors
    /// What the driver answers, failures of earlier work on the stream included.
    pub fn to_vec(&self, stream: &Stream) -> Result<Vec<T>> {
        stream.synchronize()?;
        match &self.0 {
            Memory::Cpu(host) => Ok(host.as_slice().to_vec()),
            #[cfg(feature = "cuda")]
            Memory::Gpu(device) => device.download(),
        }
    }

    /// Copies the elements into `data`, once `stream`'s work is done.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a slice of another length; otherwise as [`to_vec`](Self::to_vec).
    pub fn copy_to(&self, data: &mut [T], stream: &Stream) -> Result<()> {
        stream.synchronize()?;
        same_length("download", data.len(), self.len())?;
        match &self.0 {
            Memory::Cpu(host) => data.copy_from_slice(host.as_slice()),
            #[cfg(feature = "cuda")]
            Memory::Gpu(device) => device.download_into(data)?,
        }
        Ok(())
    }

    /// Replaces the elements by those of `data`, once `stream`'s work is done.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a slice of another length, or what the driver answers.
    pub fn copy_from(&mut self, data: &[T], stream: &Stream) -> Result<()> {
        stream.synchronize()?;
        self.fill_from(data)
    }

    /// [`copy_from`](Self::copy_from) where no work uses the elements.
    pub(super) fn fill_from(&mut self, data: &[T]) -> Result<()> {
        same_length("upload", data.len(), self.len())?;
        match &mut self.0 {
            Memory::Cpu(host) => host.as_mut_slice().copy_from_slice(data),
            #[cfg(feature = "cuda")]
            Memory::Gpu(device) => device.upload(data)?,
        }
        Ok(())
    }
}

impl<'a, T: Pod> From<&'a Buffer<T>> for View<'a, T> {
    fn from(buffer: &'a Buffer<T>) -> Self {
        View {
            device: buffer.device(),
            address: buffer.as_ptr(),
            len: buffer.len(),
            elements: PhantomData,
        }
    }
}

impl<'a, T: Pod> From<&'a mut Buffer<T>> for ViewMut<'a, T> {
    fn from(buffer: &'a mut Buffer<T>) -> Self {
        ViewMut {
            device: buffer.device(),
            address: buffer.as_mut_ptr(),
            len: buffer.len(),
            elements: PhantomData,
        }
    }
}

#[cfg(feature = "cuda")]
impl<T: Pod> From<gpu::DeviceBuffer<T>> for Buffer<T> {
    fn from(memory: gpu::DeviceBuffer<T>) -> Self {
        Buffer(Memory::Gpu(memory))
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
