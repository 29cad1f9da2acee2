//! What the oracle said, kept while several variants are checked on one problem.

#[cfg(feature = "cuda")]
use std::{cell::RefCell, collections::HashMap};

use convforge::Device;
#[cfg(feature = "cuda")]
use convforge::{Error, Problem, RawOperands, Result, Stream};

#[cfg(feature = "cuda")]
use crate::{Bounds, Data, Verdict, oracle};

/// Share of the device's memory that answers may take.
#[cfg(feature = "cuda")]
const SHARE: u64 = 4;

/// What the GPU's oracle answered for whole problems: it takes longer than most variants, and says the
/// same to all that are checked on the same data.
#[derive(Debug)]
pub struct Answers {
    #[cfg(feature = "cuda")]
    device: Device,
    #[cfg(feature = "cuda")]
    kept: RefCell<Kept>,
}

#[cfg(feature = "cuda")]
#[derive(Debug)]
struct Kept {
    answers: HashMap<Question, oracle::Written>,
    /// Bytes of device memory that more of them may take.
    room: usize,
}

/// A problem, the kind of its data and their seed.
#[cfg(feature = "cuda")]
type Question = (Problem, Data, u64);

impl Answers {
    /// Keeps what the oracle says on `device`, up to a quarter of its memory.
    pub fn new(device: &Device) -> Self {
        #[cfg(not(feature = "cuda"))]
        let _ = device;
        Answers {
            #[cfg(feature = "cuda")]
            device: device.clone(),
            #[cfg(feature = "cuda")]
            kept: RefCell::new(Kept {
                answers: HashMap::new(),
                room: (device.limits().memory_bytes / SHARE) as usize,
            }),
        }
    }

    /// Gives back the memory of what is kept, for what needs it; whether anything was kept.
    pub fn forget(&mut self) -> bool {
        #[cfg(feature = "cuda")]
        {
            let kept = !self.kept.get_mut().answers.is_empty();
            *self = Answers::new(&self.device);
            kept
        }
        #[cfg(not(feature = "cuda"))]
        false
    }

    /// Keeps nothing: for a single variant.
    pub(crate) fn none(device: &Device) -> Self {
        let answers = Answers::new(device);
        #[cfg(feature = "cuda")]
        {
            answers.kept.borrow_mut().room = 0;
        }
        answers
    }

    /// Judges `operands.y`, by what is kept if it is.
    ///
    /// # Safety
    /// The addresses are of `stream`'s device and as large as the problem says; x, w, bias and residual
    /// are what the seed gives for the data.
    #[cfg(feature = "cuda")]
    pub(crate) unsafe fn judge(
        &self,
        question: Question,
        operands: &RawOperands,
        bounds: &Bounds,
        stream: &Stream,
    ) -> Result<Verdict> {
        let problem = &question.0.clone();
        // A kernel of another device cannot read what is kept on this one.
        if stream.device() != self.device {
            // SAFETY: the caller vouches for the operands.
            return unsafe { oracle::judge_on_gpu(problem, operands, bounds, stream) };
        }
        let mut kept = self.kept.borrow_mut();
        let bytes = oracle::Written::bytes(problem.y_len());
        let known = kept.answers.contains_key(&question);
        if !known && bytes <= kept.room {
            // SAFETY: the caller vouches for the operands.
            match unsafe { oracle::Written::new(problem, operands, 0, problem.y_len(), stream) } {
                Ok(written) => {
                    kept.room -= bytes;
                    kept.answers.insert(question.clone(), written);
                }
                Err(Error::OutOfMemory { .. }) => kept.room = 0,
                Err(error) => return Err(error),
            }
        }
        match kept.answers.get(&question) {
            // SAFETY: the caller vouches for y.
            Some(written) => unsafe { written.judge(problem, operands.y, bounds, stream) },
            // SAFETY: the caller vouches for the operands.
            None => unsafe { oracle::judge_on_gpu(problem, operands, bounds, stream) },
        }
    }
}
