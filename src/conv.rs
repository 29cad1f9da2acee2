//! A problem with its chosen variant. Everything is settled in [`Conv::new`]; [`Conv::run`] checks
//! its operands and enqueues.

mod check;
mod filter;
mod operands;
mod packed;
mod stages;
mod workspace;

use std::{
    ffi::{CStr, c_void},
    fmt,
    sync::Arc,
};

use crate::{
    Device, Element, Error, Pick, Problem, Result, Stream, View, ViewMut,
    select::{Candidate, Candidates, Place},
    variant::{
        Args, Bytes, Configured, Packing, Plan, Prepared, Query, RawOperands, Space, Variant,
    },
};

pub use filter::Filter;
pub use operands::Operands;
pub use packed::Packed;
use stages::Stages;
pub use workspace::Workspace;

/// What errors call the filter, and that which a variant re-arranged.
const FILTER: &str = "the filter (w)";
const PACKED: &str = "the packed filter";

/// A convolution ready to run, any number of times, from any number of threads.
///
/// ```
/// use convforge::{Conv, Device, Operands, Pick, Problem};
///
/// let (device, _why_no_gpu) = Device::best();
/// let problem: Problem = "mb1ic3ih8oc4oh8kh3ph1".parse()?;
/// let conv = Conv::new(&device, &problem, &Pick::Auto)?;
/// let stream = device.stream()?;
/// let mut workspace = conv.workspace(&stream)?;
/// let x = device.upload(&vec![1f32; problem.x_len()])?;
/// let w = device.upload(&vec![0.5f32; problem.w_len()])?;
/// let mut y = device.alloc(problem.y_len())?;
/// let packed = conv.pack(&w, &stream)?; // once per filter
/// let operands = Operands::new(&x, &w, &mut y).packed(packed.as_ref());
/// conv.run_with(operands, &mut workspace, &stream)?;
/// assert_eq!(y.to_vec(&stream)?[9], 13.5);
/// # Ok::<(), convforge::Error>(())
/// ```
pub struct Conv {
    device: Device,
    problem: Problem,
    configured: Configured,
    prepared: Box<dyn Prepared>,
    /// Why this variant.
    reason: String,
    /// What a packed filter must have been made for.
    key: Option<packed::Key>,
}

impl Conv {
    /// Finds the variant, plans the problem and readies the plan. A rule goes on to its next best
    /// where a library is missing or has no plan, and past what tuning remembers wherever that fails;
    /// [`reason`](Self::reason) says so. Nothing is searched by time.
    ///
    /// # Errors
    /// [`Error::UnknownVariant`], [`Error::UnknownConfig`], [`Error::UnknownPolicy`],
    /// [`Error::NoVariant`] where a rule finds none; for a variant that was named,
    /// [`Error::Unsupported`] with its reason, or a missing library.
    pub fn new(device: &Device, problem: &Problem, pick: &Pick) -> Result<Self> {
        let candidates = pick.candidates(&Place::Here(device), problem)?;
        Self::first_of(device, problem, candidates)
    }

    /// The first candidate that can be readied.
    pub(crate) fn first_of(
        device: &Device,
        problem: &Problem,
        mut candidates: Candidates,
    ) -> Result<Self> {
        for mut candidate in std::mem::take(&mut candidates.order) {
            let plan = candidate.plan.take();
            match Self::of_candidate(device, problem, &candidate, plan) {
                Err(error) if candidates.passes_over(&candidate, &error) => {
                    candidates.pass(&candidate, error);
                }
                Err(error) => return Err(error),
                Ok(conv) => {
                    let reason = candidates.reason(&candidate);
                    return Ok(Conv { reason, ..conv });
                }
            }
        }
        Err(candidates.none(&device.to_string(), problem))
    }

    fn of_candidate(
        device: &Device,
        problem: &Problem,
        candidate: &Candidate,
        plan: Option<Plan>,
    ) -> Result<Self> {
        let configured = candidate.configured.clone();
        match plan {
            Some(plan) => Self::prepare(device, problem, configured, plan),
            None => Self::with_variant(device, problem, configured),
        }
    }

    /// A variant of one's own, or one of [`variants::all`](crate::variants::all), in the configuration of a
    /// [`Configured`], or else in its first.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the variant's reason, or what readying its plan answers.
    pub fn with_variant(
        device: &Device,
        problem: &Problem,
        variant: impl Into<Configured>,
    ) -> Result<Self> {
        let configured = variant.into();
        let plan = configured.plan(&device.limits(), problem);
        let plan = plan.map_err(|why| Error::Unsupported {
            variant: configured.name(),
            problem: problem.to_string(),
            why,
        })?;
        Self::prepare(device, problem, configured, plan)
    }

    fn prepare(
        device: &Device,
        problem: &Problem,
        configured: Configured,
        plan: Plan,
    ) -> Result<Self> {
        let limits = device.limits();
        let query = Query::new(problem, configured.config, &limits);
        let prepared = configured.variant.prepare(device, &query, plan)?;
        let name = &configured.info().name;
        let key = prepared
            .packing()
            .map(|packing| packed::Key::new(name, problem, packing));
        Ok(Conv {
            device: device.clone(),
            problem: problem.clone(),
            configured,
            prepared,
            reason: "by its name".to_owned(),
            key,
        })
    }

    /// The problem.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The variant and its configuration: `fused_shared:tile=24`.
    pub fn name(&self) -> String {
        self.configured.name()
    }

    /// The same as what other convolutions can be made of.
    pub fn configured(&self) -> &Configured {
        &self.configured
    }

    /// The variant.
    pub fn variant(&self) -> &Arc<dyn Variant> {
        &self.configured.variant
    }

    /// The index of its configuration.
    pub fn config(&self) -> usize {
        self.configured.config
    }

    /// Why this variant serves: measured or estimated, by whose results, and what was passed over.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// What was chosen inside: the name of a library's plan, or what a kernel's is made of
    /// (`columns=224 parts=2`), in words that may change.
    pub fn note(&self) -> Option<String> {
        self.prepared.note()
    }

    /// Bytes of workspace.
    pub fn workspace_bytes(&self) -> Bytes {
        self.prepared.workspace()
    }

    /// A workspace for this convolution on `stream`.
    ///
    /// # Errors
    /// As [`Workspace::reserve`].
    pub fn workspace(&self, stream: &Stream) -> Result<Workspace> {
        let mut workspace = Workspace::new(stream)?;
        workspace.reserve(self, stream)?;
        Ok(workspace)
    }

    /// How the variant re-arranges a filter; none where it uses the filter as it is.
    pub fn packing(&self) -> Option<Packing> {
        self.prepared.packing()
    }

    /// Re-arranges the filter for this convolution, once; `None` where the variant uses it as it
    /// is. Enqueued on `stream`: what runs on other streams has to wait for it.
    ///
    /// # Errors
    /// A filter of another type, length or device; [`Error::OutOfMemory`],
    /// [`Error::ConstantMemory`]; or what the launch answers.
    pub fn pack<'a, T: Element>(
        &self,
        w: impl Into<View<'a, T>>,
        stream: &Stream,
    ) -> Result<Option<Packed>> {
        let w = w.into();
        self.check_view(FILTER, &w, self.problem.w_len())?;
        // SAFETY: the filter is of this device and of the right size, and stays as in `run_with`.
        unsafe { self.pack_checked(w.as_ptr(), stream) }
    }

    /// [`pack`](Self::pack) of a filter at a plain address.
    ///
    /// # Errors
    /// [`Error::Memory`] for an address that is null or, as far as the driver knows, not of this
    /// convolution's device; otherwise as [`pack`](Self::pack). A variant that uses filters as they are reads
    /// none here, and asks nothing of it.
    ///
    /// # Safety
    /// `w` is a filter of the problem's size on this convolution's device until `stream` is past
    /// this work.
    pub unsafe fn pack_raw(&self, w: *const c_void, stream: &Stream) -> Result<Option<Packed>> {
        self.check_stream(stream)?;
        if self.packing().is_some() {
            self.device.expect_own(FILTER, w)?;
        }
        // SAFETY: as this function's.
        unsafe { self.pack_checked(w, stream) }
    }

    /// [`pack_raw`](Self::pack_raw) of what is known to be this device's.
    unsafe fn pack_checked(&self, w: *const c_void, stream: &Stream) -> Result<Option<Packed>> {
        self.check_stream(stream)?;
        self.check_align(FILTER, w, self.problem.align())?;
        let Some(key) = self.key.clone() else {
            return Ok(None);
        };
        let packing = self.packing().unwrap_or(Packing::new(0, 0));
        let device = self.device.clone();
        let mut packed = match packing.space {
            Space::Global => Packed::own(device, key, self.device.alloc(packing.bytes)?),
            Space::Constant => Packed::constant(device, key, self.prepared.constant_part()?),
        };
        // SAFETY: the caller vouches for the filter, and the packed one has the plan's bytes.
        unsafe { self.prepared.pack(w, packed.as_mut_ptr(), stream.raw())? };
        Ok(Some(packed))
    }

    /// [`pack_raw`](Self::pack_raw) into memory of the caller's, at a multiple of
    /// [`Workspace::ALIGN`] bytes.
    ///
    /// # Errors
    /// [`Error::Unavailable`] for a variant that packs into constant memory, which is not the
    /// caller's to give; otherwise as [`pack_raw`](Self::pack_raw), of both addresses.
    ///
    /// # Safety
    /// As [`pack_raw`](Self::pack_raw), and `packed` has [`packing`](Self::packing)'s bytes on the
    /// same device, which nobody else uses and which do not overlap the filter.
    pub unsafe fn pack_into(
        &self,
        w: *const c_void,
        packed: *mut c_void,
        stream: &Stream,
    ) -> Result<()> {
        self.check_stream(stream)?;
        self.check_align(FILTER, w, self.problem.align())?;
        let Some(packing) = self.packing() else {
            return Ok(());
        };
        if packing.space == Space::Constant {
            return Err(Error::Unavailable(format!(
                "memory of the caller's for filters of {}, which lie in constant memory: \
                 Conv::pack and Conv::pack_raw take their own",
                self.name()
            )));
        }
        self.device.expect_own(FILTER, w)?;
        self.device.expect_own(PACKED, packed)?;
        self.check_align(PACKED, packed, Workspace::ALIGN)?;
        // SAFETY: the caller vouches for the addresses.
        unsafe { self.prepared.pack(w, packed, stream.raw()) }
    }

    /// Enqueues y = conv(x, w) on `stream`, for a variant that uses the filter as it is
    /// ([`packing`](Self::packing) is `None`); [`run_with`](Self::run_with) serves all. It can be captured in a graph: nothing is allocated,
    /// waited for or chosen here.
    ///
    /// Each operand is a buffer, `&x`, or a [`View`]: a part of a buffer, as a slice of a batch is, a
    /// slice on the CPU, or another crate's memory.
    ///
    /// # Errors
    /// Operands of the wrong type, length, device or alignment, a workspace that is too small or of
    /// another stream, operands missing that the epilogue or the variant needs, as a packed filter; or
    /// what the launch answers.
    pub fn run<'a, T: Element>(
        &self,
        x: impl Into<View<'a, T>>,
        w: impl Into<View<'a, T>>,
        y: impl Into<ViewMut<'a, T>>,
        workspace: &mut Workspace,
        stream: &Stream,
    ) -> Result<()> {
        self.run_with(Operands::new(x, w, y), workspace, stream)
    }

    /// [`run`](Self::run) with bias, residual or packed filter.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_with<T: Element>(
        &self,
        operands: Operands<T>,
        workspace: &mut Workspace,
        stream: &Stream,
    ) -> Result<()> {
        let raw = self.check_operands(operands)?;
        // SAFETY: the operands were just checked. Work that is still queued when a buffer is dropped
        // is waited for by the driver's free; that other memory stays is promised to
        // `View::from_raw`; on the CPU nothing is queued.
        unsafe { self.run_raw(&raw, workspace, stream) }
    }

    /// [`run`](Self::run) for plain addresses: any crate's buffers, and with
    /// `gpu::Stream::from_raw` its streams.
    ///
    /// An address tells neither its device nor its length, and neither is asked for here: asking the driver
    /// whose an address is takes a call for each operand of each run, and how much lies behind it no call
    /// tells. [`View::from_raw`] asks once, when a view is made; what sets up does as well:
    /// [`pack_raw`](Self::pack_raw), [`pack_into`](Self::pack_into), [`Workspace::from_raw`].
    ///
    /// # Errors
    /// A misaligned or missing address, a workspace that does not fit, or what the launch answers.
    ///
    /// # Safety
    /// Every address is of this convolution's device, as large as the problem says, and valid until
    /// `stream` is past this work; nothing else writes to them meanwhile. The output overlaps none of
    /// the others. A packed filter is one that this convolution takes: by
    /// [`packing`](Self::packing) and the filter's shape, of which an address tells nothing.
    pub unsafe fn run_raw(
        &self,
        operands: &RawOperands,
        workspace: &mut Workspace,
        stream: &Stream,
    ) -> Result<()> {
        // SAFETY: as this function's.
        unsafe { self.enqueue(operands, workspace, stream, None) }
    }

    /// [`run_with`](Self::run_with), telling after which kernel each stage ends. If `stage` panics it
    /// is called no more, and the panic goes on once the kernels are enqueued.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_staged<T: Element>(
        &self,
        operands: Operands<T>,
        workspace: &mut Workspace,
        stream: &Stream,
        stage: &mut dyn FnMut(&CStr),
    ) -> Result<()> {
        let raw = self.check_operands(operands)?;
        // SAFETY: as in `run_with`.
        unsafe { self.run_raw_staged(&raw, workspace, stream, stage) }
    }

    /// [`run_raw`](Self::run_raw), telling after which kernel each stage ends, as
    /// [`run_staged`](Self::run_staged).
    ///
    /// # Errors
    /// As [`run_raw`](Self::run_raw).
    ///
    /// # Safety
    /// As [`run_raw`](Self::run_raw).
    pub unsafe fn run_raw_staged(
        &self,
        operands: &RawOperands,
        workspace: &mut Workspace,
        stream: &Stream,
        stage: &mut dyn FnMut(&CStr),
    ) -> Result<()> {
        // SAFETY: as this function's.
        unsafe { self.enqueue(operands, workspace, stream, Some(stage)) }
    }

    unsafe fn enqueue(
        &self,
        operands: &RawOperands,
        workspace: &mut Workspace,
        stream: &Stream,
        stage: Option<&mut dyn FnMut(&CStr)>,
    ) -> Result<()> {
        self.device.expect("the workspace", workspace.device())?;
        workspace.check_stream(stream)?;
        self.check_raw(operands)?;
        let workspace_bytes = workspace.bytes();
        if workspace_bytes < self.prepared.workspace().least {
            return Err(self.too_small(workspace_bytes));
        }
        if self.problem.n() == 0 {
            return Ok(());
        }
        let (address, handle) = workspace.parts(self.prepared.handle_type());
        if handle.is_none() && self.prepared.handle_type().is_some() {
            return Err(self.operand_error(
                "was not reserved in this workspace; call Workspace::reserve".into(),
            ));
        }
        let mut stages = stage.map(Stages::new);
        let mut tell = stages.as_mut().map(|stages| |name: &CStr| stages.end(name));
        let args = Args {
            x: operands.x,
            w: operands.w,
            packed: operands.packed,
            y: operands.y,
            bias: operands.bias,
            residual: operands.residual,
            workspace: address,
            workspace_bytes,
            stream: stream.raw(),
            handle,
            stage: tell.as_mut().map(|tell| tell as &mut dyn FnMut(&CStr)),
        };
        // SAFETY: the caller vouches for the addresses, the rest was checked above.
        let launched = unsafe { self.prepared.launch(args) };
        if let Some(stages) = stages {
            stages.resume();
        }
        launched
    }
}

impl Workspace {
    /// Takes the memory and makes the handles that `conv` needs. Where what it would like does not
    /// fit on the device, it gets the least it works with.
    ///
    /// To hold more it gives back what it held first, so its memory may lie elsewhere afterwards, and a
    /// graph that was recorded before is not launched again. The same goes where it finds no more: then it
    /// holds as much as before, for the convolutions that it was reserved for.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::WorkspaceTooSmall`] where the limit is under the least,
    /// [`Error::WrongDevice`], [`Error::WrongStream`], or what a library answers.
    pub fn reserve(&mut self, conv: &Conv, stream: &Stream) -> Result<()> {
        conv.device.expect("the workspace", self.device())?;
        self.check_stream(stream)?;
        let Bytes { least, preferred } = conv.prepared.workspace();
        let wanted = self.limited(preferred);
        if wanted < least {
            return Err(conv.too_small(wanted));
        }
        self.grow(least, wanted, stream)?;
        self.hold_handle(&*conv.prepared, stream)
    }
}

impl fmt::Debug for Conv {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(
            f,
            "Conv({} of {} on {})",
            self.name(),
            self.problem,
            self.device
        )
    }
}
