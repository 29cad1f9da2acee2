//! Estimates of what libraries take: shares of what a device can do at best. The shares were fitted to
//! measurements on one chip by `scripts/fit_estimates.py`; what a chip does at best is its own.

use crate::{Layout, Limits, Math, Problem};

/// Floating-point operations of a multiprocessor in a clock at best: by FMAs in fp32, by tensor cores,
/// with sums in f32, in the others.
pub(super) fn peak(limits: &Limits, math: Math) -> f64 {
    let half = match limits.arch {
        90 => 4096.0,
        100.. => 8192.0,
        81..90 => 1024.0,
        _ => 2048.0,
    };
    match math {
        Math::Fp32 if limits.arch <= 80 => 128.0,
        Math::Fp32 => 256.0,
        Math::Tf32 => half / 2.0,
        Math::F16 | Math::Bf16 | Math::F16Acc => half,
    }
}

/// Microseconds for floating-point operations of which every multiprocessor does so many in a clock.
pub(super) fn busy_us(limits: &Limits, flops: f64, per_clock: f64) -> f64 {
    flops / (per_clock * f64::from(limits.sm_count) * limits.clocks_per_us())
}

/// Microseconds to move bytes at a share of what the memory's pins do.
pub(super) fn memory_us(limits: &Limits, bytes: f64, share: f64) -> f64 {
    bytes / (share * limits.bytes_per_us())
}

/// Bytes of the input that are read where a tap falls on some of it: memory gives whole sectors, so that
/// columns between are read as well, unless they hold as many channels as fill a sector.
pub(super) fn input_bytes(problem: &Problem) -> f64 {
    const SECTOR: usize = 32;
    let neighbours = match problem.layout() {
        Layout::Nhwc => problem.c(),
        Layout::Nchw => 1,
    };
    let column = neighbours * problem.storage().bytes();
    let line = (problem.w() * column).min(problem.lines_read(1) * column.max(SECTOR));
    let lines = problem.n() * problem.lines_read(0) * (problem.c() / neighbours);
    (lines * line) as f64
}

/// What two that go on beside each other take, each by itself so long.
pub(super) fn together_us(a: f64, b: f64) -> f64 {
    (a.powi(3) + b.powi(3)).cbrt()
}

/// What passes over memory reach of its pins.
pub(super) const PASS: f64 = 0.712;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_input_whole_sectors_are_read() {
        let read = |text: &str| input_bytes(&text.parse().unwrap()) as usize;
        assert_eq!(read("mb1ic4ih8oc4oh8kh1"), 4 * 64 * 4);
        // Every second row; of columns between, those of few channels are read as well.
        assert_eq!(read("mb1ic4ih8oc4oh4kh1sh2"), 4 * 32 * 4);
        assert_eq!(read("mb1ic2ih8oc4oh4kh1sh2+nhwc"), 2 * 32 * 4);
        assert_eq!(read("mb1ic8ih8oc4oh4kh1sh2+nhwc"), 8 * 16 * 4);
    }
}
