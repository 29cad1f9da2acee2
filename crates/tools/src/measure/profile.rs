//! One convolution by itself, for a profiler: plain calls, no graph, nothing else meanwhile.

#[cfg(feature = "cuda")]
use convforge::gpu::ProfilerRange;
use convforge::{Conv, Mark};

use super::{
    Event, Options,
    compare::checked,
    lane::{Tensors, pack},
    stages::staged,
};
use crate::{Error, Range, Result};

/// Checks a convolution, calls it once to warm up and then `runs` times. A call is a layer of the
/// reports but for the allocations: the input copied from ordinary host memory, the stages, the output
/// copied back. The answer has an event for each of them, by the device's own clock.
///
/// A profiler that was told to wait for `cuProfilerStart` records these calls and nothing else; they
/// stand in a [`Range`] of the variant and the problem.
///
/// # Errors
/// [`Error::Wrong`] where the variant is wrong; no memory; or what a launch answers.
pub fn profile(conv: &Conv, runs: usize, seed: u64) -> Result<Vec<Event>> {
    checked(conv, conv.variant().info().arithmetic, seed)
        .map_err(|ending| Error::Wrong(ending.reason))?;
    let (device, problem) = (conv.device(), conv.problem());
    let options = Options {
        warm: true,
        seed,
        ..Options::of(device)
    };
    let stream = device.stream()?;
    let mut tensors = Tensors::new(device, problem, &options)?;
    let mut operands = [tensors.operands(problem, 0)];
    let _packed = pack(conv, &mut operands, &stream)?;
    let mut input = vec![0; tensors.x.memory().len()];
    tensors.x.memory().copy_to(&mut input, &stream)?;
    // Filled, so that the host has its memory before the first copy is timed.
    let mut output = vec![u8::MAX; tensors.y.memory().len()];
    let mut workspace = conv.workspace(&stream)?;
    // SAFETY: the tensors, the packed filter and the workspace outlive the call.
    unsafe { conv.run_raw(&operands[0], &mut workspace, &stream)? };
    stream.synchronize()?;

    #[cfg(feature = "cuda")]
    let _recording = match stream.as_gpu() {
        Some(stream) => Some(ProfilerRange::start(stream.gpu())?),
        None => None,
    };
    let _range = Range::enter(&format!("{} {problem}", conv.name()));
    let start = stream.mark()?;
    let mut events = Vec::new();
    for run in 0..runs {
        let mut event = |work: &str, lane: &str, from: &Mark, to: &Mark| -> Result<()> {
            events.push(Event {
                name: work.to_owned(),
                lane: lane.to_owned(),
                part: run,
                begin_us: from.us_since(&start)?,
                end_us: to.us_since(&start)?,
            });
            Ok(())
        };
        let begin = stream.mark()?;
        tensors.x.memory_mut().copy_from(&input, &stream)?;
        let copied = stream.mark()?;
        let stages = staged(&stream, |stage| {
            // SAFETY: as above.
            unsafe { conv.run_raw_staged(&operands[0], &mut workspace, &stream, stage) }
        })?;
        let computed = stream.mark()?;
        tensors.y.memory().copy_to(&mut output, &stream)?;
        let end = stream.mark()?;
        event("input", "copy in", &begin, &copied)?;
        match &stages.names[..] {
            [] => event(&conv.name(), "kernels", &copied, &computed)?,
            names => names
                .iter()
                .zip(stages.marks.windows(2))
                .try_for_each(|(name, mark)| event(name, "kernels", &mark[0], &mark[1]))?,
        }
        event("output", "copy out", &computed, &end)?;
    }
    Ok(events)
}
