//! What comparing an output with the oracle found.

/// What comparing a whole output found. csrc/oracle.cu fills the same fields.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// Outputs that are out of bounds or NaN.
    pub bad: u64,
    /// Outputs that are NaN.
    pub nan: u64,
    /// Index of the first bad one.
    pub first_bad: Option<u64>,
    /// Outputs whose reference is not zero.
    pub nonzero: u64,
    /// Outputs whose mag is not zero; the sums and `worst` are over these.
    pub counted: u64,
    /// Sum of (|y - ref| / mag)^2, less the rounding of a 16-bit output and what is below the least
    /// number of the type that is stored or summed in.
    pub sum_sq: f64,
    /// The same for a sequential fp32 loop.
    pub sum_sq_sequential: f64,
    /// Largest |y - ref| / mag.
    pub worst: f64,
}

impl Verdict {
    pub(crate) const NONE: Verdict = Verdict {
        bad: 0,
        nan: 0,
        first_bad: None,
        nonzero: 0,
        counted: 0,
        sum_sq: 0.0,
        sum_sq_sequential: 0.0,
        worst: 0.0,
    };

    /// Root mean square of the error.
    pub fn rms(&self) -> f64 {
        (self.sum_sq / self.counted.max(1) as f64).sqrt()
    }

    /// Root mean square of the error of a sequential fp32 loop.
    pub fn rms_sequential(&self) -> f64 {
        (self.sum_sq_sequential / self.counted.max(1) as f64).sqrt()
    }
}
