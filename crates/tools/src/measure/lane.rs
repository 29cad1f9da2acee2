//! One convolution being timed: its operands in rotating sets, its graph, its samples.

mod variations;

use std::ops;

#[cfg(feature = "cuda")]
use convforge::gpu;
use convforge::{
    Conv, Device, Error, Mark, Packed, Problem, RawOperands, Result, Stream, Workspace, chain,
    tuner::{
        Copies,
        sampling::{FAR, FEW_SAMPLES, LONGEST_SAMPLE_US, sets},
    },
    variant::{Kind, Space},
};
use convforge_check::{Data, Launched, Left, Recipe, Sets, Tensor, find_poison, poison};

use super::{
    clock::ClockCounter,
    options::{LEAST_SAMPLES, Options},
    spread::{Spread, median},
    stages::stages,
    timing::{How, Timing},
};
use crate::Range;

/// Microseconds that one sample should last: long against the clock's own error.
const SAMPLE_US: f64 = 4_000.0;
/// Random: how much power a GPU draws, and so its clock, depends on the data.
const DATA: Data = Data::Normal;

/// Some bytes of a copy.
fn read(
    copies: &Copies,
    copy: usize,
    bytes: ops::Range<usize>,
    stream: &Stream,
) -> Result<Vec<u8>> {
    let first = copies.offset(copy);
    let range = first + bytes.start..first + bytes.end;
    let memory = copies.memory();
    #[cfg(feature = "cuda")]
    if let Some(memory) = memory.as_gpu() {
        stream.synchronize()?;
        return memory.download_range(range);
    }
    let _ = stream;
    let none = || Error::no_gpu("the tools were built without the feature `cuda`");
    Ok(memory.as_slice().ok_or_else(none)?[range].to_vec())
}

/// The operands of a problem in several sets, shared by all variants that are compared.
pub(super) struct Tensors {
    sets: usize,
    /// What is to be found in them.
    launched: Launched,
    pub(super) x: Copies,
    w: Copies,
    pub(super) y: Copies,
    bias: Copies,
    residual: Copies,
}

impl Tensors {
    pub(super) fn new(device: &Device, problem: &Problem, options: &Options) -> Result<Self> {
        let sets = sets(problem, &device.limits(), options.warm);
        let first_seed = options.seed;
        if first_seed.checked_add(sets as u64).is_none() {
            return Err(Error::Unavailable(format!(
                "seed for each of {sets} sets of operands from {first_seed} on: they are numbers of \
                 64 bits"
            )));
        }
        let size = problem.storage().bytes();
        let stream = device.stream()?;
        let filled = |tensor: Tensor, bytes: usize| -> Result<Copies> {
            let recipe = |set| Recipe::new(problem, DATA, first_seed + set as u64);
            let mut copies = Copies::new(device, problem, bytes, sets)?;
            copies.fill(&stream, |set, to| recipe(set).write(tensor, to))?;
            Ok(copies)
        };
        Ok(Tensors {
            sets,
            launched: Launched::new(problem, DATA, first_seed),
            x: filled(Tensor::X, problem.x_len() * size)?,
            w: filled(Tensor::W, problem.w_len() * size)?,
            y: Copies::new(device, problem, problem.y_len() * size, sets)?,
            bias: filled(Tensor::Bias, problem.bias_len() * size_of::<f32>())?,
            residual: filled(Tensor::Residual, problem.residual_len() * size)?,
        })
    }

    pub(super) fn operands(&self, problem: &Problem, set: usize) -> RawOperands {
        let epilogue = problem.epilogue();
        let mut raw = RawOperands::new(self.x.at(set), self.w.at(set), self.y.at(set).cast_mut());
        if epilogue.bias {
            raw.bias = self.bias.at(set).cast();
        }
        if epilogue.residual {
            raw.residual = self.residual.at(set);
        }
        raw
    }
}

/// Filters as a variant re-arranged them.
pub(super) enum Filters {
    /// Each set's.
    Sets { _memory: Copies },
    /// The first set's, for all of them: constant memory has room for few filters, and no launch
    /// reads it from device memory anyway.
    Constant { _packed: Packed },
}

/// How often a filter is packed into constant memory, which no graph repeats.
const PACKS: usize = 9;

/// Re-arranges filters for `conv`, where it wants that. Answers what the operands then point at, and
/// the microseconds that one takes: into constant memory the median, of others the last one's.
pub(super) fn pack(
    conv: &Conv,
    operands: &mut [RawOperands],
    stream: &Stream,
) -> Result<Option<(Filters, f64)>> {
    let Some(packing) = conv.packing() else {
        return Ok(None);
    };
    if packing.space == Space::Constant {
        let mut samples = Vec::new();
        let packed = loop {
            let from = stream.mark()?;
            // SAFETY: the filter is of this device and of the right size; the caller keeps it.
            let Some(packed) = (unsafe { conv.pack_raw(operands[0].w, stream)? }) else {
                return Ok(None);
            };
            samples.push(stream.mark()?.us_since(&from)?);
            if samples.len() == PACKS {
                break packed;
            }
        };
        samples.sort_by(f64::total_cmp);
        let us = median(&samples);
        operands
            .iter_mut()
            .for_each(|one| one.packed = packed.as_ptr());
        return Ok(Some((Filters::Constant { _packed: packed }, us)));
    }
    let (device, problem) = (conv.device(), conv.problem());
    let mut filters = Copies::new(device, problem, packing.bytes, operands.len())?;
    let mut us = 0.0;
    for (set, operands) in operands.iter_mut().enumerate() {
        operands.packed = filters.at(set);
        let from = stream.mark()?;
        // SAFETY: both are of this device and of the right sizes; the caller keeps both.
        unsafe { conv.pack_into(operands.w, filters.at_mut(set), stream)? };
        us = stream.mark()?.us_since(&from)?;
    }
    Ok(Some((Filters::Sets { _memory: filters }, us)))
}

/// What one sample runs.
enum Work {
    #[cfg(feature = "cuda")]
    Graph(gpu::Graph, gpu::Stream),
    Launches,
}

/// A variant that takes part in the rounds.
pub(super) struct Lane<'a> {
    conv: &'a Conv,
    name: String,
    operands: Vec<RawOperands>,
    /// What the operands point at, beside the shared tensors.
    packed: Option<Filters>,
    pack_us: Option<f64>,
    work: Work,
    /// Why there is no graph of the launches, in words.
    no_graph: Option<String>,
    launches: usize,
    /// Microseconds that the next sample will take, by the last one.
    sample_us: f64,
    pending: Option<(Mark, Mark)>,
    samples: Vec<f64>,
    clock: ClockCounter,
    /// Microseconds that all samples together took.
    spent: f64,
}

impl<'a> Lane<'a> {
    /// Packs the filters, runs once to warm up, finds out how many launches fill a sample, and
    /// captures them. Clocks are counted for so many samples.
    pub(super) fn new(
        conv: &'a Conv,
        tensors: &Tensors,
        workspace: &mut Workspace,
        stream: &Stream,
        samples: usize,
    ) -> Result<Self> {
        let _range = Range::enter(&conv.name());
        let problem = conv.problem();
        let mut operands: Vec<RawOperands> = (0..tensors.sets)
            .map(|set| tensors.operands(problem, set))
            .collect();
        let (packed, pack_us) = pack(conv, &mut operands, stream)?.unzip();
        let mut lane = Lane {
            conv,
            name: conv.name(),
            operands,
            packed,
            pack_us,
            work: Work::Launches,
            no_graph: None,
            launches: 1,
            sample_us: 0.0,
            pending: None,
            samples: Vec::new(),
            clock: ClockCounter::new(conv.device(), samples)?,
            spent: 0.0,
        };
        lane.launch(workspace, stream)?;
        stream.synchronize()?;
        lane.launches = if conv.device().is_gpu() { 3 } else { 1 };
        let from = stream.mark()?;
        lane.launch(workspace, stream)?;
        let each = stream.mark()?.us_since(&from)? / lane.launches as f64;
        lane.launches = launches(each, tensors.sets);
        lane.sample_us = sample_us(each, tensors.sets);
        lane.capture(workspace, stream)?;
        Ok(lane)
    }

    /// Captures the launches. A variant that cannot be captured is timed by plain launches, and says why.
    #[cfg(feature = "cuda")]
    fn capture(&mut self, workspace: &mut Workspace, stream: &Stream) -> Result<()> {
        let Some(gpu_stream) = stream.as_gpu() else {
            return Ok(());
        };
        match gpu_stream.capture(|_| self.launch(workspace, stream)) {
            Ok(graph) => {
                // SAFETY: the tensors, the packed filters and the workspace outlive the lane's rounds.
                unsafe { graph.launch(gpu_stream)? };
                stream.synchronize()?;
                self.work = Work::Graph(graph, gpu_stream.clone());
            }
            Err(why) => self.no_graph = Some(chain(&why)),
        }
        Ok(())
    }

    #[cfg(not(feature = "cuda"))]
    fn capture(&mut self, _: &mut Workspace, _: &Stream) -> Result<()> {
        Ok(())
    }

    /// Enqueues one sample's launches.
    fn launch(&self, workspace: &mut Workspace, stream: &Stream) -> Result<()> {
        for operands in self.operands.iter().cycle().take(self.launches) {
            // SAFETY: the addresses are of the tensors, which outlive the lane's rounds.
            unsafe { self.conv.run_raw(operands, workspace, stream)? };
        }
        Ok(())
    }

    fn how(&self) -> How {
        match self.work {
            #[cfg(feature = "cuda")]
            Work::Graph(..) => How::Graph,
            Work::Launches if self.conv.device().is_gpu() => How::Launches,
            Work::Launches => How::Cpu,
        }
    }

    /// Whether there is a sample.
    pub(super) fn has_begun(&self) -> bool {
        !self.samples.is_empty()
    }

    /// Whether it has neither its samples nor used up its share of the time.
    pub(super) fn wants_more(&self, samples: usize, share_us: f64) -> bool {
        let taken = self.samples.len();
        taken < samples && (taken < LEAST_SAMPLES || self.spent < share_us)
    }

    /// The median so far.
    pub(super) fn median_us(&self) -> Option<f64> {
        Spread::of(&self.samples).map(|spread| spread.median_us)
    }

    /// How many microseconds the next sample will take, as far as is known.
    pub(super) fn sample_us(&self) -> f64 {
        self.sample_us
    }

    /// Whether it has enough samples for one so much slower than the best. The libraries never have: the
    /// others are compared with them.
    pub(super) fn is_far_from(&self, best_us: f64) -> bool {
        let library = self.conv.variant().info().kind == Kind::Baseline;
        let far = self.median_us().is_some_and(|us| us > FAR * best_us);
        far && !library && self.samples.len() >= FEW_SAMPLES
    }

    /// Enqueues one sample, and counts the clock behind it.
    pub(super) fn enqueue(&mut self, workspace: &mut Workspace, stream: &Stream) -> Result<()> {
        let _range = Range::enter(&self.name);
        let from = stream.mark()?;
        match &self.work {
            #[cfg(feature = "cuda")]
            // SAFETY: as in `capture`.
            Work::Graph(graph, queue) => unsafe { graph.launch(queue)? },
            Work::Launches => self.launch(workspace, stream)?,
        }
        self.pending = Some((from, stream.mark()?));
        self.clock.enqueue(self.samples.len(), stream)
    }

    /// Waits for the sample that was enqueued, and says how many microseconds it took.
    pub(super) fn collect(&mut self) -> Result<f64> {
        let Some((from, to)) = self.pending.take() else {
            return Ok(0.0);
        };
        let us = to.us_since(&from)?;
        self.spent += us;
        self.sample_us = us;
        self.samples.push(us / self.launches as f64);
        Ok(us)
    }

    /// What is wrong with the outputs that a sample leaves in the sets that it visits, in words: one
    /// more of the samples, as they were timed, from poison. No lane's own outputs outlast a round, as
    /// all lanes share the sets.
    fn judge(
        &mut self,
        tensors: &mut Tensors,
        workspace: &mut Workspace,
        stream: &Stream,
    ) -> Result<Option<String>> {
        let problem = self.conv.problem();
        poison(tensors.y.memory_mut(), stream)?;
        self.enqueue(workspace, stream)?;
        self.pending = None;
        let (outputs, size) = (&tensors.y, problem.storage().bytes());
        let count = self.launches.min(tensors.sets);
        let sets = Sets {
            problem,
            start: outputs.offset(0),
            stride: outputs.stride() / size,
            count,
        };
        if let Some(why) = find_poison(outputs.memory(), &sets, stream)? {
            return Ok(Some(why));
        }
        let left = Left {
            arithmetic: self.conv.variant().info().arithmetic,
            sets: count,
            one_filter: matches!(self.packed, Some(Filters::Constant { .. })),
        };
        let bytes = |part: ops::Range<usize>| part.start * size..part.end * size;
        let read = |set, part| read(outputs, set, bytes(part), stream);
        match tensors.launched.wrong(left, read) {
            Err(convforge_check::Error::Library(error)) => Err(error),
            Err(error) => Ok(Some(chain(&error))),
            Ok(wrong) => Ok(wrong),
        }
    }

    /// Judges the outputs, times the stages and the same launches otherwise, and hands over what there is.
    pub(super) fn finish(
        mut self,
        tensors: &mut Tensors,
        workspace: &mut Workspace,
        stream: &Stream,
    ) -> Result<Timing> {
        let wrong = self.judge(tensors, workspace, stream)?;
        let stages = stages(stream, |run, stage| {
            let operands = &self.operands[run % self.operands.len()];
            // SAFETY: as in `launch`.
            unsafe { self.conv.run_raw_staged(operands, workspace, stream, stage) }
        })?;
        let variations = self.variations(workspace, stream)?;
        let calls = self.calls(workspace, stream)?;
        Ok(Timing {
            stages,
            wrong,
            pack_us: variations.pack_us.or(calls.pack_us),
            with_pack_us: variations.with_pack_us,
            serial_us: variations.serial_us,
            ..calls
        })
    }

    /// Hands over what the samples have.
    pub(super) fn calls(self, workspace: &Workspace, stream: &Stream) -> Result<Timing> {
        let sm_mhz = self.clock.mhz(self.samples.len(), stream)?;
        let how = self.how();
        let mut samples_us = self.samples;
        samples_us.sort_by(f64::total_cmp);
        Ok(Timing {
            samples_us,
            how,
            no_graph: self.no_graph,
            launches: self.launches,
            sets: self.operands.len(),
            stages: Vec::new(),
            workspace_bytes: self.conv.workspace_bytes().preferred.min(workspace.bytes()),
            wrong: None,
            pack_us: self.pack_us,
            with_pack_us: None,
            serial_us: None,
            sm_mhz,
        })
    }
}

/// Launches of one sample: enough to fill it and to visit every set, within reason.
fn launches(each_us: f64, sets: usize) -> usize {
    let fitting = |us: f64| ((us / each_us.max(1.0)) as usize).max(1);
    fitting(SAMPLE_US).max(sets.min(fitting(LONGEST_SAMPLE_US)))
}

/// Microseconds of one sample.
pub(crate) fn sample_us(each_us: f64, sets: usize) -> f64 {
    launches(each_us, sets) as f64 * each_us
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_seeds_have_no_followers() {
        let problem: Problem = "mb1ic1ih2oc1kh1".parse().unwrap();
        let with = |seed| {
            let options = Options {
                seed,
                ..Options::of(&Device::cpu())
            };
            Tensors::new(&Device::cpu(), &problem, &options).map(drop)
        };
        assert!(with(u64::MAX - 9).is_ok());
        let error = with(u64::MAX).unwrap_err().to_string();
        assert!(error.contains("from 18446744073709551615 on"), "{error}");
    }

    #[test]
    fn a_part_of_a_set_is_read() {
        let (device, problem) = (Device::cpu(), "mb1ic1ih2oc1kh1+align=512".parse().unwrap());
        let stream = device.stream().unwrap();
        let mut copies = Copies::new(&device, &problem, 700, 3).unwrap();
        let write = |set: usize, to: &mut [u8]| to.fill(set as u8 + 1);
        copies.fill(&stream, write).unwrap();
        for set in 0..3 {
            let found = read(&copies, set, 690..710, &stream).unwrap();
            assert_eq!(found, [vec![set as u8 + 1; 10], vec![0; 10]].concat());
        }
    }

    #[test]
    fn a_sample_is_filled_and_visits_every_set() {
        assert_eq!(launches(2.0, 1), 2000);
        assert_eq!(launches(40.0, 300), 300);
        assert_eq!(launches(40.0, 1000), 500);
        assert_eq!(launches(1e6, 1000), 1);
    }
}
