//! Several convolutions of one problem, taking turns.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use convforge::{
    Conv, Device, Error, Problem, Result, Stream, Workspace,
    tuner::sampling::{LONGEST_REST, rest_after},
};

use super::{
    lane::{Lane, Tensors},
    options::{LEAST_SAMPLES, Options},
    timing::Timing,
};

/// Microseconds of a part of a round: as long as the longest rest behind it.
const LONGEST_PART_US: f64 = LONGEST_REST.as_micros() as f64;

/// What of a convolution is measured.
#[derive(Clone, Copy)]
pub(super) enum Extent {
    /// Its calls.
    Calls,
    /// Its stages and its packing as well, and its outputs are compared with the oracle.
    All,
}

/// Times the calls of several convolutions of one problem on one device, in turns. Once `stop` is set, what
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
    in_turns(device, problem, convs, options, stop, Extent::Calls)
}

/// As [`time`], and where all is measured, says in [`Timing::wrong`] what is wrong with the outputs.
///
/// # Errors
/// As [`time`].
pub(super) fn in_turns(
    device: &Device,
    problem: &Problem,
    convs: &[Conv],
    options: &Options,
    stop: &AtomicBool,
    extent: Extent,
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
        let wanted = match stopped() {
            true => LEAST_SAMPLES.min(options.samples),
            false => options.samples,
        };
        let mut turn = turn(&mut lanes, round, wanted, share_us);
        if turn.is_empty() {
            break;
        }
        for part in parts(&mut turn) {
            let busy_us = sample(part, &mut workspace, &stream);
            if device.is_gpu() && !stopped() {
                let busy = Duration::try_from_secs_f64(busy_us / 1e6);
                thread::sleep(rest_after(busy.unwrap_or_default()));
            }
        }
    }
    let finished = lanes.into_iter().map(|lane| {
        let lane = lane?;
        if !lane.has_begun() {
            return Err(Error::Interrupted);
        }
        match extent {
            Extent::Calls => lane.calls(&workspace, &stream),
            Extent::All => lane.finish(&mut tensors, &mut workspace, &stream),
        }
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

/// What of a round is enqueued at once. Those at the end of a long round would have less power than the others: of 55
/// configurations in a row one that came last took 1.13 times as long as the same one in the middle (512 channels of
/// 28x28, TF32; benches/results/evidence/h200-implicit-gemm-nhwc-plans-first.csv).
fn parts<'a, 'b, 'conv>(
    mut turn: &'a mut [&'b mut Result<Lane<'conv>>],
) -> Vec<&'a mut [&'b mut Result<Lane<'conv>>]> {
    let expected = |lane: &&mut Result<Lane>| lane.as_ref().map_or(0.0, Lane::sample_us);
    let lengths = lengths(turn.iter().map(expected), LONGEST_PART_US);
    let part = |length| turn.split_off_mut(..length);
    lengths.into_iter().filter_map(part).collect()
}

/// Of how many in a row each part is, whose times together are no more than the limit, or which are one.
fn lengths(times: impl IntoIterator<Item = f64>, limit: f64) -> Vec<usize> {
    let mut lengths = Vec::new();
    let mut room = 0.0;
    for time in times {
        match lengths.last_mut() {
            Some(length) if time <= room => *length += 1,
            _ => {
                lengths.push(1);
                room = limit;
            }
        }
        room -= time;
    }
    lengths
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_no_longer_than_the_limit() {
        assert_eq!(lengths([], 10.0), [0; 0]);
        assert_eq!(lengths([1.0; 7], 3.0), [3, 3, 1]);
        assert_eq!(lengths([20.0, 1.0, 9.0, 1.0, 30.0], 10.0), [1, 2, 1, 1]);
    }
}
