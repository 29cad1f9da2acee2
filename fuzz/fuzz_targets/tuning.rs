//! Results of tuning: records and lines that are read print as what they were, and no text of shipped
//! results is trusted to be sorted.
#![no_main]

use convforge::{
    Problem,
    tuning::{Line, Record, shipped::Shipped},
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(record) = text.parse::<Record>() {
        assert_eq!(record.to_string().parse().ok(), Some(record));
    }
    for line in text.lines() {
        if let Ok(line) = line.parse::<Line>() {
            assert_eq!(line.to_string().parse().ok(), Some(line));
        }
    }
    let _ = convforge_tools::tune::read(text);
    let problem: Problem = "mb2ic3ih8oc4kh3".parse().expect("a problem");
    let shipped = Shipped::new("a model", "h200", text);
    let _ = (shipped.get(&problem), shipped.nearest(&problem));
});
