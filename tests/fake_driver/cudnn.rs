//! The order in which cuDNN's objects are destroyed, and a whole search.

use std::{
    env,
    ffi::c_int,
    mem,
    sync::atomic::{AtomicBool, AtomicI32, Ordering},
    time::Duration,
};

use convforge::{
    Buffer, Conv, Device, Error, Problem, Result,
    cudnn::{self, Fate, Found, Judgement, Options, Referee, Search},
    variant::{Plan, Query},
    variants,
};

/// A count of the fake library's.
fn count(name: &str) -> c_int {
    let path = env::var_os("CONVFORGE_CUDNN_LIB").unwrap();
    // SAFETY: the library is loaded already and stays so; the function answers the address of an
    // integer of its own.
    unsafe {
        let library = libloading::Library::new(path).unwrap();
        let integer = library.get::<unsafe extern "C" fn() -> *const AtomicI32>(name);
        (*integer.unwrap()()).load(Ordering::SeqCst)
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

/// One after the other, since they count what the library does.
pub fn all() {
    what_things_are_made_of_outlives_them();
    a_search_tries_every_plan_and_adds_to_an_earlier_one();
    buffers_in_turns_make_their_descriptors_once();
    finalists_race_by_themselves_while_they_stand_up();
    a_plan_of_a_search_serves_its_problem_and_its_gpu();
    a_choice_serves_no_problem_that_it_does_not_compute();
}

/// What a thing was made of outlives it: operations their tensors, configurations their engine and the
/// settings of its knobs, plans all of these, everything the handle.
fn what_things_are_made_of_outlives_them() {
    let device = Device::gpu(0).unwrap();
    let problem: Problem = "mb2ic8ih8oc8kh3+f16+nhwc+bias+relu".parse().unwrap();
    let cudnn = variants::find("cudnn").unwrap();
    let conv = Conv::with_variant(&device, &problem, cudnn).unwrap();
    assert_eq!(count("fake_early"), 0, "while it was readied");
    drop(conv);
    assert_eq!(count("fake_early"), 0, "when it was dropped");

    // No time to build any of the plans that there are, with every setting of every knob.
    for problem in ["mb2ic8ih8oc8kh3", "mb2ic8ih8oc8kh3+bias+relu"] {
        let problem = problem.parse().unwrap();
        let options = Options::default().budget(Duration::ZERO);
        let search = Search::new(&device, &problem).options(options);
        let found = search.run(&mut Nobody).unwrap();
        assert!(found.exact.is_none() && found.transform.is_none());
        // Stopped before it began.
        static STOP: AtomicBool = AtomicBool::new(true);
        let stopped = search.options(Options::default().stop(&STOP));
        let error = stopped.run(&mut Nobody).unwrap_err();
        assert!(matches!(error, Error::Interrupted), "{error}");
    }
    assert_eq!(count("fake_early"), 0, "in a search");
    assert!(count("fake_made") > 100, "{}", count("fake_made"));
    assert_eq!(count("fake_made"), count("fake_destroyed"));
}

/// Gives out times one after another from this one on, and finds the fastest wrong.
struct Strict {
    from_us: f64,
    judged: usize,
}

impl Strict {
    fn new(from_us: f64) -> Self {
        Strict { from_us, judged: 0 }
    }
}

impl Referee for Strict {
    fn time(&mut self, convs: &[Conv]) -> Result<Vec<Result<f64, String>>> {
        Ok((0..convs.len())
            .map(|i| Ok(self.from_us + i as f64))
            .collect())
    }

    fn judge(&mut self, _: &Conv) -> Judgement {
        self.judged += 1;
        match self.judged {
            1 => Judgement::Wrong("coarse".to_owned()),
            _ => Judgement::Right,
        }
    }
}

/// Lets the library's work move the driver's clock.
fn connect_clocks() {
    let [driver, cudnn] = ["CONVFORGE_CUDA_LIB", "CONVFORGE_CUDNN_LIB"].map(|name| {
        // SAFETY: the libraries are loaded already and stay so.
        unsafe { libloading::Library::new(env::var_os(name).unwrap()) }.unwrap()
    });
    // SAFETY: these are their types, and the clock stays where it is.
    unsafe {
        let clock = driver.get::<unsafe extern "C" fn() -> *mut f64>("fake_clock");
        let user = cudnn.get::<unsafe extern "C" fn(*mut f64)>("fake_move");
        user.unwrap()(clock.unwrap()());
    }
    mem::forget([driver, cudnn]);
}

/// Every plan is tried, however slow; the wrong one is told; what is known to be far does not run again.
fn a_search_tries_every_plan_and_adds_to_an_earlier_one() {
    connect_clocks();
    let device = Device::gpu(0).unwrap();
    let search = |problem: &str, options, known: Option<&Found>| {
        let problem: Problem = problem.parse().unwrap();
        let search = Search::new(&device, &problem).options(options).known(known);
        let before = count("fake_executed");
        let found = search.run(&mut Strict::new(90.0)).unwrap();
        (found, count("fake_executed") - before)
    };
    for (problem, is_previewed) in [("mb2ic8ih8oc8kh3", false), ("mb1000ic8ih8oc8kh3", true)] {
        let (found, executed) = search(problem, Options::default(), None);
        let wrong = found.wrong.as_ref().unwrap();
        assert_eq!((wrong.us, &*wrong.why), (90.0, "coarse"));
        assert_eq!(found.exact.as_ref().unwrap().us, 91.0);
        let fates = found.trials.iter().map(|trial| &trial.fate);
        let slow: Vec<_> = fates
            .clone()
            .filter(|fate| fate.us() > Some(1000.0))
            .collect();
        // Three settings of each engine are told apart by their sum; three of the slow one.
        assert_eq!(slow.len(), 3, "{found:?}");
        let is_far = |fate: &&Fate| matches!(fate, Fate::Far { .. });
        assert_eq!(slow.into_iter().all(|fate| is_far(&fate)), is_previewed);
        assert!(!fates.clone().any(|fate| matches!(fate, Fate::Left { .. })));
        let ran = fates.filter(|fate| fate.us().is_some()).count();
        assert_eq!(ran, 6, "{found:?}");

        let (again, executed_again) = search(problem, Options::default(), Some(&found));
        assert!(executed_again < executed, "{executed_again} of {executed}");
        assert!(
            again.report.contains("3 excluded (known to be far"),
            "{}",
            again.report
        );
        assert_eq!(again.exact, found.exact);
        assert_eq!(again.trials.len(), found.trials.len());
    }
    let short = Options::default().budget(Duration::ZERO);
    let (found, executed) = search("mb2ic8ih8oc8kh3", short, None);
    let why = found.incomplete.unwrap();
    // The engines, and what the older API might have.
    let left = "14 plans left out (no time left to build";
    assert!(why.contains(left), "{why}");
    assert_eq!(executed, 0);
    assert_eq!(count("fake_early"), 0, "in a race");
    assert_eq!(count("fake_made"), count("fake_destroyed"));
}

/// A set of addresses has its descriptor from its first run on, however many others come between, up to as many
/// as are kept.
fn buffers_in_turns_make_their_descriptors_once() {
    let device = Device::gpu(0).unwrap();
    let problem: Problem = "mb2ic8ih8oc8kh3".parse().unwrap();
    let cudnn = variants::find("cudnn").unwrap();
    let conv = Conv::with_variant(&device, &problem, cudnn).unwrap();
    let stream = device.stream().unwrap();
    let mut workspace = conv.workspace(&stream).unwrap();
    let x = device.alloc::<f32>(problem.x_len()).unwrap();
    let w = device.alloc::<f32>(problem.w_len()).unwrap();
    let outputs = (0..33).map(|_| device.alloc::<f32>(problem.y_len()).unwrap());
    let mut outputs: Vec<_> = outputs.collect();
    // Descriptors made in two rounds over so many outputs.
    let mut two_rounds = |outputs: &mut [Buffer<f32>]| {
        [0; 2].map(|_| {
            let (made, executed) = (count("fake_made"), count("fake_executed"));
            for y in &mut *outputs {
                conv.run(&x, &w, y, &mut workspace, &stream).unwrap();
            }
            let executed = count("fake_executed") - executed;
            assert_eq!(executed as usize, outputs.len());
            count("fake_made") - made
        })
    };
    assert_eq!(two_rounds(&mut outputs[..3]), [3, 0]);
    assert_eq!(two_rounds(&mut outputs[..32]), [29, 0]);
    // One more than are kept: each is made in the place of the next one that is asked for.
    assert_eq!(two_rounds(&mut outputs), [1, 33]);
    drop((conv, workspace));
    assert_eq!(count("fake_early"), 0);
    assert_eq!(count("fake_made"), count("fake_destroyed"));
}

/// Of a complete search only finalists run; all plans do where there are more of them than it knew, or where
/// the fastest is no longer what it was.
fn finalists_race_by_themselves_while_they_stand_up() {
    let device = Device::gpu(0).unwrap();
    let problem: Problem = "mb2ic8ih8oc8kh3".parse().unwrap();
    let search = |known: Option<&Found>, from_us| {
        let search = Search::new(&device, &problem).known(known).finalists(true);
        let before = count("fake_executed");
        let found = search.run(&mut Strict::new(from_us)).unwrap();
        let raced = found.report.contains("raced by themselves");
        (found, count("fake_executed") - before, raced)
    };
    let (found, executed, raced) = search(None, 90.0);
    assert!(!raced && found.plans > 0, "{found:?}");
    let kept = found.finalists();
    assert!(kept.trials.len() < found.trials.len(), "{kept:?}");

    // As it is committed, and as a folder keeps it.
    for known in [&kept, &found] {
        let (again, fewer, raced) = search(Some(known), 90.0);
        assert!(
            raced && fewer < executed,
            "{fewer} of {executed}: {again:?}"
        );
        assert_eq!((&again.exact, again.plans), (&found.exact, found.plans));
        assert_eq!(again.incomplete, None);
        assert_eq!(again.trials.len(), known.trials.len());
        assert!(again.report.starts_with(&kept.report), "{}", again.report);
        assert_eq!(again.finalists().report, kept.report);
    }
    // A little slower is no reason, and no record either.
    let (again, _, raced) = search(Some(&kept), 91.0);
    assert!(raced, "{again:?}");
    assert_eq!(again.exact, found.exact);
    let (mut fewer_plans, mut cut_short, mut alone) = (kept.clone(), kept.clone(), kept.clone());
    fewer_plans.plans -= 1;
    cut_short.incomplete = Some("40 plans left out".to_owned());
    let winner = found.exact.as_ref().unwrap();
    alone.trials.retain(|trial| trial.plan == winner.choice);
    for (known, from_us) in [
        (&kept, 110.0),
        (&alone, 94.0),
        (&fewer_plans, 90.0),
        (&cut_short, 90.0),
    ] {
        let (again, _, raced) = search(Some(known), from_us);
        assert!(!raced, "{again:?}");
        assert!(again.trials.len() > known.trials.len(), "{again:?}");
    }
}

/// Asks each plan about other questions than its own.
struct Curious;

impl Referee for Curious {
    fn time(&mut self, convs: &[Conv]) -> Result<Vec<Result<f64, String>>> {
        assert!(!convs.is_empty());
        convs.iter().for_each(ask_otherwise);
        Ok(convs.iter().map(|_| Ok(100.0)).collect())
    }

    fn judge(&mut self, _: &Conv) -> Judgement {
        Judgement::Right
    }
}

/// Its plan writes all images of its problem, on its GPU, whatever lengths were checked.
fn ask_otherwise(conv: &Conv) {
    let (device, problem) = (conv.device(), conv.problem());
    let anew = |device: &Device, problem: &Problem| {
        Conv::with_variant(device, problem, conv.variant().clone())
    };
    anew(device, problem).unwrap();
    let fewer = problem.with(|shape| shape.n = 1).unwrap();
    let error = anew(device, &fewer).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    assert!(error.to_string().contains(&problem.to_string()), "{error}");
    let error = anew(&Device::gpu(1).unwrap(), problem).unwrap_err();
    assert!(matches!(error, Error::WrongDevice { .. }), "{error}");
    let limits = device.limits();
    let query = Query::new(&fewer, 0, &limits);
    let prepared = conv.variant().prepare(device, &query, Plan::default());
    assert!(matches!(prepared, Err(Error::Unavailable(_))));
}

fn a_plan_of_a_search_serves_its_problem_and_its_gpu() {
    let device = Device::gpu(0).unwrap();
    let problem: Problem = "mb2ic8ih8oc8kh3".parse().unwrap();
    let search = Search::new(&device, &problem);
    assert!(search.run(&mut Curious).unwrap().exact.is_some());
}

/// Of a file, or another problem's search.
fn a_choice_serves_no_problem_that_it_does_not_compute() {
    let device = Device::gpu(0).unwrap();
    let problem = |text: &str| text.parse::<Problem>().unwrap();
    let prepare = |choice: &str, text: &str| {
        cudnn::prepare(&device, &problem(text), &choice.parse().unwrap())
    };
    prepare("engine 1", "mb2ic8ih8oc8kh3").unwrap();
    for (choice, text) in [
        ("engine 1", "mb2ic8ih8oc8kh3+pool=2"),
        ("engine 1", "mb2ic8ih8oc8kh3+bias+relu"),
        ("engine 1", "mb2ic8ih8oc8kh3+math=bf16"),
        (
            "algorithm gemm, math type 3 (f32 sums, epilogue after)",
            "mb2ic8ih8oc8kh3+f16+bias",
        ),
    ] {
        match prepare(choice, text) {
            Err(Error::Unavailable(why)) => {
                let shapes = problem(text).to_string();
                assert!(why.contains(choice) && why.contains(&shapes), "{why}")
            }
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("{choice} was readied for {text}"),
        }
    }
}
