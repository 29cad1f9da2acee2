//! Plans that a variant did not make, or not of this question.

use convforge::{
    Device, Error, Limits, Problem,
    variant::{Kind, Query, Variant},
    variants,
};

/// Whoever readies a plan launches by its numbers and its state, so it must be the variant's own, of the
/// problem, the configuration and the limits that it is readied for.
pub fn a_plan_serves_its_own_question() {
    let device = Device::gpu(0).unwrap();
    let (h200, mut other_chip) = (
        Limits::of_chip("h200").unwrap(),
        Limits::of_chip("h200").unwrap(),
    );
    other_chip.sm_count -= 1;
    let problem: Problem = "mb4ic4ih40oc16oh34kh7".parse().unwrap();
    let other: Problem = "mb64ic4ih40oc16oh34kh7".parse().unwrap();
    let asked = Query::new(&problem, 0, &h200);
    let able = |variant: &&std::sync::Arc<dyn Variant>| {
        let info = variant.info();
        // What cuDNN's variants ready is none of their plan's.
        let by_plan = info.kind == Kind::Kernel || info.name == "cublas_gemm";
        by_plan && variant.plan(&asked).is_ok()
    };
    let able: Vec<_> = variants::all().iter().filter(able).collect();
    assert!(able.len() > 5, "{}", able.len());
    let library = able
        .iter()
        .filter(|variant| variant.info().kind == Kind::Baseline);
    assert_eq!(library.count(), 1);
    let refused = |variant: &dyn Variant, plan, query: &Query| {
        let name = &variant.info().name;
        match variant.prepare(&device, query, plan) {
            Err(Error::Unavailable(why)) => {
                assert!(why.contains(name) && why.contains("another"), "{why}")
            }
            Err(error) => panic!("{name}: {error}"),
            Ok(_) => panic!("{name} readied it"),
        }
    };
    for pair in able.windows(2) {
        let plan = pair[0].plan(&asked).unwrap();
        refused(&**pair[1], plan, &asked);
    }
    for variant in able {
        let plan = || variant.plan(&asked).unwrap();
        refused(&**variant, plan(), &Query::new(&other, 0, &h200));
        refused(&**variant, plan(), &Query::new(&problem, 1, &h200));
        refused(&**variant, plan(), &Query::new(&problem, 0, &other_chip));
    }
}
