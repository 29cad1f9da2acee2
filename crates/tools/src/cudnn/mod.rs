//! NVIDIA cuDNN at its strongest: the fastest right one of all the plans that it has for a problem,
//! as [`convforge::cudnn::Search`] finds them.
//!
//! They make two variants. `cudnn` is the fastest plan that adds up products, and exact on whole
//! numbers as every variant is. `cudnn_transform` is cuDNN's fastest plan where that is a transform
//! (Winograd, FFT): it declares so, and is judged by the rules for real data. One search finds both.
//!
//! A search costs seconds, so it is made when a convolution is readied and never when it runs, and
//! once for a problem in a process. Where the environment variable `CONVFORGE_CUDNN_PLANS` names a
//! folder, what it finds is kept there for other processes: [`Stored`] says what those do with it, and with
//! what a file of [`Searches`] has of problems that the folder lacks. Who measures and judges plans, a
//! [`Referee`], is handed in.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `mod` | the two variants |
//! | `kept` | what keeps what searches found |
//! | `searches` | many of them in one file, short |

mod kept;
mod searches;

use std::{any::Any, env, ffi::c_void, path::PathBuf, sync::Arc};

use convforge::{
    Device, Error, Problem, Result, Stream,
    cudnn::{self, Found, Options as SearchOptions, Referee, Search, Winner},
    variant::{Args, Arithmetic, Bytes, Configured, Info, Packing, Plan, Prepared, Query, Variant},
};

use kept::Kept;
pub use searches::Searches;

use crate::{Contender, contender::TRANSFORM};

/// The library's variant, and the one that takes its place.
pub(crate) const NAME: &str = "cudnn";

/// What becomes of a search that an earlier process kept. One that is not complete goes on in any
/// case: it adds the plans that were not tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stored {
    /// Its winners are used.
    #[default]
    Trusted,
    /// Its finalists are measured and judged again, and all plans where that does not confirm it.
    Finalists,
    /// It is made again, but for the plans that are known to be far from the fastest.
    Again,
}

/// How cuDNN's plans are searched.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long, and how far.
    pub search: SearchOptions,
    /// A folder that keeps what was found.
    pub plans: Option<PathBuf>,
    /// What was found elsewhere, of what the folder does not have.
    pub known: Searches,
    /// What these are good for.
    pub stored: Stored,
}

impl Default for Options {
    /// As the library searches; kept where `CONVFORGE_CUDNN_PLANS` says.
    fn default() -> Self {
        let folder = env::var_os("CONVFORGE_CUDNN_PLANS").filter(|path| !path.is_empty());
        Options {
            search: SearchOptions::default(),
            plans: folder.map(PathBuf::from),
            known: Searches::default(),
            stored: Stored::default(),
        }
    }
}

/// Makes a [`Referee`] for each search.
pub(crate) type Referees = fn() -> Box<dyn Referee>;

/// The two variants in the place of the library's.
pub(crate) fn searched(
    library: &Arc<dyn Variant>,
    options: &Options,
    referees: Referees,
) -> [Arc<dyn Variant>; 2] {
    let kept = Arc::new(Kept::new(options.plans.clone(), options.known.clone()));
    let variant = |name: &str, idea: &str, arithmetic| -> Arc<dyn Variant> {
        let mut info = library.info().clone();
        info.name = name.to_owned();
        info.idea = idea.to_owned();
        info.arithmetic = arithmetic;
        info.judged = true;
        Arc::new(Searched {
            info,
            library: library.clone(),
            search: options.search,
            stored: options.stored,
            referees,
            kept: kept.clone(),
        })
    };
    [
        variant(
            NAME,
            "the fastest plan of all that cuDNN has, but for transforms",
            Arithmetic::Exact,
        ),
        variant(
            TRANSFORM,
            "cuDNN's fastest plan where that is a transform: Winograd, FFT",
            Arithmetic::Transform,
        ),
    ]
}

/// The winner among plans of one arithmetic.
struct Searched {
    info: Info,
    /// What knows which problems cuDNN is for.
    library: Arc<dyn Variant>,
    search: SearchOptions,
    stored: Stored,
    referees: Referees,
    /// Shared by both, as one search finds both winners.
    kept: Arc<Kept>,
}

// SAFETY: what it prepares is the library's own.
unsafe impl Variant for Searched {
    fn info(&self) -> &Info {
        &self.info
    }

    fn plan(&self, query: &Query) -> Result<Plan, String> {
        let mut plan = self.library.plan(query)?;
        // What a transform takes is seen when it is searched.
        if self.info.arithmetic == Arithmetic::Transform {
            plan.us = None;
        }
        Ok(plan)
    }

    fn open(&self) -> Result<()> {
        self.library.open()
    }

    fn prepare(&self, device: &Device, query: &Query, plan: Plan) -> Result<Box<dyn Prepared>> {
        let problem = query.problem;
        if problem.n() == 0 || !device.is_gpu() {
            return self.library.prepare(device, query, plan);
        }
        let key = self.key(problem, device)?;
        let ready = |found: &Found| {
            let winner = self.winner(found, problem)?;
            cudnn::prepare(device, problem, &winner.choice)
        };
        if let Some(found) = self.before(&key) {
            match ready(&found) {
                // A plan that can no longer be built is searched for again.
                Err(error) if !matches!(error, Error::Unsupported { .. }) => self.kept.forget(&key),
                prepared => {
                    let search = format!("searched before: {}", found.report);
                    return Ok(noted(prepared?, &search));
                }
            }
        }
        let search = || self.find(device, problem, &key);
        let found = self.kept.or_search(&key, search)?;
        Ok(noted(ready(&found)?, &found.report))
    }
}

impl Searched {
    /// What the winners are kept under: all that decides who wins.
    fn key(&self, problem: &Problem, device: &Device) -> Result<String> {
        let version = cudnn::version()?.to_string();
        Ok(self.key_of(problem, &device.name(), &version))
    }

    fn key_of(&self, problem: &Problem, device: &str, version: &str) -> String {
        let mut key = format!("{problem} on {device} by cuDNN {version}");
        let cap = self.search.workspace_cap;
        if cap != usize::MAX {
            key += &format!(" within {cap} bytes");
        }
        key
    }

    /// What was found in this process, or in an earlier one where that is enough.
    fn before(&self, key: &str) -> Option<Found> {
        self.kept.here(key).or_else(|| {
            let found = self
                .kept
                .earlier(key)
                .filter(|found| self.is_enough(found))?;
            self.kept.keep_here(key, &found);
            Some(found)
        })
    }

    /// Whether an earlier search need not be made again.
    fn is_enough(&self, earlier: &Found) -> bool {
        self.stored == Stored::Trusted && earlier.incomplete.is_none()
    }

    /// Searches, and keeps what is found.
    fn find(&self, device: &Device, problem: &Problem, key: &str) -> Result<Found> {
        let known = self.kept.earlier(key);
        let search = Search::new(device, problem)
            .options(self.search)
            .known(known.as_ref())
            .finalists(self.stored == Stored::Finalists);
        let mut found = search.run(&mut *(self.referees)())?;
        // Where there is no winner at all, something may be missing that will be there another time.
        if (found.exact.is_some() || found.transform.is_some())
            && let Err(why) = self.kept.put(key, &found)
        {
            found.report += &format!("; not kept: {}", crate::chain(&why));
        }
        Ok(found)
    }

    /// The winner of this variant's arithmetic; that no plan is right for it, with what was found.
    fn winner<'a>(&self, found: &'a Found, problem: &Problem) -> Result<&'a Winner> {
        let none = match self.info.arithmetic {
            Arithmetic::Transform => {
                "no transform plan of cuDNN passes and is faster than its best plan that is none"
            }
            _ => "cuDNN has no plan for it",
        };
        let winner = found.winner(self.info.arithmetic);
        winner.ok_or_else(|| Error::Unsupported {
            variant: self.info.name.clone(),
            problem: problem.to_string(),
            why: format!("{none}: {}", found.report),
        })
    }
}

/// Whether a contender is cuDNN and need not be searched on this problem from the start, for a device and a
/// version of cuDNN that need not be here.
pub(crate) fn is_known(
    contender: &Contender,
    problem: &Problem,
    (device, version): (&str, &str),
) -> bool {
    let earlier = searched_of(contender).and_then(|searched| {
        let key = searched.key_of(problem, device, version);
        searched.kept.earlier(&key)
    });
    earlier.is_some_and(|found| found.incomplete.is_none())
}

fn searched_of(contender: &Contender) -> Option<&Searched> {
    let Contender::Variant(Configured { variant, .. }) = contender else {
        return None;
    };
    let any: &dyn Any = &**variant;
    any.downcast_ref()
}

/// What this process found for a contender that is one of the two variants.
pub(crate) fn found(contender: &Contender, device: &Device, problem: &Problem) -> Option<Found> {
    let searched = searched_of(contender)?;
    searched.kept.here(&searched.key(problem, device).ok()?)
}

/// A plan of the library's whose note says how it was found.
struct Noted {
    plan: Box<dyn Prepared>,
    search: String,
}

fn noted(plan: Box<dyn Prepared>, search: &str) -> Box<dyn Prepared> {
    Box::new(Noted {
        plan,
        search: search.to_owned(),
    })
}

// SAFETY: everything but the note is the library's own.
unsafe impl Prepared for Noted {
    fn workspace(&self) -> Bytes {
        self.plan.workspace()
    }

    fn packing(&self) -> Option<Packing> {
        self.plan.packing()
    }

    fn handle_type(&self) -> Option<std::any::TypeId> {
        self.plan.handle_type()
    }

    fn handle(&self, stream: &Stream) -> Result<Box<dyn std::any::Any + Send>> {
        self.plan.handle(stream)
    }

    fn note(&self) -> Option<String> {
        let plan = self.plan.note();
        plan.map(|plan| format!("{plan}; {}", self.search))
    }

    unsafe fn pack(
        &self,
        w: *const c_void,
        packed: *mut c_void,
        stream: *mut c_void,
    ) -> Result<()> {
        // SAFETY: the caller's promises are the same.
        unsafe { self.plan.pack(w, packed, stream) }
    }

    unsafe fn launch(&self, args: Args) -> Result<()> {
        // SAFETY: as above.
        unsafe { self.plan.launch(args) }
    }
}

#[cfg(test)]
mod tests {
    use convforge::{Limits, variants};

    use super::*;

    /// No search is made here.
    fn unasked() -> Box<dyn Referee> {
        unreachable!("a test without a GPU searches nothing")
    }

    fn both(options: &Options) -> [Arc<dyn Variant>; 2] {
        searched(&variants::find(NAME).unwrap(), options, unasked)
    }

    fn of(arithmetic: Arithmetic) -> Searched {
        let library = variants::find(NAME).unwrap();
        let mut info = library.info().clone();
        info.arithmetic = arithmetic;
        Searched {
            info,
            library,
            search: SearchOptions::default(),
            stored: Stored::default(),
            referees: unasked,
            kept: Arc::new(Kept::new(None, Searches::default())),
        }
    }

    #[test]
    fn they_say_no_with_a_reason_and_only_sums_have_an_estimate() {
        let limits = Limits::of_chip("h200").unwrap();
        let [exact, transform] = both(&Options::default());
        let ask = |variant: &Arc<dyn Variant>, text: &str| {
            let problem: Problem = text.parse().unwrap();
            let query = Query::new(&problem, 0, &limits);
            variant.plan(&query).map(|plan| plan.us.is_some())
        };
        assert_eq!(ask(&exact, "ic8ih8oc8kh3+f16+nhwc+bias+relu"), Ok(true));
        assert_eq!(
            ask(&transform, "ic8ih8oc8kh3+f16+nhwc+bias+relu"),
            Ok(false)
        );
        for variant in [exact, transform] {
            let why = ask(&variant, "ic8ih8oc8kh3+math=bf16").unwrap_err();
            assert!(why.contains("bf16"), "{why}");
        }
    }

    #[test]
    fn the_cpu_is_no_place_for_them() {
        let problem: Problem = "ic8ih8oc8kh3".parse().unwrap();
        let limits = Limits::default();
        let query = Query::new(&problem, 0, &limits);
        for variant in both(&Options::default()) {
            let prepared = variant.prepare(&Device::cpu(), &query, Plan::default());
            assert!(matches!(prepared, Err(Error::NoGpu { .. })));
        }
    }

    /// What a search of an H200 might have found.
    pub(super) fn found_on_h200() -> Found {
        let text = r#"{
            "exact": {"choice": "engine 12 k2=5 k13=-1 (fused epilogue)", "us": 100.0},
            "transform": {"choice": "algorithm fft_tiling, math type 3", "us": 80.0},
            "wrong": {
                "choice": "algorithm winograd_nonfused, math type 3",
                "us": 50.0, "why": "the sums are coarse"
            },
            "plans": 67,
            "trials": [
                {"plan": "algorithm implicit_gemm, math type 3", "fate": "far", "us": 900.0},
                {
                    "plan": "algorithm winograd_nonfused, math type 3",
                    "fate": "wrong", "us": 50.0, "why": "the sums are coarse"
                }
            ],
            "report": "59 plans found"
        }"#;
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn without_a_winner_there_is_a_reason() {
        let problem = "ic8ih8oc8kh3".parse().unwrap();
        let mut found = found_on_h200();
        assert_eq!(
            of(Arithmetic::Exact).winner(&found, &problem).unwrap().us,
            100.0
        );
        (found.exact, found.transform) = (None, None);
        for (arithmetic, why) in [
            (Arithmetic::Exact, "cuDNN has no plan for it"),
            (Arithmetic::Transform, "no transform plan of cuDNN passes"),
        ] {
            let text = of(arithmetic)
                .winner(&found, &problem)
                .unwrap_err()
                .to_string();
            assert!(text.contains(why) && text.contains("59 plans"), "{text}");
        }
    }

    #[test]
    fn only_a_complete_search_is_not_made_again() {
        let mut variant = of(Arithmetic::Exact);
        let mut found = found_on_h200();
        assert!(variant.is_enough(&found));
        variant.stored = Stored::Again;
        assert!(!variant.is_enough(&found));
        variant.stored = Stored::Trusted;
        found.incomplete = Some("40 plans left out".to_owned());
        assert!(!variant.is_enough(&found));
    }

    #[test]
    fn winners_are_told_apart_by_all_that_matters() {
        // Without the library there is no version, and nothing to keep.
        let problem: Problem = "ic8ih8oc8kh3".parse().unwrap();
        let usual = of(Arithmetic::Exact);
        let Ok(key) = usual.key(&problem, &Device::cpu()) else {
            return;
        };
        assert!(key.starts_with(&problem.to_string()));
        let mut capped = of(Arithmetic::Exact);
        capped.search.workspace_cap = 1 << 20;
        assert_ne!(key, capped.key(&problem, &Device::cpu()).unwrap());
        // One search finds both.
        let transform = of(Arithmetic::Transform);
        assert_eq!(key, transform.key(&problem, &Device::cpu()).unwrap());
    }
}
