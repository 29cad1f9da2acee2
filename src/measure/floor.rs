//! The least time that a problem can take on a device.

use crate::{Device, Math, Problem};

/// What a device can do at best.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ceilings {
    /// Bytes per second to and from device memory.
    pub bytes: f64,
    /// Floating-point operations per second, for [`Math::Fp32`].
    pub fp32: f64,
    /// For [`Math::Tf32`].
    pub tf32: f64,
    /// For f16 and bf16 operands.
    pub half: f64,
}

impl Ceilings {
    /// Measured on one NVIDIA H200: copies by the driver, FMA in registers, cuBLAS at its best.
    pub const H200: Ceilings = Ceilings {
        bytes: 4.3e12,
        fp32: 64.6e12,
        tf32: 400e12,
        half: 790e12,
    };

    /// The ceilings of a device, where they are known.
    pub fn of(device: &Device) -> Option<Self> {
        (device.is_gpu() && device.name().contains("H200")).then_some(Ceilings::H200)
    }

    /// Microseconds that no variant can beat: each operand read once and the output written once,
    /// or all operations at the full rate, whichever is longer.
    pub fn floor_us(&self, problem: &Problem) -> f64 {
        let rate = match problem.math {
            Math::Fp32 => self.fp32,
            Math::Tf32 => self.tf32,
            Math::F16 | Math::Bf16 | Math::F16Acc => self.half,
        };
        (problem.bytes() / self.bytes).max(problem.flops() / rate) * 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_is_the_longer_of_memory_and_arithmetic() {
        let floor = |text: &str| Ceilings::H200.floor_us(&text.parse().unwrap());
        assert_eq!(floor("mb10000ic1ih86oc4oh80kh7").round(), 388.0);
        assert_eq!(floor("mb10000ic1ih70oc12oh66kh5").round(), 532.0);
    }
}
