//! What ships with the library is what the committed results make, and is chosen by.
#![cfg(feature = "cuda")]

use std::path::Path;

use convforge::{Limits, Pick, tuning::shipped};
use convforge_tools::tune;

const RESULTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/results");

#[test]
fn what_ships_is_what_the_committed_results_make() {
    for of in shipped::ALL {
        let records = tune::shipped(Path::new(RESULTS), &of).unwrap();
        assert!(
            shipped::text(&records) == of.text,
            "src/tuning/{}.txt is not what benches/results makes of these sources, where {} problems have a \
             fresh winner: run `convforge tune ship`, and commit it",
            of.chip,
            records.len()
        );
    }
}

/// Every problem that ships is found, and goes to its fastest where the rule knows nothing better.
#[test]
fn whoever_ships_as_the_fastest_is_chosen() {
    for of in shipped::ALL {
        let limits = Limits::of_chip(of.chip).unwrap();
        let records = tune::shipped(Path::new(RESULTS), &of).unwrap();
        let mut served = 0;
        for record in &records {
            let found = of.get(&record.problem).unwrap();
            let (_, fastest) = found.fastest_first()[0];
            let choice = Pick::Auto.choose_for(&limits, &record.problem).unwrap();
            if choice.reason.starts_with("measured on this problem") {
                assert_eq!(choice.name(), fastest.name, "{}", record.problem);
                served += 1;
            } else {
                assert!(choice.reason.contains("there is no time of"), "{choice:?}");
            }
        }
        println!("{}: {served} of {} serve", of.model, records.len());
        assert!(served > 0 || records.is_empty());
    }
}
