//! Texts of problems: what is read prints as a text of the same problem, and every variant plans it or
//! says why not.
#![no_main]

use std::sync::LazyLock;

use convforge::{
    Limits, Pick, Problem,
    variant::{self, Query},
    variants,
};
use libfuzzer_sys::fuzz_target;

static DEVICES: LazyLock<Vec<Limits>> = LazyLock::new(|| {
    let chips = Limits::CHIPS.iter().filter_map(|chip| Limits::of_chip(chip));
    chips.chain([Limits::default()]).collect()
});

fuzz_target!(|text: &str| {
    let _ = text.parse::<Pick>();
    let Ok(problem) = text.parse::<Problem>() else {
        return;
    };
    let printed = problem.to_string();
    assert_eq!(printed.parse::<Problem>().ok(), Some(problem.clone()), "{printed}");
    assert!(problem.flops() >= 0.0 && problem.bytes() >= 0.0);
    for limits in &*DEVICES {
        for variant in variants::all() {
            for config in 0..variant.info().configs.len().max(1) {
                let query = Query::new(&problem, config, limits);
                let _ = variant::plan(&**variant, limits.is_gpu(), &query);
            }
        }
    }
});
