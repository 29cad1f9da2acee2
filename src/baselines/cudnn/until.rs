//! When work on plans has to end.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

/// A deadline, and a flag that ends the work before it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Until {
    deadline: Option<Instant>,
    stop: Option<&'static AtomicBool>,
}

impl Until {
    /// From now on for so long, or until the flag is set. A budget beyond all time is none.
    pub(crate) fn new(budget: Option<Duration>, stop: Option<&'static AtomicBool>) -> Self {
        let deadline = budget.and_then(|budget| Instant::now().checked_add(budget));
        Until { deadline, stop }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_stopped()
            || self
                .deadline
                .is_some_and(|deadline| Instant::now() >= deadline)
    }
}
