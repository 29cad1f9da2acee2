//! One driver call: its error in the driver's own words, and the context it runs in.

use std::{
    cell::Cell,
    ffi::{CStr, c_char},
    marker::PhantomData,
    panic::AssertUnwindSafe,
    ptr,
};

use cuda_sys::{CUcontext, CUresult, loader::Missing};

use crate::{Error, Result};

/// `cu!(cuMemFree(address))`: the call, with its failure as an [`Error`]. Unsafe as the function.
macro_rules! cu {
    ($name:ident($($argument:expr),* $(,)?)) => {
        $crate::gpu::call::check(stringify!($name), cuda_sys::$name($($argument),*))
    };
}

/// What the driver answered to `call`, as a result.
pub(super) fn check(call: &'static str, answer: Result<CUresult, Missing>) -> Result<()> {
    let result = answer.map_err(missing)?;
    if result.0 == 0 {
        return Ok(());
    }
    // SAFETY: the functions write the address of a constant string, or null.
    let name = text(result, |out| unsafe {
        cuda_sys::cuGetErrorName(result, out)
    });
    // SAFETY: as above.
    let explanation = text(result, |out| unsafe {
        cuda_sys::cuGetErrorString(result, out)
    });
    Err(Error::Gpu {
        call,
        code: result.0 as i32,
        name,
        text: explanation,
    })
}

/// Whether a call failed because of a recording: from CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED to
/// CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD.
pub(crate) fn is_of_recording(error: &Error) -> bool {
    matches!(
        error,
        Error::Gpu {
            code: 900..=908,
            ..
        }
    )
}

/// A library or a function that is not there.
pub(crate) fn missing(missing: Missing) -> Error {
    Error::Library {
        library: missing.library,
        why: missing.remedy.to_string(),
        source: Some(AssertUnwindSafe(missing.tried.into())),
    }
}

fn text(
    result: CUresult,
    ask: impl FnOnce(*mut *const c_char) -> Result<CUresult, Missing>,
) -> String {
    let mut text = ptr::null();
    match ask(&mut text) {
        Ok(CUresult(0)) if !text.is_null() => {
            // SAFETY: the driver wrote the address of a constant string.
            unsafe { CStr::from_ptr(text) }
                .to_string_lossy()
                .into_owned()
        }
        _ => format!("error {} that this driver has no text for", result.0),
    }
}

/// A device's context is current on this thread until this is dropped; then the one before is.
///
/// Several of them should end in the reverse of the order in which they were made, as those of nested
/// scopes do. Where one ends earlier, later ones of other devices keep theirs current; later ones of the
/// same device may not.
#[derive(Debug)]
#[must_use]
pub struct Entered<'gpu> {
    /// What was pushed, and how many contexts of this thread's living guards were pushed before; none where
    /// it was current already.
    pushed: Option<(CUcontext, usize)>,
    _gpu: PhantomData<&'gpu ()>,
    // The stack of contexts belongs to the thread.
    _not_send: PhantomData<*mut ()>,
}

impl Entered<'_> {
    /// Makes `context`, which the caller keeps alive, the current one.
    pub(super) fn new(context: CUcontext) -> Result<Self> {
        let mut current = ptr::null_mut();
        // SAFETY: it writes one handle.
        unsafe { cu!(cuCtxGetCurrent(&mut current)) }?;
        // Most often it is, and to ask takes a third of the time.
        let pushes = current != context;
        if pushes {
            // SAFETY: `Gpu` holds the context.
            unsafe { cu!(cuCtxPushCurrent(context)) }?;
        }
        Ok(Entered {
            pushed: pushes.then(|| (context, PUSHED.replace(PUSHED.get() + 1))),
            _gpu: PhantomData,
            _not_send: PhantomData,
        })
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let Some((context, before)) = self.pushed else {
            return;
        };
        let live = PUSHED.get() - 1;
        PUSHED.set(live);
        // The latest guard takes off what is current, whatever somebody has set in the place of its own.
        let mut popped = pop();
        if before == live {
            return;
        }
        // Contexts of guards that were made later and have not ended, the last one first.
        let mut later = Vec::new();
        while let Some(other) = popped.filter(|popped| *popped != context) {
            later.push(other);
            popped = pop();
        }
        later.into_iter().rev().for_each(push);
    }
}

thread_local! {
    /// How many contexts the guards of this thread have pushed and not taken off.
    static PUSHED: Cell<usize> = const { Cell::new(0) };
}

/// Takes this thread's current context off its stack, if there is one.
fn pop() -> Option<CUcontext> {
    let mut popped = ptr::null_mut();
    // SAFETY: it writes one handle.
    let answer = unsafe { cu!(cuCtxPopCurrent(&mut popped)) };
    answer.is_ok().then_some(popped)
}

/// Puts back what was popped.
fn push(context: CUcontext) {
    // SAFETY: it was on the stack just now, by the promise of whoever put it there.
    let _ = unsafe { cuda_sys::cuCtxPushCurrent(context) };
}

/// Lets this thread copy, wait and free while it records a stream, until this is dropped.
///
/// The driver refuses such calls during a recording, because a program might take them for part
/// of it, and spoils the recording. Plain copies and what is dropped are no part of it.
#[must_use]
pub(super) struct Unrecorded {
    before: cuda_sys::CUstreamCaptureMode,
    _not_send: PhantomData<*mut ()>,
}

impl Unrecorded {
    pub(super) fn new() -> Self {
        let mut mode = cuda_sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: it swaps the thread's mode with the one at the address.
        let _ = unsafe { cuda_sys::cuThreadExchangeStreamCaptureMode(&mut mode) };
        Unrecorded {
            before: mode,
            _not_send: PhantomData,
        }
    }
}

impl Drop for Unrecorded {
    fn drop(&mut self) {
        // SAFETY: as above, back to what it was.
        let _ = unsafe { cuda_sys::cuThreadExchangeStreamCaptureMode(&mut self.before) };
    }
}

#[cfg(test)]
mod tests {
    use std::{error::Error as _, sync::Arc};

    use cuda_sys::loader::Tried;

    use super::*;
    use crate::chain;

    #[test]
    fn an_unknown_code_is_an_error_with_its_number() {
        let error = check("cuInit", Ok(CUresult(987_654))).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("cuInit failed") && text.contains("987654"),
            "{text}"
        );
    }

    #[test]
    fn a_missing_symbol_names_library_and_function() {
        let absent = Missing {
            library: "the CUDA driver",
            symbol: Some(c"cuFuture"),
            remedy: Arc::from("it has no function `cuFuture`; it is probably too old"),
            tried: Tried(Arc::from("opened as libcuda.so.1")),
        };
        let error = check("cuFuture", Err(absent)).unwrap_err();
        let text = "the CUDA driver could not be used: it has no function `cuFuture`; it is probably \
                    too old";
        assert_eq!(error.to_string(), text);
        let tried = error.source().unwrap();
        assert!(tried.is::<Tried>(), "{tried:?}");
        let whole = format!("{text}: opened as libcuda.so.1");
        assert_eq!(chain(&error), whole);
    }
}
