//! What a variant says of itself.

use crate::{Error, Result};

/// Where a variant comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum Kind {
    /// A handwritten CUDA kernel.
    Kernel,
    /// A vendor's library.
    Baseline,
    /// Runs on the CPU.
    Cpu,
}

impl Kind {
    /// The word in lists and tables.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Kernel => "kernel",
            Kind::Baseline => "baseline",
            Kind::Cpu => "cpu",
        }
    }
}

/// How a variant comes to its sums, which decides what a check may ask of it on whole numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum Arithmetic {
    /// It adds up the products of the operands, in any order. Where every partial sum is exact the
    /// result is too, and must be right in every bit.
    #[default]
    Exact,
    /// It multiplies transforms of the operands (Winograd, FFT), which are rounded even where the
    /// operands are whole.
    Transform,
}

impl Arithmetic {
    /// The word in lists and tables.
    pub fn word(self) -> &'static str {
        match self {
            Arithmetic::Exact => "exact",
            Arithmetic::Transform => "transform",
        }
    }
}

/// What a variant says of itself.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Info {
    /// Its name in every list, file and flag: `family_file`.
    pub name: String,
    /// Variants of one family share an approach.
    pub family: String,
    /// The idea in one line.
    pub idea: String,
    /// The paper or report that it comes from.
    pub source: String,
    /// What comes out where a loop of sums would give something else: infinities, NaN, numbers near
    /// the largest. Nothing where nothing does.
    pub caveat: Option<String>,
    /// Where it comes from.
    pub kind: Kind,
    /// How it comes to its sums.
    pub arithmetic: Arithmetic,
    /// Least compute capability times ten.
    pub min_arch: u32,
    /// Greatest compute capability times ten.
    pub max_arch: u32,
    /// Its configurations, `tile=16`; the first is the default. Empty where there is nothing to set. A first
    /// one of `any`, `tile=any`, stands for the one of all that is estimated to be the fastest.
    pub configs: Vec<String>,
    /// Whether rules may choose it: it was checked on a GPU, and measurements back its estimates. Others
    /// run by name.
    pub ranked: bool,
    /// False where a problem is readied with a plan that nobody ran before, let alone checked: of cuDNN, whose
    /// heuristics name one.
    pub judged: bool,
    /// Hash of the files of csrc that it is made of, with all that they include: what a measurement of
    /// it depends on. None where it is made of none.
    pub hash: Option<String>,
}

impl Info {
    /// A variant of exact arithmetic, for any chip, without configurations, that rules may choose.
    pub fn new(name: &str, family: &str, idea: &str, source: &str, kind: Kind) -> Self {
        Info {
            name: name.to_owned(),
            family: family.to_owned(),
            idea: idea.to_owned(),
            source: source.to_owned(),
            caveat: None,
            kind,
            arithmetic: Arithmetic::Exact,
            min_arch: 0,
            max_arch: u32::MAX,
            configs: Vec::new(),
            ranked: true,
            judged: true,
            hash: None,
        }
    }

    /// How many times its estimate a rule counts. What nobody checked has to be estimated twice as fast as
    /// all others: docs/baselines.md has what that costs.
    pub fn rule_factor(&self) -> f64 {
        match self.judged {
            true => 1.0,
            false => 2.0,
        }
    }

    /// The name with its configuration: `fused_shared:tile=24`.
    pub fn spelled(&self, config: usize) -> String {
        match self.configs.get(config) {
            Some(config) => format!("{}:{config}", self.name),
            None => self.name.clone(),
        }
    }

    /// Whether its first configuration is the one of all that it estimates to be the fastest: `tiles=any`.
    pub(crate) fn first_is_best(&self) -> bool {
        let first = self.configs.first();
        first.is_some_and(|first| first.ends_with("=any"))
    }

    /// Whether a configuration is `plan=2`, a place by estimates: which plan that is depends on the problem, its
    /// number of images as well, and on the code.
    pub fn is_numbered(&self, config: usize) -> bool {
        let number = self
            .configs
            .get(config)
            .and_then(|name| name.strip_prefix("plan="));
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    }

    /// Refuses the index of a configuration that there is not; 0 is one even where there are none.
    pub(crate) fn check_config(&self, config: usize) -> Result<(), String> {
        let count = self.configs.len().max(1);
        match config < count {
            true => Ok(()),
            false => Err(format!(
                "has no configuration of index {config}; there are {count}"
            )),
        }
    }

    /// The index of a configuration.
    ///
    /// # Errors
    /// [`Error::UnknownConfig`] with those there are.
    pub fn config(&self, config: &str) -> Result<usize> {
        self.configs
            .iter()
            .position(|known| known == config)
            .ok_or_else(|| {
                let known = match &self.configs[..] {
                    [] => "none".to_owned(),
                    configs => configs.join(", "),
                };
                Error::UnknownConfig {
                    variant: self.name.clone(),
                    config: config.to_owned(),
                    known,
                }
            })
    }
}
