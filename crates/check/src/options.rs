//! What a check is asked.

use std::sync::atomic::{AtomicBool, Ordering};

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
    /// Once it is set, no further kind of data is begun: the check ends as skipped.
    pub stop: Option<&'static AtomicBool>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            data: Data::ALL.to_vec(),
            cpu_flops: 3e7,
            stored: false,
            stop: None,
        }
    }
}

impl Options {
    /// Whether somebody asked to stop.
    pub(crate) fn stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

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

#[cfg(test)]
mod tests {
    use convforge::variants;

    use super::*;
    use crate::{Outcome, case};

    #[test]
    fn a_check_that_is_stopped_begins_no_kind_of_data() {
        static STOP: AtomicBool = AtomicBool::new(true);
        let problem = "mb1ic3ih8oc4kh3".parse().unwrap();
        let plain = variants::find("cpu_direct").unwrap().into();
        let ends = |stop| {
            let options = Options {
                stop,
                ..Options::default()
            };
            case(&Device::cpu(), &plain, &problem, 1, &options)
        };
        let stopped = ends(Some(&STOP));
        assert!(
            matches!(&stopped, Outcome::Skipped(why) if why.contains("interrupted")),
            "{stopped:?}"
        );
        assert!(matches!(ends(None), Outcome::Passed(_)));
    }
}
