//! The part of a program that a waiting profiler records.

use cuda_sys::{CUresult, loader::Symbol};

use super::Gpu;
use crate::Result;

// cudaProfiler.h is in no package that scripts/toolkit.py installs; both take no argument.
static START: Symbol = Symbol::new(&cuda_sys::LIBRARY, c"cuProfilerStart");
static STOP: Symbol = Symbol::new(&cuda_sys::LIBRARY, c"cuProfilerStop");

/// A profiler that was told to wait (`ncu --profile-from-start off`, `nsys --capture-range
/// cudaProfilerApi`) records until this is dropped. Without one it is nothing.
#[derive(Debug)]
#[must_use]
pub struct ProfilerRange(Gpu);

impl ProfilerRange {
    /// Begins to record what happens on `gpu`.
    ///
    /// # Errors
    /// What the driver answers to a change of context.
    pub fn start(gpu: &Gpu) -> Result<Self> {
        tell(&START, gpu)?;
        Ok(ProfilerRange(gpu.clone()))
    }
}

impl Drop for ProfilerRange {
    fn drop(&mut self) {
        let _ = tell(&STOP, &self.0);
    }
}

/// What a profiler answers, or a driver that knows of none, makes no difference to the program.
fn tell(symbol: &Symbol, gpu: &Gpu) -> Result<()> {
    let _current = gpu.enter()?;
    if let Ok(address) = symbol.address() {
        // SAFETY: both functions of the driver have this type.
        let call: unsafe extern "C" fn() -> CUresult = unsafe { std::mem::transmute(address) };
        // SAFETY: they take no argument, and a context is current.
        unsafe { call() };
    }
    Ok(())
}
