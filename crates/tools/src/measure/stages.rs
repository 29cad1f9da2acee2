//! The kernels of one variant, timed one by one.

use std::ffi::CStr;

use convforge::{Mark, Result, Stream};

use super::{spread::median, timing::Stage};

/// How often they are timed.
const RUNS: usize = 7;

/// One call with a mark before it and one behind each of its stages.
pub(super) struct Staged {
    pub(super) names: Vec<String>,
    pub(super) marks: Vec<Mark>,
}

/// Marks the stages of what `run` enqueues on `stream`, telling after which kernel each of them ends.
/// A variant of one kernel may tell of none.
pub(super) fn staged(
    stream: &Stream,
    run: impl FnOnce(&mut dyn FnMut(&CStr)) -> Result<()>,
) -> Result<Staged> {
    let mut names = Vec::new();
    let mut marks = vec![stream.mark()];
    run(&mut |name| {
        names.push(name.to_string_lossy().into_owned());
        marks.push(stream.mark());
    })?;
    let marks = marks.into_iter().collect::<Result<_>>()?;
    Ok(Staged { names, marks })
}

/// The median time of each stage; none where there is only one. `run` enqueues the convolution on
/// `stream`, telling after which kernel each stage ends; it is given the number of the run.
pub(crate) fn stages(
    stream: &Stream,
    mut run: impl FnMut(usize, &mut dyn FnMut(&CStr)) -> Result<()>,
) -> Result<Vec<Stage>> {
    let mut runs: Vec<Vec<f64>> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for index in 0..RUNS {
        let staged = staged(stream, |stage| run(index, stage))?;
        if staged.names.len() < 2 {
            return Ok(Vec::new());
        }
        names = staged.names;
        let times = staged.marks.windows(2).map(|m| m[1].us_since(&m[0]));
        runs.push(times.collect::<Result<_>>()?);
    }
    let us = |stage: usize| {
        let mut times: Vec<f64> = runs.iter().filter_map(|r| r.get(stage).copied()).collect();
        times.sort_by(f64::total_cmp);
        median(&times)
    };
    let names = names.into_iter().enumerate();
    Ok(names.map(|(i, name)| Stage { name, us: us(i) }).collect())
}
