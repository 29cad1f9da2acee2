//! Tuning on a GPU: the variants pass the check on the spot, take times in graphs and without, on cold and on
//! warm operands, and what was measured is picked.

mod common;

use std::time::Duration;

use convforge::{
    Conv, Device, Pick, Problem, Tuner,
    tuning::{Conditions, Outcome, Store},
};
use libtest_mimic::{Arguments, Completion, Trial};

use common::{Answer, ensure, trial};

const PROBLEMS: [&str; 7] = [
    "mb4ic3ih20oc8kh5+bias+relu",
    "mb8ic64ih28oc64kh3ph1+f16+nhwc",
    "mb8ic64ih28oc64kh3ph1+bf16",
    "g64mb8ic64ih28oc64kh3ph1+f16+nhwc",
    "g4mb8ic64ih28oc64kh3ph1+f16",
    "mb2ic512ih1oc64kh1",
    "mb4ic64ih14oc64kh3ph1+math=tf32+bias+residual+silu",
];

/// Everyone who can is measured and right; the second time nobody is; the fastest is picked.
fn tunes(device: &Device, text: &str, conditions: Conditions) -> Answer {
    let folder = tempfile::tempdir()?;
    let store = Store::at(folder.path()).under(conditions);
    let problem: Problem = text.parse()?;
    let tuner = Tuner::new(Duration::from_secs(120)).store(store.clone());
    let tuned = tuner.tune(device, &problem)?;
    let lines = &tuned.record.lines;
    let wrong: Vec<_> = lines
        .iter()
        .filter(|line| line.outcome == Outcome::Wrong)
        .collect();
    // A library may have no plan; everyone else is right.
    let refused = wrong.iter().all(|line| line.name.starts_with("cudnn"));
    ensure(refused, &format!("{wrong:?}: {:?}", tuned.notes))?;
    ensure(tuned.measured > 1, "hardly anyone was measured")?;
    ensure(
        tuner.tune(device, &problem)?.measured == 0,
        "it was measured twice",
    )?;
    let fastest = tuned.record.fastest_first();
    let (us, line) = fastest.first().ok_or("nobody has a time")?;
    ensure(
        *us > 0.5 && *us < 1e5,
        &format!("{} takes {us} us", line.name),
    )?;
    let conv = Conv::new(device, &problem, &Pick::Tuned(store))?;
    ensure(
        conv.name() == line.name,
        &format!("{conv:?}, {}", conv.reason()),
    )?;
    Ok(Completion::Completed)
}

fn main() {
    let arguments = Arguments::from_args();
    let gpu = Device::gpu(0).map_err(|why| convforge::chain(&why));
    let all = [(true, true), (true, false), (false, true)];
    let trials = all.into_iter().flat_map(|(graph, cold)| {
        let gpu = gpu.clone();
        PROBLEMS.into_iter().map(move |text| {
            let conditions = Conditions::default().graph(graph).cold(cold);
            let name = format!("{text}, {conditions}");
            let test = move |device: &Device| tunes(device, text, conditions);
            trial(&name, gpu.clone(), test)
        })
    });
    let trials: Vec<Trial> = trials.collect();
    // Times of tests that run at once are nobody's.
    let arguments = Arguments {
        test_threads: Some(1),
        ..arguments
    };
    libtest_mimic::run(&arguments, trials).exit();
}
