//! How the fastest of cuDNN's plans are measured and judged: as every variant is.

use std::{sync::atomic::AtomicBool, time::Duration};

use convforge::{
    Conv, Result, chain,
    cudnn::{self, Judgement},
};
use convforge_check::{self as check, Outcome};

use super::{
    compare::thoroughness,
    options::Options,
    rounds::time,
    timing::{How, Timing},
};

/// Samples of each plan.
const SAMPLES: usize = 15;
/// How long measuring the fastest of a problem takes, unless that is too short for the fewest samples.
const BUDGET: Duration = Duration::from_secs(30);
/// Seed of all data.
const SEED: u64 = 1;

/// The time of a plan, or why it has none: one by plain launches holds the host's part.
fn answer(timing: Result<Timing>) -> Result<f64, String> {
    let timing = timing.map_err(|why| chain(&why))?;
    match timing.how {
        How::Graph => Ok(timing.median_us()),
        _ => Err(format!(
            "was not captured in a graph: {}",
            timing.no_graph.as_deref().unwrap_or("it ran on the CPU")
        )),
    }
}

/// Measures cold and in graphs, and judges with the oracle.
pub(crate) struct Referee;

impl cudnn::Referee for Referee {
    fn time(&mut self, convs: &[Conv]) -> Result<Vec<Result<f64, String>>> {
        let Some(first) = convs.first() else {
            return Ok(Vec::new());
        };
        let options = Options {
            samples: SAMPLES,
            budget: BUDGET,
            warm: false,
            seed: SEED,
            fastest_configs: false,
            ceilings: None,
        };
        let go_on = AtomicBool::new(false);
        let timings = time(first.device(), first.problem(), convs, &options, &go_on)?;
        Ok(timings.into_iter().map(answer).collect())
    }

    fn judge(&mut self, conv: &Conv) -> Judgement {
        let arithmetic = conv.variant().info().arithmetic;
        let options = thoroughness(conv.device(), conv.problem(), arithmetic);
        match check::conv(conv, SEED, &options) {
            Outcome::Passed(_) => Judgement::Right,
            Outcome::Skipped(why) => Judgement::Open(why),
            Outcome::Failed(why) | Outcome::Unsupported(why) => Judgement::Wrong(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use convforge::{Device, Error};

    use super::*;

    #[test]
    fn a_plan_without_a_graph_says_why() {
        let (device, problem) = (Device::cpu(), "mb1ic1ih3oc1kh1".parse().unwrap());
        let conv = Conv::new(&device, &problem, &"cpu_direct".parse().unwrap()).unwrap();
        let options = Options::of(&device);
        let go_on = AtomicBool::new(false);
        let mut timings = time(&device, &problem, from_ref(&conv), &options, &go_on).unwrap();
        let mut timing = timings.remove(0).unwrap();
        assert_eq!(timing.no_graph, None);
        timing.how = How::Launches;
        timing.no_graph = Some("out of memory".to_owned());
        let why = answer(Ok(timing.clone())).unwrap_err();
        assert!(why.ends_with(": out of memory"), "{why}");
        timing.how = How::Graph;
        assert_eq!(answer(Ok(timing.clone())), Ok(timing.median_us()));
        assert!(answer(Err(Error::Interrupted)).is_err());
    }
}
