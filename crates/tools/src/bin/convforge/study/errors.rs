//! Which errors a study looks at.

use convforge::{Device, Layout, Limits, Math};
use convforge_tools::{
    Contender, Result,
    suite::{Layer, Overrides, Suite},
};

use super::units::{Unit, reduce_layers, with_math};

/// Images of the report layers: enough for millions of outputs.
const BATCH: usize = 100;
/// The suites of the report layers.
const REPORTS: [&str; 2] = ["report-86", "report-70"];
/// First layers of networks, one image each: many outputs, short sums.
const FIRST: &str = "first";
/// Layers with one image, of suites by their names: sums of 4608 and of 23040 terms, groups of 8 channels
/// and of one.
const ALONE: [[&str; 2]; 4] = [
    ["batch1", "vgg8"],
    ["sd15-unet", "up3.0.conv1"],
    ["grouped", "resnext50.c3"],
    ["depthwise", "c96h56s1k7"],
];
/// How variants multiply, unless it is asked otherwise.
const MATHS: [Math; 4] = [Math::Fp32, Math::Tf32, Math::F16, Math::Bf16];

/// A unit per problem and math, with every variant that can do it; where some can do it with channels last
/// alone, another with these. What a pick chooses stands there by itself, so picks take no part.
pub fn units(
    device: &Device,
    asked: &[Math],
    contenders: &[Contender],
    notes: &mut Vec<String>,
) -> Result<Vec<Unit>> {
    let mut layers = layers()?;
    if !device.is_gpu() {
        let reduced;
        (layers, reduced) = reduce_layers(&layers);
        notes.extend(reduced.into_iter().map(|note| format!("errors {note}")));
    }
    let maths = if asked.is_empty() { &MATHS } else { asked };
    let variants = contenders.iter().filter(|contender| !contender.is_pick());
    let variants: Vec<&Contender> = variants.collect();
    let mut units = Vec::new();
    let mut idle = variants.clone();
    for layer in &layers {
        for math in maths {
            let layer = with_math(layer, *math)?;
            for (layer, contenders) in in_both_layouts(layer, &variants, &device.limits())? {
                let takes_part =
                    |other: &Contender| contenders.iter().any(|c| c.name() == other.name());
                idle.retain(|contender| !takes_part(contender));
                if !contenders.is_empty() {
                    units.push(Unit::Errors { layer, contenders });
                }
            }
        }
    }
    let words: Vec<String> = maths.iter().map(Math::to_string).collect();
    for contender in idle {
        notes.push(format!(
            "errors: {} can do none of the problems in {}",
            contender.name(),
            words.join(", ")
        ));
    }
    if variants.is_empty() {
        notes.push("errors: there are none of a pick; name a variant".to_owned());
    }
    Ok(units)
}

/// The problems, in fp32.
fn layers() -> Result<Vec<Layer>> {
    let with_batch = |batch, layers: &[Layer]| {
        let overrides = Overrides {
            batch: Some(batch),
            ..Overrides::default()
        };
        overrides.apply(layers)
    };
    let mut layers = Vec::new();
    for suite in REPORTS {
        layers.extend(with_batch(BATCH, &Suite::find(suite)?.layers)?);
    }
    layers.extend(with_batch(1, &Suite::find(FIRST)?.layers)?);
    for [suite, name] in ALONE {
        let mut found = Suite::find(suite)?.layers;
        found.retain(|layer| layer.layer == name);
        layers.extend(with_batch(1, &found)?);
    }
    Ok(layers)
}

/// The layer with those that can do it; and with channels last, those that can do it so alone.
fn in_both_layouts(
    layer: Layer,
    variants: &[&Contender],
    limits: &Limits,
) -> Result<[(Layer, Vec<Contender>); 2]> {
    let last = Layer {
        problem: layer.problem.with(|shape| shape.layout = Layout::Nhwc)?,
        ..layer.clone()
    };
    let able = |contender: &Contender, layer: &Layer| contender.can(limits, &layer.problem);
    let of = |take: &dyn Fn(&Contender) -> bool| -> Vec<Contender> {
        let taken = variants.iter().filter(|contender| take(contender));
        taken.copied().cloned().collect()
    };
    let first = of(&|contender| able(contender, &layer));
    let rest = of(&|contender| !able(contender, &layer) && able(contender, &last));
    Ok([(layer, first), (last, rest)])
}

#[cfg(test)]
mod tests {
    use convforge::Pick;
    use convforge_tools::Contenders;

    use super::*;

    fn planned(asked: &[Math], names: &[&str]) -> (Vec<String>, String) {
        let contender = |name: &&str| Contenders::new().find(name).unwrap().into();
        let mut contenders: Vec<Contender> = names.iter().map(contender).collect();
        contenders.push(Contender::Pick(Pick::Rule));
        let mut notes = Vec::new();
        let units = units(&Device::cpu(), asked, &contenders, &mut notes).unwrap();
        let titles = units.iter().map(Unit::title).collect();
        (titles, notes.join("\n"))
    }

    #[test]
    fn the_problems_have_short_and_long_sums() {
        let layers = layers().unwrap();
        let terms: Vec<usize> = layers.iter().map(|l| l.problem.reduction()).collect();
        assert_eq!(terms, [49, 196, 25, 300, 27, 147, 27, 4608, 23040, 72, 49]);
        let images: Vec<usize> = layers.iter().map(|l| l.problem.n()).collect();
        assert_eq!(images, [100, 100, 100, 100, 1, 1, 1, 1, 1, 1, 1]);
    }

    #[test]
    fn every_math_is_a_unit_and_the_cpu_gets_less() {
        let (titles, notes) = planned(&[], &["cpu_gemm", "cpu_direct"]);
        // Four report layers, and of the others those that are small enough.
        assert_eq!(titles.len(), 7 * MATHS.len(), "{titles:#?}");
        let last = "errors depthwise c96h56s1k7 g96mb1ic96ih56oc96oh56kh7ph3+math=bf16";
        assert_eq!(titles.last().map(String::as_str), Some(last));
        for part in ["errors batch1 vgg8", "errors report-86 l1", "too large"] {
            assert!(notes.contains(part), "{notes}");
        }
        let (titles, _) = planned(&[Math::Tf32], &["cpu_gemm"]);
        assert_eq!(titles.len(), 7, "{titles:#?}");
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn what_takes_channels_last_alone_has_them_so() {
        let names = ["direct_naive", "implicit_gemm_f32_nhwc", "gemv_warp"];
        let contenders = names.map(|name| Contenders::new().find(name).unwrap().into());
        let layer = layers()
            .unwrap()
            .into_iter()
            .find(|l| l.layer == "vgg8")
            .unwrap();
        let limits = Limits::of_chip("h200").unwrap();
        let [first, last] = in_both_layouts(layer, &contenders.each_ref(), &limits).unwrap();
        let names = |of: &[Contender]| of.iter().map(Contender::variant).collect::<Vec<_>>();
        assert_eq!(names(&first.1), ["direct_naive"]);
        assert_eq!(names(&last.1), ["implicit_gemm_f32_nhwc"]);
        assert_eq!(
            [first.0.problem.layout(), last.0.problem.layout()],
            [Layout::Nchw, Layout::Nhwc]
        );
    }

    #[test]
    fn who_takes_no_part_is_named() {
        #[cfg(feature = "cuda")]
        {
            let (titles, notes) = planned(&[], &["cublas_gemm"]);
            assert!(titles.is_empty());
            let why = "cublas_gemm:auto can do none of the problems in fp32, tf32, f16, bf16";
            assert!(notes.contains(why), "{notes}");
        }
        let (titles, notes) = planned(&[], &[]);
        assert!(
            titles.is_empty() && notes.contains("none of a pick"),
            "{notes}"
        );
    }
}
