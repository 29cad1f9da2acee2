//! Several convolutions of one problem, taking turns.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use convforge::{
    Conv, Device, Error, Problem, Result, Stream, Workspace, tuner::sampling::rest_after,
};

use super::{
    lane::{Lane, Tensors},
    options::{LEAST_SAMPLES, Options},
    timing::Timing,
};

/// Whether outputs of the launches that are timed are compared with the oracle.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Outputs {
    Judged,
    Unseen,
}

/// Times several convolutions of one problem on one device, in turns. Once `stop` is set, what
/// has begun ends with [`LEAST_SAMPLES`]. What they compute is not looked at: that is for the caller.
///
/// # Errors
/// No memory for the operands. A convolution that fails has its own error in the list;
/// [`Error::Interrupted`] where it was stopped before it began.
pub fn time(
    device: &Device,
    problem: &Problem,
    convs: &[Conv],
    options: &Options,
    stop: &AtomicBool,
) -> Result<Vec<Result<Timing>>> {
    in_turns(device, problem, convs, options, stop, Outputs::Unseen)
}

/// As [`time`], and says in [`Timing::wrong`] what is wrong with the outputs where they are judged.
///
/// # Errors
/// As [`time`].
pub(super) fn in_turns(
    device: &Device,
    problem: &Problem,
    convs: &[Conv],
    options: &Options,
    stop: &AtomicBool,
    outputs: Outputs,
) -> Result<Vec<Result<Timing>>> {
    if convs.is_empty() {
        return Ok(Vec::new());
    }
    let stopped = || stop.load(Ordering::Relaxed);
    let stream = device.stream()?;
    let mut tensors = Tensors::new(device, problem, options)?;
    let mut workspace = Workspace::new(&stream)?;
    let reserved = reserve(convs, &mut workspace, &stream);
    let ready = |(conv, reserved): (_, Result<()>)| match reserved {
        _ if stopped() => Err(Error::Interrupted),
        Err(error) => Err(error),
        Ok(()) => Lane::new(conv, &tensors, &mut workspace, &stream, options.samples),
    };
    let mut lanes: Vec<Result<Lane>> = convs.iter().zip(reserved).map(ready).collect();

    let share_us = options.budget.as_secs_f64() * 1e6 / convs.len().max(1) as f64;
    for round in 0.. {
        let wanted = if stopped() {
            LEAST_SAMPLES
        } else {
            options.samples
        };
        let mut turn = turn(&mut lanes, round, wanted, share_us);
        if turn.is_empty() {
            break;
        }
        let busy_us = sample(&mut turn, &mut workspace, &stream);
        if device.is_gpu() && !stopped() {
            let busy = Duration::try_from_secs_f64(busy_us / 1e6);
            thread::sleep(rest_after(busy.unwrap_or_default()));
        }
    }
    let finished = lanes.into_iter().map(|lane| {
        let mut lane = lane?;
        if !lane.has_begun() {
            return Err(Error::Interrupted);
        }
        let wrong = match outputs {
            Outputs::Judged => lane.judge(&mut tensors, &mut workspace, &stream)?,
            Outputs::Unseen => None,
        };
        lane.finish(wrong, &mut workspace, &stream)
    });
    Ok(finished.collect())
}

/// Makes room for all in the one workspace, which must have its final place before any address is captured.
fn reserve(convs: &[Conv], workspace: &mut Workspace, stream: &Stream) -> Vec<Result<()>> {
    let reserved = convs.iter().map(|conv| workspace.reserve(conv, stream));
    reserved.collect()
}

/// Who has a sample in a round: all that want more, of which another one begins each time.
fn turn<'a, 'conv>(
    lanes: &'a mut [Result<Lane<'conv>>],
    round: usize,
    wanted: usize,
    share_us: f64,
) -> Vec<&'a mut Result<Lane<'conv>>> {
    let medians = lanes.iter().flatten().filter_map(Lane::median_us);
    let best = medians.fold(f64::INFINITY, f64::min);
    let wants = |lane: &Lane| lane.wants_more(wanted, share_us) && !lane.is_far_from(best);
    let mut turn: Vec<&mut Result<Lane>> = lanes
        .iter_mut()
        .filter(|lane| lane.as_ref().is_ok_and(wants))
        .collect();
    let first = round % turn.len().max(1);
    turn.rotate_left(first);
    turn
}

/// Takes a sample of each, all enqueued before the first is waited for; the microseconds of all together.
fn sample(turn: &mut [&mut Result<Lane>], workspace: &mut Workspace, stream: &Stream) -> f64 {
    for lane in &mut *turn {
        attempt(lane, |lane| lane.enqueue(workspace, stream));
    }
    let mut busy_us = 0.0;
    for lane in turn {
        attempt(lane, |lane| {
            busy_us += lane.collect()?;
            Ok(())
        });
    }
    busy_us
}

/// Does the next step of a lane that has not failed; an error takes its place.
fn attempt<'a>(lane: &mut Result<Lane<'a>>, step: impl FnOnce(&mut Lane<'a>) -> Result<()>) {
    if let Ok(running) = lane
        && let Err(error) = step(running)
    {
        *lane = Err(error);
    }
}
