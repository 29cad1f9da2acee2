//! The profile of every variant: of each call the input, the stages and the output, in their order.
//!
//! Without a GPU its variants are `ignored`, with the reason; `CONVFORGE_REQUIRE_GPU=1` makes that a
//! failure.

mod common;

use common::{
    Answer,
    drawn::{self, Wanted},
};
use convforge::{Device, variant::Configured};
use convforge_tools::measure;
use libtest_mimic::{Arguments, Completion};

fn main() {
    let mut arguments = Arguments::from_args();
    let gpu = Device::gpu(0).map_err(|why| convforge::chain(&why));
    if gpu.is_ok() {
        arguments.test_threads.get_or_insert(1);
    }
    let trials = common::trials(&gpu, "profile", in_order).collect();
    libtest_mimic::run(&arguments, trials).exit();
}

fn in_order(device: &Device, configured: &Configured) -> Answer {
    let conv = match drawn::ready(device, configured, Wanted::SUMS) {
        Ok(conv) => conv,
        Err(answer) => return answer,
    };
    let events = measure::profile(&conv, 2, 1)?;
    for call in 0..2 {
        let of_call = events.iter().filter(|event| event.part == call);
        let names: Vec<&str> = of_call.map(|event| &*event.name).collect();
        let ends = (names.first(), names.last());
        if ends != (Some(&"input"), Some(&"output")) || names.len() < 3 {
            return Err(format!("call {call}: {names:?}").into());
        }
    }
    let in_order = events
        .windows(2)
        .all(|pair| pair[0].begin_us <= pair[0].end_us && pair[0].end_us <= pair[1].begin_us + 1.0);
    match in_order {
        true => Ok(Completion::Completed),
        false => Err(format!("{events:?}").into()),
    }
}
