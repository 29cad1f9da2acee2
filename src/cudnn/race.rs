//! The race of the plans that built: once round for all of them, and a careful one for the fastest.

use std::{
    ffi::c_void,
    ptr::null_mut,
    sync::Arc,
    time::{Duration, Instant},
};

use super::referee::Referee;
use crate::{
    Conv, Device, Problem, Result, Workspace,
    baselines::cudnn::{Candidate, Settled, Tally},
    gpu::{self, DeviceBuffer, Event, Gpu},
    variant::{Arithmetic, Info, Kind, Plan, Prepared, Query, RawOperands, Variant},
};

/// How many of the fastest plans are measured with care.
const FINALISTS: usize = 8;
/// What a first timing may be above the best one and still be worth another look.
const NEAR: f64 = 1.5;
/// The same in microseconds: what single launches of short kernels differ by.
const NEAR_US: f64 = 20.0;

/// A plan in the race.
pub(super) struct Runner {
    pub(super) candidate: Arc<Candidate>,
    pub(super) conv: Conv,
    pub(super) us: f64,
}

impl Runner {
    /// Whether another look may show that it takes less than this.
    pub(super) fn may_beat(&self, us: f64) -> bool {
        self.us <= us * NEAR + NEAR_US
    }
}

/// The first of `order`, fastest first, that takes less than `limit` and is right, and how many
/// come after that limit. Who is slower than the winner is not asked.
pub(super) fn first_right<T>(
    mut order: Vec<T>,
    us: impl Fn(&T) -> f64,
    limit: f64,
    is_right: impl FnMut(&T) -> bool,
) -> (Option<T>, usize) {
    let all = order.len();
    order.retain(|one| us(one) < limit);
    let slower = all - order.len();
    let winner = order.iter().position(is_right);
    (winner.map(|at| order.swap_remove(at)), slower)
}

/// What the plans run on, and for how long.
pub(super) struct Race<'a> {
    pub(super) device: &'a Device,
    pub(super) problem: &'a Problem,
    /// Of the first round.
    pub(super) budget: Duration,
}

impl Race<'_> {
    /// Runs each twice on constant data and takes the second time; puts them in order.
    pub(super) fn first_round(
        &self,
        candidates: Vec<Candidate>,
        tally: &mut Tally,
    ) -> Result<Vec<Runner>> {
        // A budget of its own: however long building took, plans are timed.
        let deadline = Instant::now().checked_add(self.budget);
        let stream = self.device.stream()?;
        let Some(queue) = stream.as_gpu() else {
            return Ok(Vec::new());
        };
        let gpu = queue.gpu();
        let query = Query::new(self.problem, 0, gpu.limits());
        let runner = |candidate: Candidate| -> Result<Runner> {
            let candidate = Arc::new(candidate);
            let only = Only {
                info: info(candidate.arithmetic),
                gpu: gpu.clone(),
                candidate: candidate.clone(),
            };
            let conv =
                Conv::with_variant(self.device, query.problem, Arc::new(only), query.config)?;
            Ok(Runner {
                candidate,
                conv,
                us: f64::INFINITY,
            })
        };
        let mut runners = candidates
            .into_iter()
            .map(runner)
            .collect::<Result<Vec<_>>>()?;
        // The largest workspace serves them all.
        let mut workspace = Workspace::new(&stream)?;
        if let Some(largest) = runners
            .iter()
            .max_by_key(|r| r.conv.workspace_bytes().least)
        {
            workspace.reserve(&largest.conv, &stream)?;
        }
        let operands = Operands::new(queue, self.problem)?;
        let marks = [Event::new(gpu)?, Event::new(gpu)?];
        let mut time = |conv: &Conv| -> Result<f64> {
            // SAFETY: the operands have the sizes and the alignment that the problem says, and
            // outlive the work, which is waited for here.
            let mut launch = || unsafe { conv.run_raw(&operands.raw, &mut workspace, &stream) };
            launch()?;
            queue.synchronize()?;
            queue.record(&marks[0])?;
            launch()?;
            queue.record(&marks[1])?;
            queue.synchronize()?;
            marks[1].elapsed_us(&marks[0])
        };
        for runner in &mut runners {
            if deadline.is_some_and(|deadline| Instant::now() > deadline) {
                tally.exclude("no time left to run them");
                continue;
            }
            match time(&runner.conv) {
                Ok(us) => {
                    tally.timed += 1;
                    runner.us = us;
                }
                Err(error) => tally.fail("running", &error),
            }
        }
        runners.sort_by(|a, b| a.us.total_cmp(&b.us));
        runners.retain(|runner| runner.us.is_finite());
        Ok(runners)
    }

    /// Lets the referee measure the fastest, and puts them in order. Should none of them be right,
    /// the slower ones have their turn behind them.
    pub(super) fn last_round(
        &self,
        runners: Vec<Runner>,
        referee: &mut dyn Referee,
        tally: &mut Tally,
    ) -> Result<Vec<Runner>> {
        let Some(best) = runners.first().map(|runner| runner.us) else {
            return Ok(runners);
        };
        let mut left = runners;
        let near = left.partition_point(|runner| runner.may_beat(best));
        let rest = left.split_off(near.min(FINALISTS));
        let (convs, candidates): (Vec<Conv>, Vec<_>) = left
            .into_iter()
            .map(|runner| (runner.conv, (runner.candidate, runner.us)))
            .unzip();
        let times = referee.time(&convs)?;
        let mut finalists = Vec::new();
        for ((conv, (candidate, first)), time) in convs.into_iter().zip(candidates).zip(times) {
            match time {
                Ok(us) => finalists.push(Runner {
                    candidate,
                    conv,
                    us,
                }),
                Err(why) => tally.wrong(&candidate.choice, first, &why),
            }
        }
        finalists.sort_by(|a, b| a.us.total_cmp(&b.us));
        finalists.extend(rest);
        Ok(finalists)
    }
}

/// What a plan says of itself while it races.
fn info(arithmetic: Arithmetic) -> Info {
    Info {
        arithmetic,
        ..Info::new(
            "cudnn",
            "cudnn",
            "one plan of cuDNN's",
            "NVIDIA cuDNN",
            Kind::Baseline,
        )
    }
}

/// A variant that is one plan, so that plans are run, measured and judged as variants are.
struct Only {
    info: Info,
    gpu: Gpu,
    candidate: Arc<Candidate>,
}

// SAFETY: as `Settled`.
unsafe impl Variant for Only {
    fn info(&self) -> &Info {
        &self.info
    }

    fn plan(&self, _: &Query) -> Result<Plan, String> {
        Ok(Plan::default())
    }

    fn prepare(&self, _: &Device, query: &Query, _: Plan) -> Result<Box<dyn Prepared>> {
        let candidate = Some(self.candidate.clone());
        Ok(Box::new(Settled::new(
            &self.gpu,
            query.problem,
            candidate,
            None,
        )?))
    }
}

/// Operands whose elements are all the same small number.
struct Operands {
    raw: RawOperands,
    _memory: [DeviceBuffer<u8>; 5],
}

/// 0.0115 as two or four bytes of bf16 or f32, 1.06 as f16: neither zero, which would spare the GPU
/// its power, nor so large that sums overflow.
const BYTE: u8 = 0x3c;

impl Operands {
    fn new(queue: &gpu::Stream, problem: &Problem) -> Result<Self> {
        // An allocation's start is aligned to less than some problems guarantee.
        let align = problem.align();
        let size = problem.storage().bytes();
        let filled = |bytes: usize| {
            let mut memory = DeviceBuffer::alloc(queue.gpu(), bytes + align)?;
            queue.memset(&mut memory, BYTE)?;
            Result::Ok(memory)
        };
        let memory = [
            filled(problem.x_len() * size)?,
            filled(problem.w_len() * size)?,
            filled(problem.y_len() * size)?,
            filled(problem.bias_len() * size_of::<f32>())?,
            filled(problem.residual_len() * size)?,
        ];
        let [x, w, y, bias, residual] = [0, 1, 2, 3, 4]
            .map(|i: usize| (memory[i].address() as usize).next_multiple_of(align) as *mut c_void);
        let epilogue = problem.epilogue();
        let given = |address: *mut c_void, is: bool| if is { address } else { null_mut() };
        let raw = RawOperands::new(x, w, y)
            .bias(given(bias, epilogue.bias).cast_const().cast())
            .residual(given(residual, epilogue.residual));
        Ok(Operands {
            raw,
            _memory: memory,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plans of vgg16's `mb32ic256ih28oc512oh28kh3ph1` as an H200 had them, microseconds.
    const TIMES: [(&str, f64); 4] = [
        ("engine 6 k25=0", 468.0),
        ("algorithm winograd_nonfused", 470.0),
        ("algorithm fft_tiling", 914.0),
        ("algorithm fft", 1500.0),
    ];

    fn winner(limit: f64, right: &[&str]) -> (Option<&'static str>, usize, usize) {
        let mut asked = 0;
        let is_right = |(name, _): &(&str, f64)| {
            asked += 1;
            right.contains(name)
        };
        let (winner, slower) = first_right(TIMES.to_vec(), |(_, us)| *us, limit, is_right);
        (winner.map(|(name, _)| name), slower, asked)
    }

    #[test]
    fn the_fastest_that_is_right_wins() {
        let fft = ["algorithm fft", "algorithm fft_tiling"];
        let all = f64::INFINITY;
        assert_eq!(winner(all, &fft), (Some("algorithm fft_tiling"), 0, 3));
        assert_eq!(winner(all, &["engine 6 k25=0"]).2, 1);
        assert_eq!(winner(all, &[]), (None, 0, 4));
        // The best plan that is no transform took 1360.
        assert_eq!(winner(1360.0, &fft[..1]), (None, 1, 3));
        assert_eq!(winner(400.0, &fft), (None, 4, 0));
    }
}
