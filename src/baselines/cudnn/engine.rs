//! The engines that cuDNN has for a graph, and execution plans made of them.

use std::{
    ffi::c_void,
    sync::{Arc, Mutex, PoisonError},
};

use cudnn_sys::{
    cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Type,
    cudnnBackendBehaviorNote_t as Behavior, cudnnBackendDescriptorType_t as Kind,
    cudnnBackendHeurMode_t,
};

use super::{
    descriptor::Descriptor,
    graph::{Graph, Operand},
    variant_pack::{Addresses, Launcher},
};
use crate::Result;

/// Room for more notes of one kind than there are.
const MOST_NOTES: usize = 64;
/// Room for more knobs than any engine has.
const MOST_KNOBS: usize = 64;

/// Settings of an engine that are few enough to try them all.
const MOST_SETTINGS: usize = 64;

/// An engine with its knobs set.
pub(super) struct Config {
    descriptor: Descriptor,
    /// What the descriptor was made of stays as long as it does: the settings of knobs, the engine.
    _parts: Vec<Arc<Descriptor>>,
    /// The engine's number, and the types and values of its knobs.
    pub(super) engine: i64,
    pub(super) knobs: Vec<(u32, i64)>,
    /// Numerical notes.
    pub(super) notes: Vec<u32>,
    /// Whether the kernel is compiled when the plan is built, which takes NVRTC.
    pub(super) compiles: bool,
}

impl Config {
    /// What the heuristics propose, best first, and how many of them it announced: those whose
    /// engine turns out not to work here, for want of NVRTC perhaps, it leaves out in silence.
    ///
    /// # Errors
    /// What cuDNN answers; a mode that knows nothing about the graph may do so as well.
    pub(super) fn propose(
        graph: &Graph,
        mode: cudnnBackendHeurMode_t,
    ) -> Result<(Vec<Config>, usize)> {
        let results = Name::CUDNN_ATTR_ENGINEHEUR_RESULTS;
        let heuristics = Descriptor::new(graph.gpu(), Kind::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?
            .link(
                Name::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                [graph.descriptor()],
            )?
            .set_enum(
                Name::CUDNN_ATTR_ENGINEHEUR_MODE,
                Type::CUDNN_TYPE_HEUR_MODE,
                mode.0,
            )?
            .finalize()?;
        let heuristics = Arc::new(heuristics);
        let count = heuristics.count(results)?;
        let found =
            heuristics.children(results, Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, count)?;
        Ok((
            found
                .into_iter()
                .map(|found| Config::read(found, vec![heuristics.clone()]))
                .collect::<Result<_>>()?,
            count,
        ))
    }

    /// Every engine that takes the graph: those of few settings with every one of them, the others
    /// with their knobs as they come, and how many these are. The heuristics know little about engines
    /// without tensor cores, which are the fastest for few channels in any math.
    ///
    /// # Errors
    /// What cuDNN answers, other than that an engine does not take the graph.
    pub(super) fn every(graph: &Graph) -> Result<(Vec<Config>, usize)> {
        let count = graph
            .descriptor()
            .integer(Name::CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT)?;
        let (mut found, mut of_many) = (Vec::new(), 0);
        for number in 0..count {
            let Ok(engine) = engine(graph, number).map(Arc::new) else {
                continue;
            };
            let few = settings(&knobs(&engine)?);
            let before = found.len();
            for choice in few.as_ref().unwrap_or(&vec![Vec::new()]) {
                found.extend(Config::with(graph, &engine, choice));
            }
            of_many += usize::from(few.is_none() && found.len() > before);
        }
        Ok((found, of_many))
    }

    /// The engine of this number with these knobs, as a search once found it.
    ///
    /// # Errors
    /// What cuDNN answers: another version may not have it.
    pub(super) fn named(graph: &Graph, number: i64, knobs: &[(u32, i64)]) -> Result<Config> {
        Config::with(graph, &Arc::new(engine(graph, number)?), knobs)
    }

    fn with(graph: &Graph, engine: &Arc<Descriptor>, knobs: &[(u32, i64)]) -> Result<Config> {
        let choice = |(kind, value): &(u32, i64)| {
            let (name, of) = (
                Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
                Type::CUDNN_TYPE_KNOB_TYPE,
            );
            Descriptor::new(graph.gpu(), Kind::CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR)?
                .set_enum(name, of, *kind)?
                .set(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, &[*value])?
                .finalize()
                .map(Arc::new)
        };
        let mut parts = knobs.iter().map(choice).collect::<Result<Vec<_>>>()?;
        let mut config = Descriptor::new(graph.gpu(), Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)?
            .link(Name::CUDNN_ATTR_ENGINECFG_ENGINE, [&**engine])?;
        if !parts.is_empty() {
            let choices = parts.iter().map(|choice| &**choice);
            config = config.link(Name::CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, choices)?;
        }
        parts.push(engine.clone());
        Config::read(config.finalize()?, parts)
    }

    fn read(descriptor: Descriptor, parts: Vec<Arc<Descriptor>>) -> Result<Config> {
        let kind = Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR;
        let engines = descriptor.children(Name::CUDNN_ATTR_ENGINECFG_ENGINE, kind, 1)?;
        let (mut number, mut notes, mut behaviors) = (-1, Vec::new(), Vec::new());
        for engine in &engines {
            number = engine.integer(Name::CUDNN_ATTR_ENGINE_GLOBAL_INDEX)?;
            let (note, kind) = (
                Name::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                Type::CUDNN_TYPE_NUMERICAL_NOTE,
            );
            notes = engine.enums(note, kind, MOST_NOTES)?;
            let (note, kind) = (
                Name::CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
                Type::CUDNN_TYPE_BEHAVIOR_NOTE,
            );
            behaviors = engine.enums(note, kind, MOST_NOTES)?;
        }
        let kind = Kind::CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR;
        let choices =
            descriptor.children(Name::CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, kind, MOST_KNOBS)?;
        let knob = |choice: &Descriptor| {
            let kind = Type::CUDNN_TYPE_KNOB_TYPE;
            let types = choice.enums(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, kind, 1)?;
            let value = choice.integer(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE)?;
            Ok((types.first().copied().unwrap_or(u32::MAX), value))
        };
        let mut knobs = choices.iter().map(knob).collect::<Result<Vec<_>>>()?;
        knobs.sort_unstable();
        let compiles = behaviors.contains(&Behavior::CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION.0);
        Ok(Config {
            descriptor,
            _parts: parts,
            engine: number,
            knobs,
            notes,
            compiles,
        })
    }
}

/// An engine by its number.
fn engine(graph: &Graph, number: i64) -> Result<Descriptor> {
    Descriptor::new(graph.gpu(), Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR)?
        .link(
            Name::CUDNN_ATTR_ENGINE_OPERATION_GRAPH,
            [graph.descriptor()],
        )?
        .set(Name::CUDNN_ATTR_ENGINE_GLOBAL_INDEX, &[number])?
        .finalize()
}

/// What a knob can be set to: every `stride`-th value from `least` to `most`.
struct Knob {
    kind: u32,
    least: i64,
    most: i64,
    stride: i64,
}

impl Knob {
    fn values(&self) -> impl Iterator<Item = i64> + use<> {
        (self.least..=self.most).step_by(usize::try_from(self.stride).unwrap_or(1).max(1))
    }
}

fn knobs(engine: &Descriptor) -> Result<Vec<Knob>> {
    let kind = Kind::CUDNN_BACKEND_KNOB_INFO_DESCRIPTOR;
    let infos = engine.children(Name::CUDNN_ATTR_ENGINE_KNOB_INFO, kind, MOST_KNOBS)?;
    let knob = |info: &Descriptor| {
        let kinds = info.enums(
            Name::CUDNN_ATTR_KNOB_INFO_TYPE,
            Type::CUDNN_TYPE_KNOB_TYPE,
            1,
        )?;
        Ok(Knob {
            kind: kinds.first().copied().unwrap_or(u32::MAX),
            least: info.integer(Name::CUDNN_ATTR_KNOB_INFO_MINIMUM_VALUE)?,
            most: info.integer(Name::CUDNN_ATTR_KNOB_INFO_MAXIMUM_VALUE)?,
            stride: info.integer(Name::CUDNN_ATTR_KNOB_INFO_STRIDE)?,
        })
    };
    infos.iter().map(knob).collect()
}

/// Every combination of the knobs' values, or `None` where they are many.
fn settings(knobs: &[Knob]) -> Option<Vec<Vec<(u32, i64)>>> {
    // Counted without going through them: a knob may have as many as there are numbers.
    let counts = knobs.iter().map(|knob| knob.values().size_hint().0);
    let count = counts.fold(1_usize, usize::saturating_mul);
    if count > MOST_SETTINGS {
        return None;
    }
    let mut settings = vec![Vec::new()];
    for knob in knobs {
        let with = |setting: &Vec<(u32, i64)>| -> Vec<_> {
            let add = |value| {
                setting
                    .iter()
                    .copied()
                    .chain([(knob.kind, value)])
                    .collect()
            };
            knob.values().map(add).collect()
        };
        settings = settings.iter().flat_map(with).collect();
    }
    Some(settings)
}

/// An execution plan: an engine's kernels, ready to launch.
pub(super) struct Engine {
    // Descriptors go in the order in which they were made of each other: the plan first.
    /// Not every engine lets two threads execute one plan at the same time.
    plan: Mutex<Descriptor>,
    workspace: usize,
    _config: Config,
    graph: Arc<Graph>,
}

impl Engine {
    /// Builds the plan, which may compile its kernel.
    ///
    /// # Errors
    /// What cuDNN refuses: heuristics also propose what turns out not to work.
    pub(super) fn build(graph: &Arc<Graph>, config: Config) -> Result<Self> {
        let plan = Descriptor::new(graph.gpu(), Kind::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?
            .handle(Name::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, graph.handle())?
            .link(
                Name::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                [&config.descriptor],
            )?
            .finalize()?;
        let workspace = plan.integer(Name::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)?;
        Ok(Engine {
            plan: Mutex::new(plan),
            workspace: usize::try_from(workspace).unwrap_or(0),
            _config: config,
            graph: graph.clone(),
        })
    }

    /// Bytes of workspace.
    pub(super) fn workspace(&self) -> usize {
        self.workspace
    }

    /// Enqueues the graph's work on the handle's stream.
    ///
    /// # Safety
    /// `address` answers with addresses of the handle's device, as large as the problem says;
    /// `workspace` has [`workspace`](Self::workspace) bytes. All stay valid until the stream is past
    /// this work.
    pub(super) unsafe fn launch(
        &self,
        launcher: &mut Launcher,
        address: impl Fn(Operand) -> *mut c_void,
        workspace: *mut c_void,
    ) -> Result<()> {
        let address = |operand| match operand {
            Operand::Scale => std::ptr::from_ref(self.graph.scale()).cast_mut().cast(),
            other => address(other),
        };
        let addresses = Addresses::new(self.graph.operands(), address, workspace);
        let (handle, pack) = launcher.with(addresses)?;
        let plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the descriptors are finalized; the caller vouches for the addresses, and the
        // factor, which is only read, lives in the graph.
        unsafe { cudnn!(cudnnBackendExecute(handle.raw(), plan.raw(), pack.raw())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_settings_are_all_tried() {
        let tile = Knob {
            kind: 2,
            least: 0,
            most: 4,
            stride: 2,
        };
        let index = Knob {
            kind: 18,
            least: 0,
            most: 1,
            stride: 1,
        };
        let all = settings(&[tile, index]).unwrap();
        assert_eq!(all.len(), 6);
        assert_eq!(all[0], [(2, 0), (18, 0)]);
        assert_eq!(all[5], [(2, 4), (18, 1)]);
        assert_eq!(settings(&[]).unwrap(), [Vec::new()]);
        for most in [2048, i64::MAX] {
            let split = Knob {
                kind: 17,
                least: 1,
                most,
                stride: 1,
            };
            assert!(settings(&[split]).is_none());
        }
    }
}
