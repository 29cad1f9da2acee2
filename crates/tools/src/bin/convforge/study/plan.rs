//! All the work of a study, as it was asked for.

use convforge::{Device, Math, Pick, Problem, variant::Kind};
use convforge_tools::{
    Contender, Contenders, Result,
    net::Network,
    study::YARDSTICKS,
    suite::{self, Layer, Overrides, Suite},
};

use super::{
    errors,
    part::Part,
    units::{Unit, reduce_layers, with_math},
};

/// The suite whose layers the network has.
const NETWORK_SUITE: &str = "report-86";
/// The other layers of the reports, measured as they stand there.
const OTHER_SUITES: [&str; 3] = ["report-70", "report-vgg", "report-gemv"];
/// What streams are tried with unless others are named, beside the fastest kernels: the plainest
/// kernel, one of several kernels, one that needs no workspace, and the library. Every variant on
/// every number of streams would take hours and show the same: what counts is how long the kernels
/// take beside the copies.
const OVERLAP: [&str; 4] = [
    "direct_naive",
    "im2col_gemm_shared",
    "fused_shared",
    "cudnn",
];
/// All the work of a study.
pub struct Plan {
    pub units: Vec<Unit>,
    /// The network's.
    pub batches: Vec<usize>,
    /// What is done otherwise than asked, on the CPU.
    pub notes: Vec<String>,
}

impl Plan {
    /// Layers, then the network batch by batch, then streams, then errors: neighbours are alike, so
    /// that shares of every n-th one take about as long.
    pub fn new(
        device: &Device,
        parts: &[Part],
        batches: &[usize],
        maths: &[Math],
        contenders: &[Contender],
        overlap: &[Contender],
    ) -> Result<Self> {
        let wants = |part| parts.contains(&part);
        let (mut layers, mut streamed) = (Vec::new(), Vec::new());
        let (mut batches, largest) = (batches.to_vec(), batches.iter().copied().max());
        if wants(Part::Layers) {
            for batch in &batches {
                layers.extend(with_batch(*batch)?);
            }
            for suite in OTHER_SUITES {
                layers.extend(Suite::find(suite)?.layers);
            }
        }
        if let Some(largest) = largest.filter(|_| wants(Part::Overlap)) {
            streamed = with_batch(largest)?;
        }
        if !wants(Part::Network) {
            batches.clear();
        }
        let mut notes = Vec::new();
        if !device.is_gpu() {
            let streams;
            (layers, notes) = reduce_layers(&layers);
            batches = reduce_batches(&batches, &mut notes)?;
            (streamed, streams) = suite::reduce_for_cpu(&streamed);
            notes.extend(streams.into_iter().map(|note| format!("streams {note}")));
        }

        let asked = Asked { device, maths };
        let mut units = Vec::new();
        for layer in &layers {
            units.extend(asked.layer_units(layer, contenders)?);
        }
        for images in &batches {
            units.extend(asked.network_units(*images, contenders)?);
        }
        for layer in &streamed {
            units.extend(asked.streams_units(layer, overlap)?);
        }
        if wants(Part::Errors) {
            units.extend(errors::units(device, maths, contenders, &mut notes)?);
        }
        Ok(Plan {
            units,
            batches,
            notes,
        })
    }
}

/// The network's layers with so many images.
fn with_batch(batch: usize) -> Result<Vec<Layer>> {
    let overrides = Overrides {
        batch: Some(batch),
        ..Overrides::default()
    };
    overrides.apply(&Suite::find(NETWORK_SUITE)?.layers)
}

/// Batches of the network that a CPU gets through, what has become equal kept once.
fn reduce_batches(batches: &[usize], notes: &mut Vec<String>) -> Result<Vec<usize>> {
    let mut reduced = Vec::new();
    for batch in batches {
        let (layers, _) = suite::reduce_for_cpu(&with_batch(*batch)?);
        let images = layers.iter().map(|layer| layer.problem.n()).min();
        let images = images.unwrap_or(*batch);
        if images != *batch {
            notes.push(format!(
                "network: batch {batch} reduced to {images} on the CPU"
            ));
        }
        if !reduced.contains(&images) {
            reduced.push(images);
        }
    }
    Ok(reduced)
}

/// Where, and with which maths, if any were named.
struct Asked<'a> {
    device: &'a Device,
    maths: &'a [Math],
}

impl Asked<'_> {
    /// A layer with each math that some contender wants. Where that is not the layer's own, those that
    /// speed-ups are measured against take part as well, if they can.
    fn layer_units(&self, layer: &Layer, contenders: &[Contender]) -> Result<Vec<Unit>> {
        let problem = [layer.problem.clone()];
        let wanted = contenders.iter();
        let wanted = wanted.map(|contender| self.maths_of(contender, &problem));
        let wanted: Vec<Vec<Math>> = wanted.collect::<Result<_>>()?;
        let mut units = Vec::new();
        for math in layer.problem.storage().maths() {
            if !wanted.iter().any(|maths| maths.contains(math)) {
                continue;
            }
            let layer = with_math(layer, *math)?;
            let beside = |contender: &Contender| {
                let can = || contender.can(&self.device.limits(), &layer.problem);
                self.maths.is_empty() && is_yardstick(contender) && can()
            };
            let group = contenders.iter().zip(&wanted);
            let group =
                group.filter(|(contender, maths)| maths.contains(math) || beside(contender));
            units.push(Unit::Layer {
                contenders: group.map(|(contender, _)| contender.clone()).collect(),
                layer,
            });
        }
        Ok(units)
    }

    /// The network with so many images, by each contender.
    fn network_units(&self, images: usize, contenders: &[Contender]) -> Result<Vec<Unit>> {
        let problems = Network::problems(images, Math::Fp32)?;
        let mut units = Vec::new();
        for contender in contenders {
            for math in self.maths_of(contender, &problems)? {
                units.push(Unit::Network {
                    contender: contender.clone(),
                    math,
                    images,
                });
            }
        }
        Ok(units)
    }

    /// A layer in streams, by each contender; the first has a timeline as well.
    fn streams_units(&self, layer: &Layer, contenders: &[Contender]) -> Result<Vec<Unit>> {
        let problem = [layer.problem.clone()];
        let mut units = Vec::new();
        for (i, contender) in contenders.iter().enumerate() {
            for math in self.maths_of(contender, &problem)? {
                units.push(Unit::Overlap {
                    layer: with_math(layer, math)?,
                    contender: contender.clone(),
                    timeline: i == 0,
                });
            }
        }
        Ok(units)
    }

    /// How a contender multiplies: as asked, as far as the storage goes with it; otherwise the first of
    /// the problems' own math, f16 and f16 sums that it can do on all of them, or the own.
    fn maths_of(&self, contender: &Contender, problems: &[Problem]) -> Result<Vec<Math>> {
        let Some(first) = problems.first() else {
            return Ok(Vec::new());
        };
        let known = first.storage().maths();
        if !self.maths.is_empty() {
            let fitting = self.maths.iter().filter(|math| known.contains(math));
            return Ok(fitting.copied().collect());
        }
        let maths = [first.math(), Math::F16, Math::F16Acc];
        for math in maths.into_iter().filter(|math| known.contains(math)) {
            let with = problems.iter().map(|p| p.with(|shape| shape.math = math));
            let with = with.collect::<convforge::Result<Vec<Problem>>>()?;
            let limits = self.device.limits();
            if with.iter().all(|problem| contender.can(&limits, problem)) {
                return Ok(vec![math]);
            }
        }
        Ok(vec![first.math()])
    }
}

fn is_yardstick(contender: &Contender) -> bool {
    match contender {
        Contender::Variant(configured) => {
            let info = configured.info();
            info.kind == Kind::Baseline || YARDSTICKS.contains(&&*info.name)
        }
        Contender::Pick(_) => false,
    }
}

/// The picks that choose by themselves: the rule and, of kernels, the policies. `kernels` is the rule
/// without the libraries.
pub fn picks(device: &Device) -> impl Iterator<Item = Contender> {
    let on_gpu = device.is_gpu();
    let wanted = move |pick: &Pick| match pick {
        Pick::Rule => true,
        Pick::Policy(_) => on_gpu,
        _ => false,
    };
    let picks = Pick::automatic().into_iter();
    picks.filter(wanted).map(Contender::Pick)
}

/// What streams are tried with unless others are named: first the fastest handwritten kernels, as
/// they were measured layer by layer, then some to compare; of these what the build has. On the CPU,
/// where nothing overlaps, its best.
pub fn overlap_by_default(device: &Device, all: &Contenders) -> Vec<Contender> {
    if !device.is_gpu() {
        return vec![Contender::Pick(Pick::Rule)];
    }
    let found = OVERLAP.iter().filter_map(|name| all.find(name).ok());
    let found = found.map(Contender::from);
    let fastest = Contender::Pick(Pick::Policy("per-layer".to_owned()));
    [fastest].into_iter().chain(found).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::args::{Configs, Shard};

    /// The work of the CPU's variants.
    fn plan(maths: &[Math]) -> Plan {
        let names = ["cpu_gemm", "cpu_direct"];
        let all = Contenders::new();
        let contenders = names.map(|name| all.find(name).unwrap());
        let contenders = contenders.iter().flat_map(|v| Configs::First.of(v));
        let contenders: Vec<Contender> = contenders.chain(picks(&Device::cpu())).collect();
        let overlap = overlap_by_default(&Device::cpu(), &all);
        Plan::new(
            &Device::cpu(),
            &Part::DEFAULT,
            &[2, 5, 10000],
            maths,
            &contenders,
            &overlap,
        )
        .unwrap()
    }

    #[test]
    fn shards_cover_every_unit_once() {
        let plan = plan(&[]);
        for count in [1, 3, 7] {
            let mut seen: HashMap<String, usize> = HashMap::new();
            for index in 1..=count {
                let shard: Shard = format!("{index}/{count}").parse().unwrap();
                for unit in shard.of(&plan.units) {
                    *seen.entry(unit.title()).or_default() += 1;
                }
            }
            assert_eq!(seen.len(), plan.units.len());
            assert!(seen.values().all(|times| *times == 1), "{seen:?}");
        }
    }

    #[test]
    fn the_cpu_gets_less_and_it_is_said() {
        let plan = plan(&[]);
        assert_eq!(plan.batches, [2, 5, 10]);
        let notes = plan.notes.join("\n");
        for part in [
            "network: batch 10000 reduced to 10",
            "mb10000ic1ih70oc12oh66kh5: batch 10000 reduced",
            "report-vgg conv1",
        ] {
            assert!(notes.contains(part), "{notes}");
        }
        let large = |unit: &Unit| match unit {
            Unit::Layer { layer, .. } => layer.problem.flops() > suite::CPU_FLOPS,
            Unit::Network { images, .. } => *images > 10,
            Unit::Overlap { layer, .. } => layer.problem.n() > 20,
            Unit::Errors { .. } => true,
        };
        assert!(!plan.units.iter().any(large));
    }

    #[test]
    fn a_variant_takes_the_first_math_that_it_can_do() {
        let problem = ["mb1ic3ih8oc4kh3".parse().unwrap()];
        let device = &Device::cpu();
        let of = |contender: &Contender, maths: &[Math]| {
            let asked = Asked { device, maths };
            asked.maths_of(contender, &problem).unwrap()
        };
        let gemm = Contenders::new().find("cpu_gemm").unwrap().into();
        assert_eq!(of(&gemm, &[]), [Math::Fp32]);
        let asked = [Math::F16Acc, Math::Tf32];
        assert_eq!(of(&gemm, &asked), asked);
        // Nothing on the CPU can do it: the row says so, in the problem's own math.
        let policy = Contender::Pick(Pick::Policy("report-b".to_owned()));
        assert_eq!(of(&policy, &[]), [Math::Fp32]);
    }

    #[test]
    fn another_math_has_a_table_of_its_own() {
        let plan = plan(&[Math::Fp32, Math::F16Acc]);
        let titles: Vec<String> = plan.units.iter().map(Unit::title).collect();
        for title in [
            "report-86 l1 mb2ic1ih86oc4oh80kh7",
            "report-86 l1 mb2ic1ih86oc4oh80kh7+math=f16acc",
            "network 5 images cpu_direct f16acc",
        ] {
            assert!(titles.iter().any(|t| t == title), "{titles:#?}");
        }
        // Streams as well: each of two layers with either math.
        let streams = titles.iter().filter(|t| t.starts_with("streams "));
        let (f16acc, fp32): (Vec<&String>, Vec<&String>) =
            streams.partition(|t| t.ends_with("+math=f16acc rule"));
        assert_eq!((f16acc.len(), fp32.len()), (2, 2), "{titles:#?}");
    }
}
