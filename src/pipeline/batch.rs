//! The batch, split into chunks, and what computes them.

use std::ops::Range;

use crate::{Buffer, Conv, Element, Error, Packed, Problem, Result, Workspace};

/// The batch, its chunks, and what computes them: the same over any number of streams.
pub(super) struct Batch<T: Element> {
    pub(super) problem: Problem,
    /// Images in every chunk but a smaller last one.
    pub(super) chunk: usize,
    pub(super) whole: Conv,
    /// For the last chunk, where it is smaller.
    pub(super) rest: Option<Conv>,
    pub(super) filter: Buffer<T>,
    /// Where the variant packs it; one serves chunks of every size.
    pub(super) packed: Option<Packed>,
    pub(super) bias: Option<Buffer<f32>>,
}

/// Chunks of a large batch. While the first is copied in and computed nothing is copied out: so much
/// of the time is lost, and the more chunks, the less. On the other hand each one costs an engine the
/// change from one copy to the next, some microseconds. With 32 an H200 takes 5 % longer than its
/// copies out alone (docs/streams.md); they give 1, 2, 4, 8 and 16 streams equal shares.
const CHUNKS: usize = 32;
/// Bytes of the larger of a chunk's input and output, at least: to copy them takes longer than the
/// host takes to queue a chunk.
const LEAST_BYTES: usize = 2 << 20;

impl<T: Element> Batch<T> {
    /// Cuts the batch of `problem` into chunks of so many images, or as many as seem right.
    pub(super) fn new(
        problem: &Problem,
        conv: impl FnOnce(&Problem) -> Result<Conv>,
        filter: &[T],
        bias: &[f32],
        chunk: Option<usize>,
    ) -> Result<Self> {
        let chunk = chunk_images(problem, chunk)?;
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
        Ok(Batch {
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
        })
    }

    pub(super) fn chunks(&self) -> usize {
        self.problem.n().div_ceil(self.chunk)
    }

    /// The smaller last chunk, if this is one.
    pub(super) fn rest_of(&self, chunk: usize) -> Option<&Conv> {
        self.rest.as_ref().filter(|_| chunk + 1 == self.chunks())
    }

    pub(super) fn failed(&self, failed: Range<usize>, error: Error) -> Error {
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
fn chunk_images(problem: &Problem, chunk: Option<usize>) -> Result<usize> {
    if problem.epilogue().residual {
        return Err(refuse(
            problem,
            "adds a residual, which a pipeline does not copy; leave it out, or run the whole batch \
             with Conv::run_with",
        ));
    }
    let n = problem.n().max(1);
    match chunk {
        Some(0) => Err(refuse(
            problem,
            "cannot be split into chunks of 0 images; they have at least one",
        )),
        Some(images) => Ok(images.min(n)),
        None => {
            let image = problem.x_len().max(problem.y_len()) / n * problem.storage().bytes();
            let least = LEAST_BYTES.div_ceil(image.max(1));
            Ok(n.div_ceil(CHUNKS).max(least).min(n))
        }
    }
}

pub(super) fn refuse(problem: &Problem, why: &str) -> Error {
    Error::Operand {
        problem: problem.to_string(),
        why: why.to_owned(),
    }
}

pub(super) fn check_len(
    problem: &Problem,
    what: &'static str,
    found: usize,
    expected: usize,
) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(Error::Length {
        what,
        expected,
        found,
        problem: problem.to_string(),
    })
}
