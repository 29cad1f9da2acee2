//! One of cuDNN's plans, ready to launch.

use std::{
    any::{Any, TypeId},
    ffi::c_void,
    fmt,
    ptr::null_mut,
    str::FromStr,
    sync::Arc,
};

use super::{
    algorithm::Algorithm,
    call::Handle,
    engine::{Config, Engine},
    graph::{Graph, Operand},
    legacy,
    rules::{self, Form, strides},
    variant_pack::Launcher,
};
use crate::{
    Error, Problem, Result, Stream,
    gpu::Gpu,
    kernels::{CProblem, addresses, checked, ffi},
    variant::{Args, Arithmetic, Bytes, Prepared},
};

/// What tells one of cuDNN's plans from the others, so that it can be made again. It means the same
/// plan for the same version of cuDNN only. In files it stands as its text: `engine 12 k2=5 k13=-1`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(into = "String", try_from = "String"))]
pub struct Choice(pub(super) Api);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Api {
    /// An engine of the graph API with the types and values of its knobs.
    Graph {
        form: Form,
        engine: i64,
        knobs: Vec<(u32, i64)>,
    },
    /// An algorithm of the older API.
    Legacy(legacy::Choice),
}

impl Choice {
    /// Some plan, for tests.
    #[cfg(test)]
    pub(crate) fn engine(engine: i64) -> Self {
        Choice(Api::Graph {
            form: Form::Plain,
            engine,
            knobs: Vec::new(),
        })
    }

    fn form(&self) -> Form {
        match &self.0 {
            Api::Graph { form, .. } => *form,
            Api::Legacy(choice) => choice.form,
        }
    }

    /// Refuses a problem whose result this does not give: it would leave out the epilogue, or write more
    /// than y holds.
    ///
    /// # Errors
    /// [`Error::Unavailable`], with why.
    fn check(&self, problem: &Problem) -> Result<()> {
        let gives = match &self.0 {
            Api::Graph { form, .. } => Form::of(problem).contains(form),
            Api::Legacy(choice) => legacy::Choice::all(problem).contains(choice),
        };
        let why = match rules::refuses(problem) {
            Some(why) => why,
            None if gives => return Ok(()),
            None => "it computes something else; a cudnn::Search finds those that do".to_owned(),
        };
        Err(self.refused(problem, &why))
    }

    fn refused(&self, problem: &Problem, why: &str) -> Error {
        Error::Unavailable(format!("plan `{self}` of cuDNN's for {problem}: {why}"))
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match &self.0 {
            Api::Graph { engine, knobs, .. } => {
                write!(f, "engine {engine}")?;
                for (kind, value) in knobs {
                    write!(f, " k{kind}={value}")?;
                }
            }
            Api::Legacy(choice) => choice.fmt(f)?,
        }
        match words_of(self.form()) {
            "" => Ok(()),
            words => write!(f, " ({words})"),
        }
    }
}

/// What a form is called behind a plan's name.
fn words_of(form: Form) -> &'static str {
    match form {
        Form::Plain => "",
        Form::Half => "f16 sums",
        Form::Fused => "fused epilogue",
        Form::Sums => "f32 sums, epilogue after",
    }
}

impl FromStr for Choice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, words) = match text
            .strip_suffix(')')
            .and_then(|text| text.rsplit_once(" ("))
        {
            Some(parts) => parts,
            None => (text, ""),
        };
        let forms = [Form::Plain, Form::Half, Form::Fused, Form::Sums];
        let form = forms.into_iter().find(|form| words_of(*form) == words);
        let choice = form.and_then(|form| {
            let api = match name.strip_prefix("engine ") {
                Some(engine) => engine_named(engine, form),
                None => legacy::Choice::named(name, form).map(Api::Legacy),
            };
            api.map(Choice)
        });
        choice.ok_or_else(|| Error::Unavailable(format!("plan of cuDNN's of the name `{text}`")))
    }
}

/// `12 k2=5 k13=-1`.
fn engine_named(text: &str, form: Form) -> Option<Api> {
    let mut words = text.split(' ');
    let engine = words.next()?.parse().ok()?;
    let knob = |word: &str| {
        let (kind, value) = word.strip_prefix('k')?.split_once('=')?;
        Some((kind.parse().ok()?, value.parse().ok()?))
    };
    let knobs = words.map(knob).collect::<Option<_>>()?;
    Some(Api::Graph {
        form,
        engine,
        knobs,
    })
}

impl From<Choice> for String {
    fn from(choice: Choice) -> String {
        choice.to_string()
    }
}

impl TryFrom<String> for Choice {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

enum Kernels {
    Graph(Engine),
    Legacy(Algorithm),
}

/// A plan that cuDNN built.
pub(crate) struct Candidate {
    pub(crate) choice: Choice,
    /// As cuDNN notes it.
    pub(crate) arithmetic: Arithmetic,
    kernels: Kernels,
}

impl Candidate {
    /// # Errors
    /// What cuDNN refuses.
    pub(super) fn graph(graph: &Arc<Graph>, config: Config) -> Result<Self> {
        let choice = Choice(Api::Graph {
            form: graph.form(),
            engine: config.engine,
            knobs: config.knobs.clone(),
        });
        Ok(Candidate {
            choice,
            arithmetic: rules::arithmetic(&config.notes),
            kernels: Kernels::Graph(Engine::build(graph, config)?),
        })
    }

    /// # Errors
    /// What cuDNN refuses.
    pub(super) fn legacy(
        handle: &Handle,
        problem: &Problem,
        choice: legacy::Choice,
    ) -> Result<Self> {
        let algorithm = Algorithm::build(handle, problem, choice)?;
        Ok(Candidate {
            choice: Choice(Api::Legacy(choice)),
            arithmetic: choice.arithmetic(),
            kernels: Kernels::Legacy(algorithm),
        })
    }

    /// What an earlier search chose, or a text says that it did.
    ///
    /// # Errors
    /// [`Error::Unavailable`] for a plan of another problem's; what cuDNN refuses.
    pub(super) fn again(handle: &Arc<Handle>, problem: &Problem, choice: &Choice) -> Result<Self> {
        choice.check(problem)?;
        match &choice.0 {
            Api::Graph {
                form,
                engine,
                knobs,
            } => {
                let graph = Arc::new(Graph::new(handle, problem, *form)?);
                let config = Config::named(&graph, *engine, knobs)?;
                match rules::excluded(problem.math(), &config.notes) {
                    Some(why) => {
                        Err(choice.refused(problem, &format!("is no plan of this math ({why})")))
                    }
                    None => Candidate::graph(&graph, config),
                }
            }
            Api::Legacy(choice) => Candidate::legacy(handle, problem, *choice),
        }
    }

    /// Bytes of workspace of cuDNN's own.
    fn scratch(&self) -> usize {
        match &self.kernels {
            Kernels::Graph(engine) => engine.workspace(),
            Kernels::Legacy(algorithm) => algorithm.workspace(),
        }
    }

    /// Bytes of workspace in all.
    pub(super) fn workspace(&self, problem: &Problem) -> usize {
        let sums = if self.choice.form().finishes() {
            sums_bytes(problem)
        } else {
            0
        };
        match (self.scratch(), sums) {
            (0, 0) => 0,
            (scratch, sums) => scratch.next_multiple_of(ALIGN) + sums + ALIGN,
        }
    }
}

/// What cuDNN's workspace and the sums begin at a multiple of. A workspace itself may begin at half
/// of it.
const ALIGN: usize = 256;

fn sums_bytes(problem: &Problem) -> usize {
    problem.n() * problem.k() * problem.p() * problem.q() * size_of::<f32>()
}

/// Where sums lie that are finished behind cuDNN.
fn strides_of_sums(p: &Problem) -> ffi::cf_strides {
    let at = strides(p.layout(), [p.n(), p.k(), p.p(), p.q()]).map(|stride| stride as i64);
    let [image, channel, row, column] = at;
    ffi::cf_strides {
        image,
        channel,
        row,
        column,
    }
}

/// A candidate settled on its problem; none where there are no images.
pub(crate) struct Settled {
    gpu: Gpu,
    problem: Problem,
    c_problem: CProblem,
    candidate: Option<Arc<Candidate>>,
    note: Option<String>,
}

impl Settled {
    pub(crate) fn new(
        gpu: &Gpu,
        problem: &Problem,
        candidate: Option<Arc<Candidate>>,
        note: Option<String>,
    ) -> Result<Self> {
        let settled = Settled {
            gpu: gpu.clone(),
            problem: problem.clone(),
            c_problem: CProblem::new(problem),
            candidate,
            note,
        };
        let finishes = |candidate: &Arc<Candidate>| candidate.choice.form().finishes();
        if settled.candidate.as_ref().is_some_and(finishes) {
            let _current = gpu.enter()?;
            let strides = strides_of_sums(problem);
            // SAFETY: the context is current; it reads the problem and nothing else.
            let code = unsafe { ffi::cf_prepare_finish(&settled.c_problem.0, strides) };
            checked("cf_prepare_finish", code)?;
        }
        Ok(settled)
    }
}

// SAFETY: cuDNN keeps to the workspace that it asks for; tests/variants.rs fences it.
unsafe impl Prepared for Settled {
    fn workspace(&self) -> Bytes {
        let bytes = self
            .candidate
            .as_ref()
            .map_or(0, |plan| plan.workspace(&self.problem));
        Bytes {
            least: bytes,
            preferred: bytes,
        }
    }

    fn handle_type(&self) -> Option<TypeId> {
        Some(TypeId::of::<Launcher>())
    }

    fn handle(&self, stream: &Stream) -> Result<Box<dyn Any + Send>> {
        Ok(Box::new(Launcher::new(Handle::new(
            &self.gpu,
            stream.raw(),
        )?)))
    }

    fn note(&self) -> Option<String> {
        self.note.clone()
    }

    unsafe fn launch(&self, mut args: Args) -> Result<()> {
        let Some(candidate) = &self.candidate else {
            return Ok(());
        };
        let _current = self.gpu.enter()?;
        let finishes = candidate.choice.form().finishes();
        let scratch = args
            .workspace
            .map_addr(|address| address.next_multiple_of(ALIGN));
        let sums: *mut c_void =
            scratch.wrapping_byte_add(candidate.scratch().next_multiple_of(ALIGN));
        {
            let launcher = args
                .handle
                .as_deref_mut()
                .and_then(|any| any.downcast_mut::<Launcher>())
                .ok_or_else(|| Error::Operand {
                    problem: self.problem.to_string(),
                    why: "was given a workspace whose handle is not cuDNN's".to_owned(),
                })?;
            let address = |operand| match operand {
                Operand::X => args.x.cast_mut(),
                Operand::W => args.w.cast_mut(),
                Operand::Result if finishes => sums,
                Operand::Result => args.y,
                Operand::Residual => args.residual.cast_mut(),
                Operand::Bias => args.bias.cast_mut().cast(),
                // The graph has its own.
                Operand::Scale => null_mut(),
            };
            // SAFETY: the caller vouches for the addresses, and the workspace is as large as
            // `workspace` said, so both parts lie within it.
            unsafe {
                match &candidate.kernels {
                    Kernels::Graph(engine) => engine.launch(launcher, address, scratch),
                    Kernels::Legacy(algorithm) => {
                        algorithm.launch(&launcher.handle, address, scratch)
                    }
                }
            }?;
        }
        args.stage(c"cudnn");
        if finishes {
            let p = &self.problem;
            // SAFETY: the sums were enqueued before, for every image; the rest is the caller's.
            let code = unsafe {
                ffi::cf_finish(
                    &self.c_problem.0,
                    &addresses(&args),
                    0,
                    p.n() as i64,
                    sums.cast(),
                    strides_of_sums(p),
                )
            };
            checked("cf_finish", code)?;
            args.stage(c"epilogue");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_told_in_words_and_read_from_them() {
        let engine = |form, engine, knobs: &[(u32, i64)]| {
            Choice(Api::Graph {
                form,
                engine,
                knobs: knobs.to_vec(),
            })
        };
        let algorithm = |algorithm, math, form| {
            Choice(Api::Legacy(legacy::Choice {
                algorithm,
                math,
                form,
            }))
        };
        for (choice, text) in [
            (
                engine(Form::Plain, 57, &[(2, 1), (17, 176)]),
                "engine 57 k2=1 k17=176",
            ),
            (
                engine(Form::Fused, 12, &[(2, 5), (13, -1)]),
                "engine 12 k2=5 k13=-1 (fused epilogue)",
            ),
            (engine(Form::Half, 0, &[]), "engine 0 (f16 sums)"),
            (
                algorithm(1, 3, Form::Plain),
                "algorithm implicit_precomp_gemm, math type 3",
            ),
            (
                algorithm(5, 0, Form::Sums),
                "algorithm fft_tiling, math type 0 (f32 sums, epilogue after)",
            ),
        ] {
            assert_eq!(choice.to_string(), text);
            assert_eq!(text.parse::<Choice>().unwrap(), choice);
        }
    }

    #[test]
    fn a_choice_serves_no_problem_whose_result_it_does_not_give() {
        let problem = |text: &str| text.parse::<Problem>().unwrap();
        let check = |choice: &str, text: &str| {
            let choice: Choice = choice.parse().unwrap();
            choice.check(&problem(text))
        };
        let gemm = "algorithm gemm, math type 3";
        for (choice, text) in [
            // Twice the rows and columns that y has.
            ("engine 1", "ic8ih8oc8kh3+pool=2"),
            ("engine 1", "ic8ih8oc8kh3+bias+relu"),
            ("engine 1 (fused epilogue)", "ic8ih8oc8kh3+relu+pool=2"),
            ("engine 1 (f16 sums)", "ic8ih8oc8kh3+f16"),
            (gemm, "ic8ih8oc8kh3+bias+relu"),
            // It pads both sides alike, and asks for 16 aligned bytes.
            (gemm, "ic3ih8oc4oh8kh2ph0"),
            (gemm, "ic8ih8oc8kh3+align=4"),
            // It would store f16 sums.
            (
                "algorithm gemm, math type 3 (f32 sums, epilogue after)",
                "ic8ih8oc8kh3+f16+bias",
            ),
            ("algorithm gemm, math type 2", "ic8ih8oc8kh3+math=tf32"),
            // Of which cuDNN has no words at all.
            ("engine 1", "ic8ih8oc8kh3+math=bf16"),
        ] {
            let said = check(choice, text).unwrap_err().to_string();
            let shapes = problem(text).to_string();
            assert!(said.contains(choice) && said.contains(&shapes), "{said}");
        }
        for (choice, text) in [
            ("engine 1", "ic8ih8oc8kh3+scale=2"),
            ("engine 1 (fused epilogue)", "ic8ih8oc8kh3+bias+relu"),
            (
                "engine 1 (f32 sums, epilogue after)",
                "ic8ih8oc8kh3+relu+pool=2",
            ),
            (gemm, "ic8ih8oc8kh3"),
        ] {
            check(choice, text).unwrap();
        }
    }

    #[test]
    fn what_is_no_plan_is_said_by_its_name() {
        for text in [
            "",
            "engine",
            "engine 1x",
            "engine 1 k2",
            "engine 1  k2=3",
            "engine 1 (f8 sums)",
            "algorithm gemm",
            "algorithm gem, math type 3",
            "algorithm gemm, math type x",
        ] {
            let said = text.parse::<Choice>().unwrap_err().to_string();
            assert!(said.contains(&format!("`{text}`")), "{said}");
        }
    }
}
