//! A batch in host memory, and the judgement of what comes back.

use std::{
    ops::{Deref, DerefMut},
    sync::atomic::AtomicBool,
};

use bytemuck::{Pod, cast_slice, cast_slice_mut};
#[cfg(feature = "cuda")]
use convforge::gpu::PinnedBuffer;
use convforge::{Device, Element, Error as Refused, Pipeline, Problem, pipeline::Timing};
use convforge_check::{Recipe, Tensor};
use rayon::prelude::*;

use crate::{Error, Result, study::HostMemory};

/// Elements in one kind of host memory.
enum Host<T: Element> {
    Pageable(Vec<T>),
    #[cfg(feature = "cuda")]
    Pinned(PinnedBuffer<T>),
}

impl<T: Element> Host<T> {
    fn new(device: &Device, memory: HostMemory, len: usize) -> Result<Self> {
        if memory == HostMemory::Pageable {
            return Ok(Host::Pageable(vec![T::zeroed(); len]));
        }
        #[cfg(feature = "cuda")]
        if let Some(gpu) = device.as_gpu() {
            return Ok(Host::Pinned(PinnedBuffer::alloc(gpu, len)?));
        }
        let why = format!("memory is pinned for a GPU's copies, not for {device}");
        Err(Refused::no_gpu(why).into())
    }
}

impl<T: Element> Deref for Host<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Host::Pageable(elements) => elements,
            #[cfg(feature = "cuda")]
            Host::Pinned(elements) => elements,
        }
    }
}

impl<T: Element> DerefMut for Host<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Host::Pageable(elements) => elements,
            #[cfg(feature = "cuda")]
            Host::Pinned(elements) => elements,
        }
    }
}

/// The elements that these are the bytes of.
pub(super) fn elements<T: Pod>(bytes: &[u8]) -> Vec<T> {
    let mut elements = vec![T::zeroed(); bytes.len() / size_of::<T>()];
    cast_slice_mut(&mut elements).copy_from_slice(bytes);
    elements
}

/// Input and output of all runs from one kind of memory, and what the output has to be.
pub(super) struct Batch<'a, T: Element> {
    x: Host<T>,
    y: Host<T>,
    /// Elements per image.
    image: usize,
    /// Empty before the first run, whose output it then is.
    expected: &'a mut Vec<T>,
}

/// What no whole number looks like: every bit set, a NaN.
const POISON: u8 = 0xff;
/// Bytes that one thread fills or compares at a time.
const PIECE: usize = 1 << 20;

impl<'a, T: Element> Batch<'a, T> {
    pub fn new(
        device: &Device,
        memory: HostMemory,
        problem: &Problem,
        recipe: &Recipe,
        expected: &'a mut Vec<T>,
    ) -> Result<Self> {
        let mut x = Host::new(device, memory, problem.x_len())?;
        cast_slice_mut::<T, u8>(&mut x).copy_from_slice(&recipe.bytes(Tensor::X));
        Ok(Batch {
            x,
            y: Host::new(device, memory, problem.y_len())?,
            image: problem.y_len() / problem.n().max(1),
            expected,
        })
    }

    /// Runs the pipeline from fresh poison, and compares its output with that of the first run.
    ///
    /// # Errors
    /// [`Error::Wrong`] for an output that is not the same in every bit.
    pub fn run(&mut self, pipeline: &mut Pipeline<T>, stop: &AtomicBool) -> Result<Timing> {
        cast_slice_mut::<T, u8>(&mut self.y)
            .par_chunks_mut(PIECE)
            .for_each(|piece| piece.fill(POISON));
        let ran = pipeline.run_until(&self.x, &mut self.y, stop)?;
        let y: &[u8] = cast_slice(&self.y);
        let size = size_of::<T>();
        if self.expected.is_empty() {
            if let Some(i) = y
                .par_chunks_exact(size)
                .position_first(|element| element.iter().all(|byte| *byte == POISON))
            {
                return Err(Error::Wrong(format!("{} was not written", self.place(i))));
            }
            self.expected.extend_from_slice(&self.y);
            return Ok(ran);
        }
        let expected: &[u8] = cast_slice(self.expected);
        let differs = y
            .par_chunks(PIECE)
            .zip(expected.par_chunks(PIECE))
            .position_first(|(found, expected)| found != expected);
        let Some(piece) = differs else {
            return Ok(ran);
        };
        let (y, expected) = (&y[piece * PIECE..], &expected[piece * PIECE..]);
        let same = y.iter().zip(expected).take_while(|(a, b)| a == b).count();
        Err(Error::Wrong(format!(
            "{} is not what the unpipelined run has there",
            self.place((piece * PIECE + same) / size)
        )))
    }

    fn place(&self, element: usize) -> String {
        format!(
            "output {} of image {}",
            element % self.image,
            element / self.image
        )
    }
}
