//! A batch in host memory, split into chunks over several streams, so that copies in, kernels and
//! copies out run beside each other.
//!
//! A GPU has a copy engine for each direction. Chunk after chunk goes through copy in, kernels and
//! copy out on one of the streams; within a stream they wait for each other, and what different
//! streams do overlaps. Every stream has its own buffers and workspace, used again by each chunk that
//! comes to it: nothing is allocated per chunk.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `pipeline` | [`Pipeline`]: a batch, and the streams that it runs over |
//! | `batch` | the batch, split into chunks, and what computes them |
//! | `lanes` | the streams with their buffers, and the order in which work is queued |
//! | `timeline` | what was done when, from events |

mod batch;
mod lanes;
mod timeline;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

#[cfg(doc)]
use crate::Workspace;
use crate::{
    Conv, Device, Element, Error, Pick, Problem, Result, Stream, device::with_host_copies,
    variant::Configured,
};
use batch::{Batch, check_len, refuse};
use lanes::Lanes;

pub use lanes::Timing;
pub use timeline::{Span, Work};

/// How a batch is split into chunks.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Streams; no more of them than chunks are made.
    pub streams: usize,
    /// Images in a chunk; the last chunk may have fewer. Without it the chunks are chosen by their
    /// number and size alone, so that another number of streams changes nothing else.
    pub chunk: Option<usize>,
    /// Whether a run tells what was done when. The events for it cost a little time.
    pub timeline: bool,
}

impl Default for Options {
    /// Four streams, chunks chosen, no timeline.
    fn default() -> Self {
        Options {
            streams: 4,
            chunk: None,
            timeline: false,
        }
    }
}

impl Options {
    /// Streams; no more of them than chunks are made.
    #[must_use]
    pub fn streams(self, streams: usize) -> Self {
        Options { streams, ..self }
    }

    /// Images in a chunk; none to have it chosen.
    #[must_use]
    pub fn chunk(self, chunk: impl Into<Option<usize>>) -> Self {
        Options {
            chunk: chunk.into(),
            ..self
        }
    }

    /// Whether a run tells what was done when.
    #[must_use]
    pub fn timeline(self, timeline: bool) -> Self {
        Options { timeline, ..self }
    }
}

/// A convolution of a batch in host memory, ready to run any number of times with one filter.
///
/// Input and output are slices. Those of a `gpu::PinnedBuffer` are copied by
/// the device itself while the host goes on; ordinary ones are copied through the driver's own
/// memory, and copies wait for each other.
///
/// ```
/// use convforge::{Device, Pick, Pipeline, Problem, pipeline::Options};
///
/// let (device, _why_no_gpu) = Device::best();
/// let problem: Problem = "mb10ic1ih8oc2kh3".parse()?;
/// let filter = vec![0.5f32; problem.w_len()];
/// let mut pipeline =
///     Pipeline::new(&device, &problem, &Pick::Auto, &filter, &[], &Options::default())?;
/// let x = vec![1f32; problem.x_len()];
/// let mut y = vec![0f32; problem.y_len()];
/// pipeline.run(&x, &mut y)?;
/// assert!(y.iter().all(|y| *y == 4.5));
/// # Ok::<(), convforge::Error>(())
/// ```
pub struct Pipeline<T: Element> {
    batch: Arc<Batch<T>>,
    streams: Vec<Stream>,
    lanes: Lanes<T>,
}

impl<T: Element> Pipeline<T> {
    /// Cuts the batch of `problem`, lets `pick` choose the variant for a chunk, for a smaller last one
    /// too if that does not take so few images, and takes all the memory and handles that runs will
    /// need. `bias` is empty where the problem has none.
    ///
    /// # Errors
    /// A residual, which is not split; no stream, or chunks of no image; a filter or bias of another
    /// length or type; otherwise as [`Conv::new`] and [`Workspace::reserve`].
    pub fn new(
        device: &Device,
        problem: &Problem,
        pick: &Pick,
        filter: &[T],
        bias: &[f32],
        options: &Options,
    ) -> Result<Self> {
        let conv = |problem: &Problem| Conv::new(device, problem, pick);
        let batch = Batch::new(problem, conv, filter, bias, options.chunk)?;
        Self::over_streams(Arc::new(batch), options.streams, options.timeline)
    }

    /// [`new`](Self::new) with a variant of one's own, or one of
    /// [`variants::all`](crate::variants::all), in the configuration of a [`Configured`], or else in its first.
    ///
    /// # Errors
    /// As [`new`](Self::new) and [`Conv::with_variant`].
    pub fn with_variant(
        device: &Device,
        problem: &Problem,
        variant: impl Into<Configured>,
        filter: &[T],
        bias: &[f32],
        options: &Options,
    ) -> Result<Self> {
        let configured = variant.into();
        let conv = |problem: &Problem| Conv::with_variant(device, problem, configured.clone());
        let batch = Batch::new(problem, conv, filter, bias, options.chunk)?;
        Self::over_streams(Arc::new(batch), options.streams, options.timeline)
    }

    /// The same chunks, convolutions and filter, which both share, over another number of streams.
    ///
    /// # Errors
    /// No stream, or no memory for their buffers.
    pub fn over(&self, streams: usize, timeline: bool) -> Result<Self> {
        Self::over_streams(self.batch.clone(), streams, timeline)
    }

    fn over_streams(batch: Arc<Batch<T>>, streams: usize, timeline: bool) -> Result<Self> {
        if streams == 0 {
            let why = "cannot be split over 0 streams; it takes at least one";
            return Err(refuse(&batch.problem, why));
        }
        let device = batch.whole.conv.device();
        let streams = (0..streams.min(batch.chunks()).max(1))
            .map(|_| device.stream())
            .collect::<Result<Vec<_>>>()?;
        let lanes = Lanes::new(&batch, &streams, timeline)?;
        Ok(Pipeline {
            batch,
            streams,
            lanes,
        })
    }

    /// The whole batch.
    pub fn problem(&self) -> &Problem {
        &self.batch.problem
    }

    /// The convolution of one chunk.
    pub fn conv(&self) -> &Conv {
        &self.batch.whole.conv
    }

    /// The convolution of the last chunk, where that is smaller than the others: by the same variant in
    /// the same configuration, unless that does not take so few images and the pick has another.
    pub fn rest(&self) -> Option<&Conv> {
        self.batch.rest.as_ref().map(|rest| &rest.conv)
    }

    /// Images in a chunk, but for a smaller last one.
    pub fn chunk(&self) -> usize {
        self.batch.chunk
    }

    /// Chunks.
    pub fn chunks(&self) -> usize {
        self.batch.chunks()
    }

    /// Streams.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// y = conv(x, w) of the whole batch. It returns when the last output is in `y`.
    ///
    /// # Errors
    /// [`Error::Length`]; [`Error::Chunk`] with the chunk that failed. Then what was queued before it
    /// has been waited for, nothing of what comes after was begun, and `y` is partly written. A kernel
    /// that the device aborts may show at a later chunk than its own; with `CUDA_LAUNCH_BLOCKING=1` in
    /// the environment the driver tells at once.
    pub fn run(&mut self, x: &[T], y: &mut [T]) -> Result<Timing> {
        self.run_until(x, y, &AtomicBool::new(false))
    }

    /// [`run`](Self::run), beginning no further chunk once `stop` is set.
    ///
    /// # Errors
    /// As [`run`](Self::run); [`Error::Interrupted`] where chunks were left out, and nothing failed.
    pub fn run_until(&mut self, x: &[T], y: &mut [T], stop: &AtomicBool) -> Result<Timing> {
        let Pipeline {
            batch,
            streams,
            lanes,
        } = self;
        let problem = &batch.problem;
        check_len(problem, "the input (x)", x.len(), problem.x_len())?;
        check_len(problem, "the output (y)", y.len(), problem.y_len())?;
        let stopped = || stop.load(Ordering::Relaxed);
        let (queued, waited) = with_host_copies(streams, |copies| {
            lanes.queue(batch, streams, copies, (x, y), &stopped)
        });
        let waited = waited.map_err(|error| batch.failed(0..batch.chunks(), error));
        match (queued, waited) {
            // That the caller stopped says nothing of what failed before.
            (Err(Error::Interrupted), Err(failure)) => return Err(failure),
            (queued, waited) => queued.and(waited)?,
        }
        lanes.timing(batch)
    }
}

impl<T: Element> fmt::Debug for Pipeline<T> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Pipeline")
            .field("problem", self.problem())
            .field("conv", self.conv())
            .field("chunk", &self.chunk())
            .field("streams", &self.streams())
            .finish_non_exhaustive()
    }
}
