//! A caller's closure that is told of the stages of a launch. Its panic must neither cross C nor end a
//! launch halfway: it is kept, the closure is called no more, and the panic goes on after the launch.

use std::{
    any::Any,
    ffi::CStr,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

/// Who is told of the stages of one launch.
pub(super) struct Stages<'a> {
    tell: &'a mut dyn FnMut(&CStr),
    panic: Option<Box<dyn Any + Send>>,
}

impl<'a> Stages<'a> {
    pub(super) fn new(tell: &'a mut dyn FnMut(&CStr)) -> Self {
        Stages { tell, panic: None }
    }

    /// A stage has ended.
    pub(super) fn end(&mut self, name: &CStr) {
        if self.panic.is_none() {
            // Whoever sees what the closure left behind sees the panic too.
            let told = catch_unwind(AssertUnwindSafe(|| (self.tell)(name)));
            self.panic = told.err();
        }
    }

    /// Goes on with a panic that came during the launch.
    pub(super) fn resume(self) {
        if let Some(panic) = self.panic {
            resume_unwind(panic);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&CStr; 3] = [c"unroll", c"multiply", c"finish"];

    #[test]
    fn every_stage_is_told() {
        let mut told = Vec::new();
        let mut tell = |name: &CStr| told.push(name.to_owned());
        let mut stages = Stages::new(&mut tell);
        NAMES.iter().for_each(|name| stages.end(name));
        stages.resume();
        assert_eq!(told, NAMES.map(CStr::to_owned));
    }

    #[test]
    fn a_panic_goes_on_after_the_launch() {
        let mut told = 0;
        let mut tell = |name: &CStr| {
            told += 1;
            assert_ne!(name, c"multiply", "enough");
        };
        let mut stages = Stages::new(&mut tell);
        NAMES.iter().for_each(|name| stages.end(name));
        let panic = catch_unwind(AssertUnwindSafe(|| stages.resume())).unwrap_err();
        assert!(panic.downcast_ref::<String>().unwrap().contains("enough"));
        assert_eq!(told, 2);
    }
}
