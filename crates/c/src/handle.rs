//! What C holds: an address of one of three kinds, each of which begins with a number of its own.

use std::ptr::NonNull;

use crate::status::{Failure, Status};

/// What a handle can be of.
pub trait Kind {
    /// The number that its handles begin with.
    const MAGIC: u64;
    /// What errors call it.
    const NAME: &'static str;
}

/// One that C holds. It is opaque there.
#[repr(C)]
#[derive(Debug)]
pub struct Handle<T> {
    /// First in handles of every kind, so that it can be read before the kind is known.
    magic: u64,
    value: T,
}

impl<T: Kind> Handle<T> {
    /// One for C to destroy.
    pub(crate) fn new(value: T) -> *mut Self {
        let magic = T::MAGIC;
        Box::into_raw(Box::new(Handle { magic, value }))
    }

    /// What C means by `handle`.
    ///
    /// # Safety
    /// `handle` is null or from [`new`](Self::new) of any kind, and not taken back while the answer lives.
    pub(crate) unsafe fn of<'a>(handle: *const Self) -> Result<&'a T, Failure> {
        // SAFETY: as the caller promised.
        let handle = unsafe { Self::checked(handle.cast_mut()) }?;
        // SAFETY: it is of this kind and alive; nobody writes to it.
        Ok(unsafe { &(*handle.as_ptr()).value })
    }

    /// Takes one back; nothing for null.
    ///
    /// # Safety
    /// As [`of`](Self::of), and it is not used again.
    pub(crate) unsafe fn take(handle: *mut Self) -> Result<Option<T>, Failure> {
        if handle.is_null() {
            return Ok(None);
        }
        // SAFETY: as the caller promised.
        let handle = unsafe { Self::checked(handle) }?.as_ptr();
        // SAFETY: it is from `new`, of this kind, and taken back once. The number is gone before the
        // memory is, so that most later uses are refused.
        unsafe {
            (&raw mut (*handle).magic).write_volatile(0);
            Ok(Some(Box::from_raw(handle).value))
        }
    }

    /// # Safety
    /// As [`of`](Self::of).
    unsafe fn checked(handle: *mut Self) -> Result<NonNull<Self>, Failure> {
        let refuse = |why: &str| {
            let text = format!("{why} was given where a {} is needed", T::NAME);
            Failure::new(Status::Handle, text)
        };
        let handle = NonNull::new(handle).ok_or_else(|| refuse("null"))?;
        // SAFETY: handles of every kind begin with this number.
        let magic = |handle: NonNull<Self>| unsafe { (&raw const (*handle.as_ptr()).magic).read() };
        if !handle.is_aligned() || magic(handle) != T::MAGIC {
            return Err(refuse("something else, or what was destroyed,"));
        }
        Ok(handle)
    }
}
