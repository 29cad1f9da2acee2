//! Elements in the memory of a device, borrowed: a buffer or a part of one, a slice on the CPU, or
//! memory of another crate's.

use std::{
    ffi::c_void,
    marker::PhantomData,
    ops::{Bound, RangeBounds},
};

use bytemuck::Pod;

use super::Device;
#[cfg(feature = "cuda")]
use crate::gpu;
use crate::{Error, Result};

/// What errors call it.
const WHAT: &str = "a view";

/// Elements that a convolution reads: `&buffer`, a [part](crate::Buffer::view) of one, on the CPU a slice, and
/// anybody's memory by [`from_raw`](Self::from_raw).
///
/// ```
/// use convforge::{Conv, Device, Pick, Problem};
///
/// // The second half of a batch of four.
/// let device = Device::cpu();
/// let half: Problem = "mb2ic1ih8oc1kh1".parse()?;
/// let conv = Conv::new(&device, &half, &Pick::Rule)?;
/// let stream = device.stream()?;
/// let mut workspace = conv.workspace(&stream)?;
/// let x = device.upload(&vec![1f32; 2 * half.x_len()])?;
/// let w = device.upload(&[3f32])?;
/// let mut y = device.upload(&vec![0f32; 2 * half.y_len()])?;
/// let second = y.view_mut(half.y_len()..)?;
/// conv.run(x.view(half.x_len()..)?, &w, second, &mut workspace, &stream)?;
/// assert_eq!(y.to_vec(&stream)?[63..65], [0., 0.]);
/// assert_eq!(y.to_vec(&stream)?[127..129], [0., 3.]);
/// # Ok::<(), convforge::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct View<'a, T: Pod> {
    pub(super) device: Device,
    pub(super) address: *const c_void,
    pub(super) len: usize,
    pub(super) elements: PhantomData<&'a [T]>,
}

/// Elements that a convolution writes, as [`View`].
#[derive(Debug)]
pub struct ViewMut<'a, T: Pod> {
    pub(super) device: Device,
    pub(super) address: *mut c_void,
    pub(super) len: usize,
    pub(super) elements: PhantomData<&'a mut [T]>,
}

// SAFETY: it stands for a `&[T]`, whatever the device.
unsafe impl<T: Pod + Sync> Send for View<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Pod + Sync> Sync for View<'_, T> {}
// SAFETY: it stands for a `&mut [T]`, whatever the device.
unsafe impl<T: Pod + Send> Send for ViewMut<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Pod + Sync> Sync for ViewMut<'_, T> {}

impl<T: Pod> View<'_, T> {
    /// `len` elements in memory of the caller's: another allocator's, or another crate's.
    ///
    /// # Errors
    /// [`Error::Memory`] for an address that is null, not aligned to the element, or, as far as the
    /// driver knows, not of this device.
    ///
    /// # Safety
    /// The elements are in `device`'s memory and initialised, and until every stream is past the work
    /// that was queued with this view, they stay there and nobody writes to them.
    pub unsafe fn from_raw(device: &Device, address: *const c_void, len: usize) -> Result<Self> {
        check_foreign::<T>(device, address, len)?;
        Ok(View {
            device: device.clone(),
            address,
            len,
            elements: PhantomData,
        })
    }
}

impl<'a, T: Pod> View<'a, T> {
    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds no element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device whose memory it is.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Address of the first element, on its device.
    pub fn as_ptr(&self) -> *const c_void {
        self.address
    }

    /// Some of the elements.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<View<'a, T>> {
        let (start, len) = part(&range, self.len)?;
        Ok(View {
            device: self.device.clone(),
            address: self.address.wrapping_byte_add(start * size_of::<T>()),
            len,
            elements: PhantomData,
        })
    }
}

impl<T: Pod> ViewMut<'_, T> {
    /// `len` elements in memory of the caller's, as [`View::from_raw`].
    ///
    /// # Errors
    /// As [`View::from_raw`].
    ///
    /// # Safety
    /// As [`View::from_raw`], and nobody else reads them either.
    pub unsafe fn from_raw(device: &Device, address: *mut c_void, len: usize) -> Result<Self> {
        check_foreign::<T>(device, address, len)?;
        Ok(ViewMut {
            device: device.clone(),
            address,
            len,
            elements: PhantomData,
        })
    }
}

impl<'a, T: Pod> ViewMut<'a, T> {
    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds no element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device whose memory it is.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Address of the first element, on its device, for writing.
    pub fn as_mut_ptr(&mut self) -> *mut c_void {
        self.address
    }

    /// Some of the elements.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn slice(self, range: impl RangeBounds<usize>) -> Result<ViewMut<'a, T>> {
        let (start, len) = part(&range, self.len)?;
        Ok(ViewMut {
            address: self.address.wrapping_byte_add(start * size_of::<T>()),
            len,
            ..self
        })
    }

    /// The elements before `at` and those from it on: for parts that are written by different calls.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn split_at(self, at: usize) -> Result<(ViewMut<'a, T>, ViewMut<'a, T>)> {
        let (_, len) = part(&(at..), self.len)?;
        let behind = ViewMut {
            device: self.device.clone(),
            address: self.address.wrapping_byte_add(at * size_of::<T>()),
            len,
            elements: PhantomData,
        };
        Ok((ViewMut { len: at, ..self }, behind))
    }
}

impl<'a, T: Pod> From<&'a [T]> for View<'a, T> {
    /// Elements in the CPU's memory.
    fn from(slice: &'a [T]) -> Self {
        View {
            device: Device::cpu(),
            address: slice.as_ptr().cast(),
            len: slice.len(),
            elements: PhantomData,
        }
    }
}

impl<'a, T: Pod> From<&'a mut [T]> for ViewMut<'a, T> {
    /// Elements in the CPU's memory.
    fn from(slice: &'a mut [T]) -> Self {
        ViewMut {
            device: Device::cpu(),
            address: slice.as_mut_ptr().cast(),
            len: slice.len(),
            elements: PhantomData,
        }
    }
}

#[cfg(feature = "cuda")]
impl<'a, T: Pod> From<&'a gpu::DeviceBuffer<T>> for View<'a, T> {
    fn from(buffer: &'a gpu::DeviceBuffer<T>) -> Self {
        View {
            device: buffer.gpu().clone().into(),
            address: buffer.address() as *const c_void,
            len: buffer.len(),
            elements: PhantomData,
        }
    }
}

#[cfg(feature = "cuda")]
impl<'a, T: Pod> From<&'a mut gpu::DeviceBuffer<T>> for ViewMut<'a, T> {
    fn from(buffer: &'a mut gpu::DeviceBuffer<T>) -> Self {
        ViewMut {
            device: buffer.gpu().clone().into(),
            address: buffer.address() as *mut c_void,
            len: buffer.len(),
            elements: PhantomData,
        }
    }
}

/// Where a part of `len` elements begins, and how many it has.
fn part(range: &impl RangeBounds<usize>, len: usize) -> Result<(usize, usize)> {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => len,
    };
    if start <= end && end <= len {
        return Ok((start, end - start));
    }
    Err(Error::OutOfRange {
        what: WHAT,
        start,
        end,
        len,
    })
}

/// Refuses addresses that cannot be of so many elements on the device.
fn check_foreign<T>(device: &Device, address: *const c_void, len: usize) -> Result<()> {
    let error = |why: String| Error::Memory {
        what: WHAT,
        device: device.to_string(),
        address: address as usize,
        why,
        source: None,
    };
    if len == 0 {
        return Ok(());
    }
    if address.is_null() {
        return Err(error(format!("null, for {len} elements")));
    }
    let bytes = len.checked_mul(size_of::<T>());
    if bytes
        .and_then(|bytes| bytes.checked_add(address as usize))
        .is_none()
    {
        return Err(error(format!("{len} elements reach past all memory")));
    }
    let align = align_of::<T>();
    if !(address as usize).is_multiple_of(align) {
        return Err(error(format!("no multiple of an element's {align} bytes")));
    }
    device.expect_own(WHAT, address)
}
