//! One HTML page of all results, which needs nothing beside itself: tables that can be sorted,
//! drawings, and what bounds each variant.
//!
//! Drawings are as wide as a phone and made by plotters, in colours that are variables of the page,
//! so that light and dark are a matter of its style alone. The page depends on the results and on
//! nothing else: the same files, in any order, make the same page.

mod bars;
mod bound;
mod errors;
mod gains;
mod gantt;
mod head;
mod html;
mod layers;
mod lines;
mod network;
mod profiles;
mod results;
mod roofline;
mod sheet;
mod steps;
mod streams;
mod sweeps;

#[cfg(test)]
mod tests;

use crate::{Result, results::Source};
use results::Results;

/// The page of these results, as HTML. A problem that was measured twice stands there with its later
/// run, and of studies each part is of the latest that has it.
///
/// # Errors
/// None that drawing into memory is known to have.
pub fn page(sources: &[Source]) -> Result<String> {
    let results = Results::of(sources);
    let sections = [
        steps::section(&results),
        layers::section(&results)?,
        network::section(&results)?,
        streams::section(&results)?,
        errors::section(&results)?,
        sweeps::section(&results)?,
        profiles::section(&results),
    ];
    let page = html::page(
        "Convolution kernels, measured",
        &head::head(&results),
        &sections,
    );
    Ok(page.into_string() + "\n")
}
