//! Who can be compared: the library's variants, but with cuDNN at its strongest, and what chooses
//! among the library's.

use std::sync::Arc;

use convforge::{
    Error, Pick, Result,
    variant::{Configured, Kind, Variant},
    variants,
};

use crate::{Contender, contender::TRANSFORM};
#[cfg(feature = "cudnn")]
use crate::{cudnn, measure::Referee};

/// The one list of variants that are compared.
///
/// It is the library's, with its `cudnn`, which takes what cuDNN's heuristics think best, replaced by
/// two that search: `cudnn` and `cudnn_transform`. What a [`Pick`] chooses is the library's own.
#[derive(Clone)]
pub struct Contenders(Vec<Arc<dyn Variant>>);

impl Contenders {
    /// Every variant; cuDNN is searched as `cudnn::Options` have it by default.
    pub fn new() -> Self {
        #[cfg(feature = "cudnn")]
        return Self::searching(&cudnn::Options::default());
        #[cfg(not(feature = "cudnn"))]
        Contenders(variants::all().to_vec())
    }

    /// Every variant, with cuDNN searched like this.
    #[cfg(feature = "cudnn")]
    pub fn searching(options: &cudnn::Options) -> Self {
        let mut all = Vec::new();
        for variant in variants::all() {
            match &*variant.info().name {
                cudnn::NAME => {
                    all.extend(cudnn::searched(variant, options, || Box::new(Referee)));
                }
                _ => all.push(variant.clone()),
            }
        }
        Contenders(all)
    }

    /// All of them, in reading order.
    pub fn all(&self) -> &[Arc<dyn Variant>] {
        &self.0
    }

    /// Those that run on GPUs, or those that run on the CPU.
    pub fn on(&self, gpu: bool) -> impl Iterator<Item = &Arc<dyn Variant>> {
        let fits = move |kind| (kind == Kind::Cpu) != gpu;
        self.0
            .iter()
            .filter(move |variant| fits(variant.info().kind))
    }

    /// The one of this name.
    ///
    /// # Errors
    /// [`Error::UnknownVariant`] with the nearest name there is.
    pub fn find(&self, name: &str) -> Result<Arc<dyn Variant>> {
        let names = || self.0.iter().map(|variant| &*variant.info().name);
        let place = names().position(|known| known == name);
        let place = place.ok_or_else(|| Error::UnknownVariant {
            name: name.to_owned(),
            close: Error::closest(name, names()),
        })?;
        Ok(self.0[place].clone())
    }

    /// Who is meant: a variant in the configuration that was named or in its first, or the pick.
    ///
    /// # Errors
    /// [`Error::UnknownVariant`], [`Error::UnknownConfig`], [`Error::UnknownPolicy`].
    pub fn named(&self, pick: &Pick) -> Result<Contender> {
        let Pick::Named { variant, config } = pick else {
            // A policy that does not exist is said before the work.
            pick.explain()?;
            return Ok(Contender::Pick(pick.clone()));
        };
        let configured = Configured::named(self.find(variant)?, config.as_deref())?;
        Ok(Contender::Variant(configured))
    }

    /// These; where `cudnn` is one of them and `cudnn_transform` is not, with that one behind it. Both
    /// together are cuDNN at its best.
    pub fn with_transforms(&self, mut contenders: Vec<Contender>) -> Vec<Contender> {
        let place = |contenders: &[Contender], name| {
            let mut all = contenders.iter();
            all.position(|contender| contender.variant() == name)
        };
        if let (Some(at), None, Ok(variant)) = (
            place(&contenders, "cudnn"),
            place(&contenders, TRANSFORM),
            self.find(TRANSFORM),
        ) {
            contenders.insert(at + 1, variant.into());
        }
        contenders
    }
}

impl Default for Contenders {
    fn default() -> Self {
        Contenders::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_variant_in_its_first_configuration() {
        let all = Contenders::new();
        let named = |text: &str| all.named(&text.parse().unwrap());
        let plain = named("cpu_direct").unwrap();
        assert_eq!((&*plain.name(), plain.is_pick()), ("cpu_direct", false));
        assert!(named("rule").unwrap().is_pick());
        let text = named("cpu_gem").err().unwrap().to_string();
        assert!(text.contains("did you mean `cpu_gemm`"), "{text}");
        let unknown = named("policy:per-leyer").err();
        assert!(matches!(unknown, Some(Error::UnknownPolicy { .. })));
        let unknown = named("cpu_direct:tile=4").err();
        assert!(matches!(unknown, Some(Error::UnknownConfig { .. })));
    }

    #[test]
    fn whoever_stands_beside_cudnn_stands_beside_its_transforms() {
        let all = Contenders::new();
        let names = |named: &[&str]| -> Vec<String> {
            let named = named.iter().map(|text| all.named(&text.parse().unwrap()));
            let named = named.collect::<Result<_, _>>().unwrap();
            let all = all.with_transforms(named);
            all.iter().map(Contender::name).collect()
        };
        assert_eq!(names(&["rule", "cpu_direct"]), ["rule", "cpu_direct"]);
        if cfg!(feature = "cudnn") {
            let both = ["cudnn", "cudnn_transform", "cpu_direct"];
            assert_eq!(names(&["cudnn", "cpu_direct"]), both);
            assert_eq!(names(&both), both);
            let transform = ["cudnn_transform"];
            assert_eq!(names(&transform), transform);
        }
    }

    #[test]
    fn every_name_stands_for_one() {
        let all = Contenders::new();
        let mut names: Vec<&str> = all.all().iter().map(|v| &*v.info().name).collect();
        let searched = names.iter().filter(|name| name.starts_with("cudnn"));
        assert_eq!(
            searched.count(),
            if cfg!(feature = "cudnn") { 2 } else { 0 }
        );
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
