//! How well images were classified.

use std::io::{self, Write};

use convforge::Device;
use convforge_tools::{
    measure::Environment,
    net::{Outcome, npy::Array2},
};
use serde::Serialize;

use super::args::Args;
use crate::{data::Data, failure::Failure};

/// What was classified and how well.
#[derive(Serialize)]
pub struct Classified {
    pub environment: Environment,
    pub device: String,
    pub synthetic: bool,
    pub count: usize,
    pub math: String,
    pub correct: usize,
    pub accuracy: f64,
    pub max_logit_deviation: Option<f64>,
}

impl Classified {
    /// Judges the logits, and writes them where that was asked.
    pub fn new(
        args: &Args,
        device: &Device,
        data: &Data,
        outcome: &Outcome,
        options: &[&str],
    ) -> Result<Self, Failure> {
        if let Some(path) = &args.logits {
            let array = Array2 {
                rows: outcome.logits.len() / 10,
                cols: 10,
                data: outcome.logits.clone(),
            };
            array.write(path)?;
        }
        let classes = outcome.classes();
        let pairs = classes.iter().zip(&data.labels.values);
        let correct = pairs.filter(|(class, label)| class == label).count();
        let options = options.iter().map(|word| (*word).to_owned()).collect();
        let deviation = |expected: &Array2| outcome.deviation(&expected.data);
        Ok(Classified {
            environment: Environment::of(device, options),
            device: device.to_string(),
            synthetic: data.synthetic,
            count: data.images.count,
            math: args.math.to_string(),
            correct,
            accuracy: correct as f64 / data.images.count as f64,
            max_logit_deviation: data.expected.as_ref().map(deviation).transpose()?,
        })
    }

    pub fn print(&self, out: &mut impl Write) -> io::Result<()> {
        if let Some(deviation) = self.max_logit_deviation {
            writeln!(
                out,
                "largest deviation from the expected logits: {deviation:.1e} of the row's largest"
            )?;
        }
        let meaning = if self.synthetic {
            " (synthetic: it means nothing)"
        } else {
            ""
        };
        writeln!(
            out,
            "accuracy: {} of {} = {:.4}{meaning}",
            self.correct, self.count, self.accuracy
        )
    }
}
