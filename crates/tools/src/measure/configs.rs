//! Which configurations of a variant are compared: the one that it estimates to be the fastest need not be.

use std::sync::{Arc, atomic::AtomicBool};

use convforge::{
    Conv, Device, Limits, Problem, Result,
    variant::{Configured, Space, Variant},
};

use super::{options::Options, rounds};
use crate::Contender;

/// Of each configuration; the fastest is timed again, beside all others.
pub(crate) const SAMPLES: usize = 3;
/// Times the least estimate of those whose configurations may be tried: others of who is estimated to take longer by its first
/// configuration are not tried.
const NEAR: f64 = 1.5;
/// Times the estimate of its first configuration that another one may have.
const WITHIN: f64 = 1.25;
/// Of the time of the first one: nearer ones are taken for as fast.
const FASTER: f64 = 0.99;

/// The contenders; behind each variant that is in its first configuration the fastest other one of it, where a
/// few samples find that to be faster. All of them are timed together, cuBLAS's too; which of cuDNN's plans is
/// the fastest it finds by itself.
///
/// # Errors
/// No memory for the operands.
pub(super) fn with_fastest(
    device: &Device,
    problem: &Problem,
    contenders: &[Contender],
    options: &Options,
    stop: &AtomicBool,
) -> Result<Vec<Chosen>> {
    let trials = trials(&device.limits(), problem, contenders);
    let ready = trials.into_iter().filter_map(|trial| {
        let conv = Conv::with_variant(device, problem, trial.configured.clone());
        Some((trial, conv.ok()?))
    });
    let (trials, convs): (Vec<Trial>, Vec<Conv>) = ready.unzip();
    let options = Options {
        samples: SAMPLES,
        ..options.clone()
    };
    let timings = rounds::time(device, problem, &convs, &options, stop)?;
    let us = timings
        .into_iter()
        .map(|timing| timing.map_or(f64::INFINITY, |timing| timing.median_us()));
    let timed: Vec<(Trial, f64)> = trials.into_iter().zip(us).collect();
    Ok(beside_first(contenders, &timed))
}

/// Who is compared.
#[derive(Clone)]
pub(super) struct Chosen {
    pub contender: Contender,
    /// Whether it was found to be the fastest configuration of its variant.
    pub found: bool,
    /// How many configurations were tried, of one that was asked for.
    pub tried: Option<usize>,
}

impl Chosen {
    pub(super) fn asked(contender: Contender) -> Self {
        Chosen {
            contender,
            found: false,
            tried: None,
        }
    }
}

/// A configuration that is tried for the contender in this place.
#[derive(Clone)]
pub(crate) struct Trial {
    place: usize,
    configured: Configured,
    /// What it estimates to take.
    pub us: f64,
}

/// The first configurations of who is near the fastest by estimates, each with the others that may be as fast.
pub(crate) fn trials(limits: &Limits, problem: &Problem, contenders: &[Contender]) -> Vec<Trial> {
    let plans: Vec<Vec<(Configured, f64)>> = contenders
        .iter()
        .map(|contender| match contender {
            Contender::Variant(first) if first.config == 0 && !contender.searches() => {
                estimated(&first.variant, limits, problem)
            }
            _ => Vec::new(),
        })
        .collect();
    let least = plans.iter().flatten().map(|(_, us)| *us);
    let least = least.fold(f64::INFINITY, f64::min);
    let mut trials = Vec::new();
    for (place, plans) in plans.into_iter().enumerate() {
        let first = plans.iter().find(|(one, _)| one.config == 0);
        let Some(first) = first.map(|(_, us)| *us).filter(|us| *us <= NEAR * least) else {
            continue;
        };
        let near = plans.into_iter().filter(|(_, us)| *us <= WITHIN * first);
        let near: Vec<Trial> = near
            .map(|(configured, us)| Trial {
                place,
                configured,
                us,
            })
            .collect();
        if near.len() > 1 {
            trials.extend(near);
        }
    }
    trials
}

/// What a variant can do a problem by, and its estimates; without what keeps a filter in constant memory, of which
/// there is little.
fn estimated(
    variant: &Arc<dyn Variant>,
    limits: &Limits,
    problem: &Problem,
) -> Vec<(Configured, f64)> {
    let plans = Configured::plans_of(variant, limits, problem).into_iter();
    let estimated = plans.filter_map(|(configured, plan)| {
        let packed = plan.packing.map(|packing| packing.space);
        let us = plan.us.filter(|_| packed != Some(Space::Constant))?;
        Some((configured, us))
    });
    estimated.collect()
}

fn beside_first(contenders: &[Contender], timed: &[(Trial, f64)]) -> Vec<Chosen> {
    let mut all = Vec::new();
    for (place, contender) in contenders.iter().enumerate() {
        let of_it = timed.iter().filter(|(trial, _)| trial.place == place);
        let (first, others): (Vec<_>, Vec<_>) =
            of_it.partition(|(trial, _)| trial.configured.config == 0);
        let tried = first.len() + others.len();
        all.push(Chosen {
            tried: (tried > 0).then_some(tried),
            ..Chosen::asked(contender.clone())
        });
        let first = first.first().map_or(f64::INFINITY, |(_, us)| *us);
        let fastest = others.into_iter().min_by(|(_, a), (_, b)| a.total_cmp(b));
        let fastest = fastest.filter(|(_, us)| *us < FASTER * first);
        let fastest = fastest.map(|(trial, _)| Contender::Variant(trial.configured.clone()));
        // Unless it takes part by its name.
        let others = fastest.filter(|fastest| {
            let mut named = contenders.iter();
            !named.any(|contender| contender.name() == fastest.name())
        });
        all.extend(others.map(|contender| Chosen {
            found: true,
            ..Chosen::asked(contender)
        }));
    }
    all
}

#[cfg(test)]
mod tests {
    use convforge::{
        Error, Result,
        variant::{Info, Kind, Plan, Prepared, Query},
    };

    use super::*;

    /// A variant of which each configuration has an estimate, or cannot do the problem.
    struct Estimated(Info, &'static [Option<f64>]);

    // SAFETY: it prepares nothing.
    unsafe impl Variant for Estimated {
        fn info(&self) -> &Info {
            &self.0
        }

        fn plan(&self, query: &Query) -> Result<Plan, String> {
            let us = self.1[query.config].ok_or("is too large")?;
            let mut plan = Plan::new(());
            plan.us = Some(us);
            Ok(plan)
        }

        fn prepare(&self, _: &Device, _: &Query, _: Plan) -> Result<Box<dyn Prepared>> {
            Err(Error::Interrupted)
        }
    }

    fn contender(name: &str, us: &'static [Option<f64>]) -> Contender {
        let configs: Vec<String> = (0..us.len())
            .map(|config| format!("tile={config}"))
            .collect();
        named(name, &configs, us)
    }

    fn named(name: &str, configs: &[impl ToString], us: &'static [Option<f64>]) -> Contender {
        let mut info = Info::new(name, "family", "idea", "source", Kind::Cpu);
        info.configs = configs.iter().map(ToString::to_string).collect();
        let variant: Arc<dyn Variant> = Arc::new(Estimated(info, us));
        variant.into()
    }

    fn names(all: &[Chosen]) -> Vec<String> {
        for one in all {
            assert!(!(one.found && one.tried.is_some()));
        }
        all.iter().map(|one| one.contender.name()).collect()
    }

    fn tried(contenders: &[Contender]) -> Vec<String> {
        let problem = "mb1ic1ih3oc1kh1".parse().unwrap();
        let trials = trials(&Device::cpu().limits(), &problem, contenders);
        let name = |trial: &Trial| trial.configured.name();
        trials.iter().map(name).collect()
    }

    #[test]
    fn of_who_is_near_what_may_be_as_fast_is_tried() {
        // A refusal, one that is told to take the same, one too far.
        let near = contender(
            "near",
            &[Some(10.0), None, Some(10.0), Some(12.0), Some(16.0)],
        );
        let far = contender("far", &[Some(21.0), Some(22.0)]);
        let alone = contender("alone", &[Some(11.0)]);
        let all = [
            far,
            near,
            alone,
            "rule".parse().map(Contender::Pick).unwrap(),
        ];
        assert_eq!(tried(&all), ["near:tile=0", "near:tile=2", "near:tile=3"]);
        // Numbered plans are others, and kinds of plans that are told to take as much are one of them.
        let configs = ["tiles=any", "tiles=one", "plan=2", "tiles=two", "plan=3"];
        let us = &[Some(10.0), Some(11.0), Some(10.0), Some(10.5), Some(11.0)];
        assert_eq!(
            tried(&[named("near", &configs, us)]),
            [
                "near:tiles=any",
                "near:plan=2",
                "near:tiles=two",
                "near:plan=3"
            ]
        );
    }

    #[test]
    fn a_configuration_that_was_named_is_alone() {
        let Contender::Variant(first) = contender("near", &[Some(10.0), Some(11.0)]) else {
            unreachable!();
        };
        let second = Configured { config: 1, ..first };
        assert!(tried(&[Contender::Variant(second)]).is_empty());
    }

    #[test]
    fn the_fastest_stands_behind_the_first_where_it_is_faster() {
        let all = [
            contender("one", &[Some(10.0), Some(11.0), Some(12.0)]),
            contender("two", &[Some(10.0), Some(11.0)]),
        ];
        let beside = |us: [f64; 5], contenders: &[Contender]| {
            let of = |place: usize, config| {
                let Contender::Variant(first) = all[place].clone() else {
                    unreachable!();
                };
                let configured = Configured { config, ..first };
                Trial {
                    place,
                    configured,
                    us: 10.0,
                }
            };
            let trials = [of(0, 0), of(0, 1), of(0, 2), of(1, 0), of(1, 1)];
            let timed: Vec<(Trial, f64)> = trials.into_iter().zip(us).collect();
            names(&beside_first(contenders, &timed))
        };
        let found = beside([10.0, 9.5, 9.0, 10.0, 9.95], &all);
        assert_eq!(found, ["one:tile=0", "one:tile=2", "two:tile=0"]);
        // The first one failed; the others did.
        let none = f64::INFINITY;
        let found = beside([none, 9.5, none, 10.0, none], &all);
        assert_eq!(found, ["one:tile=0", "one:tile=1", "two:tile=0"]);
        // It takes part already.
        let Contender::Variant(first) = all[0].clone() else {
            unreachable!();
        };
        let named = Contender::Variant(Configured { config: 2, ..first });
        let three = [all[0].clone(), all[1].clone(), named];
        let found = beside([10.0, 9.5, 9.0, 10.0, 10.0], &three);
        assert_eq!(found, ["one:tile=0", "two:tile=0", "one:tile=2"]);
    }
}
