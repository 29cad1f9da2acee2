//! What a check is asked.

use crate::Data;

/// How thorough a check is.
#[derive(Clone, Debug)]
pub struct Options {
    /// The kinds of data, in order; a problem is fed with those that fit it.
    pub data: Vec<Data>,
    /// On a GPU, problems with more floating-point operations are judged by csrc/oracle.cu instead
    /// of the CPU.
    pub cpu_flops: f64,
    /// Whether [`Measured::stored`](crate::Measured::stored) is found as well.
    pub stored: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            data: Data::ALL.to_vec(),
            cpu_flops: 3e7,
            stored: false,
        }
    }
}
