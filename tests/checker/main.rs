//! The checker, checked.
//!
//! | file | what it shows |
//! | --- | --- |
//! | `faults` | variants broken on purpose fail, and the same variant unbroken passes |
//! | `transforms` | who declares a transform is let off exact whole numbers and nothing else |
//! | `contract` | `Conv` refuses operands that do not fit, in words |
//! | `packed` | packed filters that are changed, overrun or differ are caught, in any memory |
//! | `timed` | what computes rightly until it was checked has no time |
//! | `main` | crates/check/csrc/oracle.cu, the judge of large problems, agrees with the CPU's oracle |

#[path = "../common/mod.rs"]
mod common;
mod contract;
mod faults;
mod packed;
mod timed;
mod transforms;

use convforge::{
    Problem,
    variant::{Info, Kind},
};
use libtest_mimic::{Arguments, Trial};

fn main() {
    let arguments = Arguments::from_args();
    let trials = [
        faults::trials(),
        transforms::trials(),
        contract::trials(),
        packed::trials(),
        timed::trials(),
        oracle_trials(),
    ];
    libtest_mimic::run(&arguments, trials.into_iter().flatten().collect()).exit();
}

fn parse(problem: &str) -> Problem {
    problem.parse().expect("a problem")
}

/// What a variant for the CPU says of itself.
fn info(name: &str) -> Info {
    Info::new(name, "test", "one loop per dimension", "tests", Kind::Cpu)
}

#[cfg(not(feature = "cuda"))]
fn oracle_trials() -> Vec<Trial> {
    Vec::new()
}

/// The judge's csrc/oracle.cu against its src/reference.rs, on problems of every kind.
#[cfg(feature = "cuda")]
fn oracle_trials() -> Vec<Trial> {
    use convforge::Device;
    use convforge_check::{Profile, prove_oracle};
    use libtest_mimic::Completion;

    let gpu = Device::gpu(0).map_err(|why| convforge::chain(&why));
    let profile = Profile {
        flops: 3e6,
        ..Profile::default()
    };
    let random = (0..60).map(move |index| profile.problem(11, index));
    let problems = random.filter(|p| p.n() > 0).chain([
        parse("mb2ic5ih19iw23oc7kh3ph1"),
        parse("mb1ic7200ih1oc40kh1"),
    ]);
    let trial = |problem: Problem| {
        common::trial(&format!("oracle {problem}"), gpu.clone(), move |device| {
            prove_oracle(device, &problem, 1)?;
            Ok(Completion::Completed)
        })
    };
    problems.map(trial).collect()
}
