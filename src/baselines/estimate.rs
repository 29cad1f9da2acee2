//! Estimates of what libraries take: shares of what a device can do at best. They were fitted to
//! measurements on one chip and hold for others as far as their kernels do.

use crate::Limits;

/// Microseconds for floating-point operations of which every multiprocessor does so many in a clock.
pub(super) fn busy_us(limits: &Limits, flops: f64, per_clock: f64) -> f64 {
    flops / (per_clock * f64::from(limits.sm_count) * limits.clocks_per_us())
}

/// Microseconds to move bytes at a share of what the memory's pins do.
pub(super) fn memory_us(limits: &Limits, bytes: f64, share: f64) -> f64 {
    bytes / (share * limits.bytes_per_us())
}

/// What passes over memory reach of its pins.
pub(super) const PASS: f64 = 0.712;
