//! What comparing an output with the oracle comes to.

use convforge::{Problem, RawOperands, Stream, variant::Arithmetic};

#[cfg(feature = "cuda")]
use crate::oracle;
use crate::{
    Answers, Bounds, Data, Deviation, Expected, Measured, Options, Recipe, Reference, Verdict,
    fence::Fenced,
    judge::judge,
    outcome::{Trouble, wrong},
    position,
    recipe::widen,
    stored::{as_stored, rounds},
};

/// An output to be judged.
pub(crate) struct Judged<'a> {
    pub(crate) problem: &'a Problem,
    pub(crate) data: Data,
    /// What the variant declares, which chooses the rule.
    pub(crate) arithmetic: Arithmetic,
    pub(crate) recipe: &'a Recipe,
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    pub(crate) answers: &'a Answers,
    /// What the variant was given, for the GPU's oracle.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    pub(crate) operands: RawOperands,
    pub(crate) y: &'a Fenced,
    pub(crate) stream: &'a Stream,
    pub(crate) options: &'a Options,
}

impl Judged<'_> {
    /// How right the output is, or that it is wrong.
    pub(crate) fn measure(&self) -> Result<Measured, Trouble> {
        let bounds = self.bounds(self.problem);
        let verdict = self.verdict(self.problem, &bounds)?;
        if let Some(first) = verdict.first_bad {
            return wrong(self.first_wrong(&bounds, &verdict, first as usize)?);
        }
        // Nothing is learned from zeros that agree.
        if verdict.counted >= 64 && verdict.nonzero * 8 < verdict.counted {
            return wrong(format!(
                "only {} of {} outputs should be other than zero; such a comparison proves little",
                verdict.nonzero, verdict.counted
            ));
        }
        let rms_limit = match bounds.exact {
            true => 0.0,
            false => bounds.rms_limit(&verdict),
        };
        // Not `>`: a NaN must fail.
        let within = verdict.rms() <= rms_limit;
        if !bounds.exact && !within {
            return wrong(format!(
                "the error is {:.3e} rms, where {rms_limit:.3e} is allowed (a sequential fp32 loop \
                 has {:.3e}); no single output is far off",
                verdict.rms(),
                verdict.rms_sequential()
            ));
        }
        let stored = match self.options.stored {
            true => Some(self.deviation(&verdict)?),
            false => None,
        };
        Ok(Measured {
            data: self.data,
            verdict,
            rms_limit,
            stored,
        })
    }

    fn bounds(&self, problem: &Problem) -> Bounds {
        Bounds::new(problem, self.data, self.arithmetic)
    }

    /// Compares with the oracle of `problem`.
    fn verdict(&self, problem: &Problem, bounds: &Bounds) -> Result<Verdict, Trouble> {
        #[cfg(feature = "cuda")]
        if oracle::judges(problem, self.stream, self.options) {
            let mut operands = self.operands;
            operands.y = self.y.as_ptr().cast_mut();
            let question = (problem.clone(), self.data, self.recipe.seed());
            // SAFETY: the operands are those that the variant was given, on this device, as the recipe
            // made them. The output is only read.
            let verdict = unsafe {
                self.answers
                    .judge(question, &operands, bounds, self.stream)?
            };
            return Ok(verdict);
        }
        // The operands and the output, and the output as it is stored.
        let y_bytes = self.problem.y_len() * 8;
        Recipe::has_room(self.recipe.widened_bytes() + y_bytes)?;
        let tensors = self.recipe.tensors();
        let y = self.y.read(self.stream)?;
        Ok(judge(&Reference::new(problem, &tensors)?, &y, bounds)?)
    }

    /// What an output should be.
    fn expected(&self, index: usize) -> Result<Option<Expected>, Trouble> {
        let problem = self.problem;
        #[cfg(feature = "cuda")]
        if oracle::judges(problem, self.stream, self.options) {
            // SAFETY: as in `verdict`.
            let expected =
                unsafe { oracle::expected_on_gpu(problem, &self.operands, index, 1, self.stream)? };
            return Ok(expected.first().copied());
        }
        let tensors = self.recipe.tensors();
        Ok(Reference::new(problem, &tensors)?.output(index))
    }

    /// How far the output is from f64 of the operands as they are stored.
    fn deviation(&self, verdict: &Verdict) -> Result<Deviation, Trouble> {
        if !rounds(self.problem) {
            return Ok(Deviation::of(verdict));
        }
        let problem = as_stored(self.problem)?;
        let verdict = self.verdict(&problem, &self.bounds(&problem))?;
        Ok(Deviation::of(&verdict))
    }

    /// The first wrong output in words.
    fn first_wrong(
        &self,
        bounds: &Bounds,
        verdict: &Verdict,
        first: usize,
    ) -> Result<String, Trouble> {
        let problem = self.problem;
        let bytes = problem.storage().bytes();
        let y = self.y.read_part(first * bytes, bytes, self.stream)?;
        let y = widen(problem.storage(), &y);
        let right = self.expected(first)?;
        let all = problem.y_len();
        Ok(wrong_outputs(problem, bounds, verdict, all, y[0], right))
    }
}

/// In words that some of `all` outputs are wrong. The first of them is `y`, and should be `right`.
pub(crate) fn wrong_outputs(
    problem: &Problem,
    bounds: &Bounds,
    verdict: &Verdict,
    all: usize,
    y: f32,
    right: Option<Expected>,
) -> String {
    let right = match right {
        Some(Expected { value, .. }) if bounds.exact => format!("exactly {value:e}"),
        Some(Expected { value, mag, .. }) => {
            format!("within {:.3e} of {value:e}", bounds.allowed(value, mag))
        }
        None => "nothing".to_owned(),
    };
    let [n, k, p, q] = position(problem, verdict.first_bad.unwrap_or_default() as usize);
    format!(
        "{} of {all} outputs are wrong, {} of them NaN; the first at n {n}, k {k}, p {p}, q {q} is \
         {y:e} and should be {right}",
        verdict.bad, verdict.nan,
    )
}
