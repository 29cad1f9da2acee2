//! Judging the outputs that timed launches left behind.
//!
//! There are many sets of them, and they may be too large for the oracle. So of every set some parts
//! are compared with it, drawn by the seed, the first and the last outputs among them. Their operands
//! are made again from the recipe: neither copies nor the device's memory are trusted. Of all other
//! elements [`find_poison`] sees whether they were written.

use std::{collections::HashMap, ops::Range};

use convforge::{Buffer, Problem, Stream, variant::Arithmetic};
use rayon::prelude::*;

#[cfg(feature = "cuda")]
use crate::oracle;
use crate::{
    Bounds, Data, Expected, Recipe, Result, Sets, Tensor, Verdict,
    fence::{POISON, elsewhere},
    judge::judge_part,
    judged::wrong_outputs,
    recipe::widen_one,
    reference::{Operands, expected, round_operand},
    rng::Rng,
};

/// Products that the oracle is asked for, over all sets: some tens of milliseconds.
const PRODUCTS: usize = 4_000_000;
/// Outputs of a set at least.
const LEAST_OUTPUTS: usize = 4;
/// Parts at most, unless there are more sets: each is a copy of its own.
const PARTS: usize = 512;
const PARTS_OF_A_SET: usize = 16;

/// What launches should leave in several sets of buffers. Operands of the first set are those of a
/// [`Recipe`] with a seed, of each further one with the next seed. What was worked out once is kept for
/// all variants that are compared.
#[derive(Debug)]
pub struct Launched {
    problem: Problem,
    data: Data,
    seed: u64,
    known: HashMap<Part, Vec<Expected>>,
}

/// Some outputs of a set, and whether it has the filter of the first one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Part {
    set: usize,
    outputs: Range<usize>,
    one_filter: bool,
}

/// What a variant left behind.
#[derive(Clone, Copy, Debug)]
pub struct Left {
    /// What the variant declares.
    pub arithmetic: Arithmetic,
    /// Sets with outputs.
    pub sets: usize,
    /// Whether all sets have the filter of the first one.
    pub one_filter: bool,
}

/// Operands that are made when they are asked for.
struct Made<'a> {
    problem: &'a Problem,
    recipe: &'a Recipe,
    /// The filter's.
    filter: &'a Recipe,
}

impl Operands for Made<'_> {
    fn x(&self, index: usize) -> f32 {
        round_operand(self.problem.math(), self.recipe.value(Tensor::X, index))
    }

    fn w(&self, index: usize) -> f32 {
        round_operand(self.problem.math(), self.filter.value(Tensor::W, index))
    }

    fn bias(&self, index: usize) -> f32 {
        self.recipe.value(Tensor::Bias, index)
    }

    fn residual(&self, index: usize) -> f32 {
        self.recipe.value(Tensor::Residual, index)
    }
}

impl Launched {
    /// Of a problem with this kind of data, and this seed of the first set.
    pub fn new(problem: &Problem, data: Data, seed: u64) -> Self {
        Launched {
            problem: problem.clone(),
            data,
            seed,
            known: HashMap::new(),
        }
    }

    /// What is wrong with the outputs, in words. `read` gives some outputs of a set as they are stored.
    ///
    /// # Errors
    /// What `read` answers; [`Error::Length`](crate::Error::Length) where it gives more or fewer.
    pub fn wrong(
        &mut self,
        left: Left,
        mut read: impl FnMut(usize, Range<usize>) -> convforge::Result<Vec<u8>>,
    ) -> Result<Option<String>> {
        let parts = self.parts(left);
        self.learn(&parts);
        let bounds = Bounds::new(&self.problem, self.data, left.arithmetic);
        let mut all = Verdict::NONE;
        for part in parts {
            let (known, outputs) = (&self.known[&part], part.outputs);
            let expected = |index: usize| known[index - outputs.start];
            let y = read(part.set, outputs.clone())?;
            let verdict = judge_part(&self.problem, expected, outputs.clone(), &y, &bounds)?;
            if let Some(bad) = verdict.first_bad {
                let index = bad as usize;
                let y = widen_one(self.problem.storage(), &y, index - outputs.start);
                let right = Some(expected(index));
                let why = wrong_outputs(&self.problem, &bounds, &verdict, outputs.len(), y, right);
                let set = part.set;
                return Ok(Some(format!("after the timed launches, set {set}: {why}")));
            }
            all = all.then(&verdict);
        }
        let (rms, limit) = (all.rms(), bounds.rms_limit(&all));
        // Not `>`: a NaN must fail.
        let within = bounds.exact || rms <= limit;
        Ok((!within).then(|| {
            format!(
                "after the timed launches the error of {} outputs is {rms:.3e} rms, where {limit:.3e} \
                 is allowed",
                all.counted
            )
        }))
    }

    /// Works out what is not known yet.
    fn learn(&mut self, parts: &[Part]) {
        let recipe = |set| Recipe::new(&self.problem, self.data, self.seed + set as u64);
        let first = recipe(0);
        let unknown = parts
            .par_iter()
            .filter(|part| !self.known.contains_key(part));
        let learned: Vec<(Part, Vec<Expected>)> = unknown
            .map(|part| {
                let own = recipe(part.set);
                let made = Made {
                    problem: &self.problem,
                    recipe: &own,
                    filter: if part.one_filter { &first } else { &own },
                };
                let outputs = part.outputs.clone().into_par_iter();
                let expected = outputs.map(|index| expected(&self.problem, &made, index));
                (part.clone(), expected.collect())
            })
            .collect();
        self.known.extend(learned);
    }

    /// Which outputs of which sets are compared.
    fn parts(&self, left: Left) -> Vec<Part> {
        let (len, sets) = (self.problem.y_len(), left.sets.max(1));
        if len == 0 {
            return Vec::new();
        }
        let window =
            (self.problem.epilogue().pool).map_or(1, |pool| pool.window[0] * pool.window[1]);
        let each = self.problem.reduction().max(1) * window;
        let outputs = (PRODUCTS / each / sets).max(LEAST_OUTPUTS).min(len);
        let parts = match outputs == len {
            true => 1,
            false => (PARTS / sets).clamp(1, PARTS_OF_A_SET.min(outputs)),
        };
        let size = outputs / parts;
        let mut rng = Rng::new(self.seed);
        let part = |number: usize| {
            // The first one and the last one of all are among them, and so on from there.
            let start = match number % PARTS_OF_A_SET {
                0 => 0,
                1 => len - size,
                _ => rng.below(len - size + 1),
            };
            Part {
                set: number / parts,
                outputs: start..start + size,
                one_filter: left.one_filter,
            }
        };
        (0..left.sets * parts).map(part).collect()
    }
}

/// Makes all of a buffer poison: NaN in every storage.
///
/// # Errors
/// What a launch answers.
pub fn poison(memory: &mut Buffer<u8>, stream: &Stream) -> convforge::Result<()> {
    crate::fence::fill(memory, POISON, stream)
}

/// Where a buffer that was [poisoned](poison) is not as launches should leave it, in words: an output
/// that is still NaN, or a gap that was written to. Waits for the stream.
///
/// # Errors
/// [`Error::WrongDevice`](convforge::Error::WrongDevice) for a stream of another device than the
/// memory's; what a launch answers.
///
/// # Panics
/// Where the sets do not fit in the memory, or begin within an element.
pub fn find_poison(
    memory: &Buffer<u8>,
    sets: &Sets<'_>,
    stream: &Stream,
) -> convforge::Result<Option<String>> {
    let end = sets.end();
    assert!(end.is_some_and(|end| end <= memory.len()), "{sets:?}");
    let size = sets.problem.storage().bytes();
    assert!(sets.start.is_multiple_of(size), "{sets:?}");
    let (device, found) = (memory.device(), stream.device());
    if device != found {
        return Err(convforge::Error::WrongDevice {
            what: "the stream",
            expected: device.to_string(),
            found: found.to_string(),
        });
    }
    let len = sets.problem.y_len();
    stream.synchronize()?;
    let found = first_strange(memory, sets, stream)?;
    Ok(found.map(|element| {
        let (set, at) = (element / sets.stride, element % sets.stride);
        match at < len {
            true => format!("the timed launches left NaN in output {at} of set {set}, or nothing"),
            false => format!(
                "the timed launches wrote behind set {set}, {} elements past its end",
                at - len
            ),
        }
    }))
}

/// The first output that is NaN, or element of a gap that is not poison.
fn first_strange(
    memory: &Buffer<u8>,
    sets: &Sets<'_>,
    stream: &Stream,
) -> convforge::Result<Option<usize>> {
    #[cfg(feature = "cuda")]
    if memory.device().is_gpu() {
        let first = memory.as_ptr().wrapping_byte_add(sets.start);
        // SAFETY: the caller has seen that the sets lie in the memory, whole elements of it, and that
        // it is of the stream's device.
        return unsafe { oracle::find_poison(first, sets, stream) };
    }
    let _ = stream;
    let all = &memory.as_slice().ok_or_else(elsewhere)?[sets.start..];
    let (len, storage) = (sets.problem.y_len(), sets.problem.storage());
    let size = storage.bytes();
    let strange = |element: &usize| match element % sets.stride < len {
        true => widen_one(storage, all, *element).is_nan(),
        false => all[element * size..][..size]
            .iter()
            .any(|byte| *byte != POISON),
    };
    let elements = (0..sets.count * sets.stride).into_par_iter();
    Ok(elements.by_exponential_blocks().find_first(strange))
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use convforge::Device;

    use super::*;

    /// Sizes whose products or sums are more than any number holds would pass for small ones.
    #[test]
    fn sets_that_the_memory_does_not_hold_are_refused() {
        let cpu = Device::cpu();
        let stream = cpu.stream().unwrap();
        let problem: Problem = "mb1ic1ih2oc1kh1+f16".parse().unwrap();
        let mut memory = cpu.alloc::<u8>(64).unwrap();
        poison(&mut memory, &stream).unwrap();
        let sets = |start, stride, count| Sets {
            problem: &problem,
            start,
            stride,
            count,
        };
        let found = |sets| {
            let find = || find_poison(&memory, &sets, &stream).unwrap();
            catch_unwind(AssertUnwindSafe(find))
        };
        let half = 1 << (usize::BITS - 1);
        for (what, sets) in [
            ("one element too many", sets(2, 8, 4)),
            ("a product that wraps", sets(0, half, 2)),
            ("bytes that wrap", sets(0, half, 1)),
            ("a sum that wraps", sets(usize::MAX - 1, 1, 1)),
            ("half an element", sets(1, 8, 2)),
        ] {
            assert!(found(sets).is_err(), "{what}");
        }
        let why = found(sets(0, 8, 4)).unwrap().unwrap();
        assert!(why.contains("output 0 of set 0"), "{why}");
    }
}
