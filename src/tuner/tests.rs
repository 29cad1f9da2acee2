//! The judge on the spot, beside variants that are broken on purpose.

use std::{
    ffi::c_void,
    slice,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use super::*;
use crate::variant::{Args, Info, Plan, Prepared, Query, Variant};

/// What a broken variant does to the output of the plain loops: 16 x 16 pixels in f32.
type Fault = fn(&mut [f32]);
/// What it makes of the input before it reads it, by that and the filter of one output channel.
type Misread = fn(&mut [f32], &[f32]);

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
    misread: Misread,
    /// How often it was readied.
    prepared: AtomicUsize,
    /// How often it was launched.
    launched: Arc<AtomicUsize>,
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
        Ok(Box::new(Faulty {
            plain: prepared,
            problem: query.problem.clone(),
            fault: self.fault,
            misread: self.misread,
            launched: self.launched.clone(),
        }))
    }
}

struct Faulty {
    plain: Box<dyn Prepared>,
    problem: Problem,
    fault: Fault,
    misread: Misread,
    launched: Arc<AtomicUsize>,
}

// SAFETY: as above.
unsafe impl Prepared for Faulty {
    unsafe fn launch(&self, args: Args) -> Result<()> {
        self.launched.fetch_add(1, Ordering::Relaxed);
        let (p, y): (_, *mut c_void) = (&self.problem, args.y);
        // SAFETY: the caller vouches for the addresses; the operands have so many elements.
        unsafe {
            let mut x = slice::from_raw_parts(args.x.cast(), p.x_len()).to_vec();
            (self.misread)(&mut x, slice::from_raw_parts(args.w.cast(), p.w_len()));
            let x = x.as_ptr().cast();
            self.plain.launch(Args { x, ..args })?;
            (self.fault)(slice::from_raw_parts_mut(y.cast(), p.y_len()));
        }
        Ok(())
    }
}

fn broken(fault: Fault) -> Arc<Broken> {
    Arc::new(named("broken", fault, |_, _| ()))
}

fn named(name: &str, fault: Fault, misread: Misread) -> Broken {
    let plain = variants::find("cpu_direct").unwrap();
    let mut info = plain.info().clone();
    info.name = name.to_owned();
    Broken {
        info,
        plain,
        fault,
        misread,
        prepared: AtomicUsize::new(0),
        launched: Arc::default(),
    }
}

/// On whatever machine: what plain loops get through is told by the number of threads.
fn on_two_threads(work: impl FnOnce() + Send) {
    #[cfg(feature = "cpu")]
    {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build();
        pool.unwrap().install(work);
    }
    // There is one.
    #[cfg(not(feature = "cpu"))]
    work();
}

fn ready(problem: &Problem, variant: Arc<dyn Variant>) -> Conv {
    Conv::with_variant(&Device::cpu(), problem, variant).unwrap()
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

/// One product of one pixel, wherever that lies: of very many in f16 sums, and under activations that level
/// off.
#[test]
fn a_single_product_that_is_lost_is_found() {
    const PIXELS: usize = 64;
    // The product of a whole number of a pixel with one of the first channel where neither is 0.
    fn lose(pixel: usize, x: &mut [f32], w: &[f32]) {
        let mut channels = w.iter().enumerate();
        let found = channels.find(|(c, w)| **w != 0.0 && x[c * PIXELS + pixel] != 0.0);
        x[found.unwrap().0 * PIXELS + pixel] = 0.0;
    }
    let misreads: [Misread; 4] = [
        |x, w| lose(0, x, w),
        |x, w| lose(21, x, w),
        |x, w| lose(42, x, w),
        |x, w| lose(63, x, w),
    ];
    for text in [
        "mb1ic20000ih8oc1kh1+math=f16acc",
        "mb1ic20000ih8oc1kh1+math=f16acc+scale=0.3+bias",
        "mb1ic20000ih8oc1kh1+tanh",
        "mb1ic20000ih8oc1kh1+sigmoid",
        "mb1ic4608ih8oc1kh1+scale=7+bias+residual+sigmoid",
        "mb1ic20000ih8oc1kh1+math=f16acc+tanh",
        "mb1ic20000ih8oc1kh1+math=f16acc+sigmoid",
    ] {
        let problem: Problem = text.parse().unwrap();
        let mut judge = Judge::new(&Device::cpu(), &problem).unwrap();
        for misread in misreads {
            let variant = named("broken", |_| (), misread);
            let verdict = judge.judge(&ready(&problem, Arc::new(variant))).unwrap();
            assert!(matches!(verdict, Verdict::Wrong(_)), "{text}: {verdict:?}");
        }
        let right = judge.judge(&ready(&problem, broken(|_| ()))).unwrap();
        assert_eq!(right, Verdict::Right, "{text}");
    }
}

/// Whoever all are compared with may be the broken one.
#[test]
fn a_broken_reference_is_passed_over() {
    let problem: Problem = "mb1ic3ih16oc1oh16kh3ph1".parse().unwrap();
    for (what, fault) in FAULTS {
        let make = |name, fault| Arc::new(named(name, fault, |_, _| ()));
        let (first, second) = (make("first", fault), make("second", |_| ()));
        let beside = || -> Vec<Arc<dyn Variant>> { vec![first.clone(), second.clone()] };
        let mut judge = Judge::beside(&Device::cpu(), &problem, beside()).unwrap();
        let mut verdict = |variant| judge.judge(&ready(&problem, variant)).unwrap();
        assert_eq!(verdict(make("third", |_| ())), Verdict::Right, "{what}");
        let wrong = verdict(first.clone());
        assert!(
            matches!(&wrong, Verdict::Wrong(why) if why.contains("second")),
            "{what}: {wrong:?}"
        );
        // Nobody else is left.
        assert!(matches!(verdict(second.clone()), Verdict::Unknown(_)));
    }
    // Two that are wrong all over in the same way do not bear each other out.
    for (what, fault) in &FAULTS[..2] {
        let make = |name| Arc::new(named(name, *fault, |_, _| ()));
        let beside: Vec<Arc<dyn Variant>> = vec![make("first"), make("second")];
        let mut judge = Judge::beside(&Device::cpu(), &problem, beside).unwrap();
        let verdict = judge.judge(&ready(&problem, make("third"))).unwrap();
        assert!(
            matches!(verdict, Verdict::Unknown(_)),
            "{what}: {verdict:?}"
        );
    }
}

/// As `compare` does it, which rests after every round.
#[test]
fn a_gpu_rests_between_samples() {
    let mut took = [1000.0, 50.0, 40_000.0, 7.0].into_iter();
    let mut pauses = Vec::new();
    let samples = timer::rested(
        || Ok(took.next().unwrap()),
        |taken| taken < 4,
        |pause| pauses.push(pause.as_micros()),
    );
    assert_eq!(samples.unwrap(), [1000.0, 50.0, 40_000.0, 7.0]);
    assert_eq!(pauses, [3000, 150, 100_000]);
    let failed = timer::rested(|| Err(Error::Interrupted), |_| true, |_| ());
    assert!(failed.is_err());
}

/// Once the budget is spent, a median of few samples does.
#[test]
fn what_is_late_ends_with_few_samples() {
    let cpu = Device::cpu();
    let problem: Problem = "mb64ic3ih16oc1oh16kh3ph1".parse().unwrap();
    let mut launched = [Duration::ZERO, Duration::from_secs(60)].map(|of| {
        let conditions = Conditions::default().on(false);
        let mut timer = Timer::new(&cpu, &problem, conditions).unwrap();
        let began = Instant::now();
        let variant = broken(|_| thread::sleep(Duration::from_millis(2)));
        let conv = ready(&problem, variant.clone());
        timer.time(&conv, Budget { began, of }).unwrap();
        variant.launched.load(Ordering::Relaxed)
    });
    // One to load what is loaded at first use, one to see how long it takes, then the samples.
    launched.iter_mut().for_each(|count| *count -= 2);
    assert_eq!(launched, [3, 9]);
}

#[test]
fn what_the_plain_loops_take_too_long_for_is_judged_on_fewer_images() {
    on_two_threads(|| {
        let problem: Problem = "mb1000ic64ih56oc64kh3ph1".parse().unwrap();
        let judged = judge::affordable(&Device::cpu(), &problem);
        assert!((1..1000).contains(&judged.n()), "{judged}");
    });
}

#[test]
fn what_is_judged_is_what_is_timed() {
    on_two_threads(what_is_judged);
}

fn what_is_judged() {
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
            configured: variant.clone().into(),
            source: String::new(),
            us: 0.0,
        };
        let conv = bench.ready(&entrant, &problem).unwrap();
        assert_eq!(bench.verdict(&entrant, &conv).unwrap(), Verdict::Right);
        assert_eq!(variant.prepared.load(Ordering::Relaxed), prepared, "{text}");
        if prepared == 1 {
            let budget = Budget {
                began: Instant::now(),
                of: Duration::from_secs(9),
            };
            let outcome = bench.outcome(&entrant, budget, &mut Vec::new());
            assert!(outcome.is_ok_and(|outcome| outcome.us() > Some(0.0)));
            assert_eq!(variant.prepared.load(Ordering::Relaxed), 2);
        }
    }
}
