//! What rows take at the ends of their ranges, where random problems hardly come: planned for an
//! H200, so without a GPU.

use convforge::{Limits, Problem, variant::Configured, variants};

fn plan(name: &str, config: &str, problem: &str) -> Result<(), String> {
    let limits = Limits::of_chip("h200").expect("a chip that is known");
    let variant = variants::find(name).expect("a variant");
    let configured = Configured::named(variant, Some(config)).expect("a configuration");
    let problem: Problem = problem.parse().expect("a problem");
    configured.plan(&limits, &problem).map(drop)
}

/// Where each tap of the filter has a load of its own, taps may be any number of pixels apart.
#[test]
fn implicit_gemm_nchw_takes_taps_far_apart() {
    for problem in [
        "mb1ic24ih112iw3oc256kh3sh2sw4dh999dw999ph1000pw1000+math=tf32",
        "g2mb8ic48ih14oc16kh2dh69999dw999ph35000pw500+math=tf32",
        "mb1ic64ih4oc64kh2dh268435455dw268435455ph134217728pw134217728+f16",
    ] {
        for config in ["tiles=any", "tiles=taps"] {
            assert_eq!(plan("implicit_gemm_nchw", config, problem), Ok(()));
        }
    }
}

/// Each way of loading and of sharing has problems that it takes.
#[test]
fn implicit_gemm_f32_nchw_has_each_way() {
    for (config, problem) in [
        ("tiles=halo", "mb32ic64ih56oc64oh56kh3ph1"),
        ("tiles=rows", "mb64ic128ih56oc128oh28kh3sh2ph1"),
        (
            "tiles=taps",
            "mb1ic24ih112iw3oc256kh3sh2sw4dh999dw999ph1000pw1000",
        ),
        ("tiles=together", "mb64ic128ih28oc128oh28kh3ph1"),
        ("tiles=apart", "mb64ic64ih56oc64oh56kh3ph1"),
        ("tiles=parts", "mb1ic512ih7oc512oh7kh3ph1"),
        ("tiles=kept", "mb64ic64ih56oc256oh56kh1"),
    ] {
        for config in ["tiles=any", config] {
            assert_eq!(
                plan("implicit_gemm_f32_nchw", config, problem),
                Ok(()),
                "{config} of {problem}"
            );
        }
    }
}

/// Planes have any channels, groups, widths and addresses, in sums that are long enough.
#[test]
fn implicit_gemm_f32_nchw_takes_any_planes() {
    let row = "implicit_gemm_f32_nchw";
    for problem in [
        "mb1ic48ih1oc1oh1kh1",
        "mb3ic49ih7iw5oc3kh1",
        "mb2ic7ih13iw11oc5kh7ph3",
        "g3mb2ic21ih9iw15oc12kh3ph1+align=4",
        "mb1ic64ih4oc64kh2dh268435455dw268435455ph134217728pw134217728",
    ] {
        assert_eq!(plan(row, "tiles=any", problem), Ok(()), "{problem}");
    }
    for (problem, why) in [
        ("mb1ic47ih8oc64oh8kh1", "at least 48 products"),
        ("mb8ic64ih28oc64oh28kh3ph1+nhwc", "NCHW"),
        ("mb8ic64ih28oc64oh28kh3ph1+math=tf32", "three products"),
        ("mb8ic64ih28oc64oh28kh3ph1+f16", "three products"),
    ] {
        let said = plan(row, "tiles=any", problem).expect_err(problem);
        assert!(said.contains(why), "{problem}: {said}");
    }
}
