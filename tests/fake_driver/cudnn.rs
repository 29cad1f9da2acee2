//! The order in which cuDNN's objects are destroyed.

use std::{env, ffi::c_int, time::Duration};

use convforge::{
    Conv, Device, Problem, Result,
    cudnn::{Judgement, Options, Referee, Search},
    variants,
};

/// A count of the fake library's.
fn count(name: &str) -> c_int {
    let path = env::var_os("CONVFORGE_CUDNN_LIB").unwrap();
    // SAFETY: the library is loaded already and stays so; the function answers the address of an
    // integer of its own.
    unsafe {
        let library = libloading::Library::new(path).unwrap();
        let integer = library.get::<unsafe extern "C" fn() -> *const c_int>(name);
        *integer.unwrap()()
    }
}

/// Nothing is left to time.
struct Nobody;

impl Referee for Nobody {
    fn time(&mut self, convs: &[Conv]) -> Result<Vec<Result<f64, String>>> {
        assert!(convs.is_empty());
        Ok(Vec::new())
    }

    fn judge(&mut self, conv: &Conv) -> Judgement {
        panic!("{conv:?} was not timed")
    }
}

/// What a thing was made of outlives it: operations their tensors, configurations their engine and the
/// settings of its knobs, plans all of these, everything the handle.
pub fn what_things_are_made_of_outlives_them() {
    let device = Device::gpu(0).unwrap();
    let problem: Problem = "mb2ic8ih8oc8kh3+f16+nhwc+bias+relu".parse().unwrap();
    let cudnn = variants::find("cudnn").unwrap();
    let conv = Conv::with_variant(&device, &problem, cudnn, 0).unwrap();
    assert_eq!(count("fake_early"), 0, "while it was readied");
    drop(conv);
    assert_eq!(count("fake_early"), 0, "when it was dropped");

    // No time to build any of the plans that there are, with every setting of every knob.
    for problem in ["mb2ic8ih8oc8kh3", "mb2ic8ih8oc8kh3+bias+relu"] {
        let problem = problem.parse().unwrap();
        let options = Options {
            budget: Some(Duration::ZERO),
            ..Options::default()
        };
        let search = Search {
            device: &device,
            problem: &problem,
            options,
            known: None,
        };
        let found = search.run(&mut Nobody).unwrap();
        assert!(found.exact.is_none() && found.transform.is_none());
    }
    assert_eq!(count("fake_early"), 0, "in a search");
    assert!(count("fake_made") > 100, "{}", count("fake_made"));
    assert_eq!(count("fake_made"), count("fake_destroyed"));
}
