//! What plans run on in the first round, and how their time is taken there.

use std::{ffi::c_void, ptr::null_mut, sync::Arc};

use crate::{
    Conv, Device, Problem, Result, Stream, Workspace,
    baselines::cudnn::{Candidate, Settled},
    gpu::{self, DeviceBuffer, Event, Gpu},
    variant::{Arithmetic, Info, Kind, Plan, Prepared, Query, RawOperands, Variant, not_its_plan},
};

/// Calls that are shorter than this, in microseconds, are timed by many of them in a graph: one by
/// itself takes as long as the host needs to launch it.
const SHORT_US: f64 = 200.0;
/// How long such a graph lasts, in microseconds, and how often it runs.
const GRAPH_US: f64 = 1_000.0;
const GRAPHS: usize = 3;
/// Nothing but its own work makes a first launch take this long, in microseconds: loading a kernel
/// takes less.
const SLOW_US: f64 = 500_000.0;

/// How many times the fastest plan that adds up products a plan may take without being far from it:
/// it has lost.
pub(super) const FAR: usize = 8;

/// Whether a time is far from the best one.
pub(super) fn is_far(us: f64, best: f64) -> bool {
    us > best * FAR as f64
}

/// A plan as a convolution.
pub(super) fn conv(
    device: &Device,
    gpu: &Gpu,
    problem: &Problem,
    candidate: &Arc<Candidate>,
) -> Result<Conv> {
    let only = Only {
        info: info(candidate.arithmetic),
        gpu: gpu.clone(),
        problem: problem.clone(),
        candidate: candidate.clone(),
    };
    Conv::with_variant(device, problem, Arc::new(only))
}

/// A stream with operands, and a workspace that serves every plan.
pub(super) struct Timer<'a> {
    stream: &'a Stream,
    queue: &'a gpu::Stream,
    operands: Operands,
    workspace: Workspace,
    marks: [Event; 2],
}

impl<'a> Timer<'a> {
    pub(super) fn new<'c>(
        stream: &'a Stream,
        queue: &'a gpu::Stream,
        problem: &Problem,
        convs: impl Iterator<Item = &'c Conv>,
    ) -> Result<Self> {
        let mut workspace = Workspace::new(stream)?;
        if let Some(largest) = convs.max_by_key(|conv| conv.workspace_bytes().least) {
            workspace.reserve(largest, stream)?;
        }
        Ok(Timer {
            stream,
            queue,
            operands: Operands::new(queue, problem)?,
            workspace,
            marks: [Event::new(queue.gpu())?, Event::new(queue.gpu())?],
        })
    }

    /// Microseconds of a call: of the second one; of the fastest of a few graphs where that is short.
    /// A first call that is very slow, and far from `best`, is the only one.
    pub(super) fn time(&mut self, conv: &Conv, best: f64) -> Result<f64> {
        let first = self.elapsed(|timer| timer.launch(conv))?;
        if first > SLOW_US && is_far(first, best) {
            return Ok(first);
        }
        let us = self.elapsed(|timer| timer.launch(conv))?;
        if us > SHORT_US {
            return Ok(us);
        }
        let calls = (GRAPH_US / us.max(1.0)).ceil();
        let queue = self.queue;
        let launches = |timer: &mut Self| (0..calls as usize).try_for_each(|_| timer.launch(conv));
        // What cannot be captured is found out by the referee.
        let graph = queue.capture(|_| launches(self)).ok();
        let mut least = f64::INFINITY;
        for _ in 0..GRAPHS {
            let us = self.elapsed(|timer| match &graph {
                // SAFETY: the convolution, the operands and the workspace are there until the work
                // was waited for, in `elapsed`; nothing is reserved meanwhile.
                Some(graph) => unsafe { graph.launch(queue) },
                None => launches(timer),
            })?;
            least = least.min(us / calls);
        }
        Ok(least)
    }

    fn launch(&mut self, conv: &Conv) -> Result<()> {
        // SAFETY: the operands have the sizes and the alignment that the problem says, and outlive
        // the work, which `elapsed` waits for.
        unsafe { conv.run_raw(&self.operands.raw, &mut self.workspace, self.stream) }
    }

    /// Microseconds that work takes on the stream.
    fn elapsed(&mut self, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<f64> {
        self.queue.record(&self.marks[0])?;
        work(self)?;
        self.queue.record(&self.marks[1])?;
        self.queue.synchronize()?;
        self.marks[1].elapsed_us(&self.marks[0])
    }
}

/// What a plan says of itself while it races.
fn info(arithmetic: Arithmetic) -> Info {
    Info {
        arithmetic,
        ..Info::new(
            "cudnn",
            "cudnn",
            "one plan of cuDNN's",
            "NVIDIA cuDNN",
            Kind::Baseline,
        )
    }
}

/// A variant that is one plan, so that plans are run, measured and judged as variants are. A referee is
/// handed it, and may ask it about anything: it serves the problem and the GPU it was built for.
struct Only {
    info: Info,
    gpu: Gpu,
    problem: Problem,
    candidate: Arc<Candidate>,
}

// SAFETY: as `Settled`.
unsafe impl Variant for Only {
    fn info(&self) -> &Info {
        &self.info
    }

    fn plan(&self, query: &Query) -> Result<Plan, String> {
        match self.problem == *query.problem {
            true => Ok(Plan::default()),
            false => Err(format!(
                "is one plan of a search, built for {}; cudnn::prepare builds it for another problem",
                self.problem
            )),
        }
    }

    fn prepare(&self, device: &Device, query: &Query, _: Plan) -> Result<Box<dyn Prepared>> {
        device.expect("the plan of cuDNN's", &self.gpu.clone().into())?;
        if self.problem != *query.problem {
            return Err(not_its_plan(&self.info, query));
        }
        let candidate = Some(self.candidate.clone());
        Ok(Box::new(Settled::new(
            &self.gpu,
            &self.problem,
            candidate,
            None,
        )?))
    }
}

/// Operands whose elements are all the same small number.
struct Operands {
    raw: RawOperands,
    _memory: [DeviceBuffer<u8>; 5],
}

/// 0.0115 as two or four bytes of bf16 or f32, 1.06 as f16: neither zero, which would spare the GPU
/// its power, nor so large that sums overflow.
const BYTE: u8 = 0x3c;

impl Operands {
    fn new(queue: &gpu::Stream, problem: &Problem) -> Result<Self> {
        // An allocation's start is aligned to less than some problems guarantee.
        let align = problem.align();
        let size = problem.storage().bytes();
        let filled = |bytes: usize| {
            let mut memory = DeviceBuffer::alloc(queue.gpu(), bytes + align)?;
            queue.memset(&mut memory, BYTE)?;
            Result::Ok(memory)
        };
        let memory = [
            filled(problem.x_len() * size)?,
            filled(problem.w_len() * size)?,
            filled(problem.y_len() * size)?,
            filled(problem.bias_len() * size_of::<f32>())?,
            filled(problem.residual_len() * size)?,
        ];
        let [x, w, y, bias, residual] = [0, 1, 2, 3, 4]
            .map(|i: usize| (memory[i].address() as usize).next_multiple_of(align) as *mut c_void);
        let epilogue = problem.epilogue();
        let given = |address: *mut c_void, is: bool| if is { address } else { null_mut() };
        let raw = RawOperands::new(x, w, y)
            .bias(given(bias, epilogue.bias).cast_const().cast())
            .residual(given(residual, epilogue.residual));
        Ok(Operands {
            raw,
            _memory: memory,
        })
    }
}
