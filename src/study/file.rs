//! The study's file.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{NetworkRow, OverlapRow};
use crate::{
    Error, Result,
    measure::{self, ClockLog, Environment, Row},
};

/// All that one study found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Study {
    /// Where and when.
    pub environment: Environment,
    /// The layers of the reports, variants side by side, as `compare` measures them.
    pub layers: Vec<Row>,
    /// The network, a row per variant and batch.
    pub network: Vec<NetworkRow>,
    /// Batches cut over streams.
    pub overlap: Vec<OverlapRow>,
    /// What the GPU ran at.
    pub clocks: Vec<ClockLog>,
    /// What was done otherwise than asked.
    pub notes: Vec<String>,
}

impl Study {
    /// A study without rows.
    pub fn new(environment: Environment) -> Self {
        Study {
            environment,
            layers: Vec::new(),
            network: Vec::new(),
            overlap: Vec::new(),
            clocks: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Reads a study.
    ///
    /// # Errors
    /// [`Error::File`] with what is wrong with it.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| Error::file(path, error))?;
        serde_json::from_str(&text)
            .map_err(|error| Error::file(path, format!("is no file of `study`: {error}")))
    }

    /// Writes the study so that the file is whole at any time.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn write(&self, path: &Path) -> Result<()> {
        // It consists of strings and numbers only.
        let text = serde_json::to_string_pretty(self).unwrap_or_default() + "\n";
        measure::write_whole(path, &text)
    }
}
