//! A batch in host memory, cut into chunks over several streams, so that copies in, kernels and
//! copies out run beside each other.
//!
//! A GPU has a copy engine for each direction. Chunk after chunk goes through copy in, kernels and
//! copy out on one of the streams; within a stream they wait for each other, and what different
//! streams do overlaps. Every stream has its own buffers and workspace, used again by each chunk that
//! comes to it: nothing is allocated per chunk.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `pipeline` | [`Pipeline`]: the batch, cut, and what computes it |
//! | `lanes` | the streams with their buffers, and the order in which work is queued |
//! | `timeline` | what was done when, from events |

mod lanes;
mod timeline;

use std::{
    fmt,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{
    Buffer, Conv, Device, Element, Error, Packed, Pick, Problem, Result, Stream, Workspace,
    device::with_host_copies, variant::Variant,
};
use lanes::Lanes;
pub use timeline::{Span, Work};

/// How a batch is cut.
#[derive(Clone, Debug)]
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

/// What one run took.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Ran {
    /// Microseconds from the first copy's beginning to the last one's end, by events.
    pub us: f64,
    /// What was done when; empty unless [`Options::timeline`] asked for it.
    pub spans: Vec<Span>,
}

/// A convolution of a batch in host memory, ready to run any number of times with one filter.
///
/// Input and output are slices. Those of a [`PinnedBuffer`](crate::gpu::PinnedBuffer) are copied by
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
///     Pipeline::new(&device, &problem, &Pick::Rule, &filter, &[], &Options::default())?;
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

/// The batch, its chunks, and what computes them: the same over any number of streams.
struct Batch<T: Element> {
    problem: Problem,
    /// Images in every chunk but a smaller last one.
    chunk: usize,
    whole: Conv,
    /// For the last chunk, where it is smaller.
    rest: Option<Conv>,
    filter: Buffer<T>,
    /// Where the variant packs it; one serves chunks of every size.
    packed: Option<Packed>,
    bias: Option<Buffer<f32>>,
}

/// Chunks of a large batch. While the first is copied in and computed nothing is copied out: so much
/// of the time is lost, and the more chunks, the less. On the other hand each one costs an engine the
/// change from one copy to the next, some microseconds. With 32 an H200 takes 5 % longer than its
/// copies out alone (docs/streams.md); they give 1, 2, 4, 8 and 16 streams equal shares.
const CHUNKS: usize = 32;
/// Bytes of the larger of a chunk's input and output, at least: to copy them takes longer than the
/// host takes to queue a chunk.
const LEAST_BYTES: usize = 2 << 20;

impl<T: Element> Pipeline<T> {
    /// Cuts the batch of `problem`, lets `pick` choose the variant for a chunk, and takes all the
    /// memory and handles that runs will need. `bias` is empty where the problem has none.
    ///
    /// # Errors
    /// A residual, which is not cut; no stream, or chunks of no image; a filter or bias of another
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
        Self::build(problem, conv, filter, bias, options)
    }

    /// [`new`](Self::new) with a variant of one's own, or one of
    /// [`variants::all`](crate::variants::all), in one of its configurations.
    ///
    /// # Errors
    /// As [`new`](Self::new) and [`Conv::with_variant`].
    pub fn with_variant(
        device: &Device,
        problem: &Problem,
        (variant, config): (Arc<dyn Variant>, usize),
        filter: &[T],
        bias: &[f32],
        options: &Options,
    ) -> Result<Self> {
        let conv = |problem: &Problem| Conv::with_variant(device, problem, variant, config);
        Self::build(problem, conv, filter, bias, options)
    }

    fn build(
        problem: &Problem,
        conv: impl FnOnce(&Problem) -> Result<Conv>,
        filter: &[T],
        bias: &[f32],
        options: &Options,
    ) -> Result<Self> {
        let chunk = chunk(problem, options)?;
        check_len(problem, "the filter (w)", filter.len(), problem.w_len())?;
        check_len(problem, "the bias", bias.len(), problem.bias_len())?;
        // The buffers are the pipeline's own, so they are aligned as buffers are.
        let images = |n: usize| {
            problem.with(|shape| {
                shape.n = n;
                shape.align = shape.align.min(Workspace::ALIGN);
            })
        };
        let whole = conv(&images(chunk)?)?;
        let device = whole.device().clone();
        let rest = match problem.n() % chunk {
            0 => None,
            n => {
                let (variant, config) = (whole.variant().clone(), whole.config());
                Some(Conv::with_variant(&device, &images(n)?, variant, config)?)
            }
        };
        let filter = device.upload(filter)?;
        let stream = device.stream()?;
        let packed = whole.pack(&filter, &stream)?;
        stream.synchronize()?;
        let batch = Batch {
            problem: problem.clone(),
            chunk,
            whole,
            rest,
            filter,
            packed,
            bias: match bias {
                [] => None,
                bias => Some(device.upload(bias)?),
            },
        };
        Self::lay(Arc::new(batch), options.streams, options.timeline)
    }

    /// The same chunks, convolutions and filter, which both share, over another number of streams.
    ///
    /// # Errors
    /// No stream, or no memory for their buffers.
    pub fn over(&self, streams: usize, timeline: bool) -> Result<Self> {
        Self::lay(self.batch.clone(), streams, timeline)
    }

    fn lay(batch: Arc<Batch<T>>, streams: usize, timeline: bool) -> Result<Self> {
        if streams == 0 {
            let why = "cannot be cut over 0 streams; it takes at least one";
            return Err(refuse(&batch.problem, why));
        }
        let device = batch.whole.device();
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
        &self.batch.whole
    }

    /// The convolution of the last chunk, where that is smaller than the others.
    pub fn rest(&self) -> Option<&Conv> {
        self.batch.rest.as_ref()
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
    pub fn run(&mut self, x: &[T], y: &mut [T]) -> Result<Ran> {
        self.run_until(x, y, &AtomicBool::new(false))
    }

    /// [`run`](Self::run), beginning no further chunk once `stop` is set.
    ///
    /// # Errors
    /// As [`run`](Self::run); [`Error::Interrupted`] where chunks were left out.
    pub fn run_until(&mut self, x: &[T], y: &mut [T], stop: &AtomicBool) -> Result<Ran> {
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
        queued?;
        waited.map_err(|error| batch.failed(0..batch.chunks(), error))?;
        lanes.ran(batch)
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

impl<T: Element> Batch<T> {
    fn chunks(&self) -> usize {
        self.problem.n().div_ceil(self.chunk)
    }

    /// The smaller last chunk, if this is one.
    fn rest_of(&self, chunk: usize) -> Option<&Conv> {
        self.rest.as_ref().filter(|_| chunk + 1 == self.chunks())
    }

    fn failed(&self, failed: Range<usize>, error: Error) -> Error {
        let first = failed.start * self.chunk;
        Error::Chunk {
            chunks: self.chunks(),
            images: first..(failed.end * self.chunk).min(self.problem.n()),
            failed,
            source: Box::new(error),
        }
    }
}

/// Images in a chunk, at least 1.
fn chunk(problem: &Problem, options: &Options) -> Result<usize> {
    if problem.epilogue().residual {
        return Err(refuse(
            problem,
            "adds a residual, which a pipeline does not copy; leave it out, or run the whole batch \
             with Conv::run_with",
        ));
    }
    let n = problem.n().max(1);
    match options.chunk {
        Some(0) => Err(refuse(
            problem,
            "cannot be cut into chunks of 0 images; they have at least one",
        )),
        Some(images) => Ok(images.min(n)),
        None => {
            let image = problem.x_len().max(problem.y_len()) / n * problem.storage().bytes();
            let least = LEAST_BYTES.div_ceil(image.max(1));
            Ok(n.div_ceil(CHUNKS).max(least).min(n))
        }
    }
}

fn refuse(problem: &Problem, why: &str) -> Error {
    Error::Operand {
        problem: Box::new(problem.clone()),
        why: why.to_owned(),
    }
}

fn check_len(problem: &Problem, what: &'static str, found: usize, expected: usize) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(Error::Length {
        what,
        expected,
        found,
        problem: Box::new(problem.clone()),
    })
}
