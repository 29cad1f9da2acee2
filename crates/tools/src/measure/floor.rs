//! The least time that a problem can take on a device.

use convforge::{Math, Problem};
use serde::{Deserialize, Serialize};

use super::table::significant;

/// What a device did at best, in the run whose floors it gives.
///
/// Memory and fp32 are measured by kernels of csrc/ceilings.cu, the copy by the driver as well, the
/// tensor cores by cuBLAS's product of two square matrices of 8192: their full rate is a little
/// higher, and layers that read less from memory are a few percent over the product's. Where
/// cuBLAS cannot be opened, those rates are missing and the floor is that of memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ceilings {
    /// Bytes per second read from device memory.
    pub read: f64,
    /// Bytes per second written to it.
    pub write: f64,
    /// Bytes per second copied in it, read and written together.
    pub copy: f64,
    /// Floating-point operations per second for [`Math::Fp32`]: FMAs in registers.
    pub fp32: f64,
    /// For [`Math::Tf32`].
    pub tf32: Option<f64>,
    /// For [`Math::F16`].
    pub f16: Option<f64>,
    /// For [`Math::Bf16`].
    pub bf16: Option<f64>,
    /// For [`Math::F16Acc`].
    pub f16acc: Option<f64>,
}

/// Products of rounded parts that stand for one of fp32: high by high, and twice high by low.
const SPLIT_PRODUCTS: f64 = 3.0;

impl Ceilings {
    /// Microseconds that a variant takes at least by these: each operand read once and the output written
    /// once at the best of the three bandwidths, or all operations at the full rate, whichever is longer.
    pub fn floor_us(&self, problem: &Problem) -> f64 {
        let rate = self.rate(problem.math());
        let arithmetic = rate.map_or(0.0, |rate| problem.flops() / rate * 1e6);
        self.memory_us(problem).max(arithmetic)
    }

    /// What that is bound by, in a word: `memory`, `FMA` or `tensor cores`.
    pub fn floor_by(&self, problem: &Problem) -> &'static str {
        match problem.math() {
            _ if self.floor_us(problem) <= self.memory_us(problem) => "memory",
            Math::Fp32 => "FMA",
            _ => "tensor cores",
        }
    }

    /// The same for [`Math::Fp32`] on tensor cores: each product as three of rounded parts, at the full
    /// rate of the fastest kind that keeps fp32's digits so. None for other math, or where no such rate
    /// is known.
    pub fn floor_split_us(&self, problem: &Problem) -> Option<f64> {
        let rate = [self.f16, self.tf32]
            .into_iter()
            .flatten()
            .fold(0.0, f64::max);
        let arithmetic = SPLIT_PRODUCTS * problem.flops() / rate * 1e6;
        (problem.math() == Math::Fp32 && rate > 0.0)
            .then(|| self.memory_us(problem).max(arithmetic))
    }

    /// Microseconds that moving the problem's bytes takes at the best of the three bandwidths.
    fn memory_us(&self, problem: &Problem) -> f64 {
        problem.bytes() / self.read.max(self.write).max(self.copy) * 1e6
    }

    /// Operations per second, where they are known.
    pub fn rate(&self, math: Math) -> Option<f64> {
        match math {
            Math::Fp32 => Some(self.fp32),
            Math::Tf32 => self.tf32,
            Math::F16 => self.f16,
            Math::Bf16 => self.bf16,
            Math::F16Acc => self.f16acc,
        }
    }

    /// For people: what, how much, and measured by what.
    pub fn lines(&self) -> Vec<[String; 3]> {
        let bandwidth = |what: &str, rate: f64, by: &str| {
            [what.into(), format!("{:.2} TB/s", rate / 1e12), by.into()]
        };
        let mut lines = vec![
            bandwidth("read", self.read, "a kernel"),
            bandwidth("write", self.write, "a kernel"),
            bandwidth(
                "copy",
                self.copy,
                "a kernel or the driver, read and written",
            ),
        ];
        let maths = [
            (Math::Fp32, "FMAs in registers"),
            (Math::Tf32, "cuBLAS, 8192 x 8192 x 8192"),
            (Math::F16, "cuBLAS"),
            (Math::Bf16, "cuBLAS"),
            (Math::F16Acc, "cuBLAS"),
        ];
        lines.extend(maths.map(|(math, by)| match self.rate(math) {
            Some(rate) => {
                let rate = format!("{} TFLOP/s", significant(rate / 1e12));
                [math.to_string(), rate, by.into()]
            }
            None => [math.to_string(), "-".into(), format!("not by {by}")],
        }));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: Ceilings = Ceilings {
        read: 4.3e12,
        write: 4.2e12,
        copy: 4.1e12,
        fp32: 64.6e12,
        tf32: Some(400e12),
        f16: None,
        bf16: None,
        f16acc: None,
    };

    #[test]
    fn the_floor_is_the_longer_of_memory_and_arithmetic() {
        let floor = |text: &str| SOME.floor_us(&text.parse().unwrap()).round();
        assert_eq!(floor("mb10000ic1ih86oc4oh80kh7"), 388.0);
        assert_eq!(floor("mb10000ic1ih70oc12oh66kh5"), 532.0);
        assert_eq!(floor("mb10000ic1ih86oc4oh80kh7+f16"), 153.0);
        let by = |text: &str| SOME.floor_by(&text.parse().unwrap());
        assert_eq!(by("mb10000ic1ih86oc4oh80kh7"), "FMA");
        assert_eq!(by("mb10000ic1ih86oc4oh80kh7+math=tf32"), "memory");
        assert_eq!(by("mb10000ic64ih40oc64oh34kh7+math=tf32"), "tensor cores");
    }

    #[test]
    fn fp32_has_a_floor_by_three_products_on_tensor_cores() {
        let floor = |ceilings: &Ceilings, text: &str| {
            let floor = ceilings.floor_split_us(&text.parse().unwrap());
            floor.map(f64::round)
        };
        // 71.0 GFLOP: 1.10 ms by FMAs, three times over at 400 TFLOP/s 0.53 ms.
        assert_eq!(
            SOME.floor_us(&"mb10000ic4ih40oc16oh34kh7".parse().unwrap())
                .round(),
            1122.0
        );
        assert_eq!(floor(&SOME, "mb10000ic4ih40oc16oh34kh7"), Some(544.0));
        // What moves takes longer than that.
        assert_eq!(floor(&SOME, "mb10000ic1ih86oc4oh80kh7"), Some(307.0));
        assert_eq!(floor(&SOME, "mb10000ic4ih40oc16oh34kh7+math=tf32"), None);
        let none = Ceilings { tf32: None, ..SOME };
        assert_eq!(floor(&none, "mb10000ic4ih40oc16oh34kh7"), None);
    }
}
