//! Who takes part in a comparison.

use convforge::{
    Conv, Device, Limits, Pick, Problem, Result,
    variant::{Arithmetic, Configured, Kind},
};

/// What cuDNN's fastest plan is called where that is a transform.
pub(crate) const TRANSFORM: &str = "cudnn_transform";

/// Who takes part.
#[derive(Clone)]
pub enum Contender {
    /// A variant with one of its configurations.
    Variant(Configured),
    /// Whatever this pick chooses of the library's variants for the problem.
    Pick(Pick),
}

impl Contender {
    /// `fused_shared:tile=24`, or `policy:per-layer`.
    pub fn name(&self) -> String {
        match self {
            Contender::Variant(configured) => configured.name(),
            Contender::Pick(pick) => pick.to_string(),
        }
    }

    /// The name without a configuration.
    pub fn variant(&self) -> String {
        match self {
            Contender::Variant(configured) => configured.info().name.clone(),
            Contender::Pick(pick) => pick.to_string(),
        }
    }

    /// The configuration.
    pub fn config(&self) -> Option<String> {
        match self {
            Contender::Variant(configured) => {
                let configs = &configured.info().configs;
                configs.get(configured.config).cloned()
            }
            Contender::Pick(_) => None,
        }
    }

    /// Whether it is a variant in its first configuration.
    pub(crate) fn is_first(&self) -> bool {
        matches!(self, Contender::Variant(configured) if configured.config == 0)
    }

    /// Whether it chooses for each problem.
    pub fn is_pick(&self) -> bool {
        matches!(self, Contender::Pick(_))
    }

    /// Whether it is of this project, neither a library's nor a pick.
    pub(crate) fn is_own(&self) -> bool {
        match self {
            Contender::Variant(configured) => configured.info().kind != Kind::Baseline,
            Contender::Pick(_) => false,
        }
    }

    /// Whether it may try cuDNN's plans.
    pub(crate) fn searches(&self) -> bool {
        match self {
            Contender::Variant(configured) => configured.info().family == "cudnn",
            Contender::Pick(_) => true,
        }
    }

    /// How the variant comes to its sums. What a pick chooses is exact: no rule picks a transform.
    pub(crate) fn arithmetic(&self) -> Arithmetic {
        match self {
            Contender::Variant(configured) => configured.info().arithmetic,
            Contender::Pick(_) => Arithmetic::Exact,
        }
    }

    /// Hash of what the variant is made of; of a pick that is seen when it has chosen.
    pub(crate) fn source(&self) -> Option<String> {
        match self {
            Contender::Variant(configured) => configured.info().hash.clone(),
            Contender::Pick(_) => None,
        }
    }

    /// The convolution that it stands for. Where that is cuDNN's, it is searched now.
    ///
    /// # Errors
    /// As [`Conv::with_variant`] and [`Conv::new`].
    pub fn conv(&self, device: &Device, problem: &Problem) -> Result<Conv> {
        match self {
            Contender::Variant(configured) => {
                Conv::with_variant(device, problem, configured.clone())
            }
            Contender::Pick(pick) => Conv::new(device, problem, pick),
        }
    }

    /// Whether it can do a problem, by numbers alone.
    pub fn can(&self, limits: &Limits, problem: &Problem) -> bool {
        match self {
            Contender::Variant(configured) => configured.plan(limits, problem).is_ok(),
            Contender::Pick(pick) => pick.choose_for(limits, problem).is_ok(),
        }
    }

    /// The variant with its configuration, or the one that a pick chooses.
    pub(crate) fn chosen(&self, limits: &Limits, problem: &Problem) -> Option<Configured> {
        match self {
            Contender::Variant(configured) => Some(configured.clone()),
            Contender::Pick(pick) => Some(pick.choose_for(limits, problem).ok()?.configured),
        }
    }

    /// Microseconds that the variant itself expects to take, or the one that a pick chooses.
    pub(crate) fn estimate_us(&self, limits: &Limits, problem: &Problem) -> Option<f64> {
        let chosen = self.chosen(limits, problem)?;
        chosen.plan(limits, problem).ok()?.us
    }
}

impl<V: Into<Configured>> From<V> for Contender {
    fn from(variant: V) -> Self {
        Contender::Variant(variant.into())
    }
}
