//! Which variants, in which of their configurations.

use std::sync::Arc;

use clap::ValueEnum;
use convforge::{
    Device, Pick,
    variant::{Configured, Variant},
};
use convforge_tools::{Contender, Contenders};

use super::SearchArgs;
use crate::failure::Failure;

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
                Contender::Variant(configured) => Ok(configured),
                Contender::Pick(pick) => Err(no_variant(&pick)),
            })
            .collect()
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
            Configs::All => usize::MAX,
            Configs::First => 1,
        };
        Configured::all_of(variant)
            .take(count)
            .map(Contender::Variant)
    }
}

/// That a pick stands where only a variant makes sense.
pub fn no_variant(pick: &Pick) -> Failure {
    Failure::Usage(format!(
        "`{pick}` is no variant; `convforge list --problem P` shows what it picks"
    ))
}
