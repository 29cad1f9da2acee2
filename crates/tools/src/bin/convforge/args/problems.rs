//! Which problems.

use std::{io, path::Path, str::FromStr};

use convforge::{Layout, Math, Problem, Storage};
use convforge_tools::{
    Error, chain,
    suite::{Layer, Overrides, Suite, read_layers},
};

use crate::{failure::Failure, model::ModelArgs, numbers::number, shape::ShapeArgs, terminal};

#[derive(clap::Args)]
pub struct ProblemArgs {
    /// A problem in its text form, as in mb64ic64ih56oc64oh56kh3ph1+f16+nhwc, or - for problems from
    /// standard input, one per line, a name before it if it has one, # for remarks; may be repeated
    #[arg(long, value_name = "PROBLEM")]
    problem: Vec<Source>,
    /// A suite of problems by its name, or a file with lines as those of --problem -; nets-depthwise,
    /// nets-grouped and nets-dense are those of real networks; may be repeated
    #[arg(long, value_name = "SUITE", value_parser = suite)]
    suite: Vec<Suite>,
    #[command(flatten)]
    model: ModelArgs,
    /// Replace the storage of every problem: f32, f16 or bf16
    #[arg(long)]
    storage: Option<Storage>,
    /// Replace the layout of every problem: nchw or nhwc
    #[arg(long)]
    layout: Option<Layout>,
    /// Replace the math of every problem: fp32, tf32, f16, bf16 or f16acc
    #[arg(long)]
    math: Option<Math>,
    /// Replace the number of images of every problem; a model whose own is not fixed needs it
    #[arg(long, value_name = "IMAGES", value_parser = number::<usize>, allow_negative_numbers = true)]
    batch: Option<usize>,
    #[command(flatten)]
    shape: ShapeArgs,
}

/// Where problems come from.
#[derive(Clone, Debug)]
enum Source {
    One(Box<Problem>),
    /// Standard input, all of it.
    Lines,
}

impl FromStr for Source {
    type Err = convforge::Error;

    fn from_str(text: &str) -> Result<Self, convforge::Error> {
        match text {
            "-" => Ok(Source::Lines),
            text => Ok(Source::One(Box::new(text.parse()?))),
        }
    }
}

impl Source {
    fn layers(&self) -> Result<Vec<Layer>, Failure> {
        match self {
            Source::One(problem) => Ok(vec![Layer::alone(Problem::clone(problem))]),
            Source::Lines => {
                let place = Path::new("standard input");
                let text = io::read_to_string(io::stdin());
                let text = text.map_err(|why| Error::file_because(place, "cannot be read", why))?;
                Ok(read_layers(place, "", &text)?)
            }
        }
    }
}

fn suite(name: &str) -> Result<Suite, String> {
    Suite::open(name).map_err(|error| chain(&error))
}

impl ProblemArgs {
    /// Whether neither a problem nor a suite nor a model was named.
    pub fn is_empty(&self) -> bool {
        let named = self.problem.is_empty() && self.suite.is_empty();
        named && self.model.is_empty() && self.shape.is_empty()
    }

    /// The problems that were named.
    pub fn layers(&self) -> Result<Vec<Layer>, Failure> {
        let mut layers = Vec::new();
        for source in &self.problem {
            layers.extend(source.layers()?);
        }
        if let Some(problem) = self.shape.problem()? {
            terminal::remark(&format!("The problem of these sizes is {problem}."), false)?;
            layers.push(Layer::alone(problem));
        }
        layers.extend(self.suite.iter().flat_map(|suite| suite.layers.clone()));
        layers.extend(self.model.layers(self.batch)?);
        if layers.is_empty() && self.overrides() != Overrides::default() {
            return Err(Failure::Usage(
                "--storage, --layout, --math and --batch change problems that are named: name some with \
                 --problem, --suite or --model"
                    .to_owned(),
            ));
        }
        self.adapt(&layers)
    }

    /// Other problems with the words that were asked for.
    pub fn adapt(&self, layers: &[Layer]) -> Result<Vec<Layer>, Failure> {
        Ok(self.overrides().apply(layers)?)
    }

    fn overrides(&self) -> Overrides {
        Overrides {
            storage: self.storage,
            layout: self.layout,
            math: self.math,
            batch: self.batch,
        }
    }
}
