//! Options that several subcommands share.

#[cfg(feature = "cudnn")]
use std::time::Duration;
use std::{io, path::Path, str::FromStr, sync::Arc};

use clap::ValueEnum;
use convforge::{Device, Layout, Math, Pick, Problem, Storage, variant::Variant};
#[cfg(feature = "cudnn")]
use convforge_tools::cudnn::Searches;
use convforge_tools::{
    Contender, Contenders, Error, chain,
    suite::{Layer, Overrides, Suite, read_layers},
};

#[cfg(feature = "cudnn")]
use crate::numbers::seconds;
use crate::{failure::Failure, model::ModelArgs, numbers::number, shape::ShapeArgs, terminal};

/// `cpu`, `gpu` or `gpu:1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceName {
    Cpu,
    Gpu(usize),
}

impl FromStr for DeviceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let ordinal = match text {
            "cpu" => return Ok(DeviceName::Cpu),
            "gpu" => Some(0),
            _ => text
                .strip_prefix("gpu:")
                .and_then(|number| number.parse().ok()),
        };
        ordinal
            .map(DeviceName::Gpu)
            .ok_or("a device is `cpu`, `gpu` or `gpu:1`".to_owned())
    }
}

#[derive(clap::Args)]
pub struct DeviceArgs {
    /// Where to run: cpu, gpu, or gpu:1 for the second GPU [default: the first GPU; the CPU where
    /// there is none]
    #[arg(long, value_name = "DEVICE")]
    device: Option<DeviceName>,
}

impl DeviceArgs {
    /// The device, and why it is not a GPU where none was found.
    pub fn open(&self) -> Result<(Device, Option<convforge::Error>), Failure> {
        let opened = match self.device {
            Some(DeviceName::Cpu) => (Device::cpu(), None),
            Some(DeviceName::Gpu(ordinal)) => (Device::gpu(ordinal)?, None),
            None => Device::best(),
        };
        #[cfg(feature = "cuda")]
        if let Some(note) = translated(opened.0.limits().arch) {
            eprintln!("note: {note}");
        }
        Ok(opened)
    }
}

/// What to know of kernels that the driver translates where a build could have had machine code.
#[cfg(feature = "cuda")]
fn translated(arch: u32) -> Option<&'static str> {
    (arch == 90 && convforge::kernels::are_translated(arch)).then_some(
        "this build has no machine code for sm_90: the driver translates kernels when they are first \
         used, which takes seconds each; build again with CONVFORGE_ARCHS=90a (Cargo does not by itself \
         where a GPU has come)",
    )
}

/// The i-th of n shares, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    index: usize,
    count: usize,
}

impl Shard {
    /// Whether there is no other.
    pub fn is_all(self) -> bool {
        self.count == 1
    }

    /// Its share of all.
    pub fn of<T>(self, all: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
        all.into_iter().skip(self.index - 1).step_by(self.count)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text
            .split_once('/')
            .and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        match parts {
            Some((index, count)) if (1..=count).contains(&index) => Ok(Shard { index, count }),
            _ => Err("a shard is the i-th of n, from 1/n to n/n".to_owned()),
        }
    }
}

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

/// Which configurations of a variant that was named without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Configs {
    /// Every one
    All,
    /// The default one
    First,
}

/// How cuDNN's plans are searched, in a build that has it.
#[derive(clap::Args)]
pub struct SearchArgs {
    /// Time for building cuDNN's plans, and again for running them for the first time, for each
    /// problem; a search that it cuts short has no `vs cuDNN` [default: as long as it takes]
    #[cfg(feature = "cudnn")]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    cudnn_seconds: Option<Duration>,
    /// Most bytes of workspace that a plan of cuDNN's may ask for [default: any number]
    #[cfg(feature = "cudnn")]
    #[arg(long, value_name = "BYTES", value_parser = number::<usize>, allow_negative_numbers = true)]
    cudnn_workspace: Option<usize>,
    /// What to do with a complete search in the folder that CONVFORGE_CUDNN_PLANS names, or in the file
    /// of --cudnn-known [default: trusted; finalists with --cudnn-known]
    #[cfg(feature = "cudnn")]
    #[arg(long, value_enum)]
    cudnn_stored: Option<StoredSearch>,
    /// A file of complete searches that `convforge searches` made, for problems that the folder does not
    /// have
    #[cfg(feature = "cudnn")]
    #[arg(long, value_name = "FILE", value_parser = searches)]
    cudnn_known: Option<Searches>,
}

#[cfg(feature = "cudnn")]
fn searches(file: &str) -> Result<Searches, String> {
    Searches::read(Path::new(file)).map_err(|error| chain(&error))
}

/// What to do with a search that an earlier process kept.
#[cfg(feature = "cudnn")]
#[derive(Clone, Copy, Debug, ValueEnum)]
enum StoredSearch {
    /// Use its winners
    Trusted,
    /// Time and judge its finalists again, and all plans where that does not confirm it
    Finalists,
    /// Time every plan again that is not known to be far from the fastest
    Again,
}

impl SearchArgs {
    /// Everyone whom a command may name.
    #[cfg(feature = "cudnn")]
    pub fn contenders(&self) -> Contenders {
        use convforge_tools::cudnn::{Options, Stored};
        let mut options = Options {
            known: self.cudnn_known.clone().unwrap_or_default(),
            ..Options::default()
        };
        let search = &mut options.search;
        search.budget = self.cudnn_seconds.or(search.budget);
        search.workspace_cap = self.cudnn_workspace.unwrap_or(search.workspace_cap);
        search.stop = Some(terminal::stop());
        options.stored = match (self.cudnn_stored, &self.cudnn_known) {
            (Some(StoredSearch::Trusted), _) | (None, None) => Stored::Trusted,
            // What another machine found is measured on this one.
            (Some(StoredSearch::Finalists), _) | (None, Some(_)) => Stored::Finalists,
            (Some(StoredSearch::Again), _) => Stored::Again,
        };
        Contenders::searching(&options)
    }

    /// Everyone whom a command may name.
    #[cfg(not(feature = "cudnn"))]
    pub fn contenders(&self) -> Contenders {
        Contenders::new()
    }
}

#[derive(clap::Args)]
pub struct VariantArgs {
    /// A variant, one configuration of it as in fused_shared:tile=24, or in `compare` and `study` a
    /// pick that chooses for each problem: auto, rule, kernels, policy:per-layer; may be repeated [default:
    /// every variant of the device]
    #[arg(long, value_name = "VARIANT")]
    variant: Vec<Pick>,
    /// One more beside those that take part by default; may be repeated
    #[arg(long, value_name = "VARIANT", conflicts_with = "variant")]
    also: Vec<Pick>,
    /// Which configurations of a variant that has several
    #[arg(long, value_enum)]
    configs: Option<Configs>,
    #[command(flatten)]
    search: SearchArgs,
}

/// A variant and the index of its configuration.
pub type Configured = (Arc<dyn Variant>, usize);

impl VariantArgs {
    /// Whether no variant was named.
    pub fn is_empty(&self) -> bool {
        self.variant.is_empty()
    }

    /// Everyone who could be named.
    pub fn all(&self) -> Contenders {
        self.search.contenders()
    }

    /// What was named of `all`, or all variants of the device's kind.
    fn contenders(
        &self,
        all: &Contenders,
        gpu: bool,
        default: Configs,
    ) -> Result<Vec<Contender>, Failure> {
        let configs = self.configs.unwrap_or(default);
        if self.variant.is_empty() {
            let fitting = all.on(gpu);
            let mut contenders: Vec<_> = fitting.flat_map(|variant| configs.of(variant)).collect();
            contenders.extend(configs.named(all, &self.also)?);
            return Ok(contenders);
        }
        configs.named(all, &self.variant)
    }

    /// Who is compared, in their first configurations: whoever stands beside cuDNN stands beside its
    /// transforms too.
    pub fn compared(&self, all: &Contenders, gpu: bool) -> Result<Vec<Contender>, Failure> {
        let contenders = self.contenders(all, gpu, Configs::First)?;
        Ok(all.with_transforms(contenders))
    }

    /// The variants that were named, or all of the device's kind.
    pub fn variants(&self, device: &Device, default: Configs) -> Result<Vec<Configured>, Failure> {
        let contenders = self
            .contenders(&self.all(), device.is_gpu(), default)?
            .into_iter();
        contenders
            .map(|contender| match contender {
                Contender::Variant { variant, config } => Ok((variant, config)),
                Contender::Pick(pick) => Err(no_variant(&pick)),
            })
            .collect()
    }
}

impl Configs {
    /// What was named.
    pub fn named(self, all: &Contenders, picks: &[Pick]) -> Result<Vec<Contender>, Failure> {
        let mut contenders = Vec::new();
        for pick in picks {
            match pick {
                Pick::Named {
                    variant,
                    config: None,
                } => contenders.extend(self.of(&all.find(variant)?)),
                pick => contenders.push(all.named(pick)?),
            }
        }
        Ok(contenders)
    }

    /// The variant with each of these configurations.
    pub fn of(self, variant: &Arc<dyn Variant>) -> impl Iterator<Item = Contender> {
        let count = match self {
            Configs::All => variant.info().configs.len().max(1),
            Configs::First => 1,
        };
        (0..count).map(|config| Contender::Variant {
            variant: variant.clone(),
            config,
        })
    }
}

/// That a pick stands where only a variant makes sense.
pub fn no_variant(pick: &Pick) -> Failure {
    Failure::Usage(format!(
        "`{pick}` is no variant; `convforge list --problem P` shows what it picks"
    ))
}

#[cfg(all(test, feature = "cuda"))]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_of_what_another_build_has() {
        let ptx_alone = convforge::kernels::are_translated(90);
        assert_eq!(translated(90).is_some(), ptx_alone);
        // The CPU; machine code or nothing; PTX in every build
        for arch in [0, 80, 100] {
            assert_eq!(translated(arch), None, "{arch}");
        }
    }
}
