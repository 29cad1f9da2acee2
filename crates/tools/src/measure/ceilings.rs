//! The measuring of a device's ceilings.

#[cfg(feature = "cuda")]
mod gpu;

use convforge::{Device, Error as Refused};

use super::floor::Ceilings;
use crate::Result;

impl Ceilings {
    /// Measures them, in about a second.
    ///
    /// # Errors
    /// On the CPU, whose floors nobody asks for; no memory; [`Error::Wrong`](crate::Error::Wrong) where what was measured
    /// left a wrong result.
    pub fn measure(device: &Device) -> Result<Self> {
        #[cfg(feature = "cuda")]
        if let Some(gpu) = device.as_gpu() {
            return gpu::measure(gpu);
        }
        let why = format!("ceilings are measured on GPUs only, not on {device}");
        Err(Refused::no_gpu(why).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn the_cpu_has_none() {
        let none = Ceilings::measure(&Device::cpu());
        assert!(matches!(none, Err(Error::Convforge(Refused::NoGpu { .. }))));
    }
}
