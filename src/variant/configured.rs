//! A variant in one of its configurations.

use std::{collections::HashSet, fmt, sync::Arc};

use super::{Info, Plan, Query, Variant};
use crate::{Limits, Problem, Result};

/// A variant in one of its configurations: what a convolution is made of, a comparison is between and a
/// test is for.
#[derive(Clone)]
pub struct Configured {
    /// The variant.
    pub variant: Arc<dyn Variant>,
    /// Index of its configuration; 0 where it has none.
    pub config: usize,
}

impl Configured {
    /// The variant in the configuration of this name, or in its first.
    ///
    /// # Errors
    /// As [`Info::config`].
    pub fn named(variant: Arc<dyn Variant>, config: Option<&str>) -> Result<Self> {
        let config = config.map(|config| variant.info().config(config));
        let config = config.transpose()?.unwrap_or_default();
        Ok(Configured { variant, config })
    }

    /// The variant in each of its configurations.
    pub fn all_of(variant: &Arc<dyn Variant>) -> impl Iterator<Item = Self> {
        let count = variant.info().configs.len().max(1);
        (0..count).map(|config| Configured {
            variant: variant.clone(),
            config,
        })
    }

    /// The variant in the configurations that can do a problem, each with its plan. Left out is what is a plan that
    /// stands there already: where the first configuration is the best of all, and others are the next ones by their
    /// numbers, one of another name that tells the same of itself as one of these.
    pub fn plans_of(
        variant: &Arc<dyn Variant>,
        limits: &Limits,
        problem: &Problem,
    ) -> Vec<(Self, Plan)> {
        let able = |configured: Self| {
            let plan = configured.plan(limits, problem).ok()?;
            Some((configured, plan))
        };
        let mut plans: Vec<(Self, Plan)> = Self::all_of(variant).filter_map(able).collect();
        if !variant.info().first_is_best() {
            return plans;
        }
        let is_place = |one: &Self| one.config == 0 || variant.info().is_numbered(one.config);
        let told = |plan: &Plan| (plan.us.map(f64::to_bits), plan.note.clone());
        let places = plans.iter().filter(|(one, _)| is_place(one));
        let mut known: HashSet<_> = places.map(|(_, plan)| told(plan)).collect();
        plans.retain(|(one, plan)| is_place(one) || known.insert(told(plan)));
        plans
    }

    /// What the variant says of itself.
    pub fn info(&self) -> &Info {
        self.variant.info()
    }

    /// `fused_shared:tile=24`.
    pub fn name(&self) -> String {
        self.info().spelled(self.config)
    }

    /// Plans a problem on a device of these limits, or says why not.
    ///
    /// # Errors
    /// The reason, as [`Variant::plan`]'s.
    pub fn plan(&self, limits: &Limits, problem: &Problem) -> Result<Plan, String> {
        let query = Query::new(problem, self.config, limits);
        super::plan(&*self.variant, limits.is_gpu(), &query)
    }
}

impl From<Arc<dyn Variant>> for Configured {
    /// In its first configuration.
    fn from(variant: Arc<dyn Variant>) -> Self {
        Configured { variant, config: 0 }
    }
}

impl<V: Variant> From<Arc<V>> for Configured {
    /// In its first configuration.
    fn from(variant: Arc<V>) -> Self {
        Configured { variant, config: 0 }
    }
}

impl fmt::Debug for Configured {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Configured({})", self.name())
    }
}
