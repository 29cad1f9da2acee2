//! Which variant does a problem: named by the caller, or chosen by a rule.

use std::{fmt, str::FromStr, sync::Arc};

use crate::{
    Device, Error, Problem, Result,
    variant::{self, Query, Variant},
};

/// How the variant for a problem is found.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Pick {
    /// By estimated time among those that can do the problem; where none has an estimate, the
    /// first that can, in the order of [`variant::all`], the CPU's fast one before its plain one.
    #[default]
    Rule,
    /// This variant, with this configuration or its first one.
    Named {
        /// Name of the variant.
        variant: String,
        /// One of its configurations.
        config: Option<String>,
    },
}

impl Pick {
    /// The variant and the index of its configuration.
    ///
    /// # Errors
    /// [`Error::UnknownVariant`], [`Error::UnknownConfig`], or [`Error::NoVariant`] with every
    /// variant's reason.
    pub fn choose(&self, device: &Device, problem: &Problem) -> Result<(Arc<dyn Variant>, usize)> {
        match self {
            Pick::Named { variant, config } => {
                let variant = variant::find(variant)?;
                let index = match config {
                    Some(config) => variant.info().config(config)?,
                    None => 0,
                };
                Ok((variant, index))
            }
            Pick::Rule => by_rule(device, problem),
        }
    }
}

fn by_rule(device: &Device, problem: &Problem) -> Result<(Arc<dyn Variant>, usize)> {
    let limits = device.limits();
    let query = Query {
        problem,
        config: 0,
        limits: &limits,
    };
    let mut reasons = Vec::new();
    let mut best: Option<(f64, &Arc<dyn Variant>)> = None;
    for variant in variant::all() {
        match variant::supports(&**variant, device, &query) {
            Err(why) => reasons.push(format!("{} {why}", variant.info().name)),
            Ok(()) => {
                let time = variant.rank(&query).unwrap_or(f64::INFINITY);
                if best.is_none_or(|(least, _)| time < least) {
                    best = Some((time, variant));
                }
            }
        }
    }
    best.map(|(_, variant)| (variant.clone(), 0))
        .ok_or_else(|| Error::NoVariant {
            device: device.to_string(),
            problem: Box::new(problem.clone()),
            why: reasons.join("; "),
        })
}

impl FromStr for Pick {
    type Err = Error;

    /// `rule`, `direct_naive` or `fused_shared:tile=24`. Whether the variant exists is seen when it
    /// is chosen.
    fn from_str(text: &str) -> Result<Self> {
        Ok(match text.split_once(':') {
            _ if text == "rule" => Pick::Rule,
            Some((variant, config)) => Pick::Named {
                variant: variant.to_owned(),
                config: Some(config.to_owned()),
            },
            None => Pick::Named {
                variant: text.to_owned(),
                config: None,
            },
        })
    }
}

impl fmt::Display for Pick {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Pick::Rule => f.write_str("rule"),
            Pick::Named {
                variant,
                config: None,
            } => f.write_str(variant),
            Pick::Named {
                variant,
                config: Some(config),
            } => write!(f, "{variant}:{config}"),
        }
    }
}
