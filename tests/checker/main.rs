//! The checker, checked.
//!
//! | file | what it shows |
//! | --- | --- |
//! | `faults` | variants broken on purpose fail, and the same variant unbroken passes |
//! | `transforms` | who declares a transform is let off exact whole numbers and nothing else |
//! | `contract` | `Conv` refuses operands that do not fit, in words |
//! | `main` | csrc/oracle.cu, the judge of large problems, agrees with the CPU's oracle |

#[path = "../common/mod.rs"]
mod common;
mod contract;
mod faults;
mod transforms;

use convforge::{
    Problem,
    variant::{Arithmetic, Info, Kind},
};
use libtest_mimic::{Arguments, Trial};

fn main() {
    let arguments = Arguments::from_args();
    let trials = [
        faults::trials(),
        transforms::trials(),
        contract::trials(),
        oracle_trials(),
    ];
    libtest_mimic::run(&arguments, trials.into_iter().flatten().collect()).exit();
}

fn parse(problem: &str) -> Problem {
    problem.parse().expect("a problem")
}

/// What a variant for the CPU says of itself.
fn info(name: &str) -> Info {
    Info {
        name: name.to_owned(),
        family: "test".to_owned(),
        idea: "one loop per dimension".to_owned(),
        source: "tests".to_owned(),
        kind: Kind::Cpu,
        arithmetic: Arithmetic::Exact,
        min_arch: 0,
        max_arch: 0,
        configs: Vec::new(),
    }
}

#[cfg(not(feature = "cuda"))]
fn oracle_trials() -> Vec<Trial> {
    Vec::new()
}

/// csrc/oracle.cu against src/reference.rs, on problems of every kind.
#[cfg(feature = "cuda")]
fn oracle_trials() -> Vec<Trial> {
    use convforge::{Device, check};
    use libtest_mimic::Completion;

    let profile = check::Profile {
        flops: 3e6,
        ..check::Profile::default()
    };
    let random = (0..60).map(move |index| profile.problem(11, index));
    let problems = random.filter(|p| p.n > 0).chain([
        parse("mb2ic5ih19iw23oc7kh3ph1"),
        parse("mb1ic7200ih1oc40kh1"),
    ]);
    let trial = |problem: Problem| {
        Trial::ignorable_test(format!("oracle {problem}"), move || match Device::gpu(0) {
            Ok(device) => {
                check::prove_oracle(&device, &problem, 1)?;
                Ok(Completion::Completed)
            }
            Err(why) if common::gpu_is_required() => Err(why.into()),
            Err(why) => Ok(Completion::ignored_with(why.to_string())),
        })
    };
    problems.map(trial).collect()
}
