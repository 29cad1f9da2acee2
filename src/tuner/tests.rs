//! The judge on the spot, beside variants that are broken on purpose.

use std::{
    ffi::c_void,
    slice,
    sync::atomic::{AtomicUsize, Ordering},
};

use super::*;
use crate::variant::{Args, Info, Plan, Prepared};

/// What a broken variant does to the output of the plain loops: 16 x 16 pixels in f32.
type Fault = fn(&mut [f32]);

const FAULTS: [(&str, Fault); 6] = [
    ("nothing written", |y| y.fill(f32::NAN)),
    ("zeros", |y| y.fill(0.0)),
    ("one pixel off by one", |y| y[77] += 1.0),
    ("one tile swapped", |y| {
        (0..8).for_each(|i| y.swap(i, i + 64))
    }),
    ("one NaN", |y| y[0] = f32::NAN),
    ("the last one infinite", |y| {
        *y.last_mut().unwrap() = f32::INFINITY
    }),
];

/// The plain loops with a fault.
struct Broken {
    info: Info,
    plain: Arc<dyn Variant>,
    fault: Fault,
    /// How often it was readied.
    prepared: AtomicUsize,
}

// SAFETY: what it prepares is the library's own, and changes nothing but the output.
unsafe impl Variant for Broken {
    fn info(&self) -> &Info {
        &self.info
    }

    fn plan(&self, query: &Query) -> Result<Plan, String> {
        self.plain.plan(query)
    }

    fn prepare(&self, device: &Device, query: &Query, plan: Plan) -> Result<Box<dyn Prepared>> {
        self.prepared.fetch_add(1, Ordering::Relaxed);
        let prepared = self.plain.prepare(device, query, plan)?;
        let faulty = Faulty(prepared, self.fault, query.problem.y_len());
        Ok(Box::new(faulty))
    }
}

struct Faulty(Box<dyn Prepared>, Fault, usize);

// SAFETY: as above.
unsafe impl Prepared for Faulty {
    unsafe fn launch(&self, args: Args) -> Result<()> {
        let y: *mut c_void = args.y;
        // SAFETY: the caller vouches for the addresses; the output has so many elements.
        unsafe {
            self.0.launch(args)?;
            (self.1)(slice::from_raw_parts_mut(y.cast(), self.2));
        }
        Ok(())
    }
}

fn broken(fault: Fault) -> Arc<Broken> {
    let plain = variants::find("cpu_direct").unwrap();
    let mut info = plain.info().clone();
    info.name = "broken".to_owned();
    Arc::new(Broken {
        info,
        plain,
        fault,
        prepared: AtomicUsize::new(0),
    })
}

fn ready(problem: &Problem, variant: Arc<dyn Variant>) -> Conv {
    Conv::with_variant(&Device::cpu(), problem, variant, 0).unwrap()
}

#[test]
fn whoever_is_broken_is_found_on_the_spot() {
    // Few products in a sum, and so many that weights are thinned out.
    for text in ["mb1ic3ih16oc1oh16kh3ph1", "mb1ic9000ih16oc1oh16kh3ph1"] {
        let problem: Problem = text.parse().unwrap();
        let mut judge = Judge::new(&Device::cpu(), &problem).unwrap();
        for (what, fault) in FAULTS {
            let verdict = judge.judge(&ready(&problem, broken(fault))).unwrap();
            let Verdict::Wrong(why) = verdict else {
                panic!("{text}: {what}: {verdict:?}");
            };
            assert!(why.contains("cpu_direct"), "{why}");
        }
        let right = judge.judge(&ready(&problem, broken(|_| ()))).unwrap();
        assert_eq!(right, Verdict::Right);
    }
}

#[test]
fn what_the_plain_loops_take_too_long_for_is_judged_on_fewer_images() {
    let problem: Problem = "mb1000ic64ih56oc64kh3ph1".parse().unwrap();
    let judged = judge::affordable(&Device::cpu(), &problem);
    assert!((1..1000).contains(&judged.n()), "{judged}");
}

#[test]
fn what_is_judged_is_what_is_timed() {
    for (text, prepared) in [
        ("mb1ic3ih16oc1oh16kh3ph1", 1),
        // Judged on fewer images.
        ("mb64ic64ih56oc64kh3ph1", 2),
    ] {
        let problem: Problem = text.parse().unwrap();
        let conditions = Conditions::default().on(false);
        let mut bench = Bench::new(&Device::cpu(), &problem, conditions).unwrap();
        let variant = broken(|_| ());
        let entrant = Entrant {
            variant: variant.clone(),
            config: 0,
            source: String::new(),
            us: 0.0,
        };
        let conv = bench.ready(&entrant, &problem).unwrap();
        assert_eq!(bench.verdict(&entrant, &conv).unwrap(), Verdict::Right);
        assert_eq!(variant.prepared.load(Ordering::Relaxed), prepared, "{text}");
        if prepared == 1 {
            let outcome = bench.outcome(&entrant, &mut Vec::new());
            assert!(outcome.is_ok_and(|outcome| outcome.us() > Some(0.0)));
            assert_eq!(variant.prepared.load(Ordering::Relaxed), 2);
        }
    }
}
