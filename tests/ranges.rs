//! What rows take at the ends of their ranges, where random problems hardly come: planned for an
//! H200, so without a GPU.

use convforge::{Limits, Problem, variants};
use convforge_check::Domain;

fn plan(name: &str, config: &str, problem: &str) -> Result<(), String> {
    let limits = Limits::of_chip("h200").expect("a chip that is known");
    let all = variants::all();
    let variant = all.iter().find(|variant| variant.info().name == name);
    let variant = variant.unwrap_or_else(|| panic!("{name} is no variant"));
    let configs = &variant.info().configs;
    let config = configs.iter().position(|known| known == config);
    let problem: Problem = problem.parse().expect("a problem");
    Domain {
        variant: &**variant,
        config: config.expect("a configuration"),
        limits: &limits,
    }
    .plan(&problem)
    .map(drop)
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
