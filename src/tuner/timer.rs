//! Taking the time of a convolution as it will run: by a graph or call by call, on operands that the L2
//! cache has or has not.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{
    operands::Operands,
    sampling::{FAR, FEW_SAMPLES, LONGEST_SAMPLE_US, rest_after, sets},
};
use crate::{
    Conv, Device, Packed, Problem, Result, Stream, Workspace,
    tuning::{Conditions, Outcome},
    variant::RawOperands,
};
#[cfg(feature = "cuda")]
use crate::{Error, gpu};

/// Microseconds that a sample should last.
const SAMPLE_US: f64 = 1_000.0;
/// Samples of a variant that is not far behind.
const SAMPLES: usize = 9;

/// How long measuring a problem may take.
#[derive(Clone, Copy)]
pub(super) struct Budget {
    pub began: Instant,
    pub of: Duration,
}

impl Budget {
    pub fn is_spent(&self) -> bool {
        self.began.elapsed() >= self.of
    }
}

pub(super) struct Timer {
    stream: Stream,
    operands: Operands,
    workspace: Workspace,
    /// Whether a sample is a captured graph.
    #[cfg(feature = "cuda")]
    graph: bool,
    /// Whether the device rests between samples.
    rests: bool,
    best_us: f64,
}

impl Timer {
    pub(super) fn new(device: &Device, problem: &Problem, conditions: Conditions) -> Result<Self> {
        let sets = sets(problem, &device.limits(), !conditions.cold);
        let stream = device.stream()?;
        Ok(Timer {
            operands: Operands::new(device, problem, sets)?,
            workspace: Workspace::new(&stream)?,
            stream,
            #[cfg(feature = "cuda")]
            graph: conditions.graph,
            rests: device.is_gpu(),
            best_us: f64::INFINITY,
        })
    }

    /// Median and spread of a call with its filter packed. Once the budget is spent, few samples do.
    pub(super) fn time(&mut self, conv: &Conv, budget: Budget) -> Result<Outcome> {
        self.workspace.reserve(conv, &self.stream)?;
        let (_packed, sets) = self.packed(conv)?;
        // The first call loads what is loaded at first use.
        self.launch(conv, &sets, 1)?;
        self.stream.synchronize()?;
        let each = self.elapsed(|timer| timer.launch(conv, &sets, 1))?;
        let calls = (SAMPLE_US / each.max(1.0)).ceil() as usize;
        let all_sets = calls.next_multiple_of(sets.len());
        let calls = match each * all_sets as f64 <= LONGEST_SAMPLE_US {
            true => all_sets,
            false => calls,
        };
        let is_far = each > FAR * self.best_us;
        let count = if is_far { FEW_SAMPLES } else { SAMPLES };
        let wants_more = |taken| taken < count && (taken < FEW_SAMPLES || !budget.is_spent());
        let mut samples = self.samples(conv, &sets, calls, wants_more)?;
        samples.sort_by(f64::total_cmp);
        let at = |share: f64| samples[(share * (samples.len() - 1) as f64).round() as usize];
        let median = at(0.5);
        self.best_us = self.best_us.min(median);
        Ok(Outcome::took(
            median,
            (at(0.9) - at(0.1)) / median.max(f64::MIN_POSITIVE),
        ))
    }

    /// The operands with filters as the convolution wants them, and what keeps these.
    fn packed(&mut self, conv: &Conv) -> Result<(Vec<Packed>, Vec<RawOperands>)> {
        let (mut kept, mut sets) = (Vec::new(), self.operands.raw());
        for set in &mut sets {
            // SAFETY: the filter has the problem's size and stays as long as the timer.
            if let Some(packed) = unsafe { conv.pack_raw(set.w, &self.stream)? } {
                set.packed = packed.as_ptr();
                kept.push(packed);
            }
        }
        Ok((kept, sets))
    }

    fn launch(&mut self, conv: &Conv, sets: &[RawOperands], calls: usize) -> Result<()> {
        for set in sets.iter().cycle().take(calls) {
            // SAFETY: the operands are the problem's, and outlive the work, which is waited for.
            unsafe { conv.run_raw(set, &mut self.workspace, &self.stream)? };
        }
        Ok(())
    }

    /// Microseconds that work takes on the stream.
    fn elapsed(&mut self, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<f64> {
        let from = self.stream.mark()?;
        work(self)?;
        self.stream.mark()?.us_since(&from)
    }

    /// Microseconds of a call, as often as is wanted after so many.
    fn samples(
        &mut self,
        conv: &Conv,
        sets: &[RawOperands],
        calls: usize,
        wants_more: impl Fn(usize) -> bool,
    ) -> Result<Vec<f64>> {
        let pause = match self.rests {
            true => thread::sleep,
            false => |_| (),
        };
        let per_call = |us: f64| us / calls as f64;
        #[cfg(feature = "cuda")]
        if let Some(queue) = self.stream.as_gpu().cloned().filter(|_| self.graph) {
            let graph = queue.capture(|_| self.launch(conv, sets, calls));
            let graph = graph.map_err(|why| match why {
                // Any other failure may be none another time.
                why if gpu::is_of_recording(&why) => Error::Unsupported {
                    variant: conv.name(),
                    problem: conv.problem().to_string(),
                    why: format!("no graph of it can be captured: {why}"),
                },
                other => other,
            })?;
            // SAFETY: the convolution, its filters, the operands and the workspace stay until the work was
            // waited for, in `elapsed`; nothing is reserved meanwhile.
            let sample = |_: &mut Self| unsafe { graph.launch(&queue) };
            self.elapsed(sample)?;
            let totals = rested(|| self.elapsed(sample), wants_more, pause)?;
            return Ok(totals.into_iter().map(per_call).collect());
        }
        let sample = |timer: &mut Self| timer.launch(conv, sets, calls);
        let totals = rested(|| self.elapsed(sample), wants_more, pause)?;
        Ok(totals.into_iter().map(per_call).collect())
    }
}

/// Microseconds of samples, as many as are wanted, with a pause between them.
pub(super) fn rested(
    mut sample: impl FnMut() -> Result<f64>,
    wants_more: impl Fn(usize) -> bool,
    mut pause: impl FnMut(Duration),
) -> Result<Vec<f64>> {
    let mut samples: Vec<f64> = Vec::new();
    while wants_more(samples.len()) {
        if let Some(us) = samples.last() {
            let busy = Duration::try_from_secs_f64(us / 1e6);
            pause(rest_after(busy.unwrap_or_default()));
        }
        samples.push(sample()?);
    }
    Ok(samples)
}
