//! How a call ended: a code, and beside it the text of the thread's last failure.

use std::{
    any::Any,
    cell::RefCell,
    ffi::{CString, c_char},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr::null,
};

use convforge::{Error, chain};

/// `convforge_status` of the header, which says what each one means.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Status {
    Ok = 0,
    Argument = 1,
    Handle = 2,
    Text = 3,
    Problem = 4,
    Unknown = 5,
    Unsupported = 6,
    Operand = 7,
    Misaligned = 8,
    Workspace = 9,
    Device = 10,
    Thread = 11,
    Busy = 12,
    NoGpu = 13,
    Library = 14,
    Gpu = 15,
    Memory = 16,
    Internal = 17,
}

/// A call that failed: what it answers, and what the thread's last error says from then on.
#[derive(Debug)]
pub(crate) struct Failure {
    status: Status,
    text: String,
}

impl Failure {
    pub fn new(status: Status, text: impl Into<String>) -> Self {
        Failure {
            status,
            text: text.into(),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match &error {
            Error::Parse { .. } => Status::Text,
            Error::InvalidProblem(_) => Status::Problem,
            Error::UnknownVariant { .. }
            | Error::UnknownPolicy { .. }
            | Error::UnknownConfig { .. } => Status::Unknown,
            Error::Unsupported { .. } | Error::NoVariant { .. } | Error::Unavailable(_) => {
                Status::Unsupported
            }
            Error::Operand { .. } => Status::Operand,
            Error::Misaligned { .. } | Error::WorkspaceMisaligned { .. } => Status::Misaligned,
            Error::WorkspaceTooSmall { .. } => Status::Workspace,
            Error::WrongDevice { .. } | Error::Memory { .. } => Status::Device,
            Error::WrongThread => Status::Thread,
            Error::NoGpu { .. } => Status::NoGpu,
            Error::Library { .. } => Status::Library,
            Error::Gpu { .. } => Status::Gpu,
            Error::OutOfMemory { .. } => Status::Memory,
            // What this door has no call for.
            _ => Status::Internal,
        };
        Failure::new(status, chain(&error))
    }
}

thread_local! {
    static LAST: RefCell<Option<(Status, CString)>> = const { RefCell::new(None) };
}

/// Runs the inside of a call. Neither a failure nor a panic leaves it but as a code.
pub(crate) fn guard(call: impl FnOnce() -> Result<(), Failure>) -> Status {
    let failure = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => return Status::Ok,
        Ok(Err(failure)) => failure,
        Err(payload) => Failure::new(Status::Internal, message(payload)),
    };
    let status = failure.status;
    let text = CString::new(failure.text.replace('\0', "\u{fffd}")).unwrap_or_default();
    // While a thread ends there may be nowhere to keep it.
    let _ = LAST.try_with(|last| last.replace(Some((status, text))));
    status
}

/// What a panic says.
fn message(payload: Box<dyn Any + Send>) -> String {
    let said = match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => match payload.downcast::<&str>() {
            Ok(text) => (*text).to_owned(),
            Err(payload) => {
                // Dropping what anybody may have made could panic again.
                std::mem::forget(payload);
                "of an unknown kind".to_owned()
            }
        },
    };
    format!("a defect of convforge, a panic: {said}")
}

/// The thread's last failure. The text stays until its next one.
pub(crate) fn last() -> (Status, *const c_char) {
    let found = LAST.try_with(|last| {
        let last = last.borrow();
        last.as_ref().map(|(status, text)| (*status, text.as_ptr()))
    });
    found.ok().flatten().unwrap_or((Status::Ok, c"".as_ptr()))
}

/// What a call gives that answers text: null where it fails.
pub(crate) fn text_or_null(call: impl FnOnce() -> Result<*const c_char, Failure>) -> *const c_char {
    let mut text = null();
    guard(|| {
        text = call()?;
        Ok(())
    });
    text
}

#[cfg(test)]
mod tests {
    use std::{ffi::CStr, panic::panic_any};

    use super::*;

    fn said() -> (Status, String) {
        let (status, text) = last();
        // SAFETY: it stays until the thread's next failure.
        let text = unsafe { CStr::from_ptr(text) };
        (status, text.to_str().unwrap().to_owned())
    }

    #[test]
    fn a_panic_is_a_code_and_a_text() {
        assert_eq!(guard(|| panic!("at {}", 7)), Status::Internal);
        assert!(said().1.ends_with("a panic: at 7"), "{:?}", said());
        assert_eq!(guard(|| panic!("at home")), Status::Internal);
        assert!(said().1.ends_with("a panic: at home"), "{:?}", said());
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("again");
            }
        }
        assert_eq!(guard(|| panic_any(Bomb)), Status::Internal);
        assert!(said().1.contains("unknown kind"), "{:?}", said());
    }

    #[test]
    fn the_last_failure_is_the_threads_own_and_outlives_success() {
        assert_eq!(said(), (Status::Ok, String::new()));
        let failed = guard(|| Err(Failure::new(Status::Busy, "a\0b")));
        assert_eq!(failed, Status::Busy);
        assert_eq!(guard(|| Ok(())), Status::Ok);
        assert_eq!(said(), (Status::Busy, "a\u{fffd}b".to_owned()));
        let other = std::thread::spawn(said).join().unwrap();
        assert_eq!(other.0, Status::Ok);
    }
}
