//! `convforge list --estimates`: what the rule goes by, for programs.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use convforge::{
    Limits, Problem,
    variant::{self, Query, Space, Variant},
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
    /// Whether the rule may take it.
    ranked: bool,
}

impl<'a> Estimate<'a> {
    /// None where it cannot do the problem.
    fn of(
        variant: &dyn Variant,
        config: usize,
        limits: &Limits,
        problem: &'a Problem,
    ) -> Option<Self> {
        let query = Query::new(problem, config, limits);
        let plan = variant::plan(variant, limits.is_gpu(), &query).ok()?;
        let in_constant_memory = plan
            .packing
            .is_some_and(|packing| packing.space == Space::Constant);
        let info = variant.info();
        Some(Estimate {
            problem,
            name: info.spelled(config),
            us: plan.us,
            ranked: info.ranked && !in_constant_memory,
        })
    }
}

/// A line for each configuration of each variant of the library that can do a layer.
pub fn print(layers: &[Layer], limits: &Limits) -> Result<ExitCode, Failure> {
    let mut out = io::stdout().lock();
    for Layer { problem, .. } in layers {
        for variant in variants::all() {
            let configs = 0..variant.info().configs.len().max(1);
            let all =
                configs.filter_map(|config| Estimate::of(&**variant, config, limits, problem));
            for estimate in all {
                serde_json::to_writer(&mut out, &estimate)?;
                writeln!(out)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
