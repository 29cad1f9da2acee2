//! The plans of cuDNN that a search keeps: what is read prints as the same choice.
#![no_main]

use convforge::cudnn::Choice;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(choice) = serde_json::from_slice::<Choice>(bytes) {
        let text = serde_json::to_string(&choice).expect("a choice that was read");
        assert_eq!(serde_json::from_str::<Choice>(&text).ok(), Some(choice.clone()));
        let _ = choice.to_string();
    }
});
