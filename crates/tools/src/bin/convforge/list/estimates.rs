//! `convforge list --estimates`: what the rule goes by, for programs.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use convforge::{
    Limits, Problem,
    variant::{Configured, Space},
    variants,
};
use convforge_tools::suite::Layer;
use serde::Serialize;

use crate::failure::Failure;

/// What a variant in one of its configurations says of its time.
#[derive(Serialize)]
struct Estimate<'a> {
    problem: &'a Problem,
    /// `fused_shared:tile=24`.
    name: String,
    /// Microseconds; none for no opinion.
    us: Option<f64>,
    /// The same as a rule counts it.
    counted: Option<f64>,
    /// Whether the rule may take it.
    ranked: bool,
    /// What the plan is made of, where that is chosen.
    plan: Option<String>,
}

impl<'a> Estimate<'a> {
    /// None where it cannot do the problem.
    fn of(configured: &Configured, limits: &Limits, problem: &'a Problem) -> Option<Self> {
        let plan = configured.plan(limits, problem).ok()?;
        let in_constant_memory = plan
            .packing
            .is_some_and(|packing| packing.space == Space::Constant);
        Some(Estimate {
            problem,
            name: configured.name(),
            us: plan.us,
            counted: plan.us.map(|us| us * configured.info().rule_factor()),
            ranked: configured.info().ranked && !in_constant_memory,
            plan: plan.note,
        })
    }
}

/// A line for each configuration of each variant of the library that can do a layer.
pub fn print(layers: &[Layer], limits: &Limits) -> Result<ExitCode, Failure> {
    let mut out = io::stdout().lock();
    for Layer { problem, .. } in layers {
        let all = variants::all().iter().flat_map(Configured::all_of);
        for estimate in all.filter_map(|one| Estimate::of(&one, limits, problem)) {
            serde_json::to_writer(&mut out, &estimate)?;
            writeln!(out)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
