//! A filter's packed forms, kept beside its weights.

use std::{
    ffi::c_void,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{Conv, Packed};
use crate::{Element, Result, Stream, View};

/// What variants made of one filter: a packed form for each arrangement that was asked for, packed
/// at first use and shared by every convolution that takes it, whatever its number of images.
///
/// It stands for one filter on one device and lives beside its weights, which it does not hold: every
/// call names them. Whoever changes them calls [`clear`](Self::clear); until then the forms are those
/// of the weights as they were.
///
/// At most [`MOST`](Self::MOST) forms are kept, of which the one leaves that was not used the
/// longest. Threads share one; while one of them packs, others that ask this filter wait.
#[derive(Default)]
pub struct Filter {
    /// The last one was used last.
    forms: Mutex<Vec<Arc<Packed>>>,
}

impl Filter {
    /// Packed forms kept: a layer needs one for each variant that serves it.
    pub const MOST: usize = 4;

    /// No form yet.
    pub fn new() -> Self {
        Filter::default()
    }

    /// The form of the filter `w` that `conv` takes; none where it uses filters as they are. The
    /// first call packs it and waits until that is done, so that it serves on any stream at once;
    /// such a call cannot be captured.
    ///
    /// # Errors
    /// As [`Conv::pack`].
    pub fn packed<'a, T: Element>(
        &self,
        conv: &Conv,
        w: impl Into<View<'a, T>>,
        stream: &Stream,
    ) -> Result<Option<Arc<Packed>>> {
        self.form(conv, stream, || conv.pack(w, stream))
    }

    /// [`packed`](Self::packed) of a filter at a plain address.
    ///
    /// # Errors
    /// As [`packed`](Self::packed).
    ///
    /// # Safety
    /// As [`Conv::pack_raw`].
    pub unsafe fn packed_raw(
        &self,
        conv: &Conv,
        w: *const c_void,
        stream: &Stream,
    ) -> Result<Option<Arc<Packed>>> {
        // SAFETY: as this function's.
        self.form(conv, stream, || unsafe { conv.pack_raw(w, stream) })
    }

    fn form(
        &self,
        conv: &Conv,
        stream: &Stream,
        pack: impl FnOnce() -> Result<Option<Packed>>,
    ) -> Result<Option<Arc<Packed>>> {
        let Some(key) = &conv.key else {
            // It packs nothing, but refuses a filter that does not fit.
            return Ok(pack()?.map(Arc::new));
        };
        let mut forms = self.lock();
        let fits = |form: &Arc<Packed>| form.fits(&conv.device, key);
        let form = match forms.iter().position(fits) {
            Some(found) => forms.remove(found),
            None => {
                let Some(packed) = pack()? else {
                    return Ok(None);
                };
                stream.synchronize()?;
                if forms.len() == Self::MOST {
                    forms.remove(0);
                }
                Arc::new(packed)
            }
        };
        forms.push(form.clone());
        Ok(Some(form))
    }

    /// Forgets the forms, as those of weights that have changed.
    pub fn clear(&self) {
        self.lock().clear();
    }

    /// Bytes of the forms kept.
    pub fn bytes(&self) -> usize {
        self.lock().iter().map(|form| form.bytes()).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Packed>>> {
        // The list is whole at every step.
        self.forms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_list().entries(self.lock().iter()).finish()
    }
}

#[cfg(test)]
mod tests;
