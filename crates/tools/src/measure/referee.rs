//! How the fastest of cuDNN's plans are measured and judged: as every variant is.

use std::{sync::atomic::AtomicBool, time::Duration};

use convforge::{
    Conv, Result, chain,
    cudnn::{self, Judgement},
};
use convforge_check::{self as check, Outcome};

use super::{compare::thoroughness, options::Options, rounds::time, timing::How};

/// Samples of each plan.
const SAMPLES: usize = 15;
/// How long measuring the fastest of a problem takes, unless that is too short for the fewest samples.
const BUDGET: Duration = Duration::from_secs(30);
/// Seed of all data.
const SEED: u64 = 1;

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
            ceilings: None,
        };
        let go_on = AtomicBool::new(false);
        let timings = time(first.device(), first.problem(), convs, &options, &go_on)?;
        let times = timings.into_iter().map(|timing| match timing {
            Ok(timing) if timing.how == How::Graph => Ok(timing.median_us()),
            Ok(_) => Err("cannot be captured in a graph".to_owned()),
            Err(why) => Err(chain(&why)),
        });
        Ok(times.collect())
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
