//! Lines of policies.
#![no_main]

use convforge::{Problem, policy::Rule};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let problem: Problem = "mb2ic3ih8oc4kh3".parse().expect("a problem");
    for line in text.lines() {
        if let Ok(rule) = line.parse::<Rule>() {
            rule.fits(&problem);
            assert!(rule.to_string().contains(&rule.variant));
        }
    }
});
