//! Batches split over streams, measured: every number of streams beside the unpipelined run, round by
//! round, every run's output compared with it.
//!
//! The unpipelined run is a pipeline of one chunk: the whole batch is copied in, computed and copied
//! out, one after the other. Its three parts, by events, are the copies and kernels alone that the
//! rows stand beside.
//!
//! Data is whole numbers, so small that every sum is exact ([`Data::Integer`]). So every variant has to
//! give the same bits for a chunk as for the batch, whatever plan a library takes for either.

mod batch;

use std::sync::atomic::{AtomicBool, Ordering};

use convforge::{
    Device, Element,
    Error::{self as Refused, Interrupted},
    Pipeline, Storage, chain,
    pipeline::Options,
    variant::Arithmetic,
};
use convforge_check::{Data, Recipe, Tensor};

use super::{HostMemory, OverlapRow, Span, Work};
use crate::{
    Contender, Error, Result,
    measure::{Ending, Spread, Status, checked},
    suite::Layer,
};
use batch::{Batch, elements};

/// What is measured.
#[derive(Clone, Debug)]
pub struct OverlapOptions {
    /// Numbers of streams; what exceeds the number of chunks is refused.
    pub streams: Vec<usize>,
    /// Kinds of host memory.
    pub memory: Vec<HostMemory>,
    /// Images in a chunk, or as [`pipeline::Options::chunk`](convforge::pipeline::Options::chunk) says.
    pub chunk: Option<usize>,
    /// Timed runs of each.
    pub runs: usize,
    /// Seed of the data.
    pub seed: u64,
    /// Whether each row gets a timeline, of one further run.
    pub timeline: bool,
}

impl Default for OverlapOptions {
    /// 1, 2, 4, 8 and 16 streams, pinned and pageable, ten runs, no timeline.
    fn default() -> Self {
        OverlapOptions {
            streams: vec![1, 2, 4, 8, 16],
            memory: vec![HostMemory::Pinned, HostMemory::Pageable],
            chunk: None,
            runs: 10,
            seed: 1,
            timeline: false,
        }
    }
}

/// Checks what the contender is for the layer, then times it under every number of streams, with every
/// kind of host memory: a row for each. `progress` hears what is being done. Once `stop` is set,
/// rows end with the runs they have, or are skipped as interrupted.
pub fn overlap(
    device: &Device,
    layer: &Layer,
    contender: &Contender,
    options: &OverlapOptions,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str),
) -> Vec<OverlapRow> {
    let study = Study {
        device,
        layer,
        contender,
        options,
        stop,
    };
    match layer.problem.storage() {
        Storage::F32 => study.rows::<f32>(progress),
        Storage::F16 => study.rows::<half::f16>(progress),
        Storage::Bf16 => study.rows::<half::bf16>(progress),
    }
}

struct Study<'a> {
    device: &'a Device,
    layer: &'a Layer,
    contender: &'a Contender,
    options: &'a OverlapOptions,
    stop: &'a AtomicBool,
}

/// The batch split into chunks, and in one piece.
struct Pipelines<T: Element> {
    split: Pipeline<T>,
    alone: Pipeline<T>,
}

impl Study<'_> {
    fn rows<T: Element>(&self, progress: &mut dyn FnMut(&str)) -> Vec<OverlapRow> {
        let mut rows = self.blank();
        let mut pipelines = match self.prepare::<T>(progress) {
            Ok(pipelines) => pipelines,
            Err(ending) => {
                rows.iter_mut().for_each(|row| end(row, &ending));
                return rows;
            }
        };
        let conv = pipelines.split.conv();
        let chose = self.contender.is_pick().then(|| conv.name());
        for row in &mut rows {
            row.chose.clone_from(&chose);
            row.chunk = pipelines.split.chunk();
        }
        // What the first run gave. Every later one must give the same, from either memory.
        let mut expected = Vec::new();
        for memory in &self.options.memory {
            let of_memory = rows.iter_mut().filter(|row| row.memory == *memory);
            let mut rows: Vec<&mut OverlapRow> = of_memory.collect();
            if let Err(error) =
                self.measure(&mut pipelines, &mut rows, *memory, &mut expected, progress)
            {
                let ending = ending(error);
                rows.into_iter().for_each(|row| end(row, &ending));
            }
        }
        rows
    }

    fn blank(&self) -> Vec<OverlapRow> {
        let row = |memory, streams| OverlapRow {
            suite: self.layer.suite.clone(),
            layer: self.layer.layer.clone(),
            problem: self.layer.problem.clone(),
            variant: self.contender.name(),
            chose: None,
            streams,
            chunk: self.options.chunk.unwrap_or_default(),
            memory,
            status: Status::Passed,
            reason: None,
            time: None,
            runs: 0,
            copy_in_us: None,
            copy_out_us: None,
            kernel_us: None,
            timeline: Vec::new(),
        };
        let memories = self.options.memory.iter();
        memories
            .flat_map(|memory| self.options.streams.iter().map(|n| row(*memory, *n)))
            .collect()
    }

    /// Splits the batch, and checks what computes the chunks.
    fn prepare<T: Element>(&self, progress: &mut dyn FnMut(&str)) -> Result<Pipelines<T>, Ending> {
        if self.stopped() {
            return Err(Interrupted.into());
        }
        progress(&format!("checking {}", self.contender.name()));
        let problem = &self.layer.problem;
        let recipe = Recipe::new(problem, Data::Integer, self.options.seed);
        let filter: Vec<T> = elements(&recipe.bytes(Tensor::W));
        let bias: Vec<f32> = elements(&recipe.bytes(Tensor::Bias));
        let options = Options::default().streams(1).chunk(self.options.chunk);
        let split = self
            .split(&filter, &bias, &options)
            .map_err(|error| ending(error.into()))?;
        let conv = split.conv();
        let arithmetic = conv.variant().info().arithmetic;
        if arithmetic == Arithmetic::Transform {
            let why = "a transform is not exact on whole numbers, so a chunk's output need not \
                       equal the batch's";
            return Err(Ending {
                status: Status::Unsupported,
                reason: why.to_owned(),
            });
        }
        for conv in [Some(conv), split.rest()].into_iter().flatten() {
            checked(conv, arithmetic, self.options.seed)?;
        }
        let whole = options.chunk(problem.n().max(1)).timeline(true);
        let variant = conv.configured().clone();
        let alone = Pipeline::with_variant(self.device, problem, variant, &filter, &bias, &whole)
            .map_err(|error| ending(error.into()))?;
        Ok(Pipelines { split, alone })
    }

    fn split<T: Element>(
        &self,
        filter: &[T],
        bias: &[f32],
        options: &Options,
    ) -> convforge::Result<Pipeline<T>> {
        let (device, problem) = (self.device, &self.layer.problem);
        match self.contender {
            Contender::Variant(configured) => {
                let configured = configured.clone();
                Pipeline::with_variant(device, problem, configured, filter, bias, options)
            }
            Contender::Pick(pick) => Pipeline::new(device, problem, pick, filter, bias, options),
        }
    }

    /// Times the rows, which are those of one kind of memory.
    fn measure<T: Element>(
        &self,
        Pipelines { split, alone }: &mut Pipelines<T>,
        rows: &mut [&mut OverlapRow],
        memory: HostMemory,
        expected: &mut Vec<T>,
        progress: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let problem = &self.layer.problem;
        let recipe = Recipe::new(problem, Data::Integer, self.options.seed);
        let mut batch = Batch::new(self.device, memory, problem, &recipe, expected)?;
        let mut lanes: Vec<Lane<T>> = rows
            .iter_mut()
            .map(|row| Lane {
                pipeline: over(split, row.streams),
                row,
                samples: Vec::new(),
                untraced: false,
            })
            .collect();
        let mut parts = Vec::new();
        let runs = self.options.runs.max(1);
        // The first round warms up.
        for round in 0..=runs {
            progress(&format!("{} memory, run {round} of {runs}", memory.word()));
            match batch.run(alone, self.stop) {
                Err(error) if error.is_interruption() => break,
                ran if round == 0 => drop(ran?),
                ran => parts.push(Parts::of(&ran?.spans)),
            }
            // Each round begins with another one.
            let next = lanes.len().min(1);
            lanes.rotate_left(next);
            for lane in &mut lanes {
                lane.run(&mut batch, round > 0, self.stop);
            }
        }
        for mut lane in lanes {
            if self.options.timeline {
                lane.trace(split, &mut batch, self.stop);
            }
            lane.finish(runs, &parts);
        }
        Ok(())
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// The batch over so many streams, unless some would have nothing to do.
fn over<T: Element>(split: &Pipeline<T>, streams: usize) -> Result<Pipeline<T>> {
    if streams <= split.chunks().max(1) {
        return Ok(split.over(streams, false)?);
    }
    Err(Refused::Operand {
        problem: split.problem().to_string(),
        why: format!(
            "in {} chunks of {} images has no work for {streams} streams; take smaller chunks",
            split.chunks(),
            split.chunk()
        ),
    }
    .into())
}

/// A row taking part in the rounds.
struct Lane<'a, T: Element> {
    row: &'a mut OverlapRow,
    /// Or why it does not take part any more.
    pipeline: Result<Pipeline<T>>,
    samples: Vec<f64>,
    /// Whether it was stopped before the timeline that it was to have.
    untraced: bool,
}

impl<T: Element> Lane<'_, T> {
    fn run(&mut self, batch: &mut Batch<T>, timed: bool, stop: &AtomicBool) {
        let Ok(pipeline) = &mut self.pipeline else {
            return;
        };
        match batch.run(pipeline, stop) {
            Ok(ran) if timed => self.samples.push(ran.us),
            Err(error) if !error.is_interruption() => self.pipeline = Err(error),
            _ => {}
        }
    }

    /// Keeps what was done when in a run of its own.
    fn trace(&mut self, split: &Pipeline<T>, batch: &mut Batch<T>, stop: &AtomicBool) {
        if self.pipeline.is_err() {
            return;
        }
        let traced = split.over(self.row.streams, true);
        let ran = traced.map_err(Error::from);
        match ran.and_then(|mut pipeline| batch.run(&mut pipeline, stop)) {
            Ok(ran) => self.row.timeline = ran.spans,
            Err(error) if error.is_interruption() => self.untraced = true,
            Err(error) => self.pipeline = Err(error),
        }
    }

    fn finish(self, runs: usize, parts: &[Parts]) {
        let row = self.row;
        match self.pipeline {
            Err(error) => end(row, &ending(error)),
            Ok(_) if self.samples.is_empty() => end(row, &Interrupted.into()),
            Ok(_) => {
                let interrupted = self.untraced || self.samples.len() < runs;
                row.reason = interrupted.then(|| Interrupted.to_string());
                row.time = Spread::of(&self.samples);
                row.runs = self.samples.len();
                let median = |part: fn(&Parts) -> f64| {
                    let samples: Vec<f64> = parts.iter().map(part).collect();
                    Spread::of(&samples).map(|spread| spread.median_us)
                };
                row.copy_in_us = median(|parts| parts.copy_in);
                row.kernel_us = median(|parts| parts.kernel);
                row.copy_out_us = median(|parts| parts.copy_out);
            }
        }
    }
}

/// Microseconds of the parts of one unpipelined run.
struct Parts {
    copy_in: f64,
    kernel: f64,
    copy_out: f64,
}

impl Parts {
    fn of(spans: &[Span]) -> Self {
        let all = |work| {
            let same = spans.iter().filter(|span| span.work == work);
            same.map(|span| span.end_us - span.begin_us).sum()
        };
        Parts {
            copy_in: all(Work::In),
            kernel: all(Work::Kernel),
            copy_out: all(Work::Out),
        }
    }
}

/// What an error makes of a row.
fn ending(error: Error) -> Ending {
    let status = match error {
        Error::Convforge(Refused::NoGpu { .. }) => Status::Skipped,
        Error::Convforge(Refused::Operand { .. }) => Status::Unsupported,
        error => return Ending::from(error),
    };
    Ending {
        status,
        reason: chain(&error),
    }
}

fn end(row: &mut OverlapRow, ending: &Ending) {
    row.status = ending.status;
    row.reason = Some(ending.reason.clone());
}

#[cfg(test)]
mod tests {
    use convforge::Pick;

    use super::*;

    fn rows(problem: &str, options: &OverlapOptions, stop: bool) -> Vec<OverlapRow> {
        let layer = Layer::alone(problem.parse().unwrap());
        let stop = AtomicBool::new(stop);
        overlap(
            &Device::cpu(),
            &layer,
            &Contender::Pick(Pick::Rule),
            options,
            &stop,
            &mut |_| {},
        )
    }

    fn few() -> OverlapOptions {
        OverlapOptions {
            streams: vec![1, 2, 3],
            chunk: Some(2),
            runs: 3,
            timeline: true,
            ..OverlapOptions::default()
        }
    }

    #[test]
    fn a_row_for_each_number_of_streams_and_kind_of_memory() {
        let rows = rows("mb7ic2ih9oc3kh3+f16+bias", &few(), false);
        assert_eq!(rows.len(), 6);
        let (pinned, pageable) = rows.split_at(3);
        for row in pinned {
            assert_eq!(row.status, Status::Skipped);
            assert!(row.reason.as_deref().is_some_and(|why| why.contains("GPU")));
            assert_eq!((row.time, row.runs), (None, 0));
        }
        for (row, streams) in pageable.iter().zip(1..) {
            assert_eq!((row.status, row.reason.as_deref()), (Status::Passed, None));
            assert_eq!((row.streams, row.chunk, row.runs), (streams, 2, 3));
            assert_eq!(row.variant, "rule");
            let chose = row.chose.as_deref().unwrap_or_default();
            assert!(chose.starts_with("cpu_"), "{chose}");
            assert!(row.time.is_some() && row.bound_us().is_some_and(|us| us > 0.0));
            // 7 images in chunks of 2, three pieces of work each.
            assert_eq!(row.timeline.len(), 4 * 3);
        }
    }

    #[test]
    fn rows_end_with_a_reason() {
        let stopped = rows("mb4ic1ih8oc1kh3", &few(), true);
        assert!(stopped.iter().all(|row| row.status == Status::Skipped));
        let none = OverlapOptions {
            streams: vec![0, 3, 1],
            memory: vec![HostMemory::Pageable],
            ..few()
        };
        let rows = rows("mb4ic1ih8oc1kh3", &none, false);
        for (row, why) in rows.iter().zip(["over 0 streams", "no work for 3 streams"]) {
            assert_eq!(row.status, Status::Unsupported);
            let reason = row.reason.as_deref().unwrap_or_default();
            assert!(reason.contains(why), "{reason}");
        }
        assert_eq!(rows[2].status, Status::Passed);
    }

    #[test]
    fn an_output_that_differs_is_found() {
        let problem = "mb5ic1ih8oc2kh3".parse().unwrap();
        let options = Options::default().streams(2).chunk(2);
        let recipe = Recipe::new(&problem, Data::Integer, 1);
        let pipeline = |factor: f32| {
            let filter: Vec<f32> = elements(&recipe.bytes(Tensor::W));
            let filter: Vec<f32> = filter.iter().map(|w| factor * w).collect();
            Pipeline::new(
                &Device::cpu(),
                &problem,
                &Pick::Rule,
                &filter,
                &[],
                &options,
            )
            .unwrap()
        };
        let (mut expected, go) = (Vec::new(), AtomicBool::new(false));
        let memory = HostMemory::Pageable;
        let mut batch =
            Batch::new(&Device::cpu(), memory, &problem, &recipe, &mut expected).unwrap();
        batch.run(&mut pipeline(1.0), &go).unwrap();
        batch.run(&mut pipeline(1.0), &go).unwrap();
        let error = batch.run(&mut pipeline(2.0), &go).unwrap_err().to_string();
        assert!(error.contains("of image 0 is not what"), "{error}");
    }
}
