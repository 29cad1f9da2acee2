//! The parts of a study.

use clap::ValueEnum;

/// A part of the study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// The layers of the reports, one by one
    Layers,
    /// The network
    Network,
    /// Batches split over streams
    Overlap,
    /// How far every variant is from f64, in fp32, tf32, f16 and bf16
    Errors,
}

impl Part {
    /// What takes its time and is compared by it.
    pub const DEFAULT: [Part; 3] = [Part::Layers, Part::Network, Part::Overlap];
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}
