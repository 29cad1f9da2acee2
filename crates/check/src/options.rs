//! What a check is asked.

use convforge::{Device, Problem, variant::Arithmetic};

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

impl Options {
    /// On a GPU every kind of data, whatever the size, so that all variants meet the same. The CPU's
    /// loops take too long for that: problems of more than `cpu_flops` floating-point operations have
    /// whole numbers there, which show a wrong element, and normal ones, which show a coarse sum; a
    /// transform, which whole numbers do not show, has all.
    pub fn affordable(
        device: &Device,
        problem: &Problem,
        arithmetic: Arithmetic,
        cpu_flops: f64,
    ) -> Self {
        let slow = !device.is_gpu() && problem.flops() > cpu_flops;
        let mut options = Options::default();
        if slow && arithmetic == Arithmetic::Exact {
            options.data = vec![Data::Integer, Data::Normal];
        }
        options
    }
}
