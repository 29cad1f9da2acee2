//! A check on the spot: on whole numbers two variants must agree.
//!
//! The one beside it is the plainest that can do the problem: on the CPU the nested loops, the last of
//! the list; on a GPU the first kernel of the list, or for that one itself the next. On the CPU, where loops
//! take long, both compute fewer images.
//!
//! The plainest may be what is broken. So some of its outputs are computed here on the host, and where two
//! disagree, that output decides which of them is wrong. Who was wrong is not asked again.

use std::sync::Arc;

use super::operands::{Content, Operands};
use crate::{
    Activation, Conv, Device, Math, Problem, Result, Storage, Workspace,
    variant::{self, Query, Variant},
    variants,
};

/// Microseconds that the CPU's plain loops may be estimated to take.
const PLAIN_US: f64 = 500_000.0;
/// Outputs of the one beside it that are computed on the host in any case.
const SAMPLES: usize = 16;

/// What is wrong with a result, or why nobody knows.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    Right,
    Wrong(String),
    Unknown(String),
}

pub(super) struct Judge {
    device: Device,
    problem: Problem,
    content: Content,
    operands: Operands,
    /// Who may be compared with, the plainest first.
    beside: Vec<Arc<dyn Variant>>,
    /// What variants have given that others are compared with.
    references: Vec<(String, Vec<f32>)>,
}

impl Judge {
    pub(super) fn new(device: &Device, problem: &Problem) -> Result<Self> {
        let mut all = variants::all().to_vec();
        if !device.is_gpu() {
            all.reverse();
        }
        Judge::beside(device, problem, all)
    }

    /// Beside these, the plainest first.
    pub(super) fn beside(
        device: &Device,
        problem: &Problem,
        beside: Vec<Arc<dyn Variant>>,
    ) -> Result<Self> {
        let problem = affordable(device, problem);
        Ok(Judge {
            content: Content::of(&problem),
            operands: Operands::new(device, &problem, 1)?,
            device: device.clone(),
            problem,
            beside,
            references: Vec::new(),
        })
    }

    /// What is judged on: the problem, or the same with fewer images.
    pub(super) fn problem(&self) -> &Problem {
        &self.problem
    }

    /// What a convolution of [`problem`](Self::problem) gives, beside another variant.
    pub(super) fn judge(&mut self, conv: &Conv) -> Result<Verdict> {
        let name = &conv.variant().info().name;
        let found = self.output(conv)?;
        let bound = Bound::of(&self.problem, &self.content);
        while let Some(beside) = self.reference(name) {
            let (beside, expected) = &self.references[beside];
            let mut pairs = found.iter().zip(expected);
            let Some(i) = pairs.position(|(y, t)| !bound.holds(*y, *t)) else {
                return Ok(Verdict::Right);
            };
            let truth = self.content.output(&self.problem, i);
            if !bound.holds(found[i], truth) {
                return Ok(Verdict::Wrong(format!(
                    "output {i} of {} is {}, by {beside} {}, by a sum on the host {truth}",
                    self.problem, found[i], expected[i]
                )));
            }
            let wrong = beside.clone();
            self.pass_over(&wrong);
        }
        Ok(Verdict::Unknown(format!(
            "no other variant on {} can do it",
            self.device
        )))
    }

    /// The place of a result of the plainest variant that is not this one.
    fn reference(&mut self, name: &str) -> Option<usize> {
        let other = |known: &(String, Vec<f32>)| known.0 != name;
        if let Some(known) = self.references.iter().position(other) {
            return Some(known);
        }
        self.add_reference(name);
        self.references.iter().position(other)
    }

    /// Finds one more variant that is right where that is looked at, and not this one.
    fn add_reference(&mut self, name: &str) {
        let bound = Bound::of(&self.problem, &self.content);
        for variant in self.beside.clone() {
            let beside = &variant.info().name;
            if beside == name || self.references.iter().any(|(known, _)| known == beside) {
                continue;
            }
            let conv = Conv::with_variant(&self.device, &self.problem, variant.clone());
            // Who cannot serve here is passed over.
            let Some(output) = conv.ok().and_then(|conv| self.output(&conv).ok()) else {
                continue;
            };
            let last = output.len().saturating_sub(1);
            let mut samples = (0..SAMPLES).map(|i| i * last / (SAMPLES - 1));
            let truth = |i| self.content.output(&self.problem, i);
            if output.is_empty() || samples.all(|i| bound.holds(output[i], truth(i))) {
                self.references.push((beside.clone(), output));
                return;
            }
            self.pass_over(beside);
        }
    }

    /// Compares nobody with this variant any more.
    fn pass_over(&mut self, name: &str) {
        self.beside.retain(|variant| variant.info().name != name);
        self.references.retain(|(known, _)| known != name);
    }

    fn output(&mut self, conv: &Conv) -> Result<Vec<f32>> {
        let stream = self.device.stream()?;
        let mut workspace = Workspace::new(&stream)?;
        workspace.reserve(conv, &stream)?;
        self.operands.poison(&stream)?;
        let mut raw = self.operands.raw()[0];
        // SAFETY: the filter has the problem's size, and the operands outlive the work, which is waited
        // for below.
        let packed = unsafe { conv.pack_raw(raw.w, &stream)? };
        let packed = packed.as_ref();
        raw.packed = packed.map_or(raw.packed, |packed| packed.as_ptr());
        // SAFETY: as above; output and workspace overlap nothing.
        unsafe { conv.run_raw(&raw, &mut workspace, &stream)? };
        self.operands.output(&stream)
    }
}

/// The problem, on the CPU with so few images that plain loops get through it.
pub(super) fn affordable(device: &Device, problem: &Problem) -> Problem {
    let limits = device.limits();
    if limits.is_gpu() {
        return problem.clone();
    }
    let us = |problem: &Problem| {
        let query = Query::new(problem, 0, &limits);
        let plans = variants::all().iter().rev();
        let mut plans = plans.filter_map(|v| variant::plan(&**v, false, &query).ok());
        plans.next().and_then(|plan| plan.us).unwrap_or_default()
    };
    let mut images = problem.n();
    loop {
        let Ok(fewer) = problem.with(|shape| shape.n = images) else {
            return problem.clone();
        };
        if images <= 1 || us(&fewer) <= PLAIN_US {
            return fewer;
        }
        images /= 2;
    }
}

/// How far two right results may be apart.
struct Bound {
    /// As a share of the value.
    share: f64,
    /// In any case.
    floor: f64,
}

impl Bound {
    /// Sums of whole numbers are exact, and so rounded by what follows only: the epilogue's arithmetic, an
    /// activation's approximation, and storing.
    fn of(problem: &Problem, content: &Content) -> Self {
        let epilogue = problem.epilogue();
        // Two units in the last place.
        let stored = match problem.storage() {
            Storage::F32 => 2f64.powi(-22),
            Storage::F16 => 2f64.powi(-10),
            Storage::Bf16 => 2f64.powi(-7),
        };
        let arithmetic = match problem.math() {
            Math::F16Acc => 2f64.powi(-9),
            _ => 2f64.powi(-20),
        };
        let exponential = if epilogue.activation.is_exponential() {
            2f64.powi(-18)
        } else {
            0.0
        };
        let slope = match epilogue.activation {
            Activation::Sigmoid => 0.25,
            _ => 1.0,
        };
        Bound {
            share: stored + exponential,
            floor: slope * arithmetic * content.largest + exponential,
        }
    }

    fn holds(&self, y: f32, t: f32) -> bool {
        let (y, t) = (f64::from(y), f64::from(t));
        // Infinite where what is stored has no larger number; of NaN neither holds.
        y == t || (y - t).abs() <= self.share * t.abs() + self.floor
    }
}
