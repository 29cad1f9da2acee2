//! The convolutions of ONNX models, beside suites.

use std::path::PathBuf;

use convforge_tools::{
    model::{Asked, Model},
    suite::Layer,
};

use crate::{failure::Failure, terminal};

/// Where the flags stand in the help.
const HEADING: &str = "The convolutions of a model, beside --suite";

#[derive(clap::Args)]
pub struct ModelArgs {
    /// An ONNX file: its Conv nodes, equal ones once; may be repeated
    #[arg(help_heading = HEADING, long, value_name = "FILE.onnx")]
    model: Vec<PathBuf>,
    /// A size of the model's inputs that has only a name there, as in height=224; may be repeated
    #[arg(help_heading = HEADING, long, value_name = "NAME=SIZE", value_parser = size)]
    #[arg(requires = "model")]
    dim: Vec<(String, usize)>,
    /// Take what follows a convolution into its epilogue: a batch normalisation as a bias, an addition of a
    /// tensor of the same shape, ReLU, ReLU6, tanh, sigmoid, SiLU
    #[arg(help_heading = HEADING, long, requires = "model")]
    fuse: bool,
    /// Leave out Conv nodes whose shapes are not known, or that have three dimensions
    #[arg(help_heading = HEADING, long, requires = "model")]
    skip_unknown: bool,
}

/// What --dim takes.
fn size(text: &str) -> Result<(String, usize), String> {
    let parts = text.rsplit_once('=');
    let parts = parts.and_then(|(name, size)| Some((name.to_owned(), size.parse().ok()?)));
    let parts = parts.filter(|(name, size)| !name.is_empty() && *size > 0);
    parts.ok_or_else(|| "a name and its size, as in height=224".to_owned())
}

impl ModelArgs {
    /// Whether no model was named.
    pub fn is_empty(&self) -> bool {
        self.model.is_empty()
    }

    /// The layers of all models; what was left out of them is said.
    pub fn layers(&self, batch: Option<usize>) -> Result<Vec<Layer>, Failure> {
        let asked = Asked {
            batch,
            sizes: self.dim.clone(),
            fuse: self.fuse,
            skip_unknown: self.skip_unknown,
        };
        let mut models: Vec<Model> = Vec::new();
        for path in &self.model {
            let model = Model::open(path, &asked)?;
            if models.iter().any(|other| other.name == model.name) {
                return Err(Failure::Usage(format!(
                    "two of the models are called {}, and would not be told apart",
                    model.name
                )));
            }
            for note in &model.notes {
                terminal::remark(note, false)?;
            }
            models.push(model);
        }
        Ok(models.into_iter().flat_map(|model| model.layers).collect())
    }
}
