//! NVIDIA cuDNN at its strongest: the fastest right one of all the plans that it has for a problem,
//! as [`convforge::cudnn::Search`] finds them.
//!
//! They make two variants. `cudnn` is the fastest plan that adds up products, and exact on whole
//! numbers as every variant is. `cudnn_transform` is cuDNN's fastest plan where that is a transform
//! (Winograd, FFT): it declares so, and is judged by the rules for real data. One search finds both.
//!
//! A search costs seconds, so it is made when a convolution is readied and never when it runs, and
//! once for a problem in a process. Where the environment variable `CONVFORGE_CUDNN_PLANS` names a
//! folder, winners are kept there for other processes.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `mod` | the two variants |
//! | `referee` | how plans are measured and judged |
//! | `kept` | what keeps the winners |

mod kept;
mod referee;

use std::{env, ffi::c_void, path::PathBuf, sync::Arc};

use convforge::{
    Device, Error, Problem, Result, Stream,
    cudnn::{self, Choice, Options as SearchOptions, Search},
    variant::{Args, Arithmetic, Bytes, Info, Packing, Plan, Prepared, Query, Variant},
};

use kept::{Entry, Kept};
use referee::Referee;

/// The library's variant, and the one that takes its place.
pub(crate) const NAME: &str = "cudnn";

/// How cuDNN's plans are searched.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long, and how far.
    pub search: SearchOptions,
    /// A folder that keeps the winners.
    pub plans: Option<PathBuf>,
}

impl Default for Options {
    /// As the library searches; winners where `CONVFORGE_CUDNN_PLANS` says.
    fn default() -> Self {
        let folder = env::var_os("CONVFORGE_CUDNN_PLANS").filter(|path| !path.is_empty());
        Options {
            search: SearchOptions::default(),
            plans: folder.map(PathBuf::from),
        }
    }
}

/// The two variants in the place of the library's.
pub(crate) fn searched(library: &Arc<dyn Variant>, options: &Options) -> [Arc<dyn Variant>; 2] {
    let kept = Arc::new(Kept::new(options.plans.clone()));
    let variant = |name: &str, idea: &str, arithmetic| -> Arc<dyn Variant> {
        let mut info = library.info().clone();
        info.name = name.to_owned();
        info.idea = idea.to_owned();
        info.arithmetic = arithmetic;
        Arc::new(Searched {
            info,
            library: library.clone(),
            search: options.search,
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
            "cudnn_transform",
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
        if let Some(entry) = self.kept.get(&key) {
            let choice = self.winner(&entry, problem)?;
            // A plan that can no longer be built is searched for again.
            if let Ok(prepared) = cudnn::prepare(device, problem, choice) {
                return Ok(noted(
                    prepared,
                    &format!("searched before: {}", entry.search),
                ));
            }
        }
        let entry = self.find(device, problem, &key)?;
        let prepared = cudnn::prepare(device, problem, self.winner(&entry, problem)?)?;
        Ok(noted(prepared, &entry.search))
    }
}

impl Searched {
    /// What the winners are kept under: all that decides who wins.
    fn key(&self, problem: &Problem, device: &Device) -> Result<String> {
        let (device, version) = (device.name(), cudnn::version()?);
        let mut key = format!("{problem} on {device} by cuDNN {version}");
        let cap = self.search.workspace_cap;
        if cap != usize::MAX {
            key += &format!(" within {cap} bytes");
        }
        Ok(key)
    }

    /// Searches, and keeps both winners.
    fn find(&self, device: &Device, problem: &Problem, key: &str) -> Result<Entry> {
        let search = Search {
            device,
            problem,
            options: self.search,
        };
        let found = search.run(&mut Referee::new(self.search.budget))?;
        let mut entry = Entry {
            exact: found.exact.map(|winner| winner.choice),
            transform: found.transform.map(|winner| winner.choice),
            search: found.report,
        };
        // Where there is no winner at all, something may be missing that will be there another time.
        if (entry.exact.is_some() || entry.transform.is_some())
            && let Err(why) = self.kept.put(key, &entry)
        {
            entry.search += &format!("; not kept: {}", crate::error::chain(&why));
        }
        Ok(entry)
    }

    /// The winner of this variant's arithmetic; that no plan is right for it, with what was found.
    fn winner<'a>(&self, entry: &'a Entry, problem: &Problem) -> Result<&'a Choice> {
        let (winner, none) = match self.info.arithmetic {
            Arithmetic::Transform => (
                &entry.transform,
                "no transform plan of cuDNN passes and is faster than its best plan that is none",
            ),
            _ => (&entry.exact, "cuDNN has no plan for it"),
        };
        winner.as_ref().ok_or_else(|| Error::Unsupported {
            variant: self.info.name.clone(),
            problem: problem.to_string(),
            why: format!("{none}: {}", entry.search),
        })
    }
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

    fn both(options: &Options) -> [Arc<dyn Variant>; 2] {
        searched(&variants::find(NAME).unwrap(), options)
    }

    fn of(arithmetic: Arithmetic) -> Searched {
        let library = variants::find(NAME).unwrap();
        let mut info = library.info().clone();
        info.arithmetic = arithmetic;
        Searched {
            info,
            library,
            search: SearchOptions::default(),
            kept: Arc::new(Kept::new(None)),
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
            assert!(matches!(prepared, Err(Error::NoGpu(_))));
        }
    }

    #[test]
    fn without_a_winner_there_is_a_reason() {
        let problem = "ic8ih8oc8kh3".parse().unwrap();
        let entry = Entry {
            exact: None,
            transform: None,
            search: "59 plans found".to_owned(),
        };
        for (arithmetic, why) in [
            (Arithmetic::Exact, "cuDNN has no plan for it"),
            (Arithmetic::Transform, "no transform plan of cuDNN passes"),
        ] {
            let text = of(arithmetic)
                .winner(&entry, &problem)
                .unwrap_err()
                .to_string();
            assert!(text.contains(why) && text.contains("59 plans"), "{text}");
        }
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
