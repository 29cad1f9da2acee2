//! A closure that C calls at the end of each stage. A panic of it may not cross C: it is kept, the
//! closure is called no more, and the panic goes on after the launch.

use std::{
    any::Any,
    ffi::{CStr, c_char, c_void},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use super::ffi;

/// Who is told of the stages of one launch.
pub(super) struct Stages<'a> {
    tell: &'a mut dyn FnMut(&CStr),
    panic: Option<Box<dyn Any + Send>>,
}

impl<'a> Stages<'a> {
    pub(super) fn new(tell: &'a mut dyn FnMut(&CStr)) -> Self {
        Stages { tell, panic: None }
    }

    /// Lets a launch with these addresses tell it, for as long as it stays where it is.
    pub(super) fn listen(&mut self, addresses: &mut ffi::cf_args) {
        addresses.stage = Some(ended);
        addresses.stage_user = (self as *mut Self).cast();
    }

    /// Goes on with a panic that came during the launch.
    pub(super) fn resume(self) {
        if let Some(panic) = self.panic {
            resume_unwind(panic);
        }
    }

    fn end(&mut self, name: &CStr) {
        if self.panic.is_none() {
            // Whoever sees what the closure left behind sees the panic too.
            let told = catch_unwind(AssertUnwindSafe(|| (self.tell)(name)));
            self.panic = told.err();
        }
    }
}

extern "C" fn ended(user: *mut c_void, name: *const c_char) {
    // SAFETY: `listen` passed a pointer to the stages, which outlive the launch; names are constant
    // strings.
    let (stages, name) = unsafe { (&mut *user.cast::<Stages>(), CStr::from_ptr(name)) };
    stages.end(name);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a row's launch does.
    fn launch(addresses: &ffi::cf_args) {
        for name in [c"unroll", c"multiply", c"finish"] {
            if let Some(stage) = addresses.stage {
                // SAFETY: the stages are the test's.
                unsafe { stage(addresses.stage_user, name.as_ptr()) };
            }
        }
    }

    #[test]
    fn every_stage_is_told() {
        let mut told = Vec::new();
        let mut tell = |name: &CStr| told.push(name.to_owned());
        let mut stages = Stages::new(&mut tell);
        let mut addresses = ffi::cf_args::default();
        stages.listen(&mut addresses);
        launch(&addresses);
        stages.resume();
        assert_eq!(
            told,
            [c"unroll", c"multiply", c"finish"].map(CStr::to_owned)
        );
    }

    #[test]
    fn a_panic_goes_on_after_the_launch() {
        let mut told = 0;
        let mut tell = |name: &CStr| {
            told += 1;
            assert_ne!(name, c"multiply", "enough");
        };
        let mut stages = Stages::new(&mut tell);
        let mut addresses = ffi::cf_args::default();
        stages.listen(&mut addresses);
        launch(&addresses);
        let panic = catch_unwind(AssertUnwindSafe(|| stages.resume())).unwrap_err();
        assert!(panic.downcast_ref::<String>().unwrap().contains("enough"));
        assert_eq!(told, 2);
    }
}
