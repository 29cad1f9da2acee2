//! The network's weights, in both formats.
#![no_main]

use convforge_fuzz::with_file;
use convforge_tools::net::weights::Weights;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    with_file(bytes, |path| {
        if let Ok(weights) = Weights::read(path) {
            assert!(weights.conv1.iter().all(|value| value.is_finite()));
            assert_eq!(weights.fc2_bias.len(), 10);
        }
    });
});
