//! Tuning on the CPU: addresses of operands that are checked, launched and read again, which Miri watches.

use std::time::Duration;

use convforge::{Device, Problem, Tuner, tuning::Store};

#[test]
fn what_is_tuned_on_the_cpu_runs_on_operands_of_its_own() {
    let device = Device::cpu();
    let folder = tempfile::tempdir().unwrap();
    for text in [
        "mb2ic2ih4oc2kh3ph1+bias+residual+relu",
        "mb1ic2ih4oc1kh3+f16+nhwc+align=512",
    ] {
        let problem: Problem = text.parse().unwrap();
        let tuner = Tuner::new(Duration::ZERO).store(Store::at(folder.path()));
        let tuned = tuner.tune(&device, &problem).unwrap();
        assert_eq!(
            tuned.measured, 1,
            "{text}: what the rule takes, in any case"
        );
        assert_eq!(
            tuned.record.fastest_first().len(),
            1,
            "{text}: {:?}",
            tuned.notes
        );
    }
}
