//! A problem with its chosen variant. Everything is settled in [`Conv::new`]; [`Conv::run`] checks
//! its operands and enqueues.

mod operands;
mod packed;
mod workspace;

use std::{
    ffi::{CStr, c_void},
    fmt,
    ptr::null,
    sync::Arc,
};

use crate::{
    Device, Element, Error, Pick, Problem, Result, Stream, View, ViewMut,
    select::{Candidate, Candidates},
    variant::{self, Args, Bytes, Packing, Plan, Prepared, Query, Space, Variant},
};

pub use operands::{Operands, RawOperands};
pub use packed::Packed;
pub use workspace::Workspace;

/// What errors call it.
const PACKED: &str = "the packed filter";

/// A convolution ready to run, any number of times, from any number of threads.
///
/// ```
/// use convforge::{Conv, Device, Pick, Problem};
///
/// let (device, _why_no_gpu) = Device::best();
/// let problem: Problem = "mb1ic3ih8oc4oh8kh3ph1".parse()?;
/// let conv = Conv::new(&device, &problem, &Pick::Rule)?;
/// let stream = device.stream()?;
/// let mut workspace = conv.workspace(&stream)?;
/// let x = device.upload(&vec![1f32; problem.x_len()])?;
/// let w = device.upload(&vec![0.5f32; problem.w_len()])?;
/// let mut y = device.alloc(problem.y_len())?;
/// conv.run(&x, &w, &mut y, &mut workspace, &stream)?;
/// assert_eq!(y.to_vec(&stream)?[9], 13.5);
/// # Ok::<(), convforge::Error>(())
/// ```
pub struct Conv {
    device: Device,
    problem: Problem,
    variant: Arc<dyn Variant>,
    config: usize,
    prepared: Box<dyn Prepared>,
    /// What a packed filter must have been made for.
    key: Option<packed::Key>,
}

impl Conv {
    /// Finds the variant, plans the problem and readies the plan. A rule goes on to its next best
    /// where a library is missing or has no plan. Nothing is searched by time.
    ///
    /// # Errors
    /// [`Error::UnknownVariant`], [`Error::UnknownConfig`], [`Error::UnknownPolicy`],
    /// [`Error::NoVariant`] where a rule finds none; for a variant that was named,
    /// [`Error::Unsupported`] with its reason, or a missing library.
    pub fn new(device: &Device, problem: &Problem, pick: &Pick) -> Result<Self> {
        Self::first_of(device, problem, pick.candidates(&device.limits(), problem)?)
    }

    /// The first candidate that can be readied.
    pub(crate) fn first_of(
        device: &Device,
        problem: &Problem,
        mut candidates: Candidates,
    ) -> Result<Self> {
        for candidate in std::mem::take(&mut candidates.order) {
            match Self::of_candidate(device, problem, candidate) {
                Err(error) if candidates.passes_over(&error) => candidates.pass(error),
                answer => return answer,
            }
        }
        Err(candidates.none(&device.to_string(), problem))
    }

    fn of_candidate(device: &Device, problem: &Problem, candidate: Candidate) -> Result<Self> {
        let Candidate {
            variant,
            config,
            plan,
        } = candidate;
        match plan {
            Some(plan) => Self::prepare(device, problem, variant, config, plan),
            None => Self::with_variant(device, problem, variant, config),
        }
    }

    /// A variant of one's own, or one of [`variants::all`](crate::variants::all), with one of its configurations.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the variant's reason, or what readying its plan answers.
    pub fn with_variant(
        device: &Device,
        problem: &Problem,
        variant: Arc<dyn Variant>,
        config: usize,
    ) -> Result<Self> {
        let limits = device.limits();
        let query = Query {
            problem,
            config,
            limits: &limits,
        };
        let plan = variant::plan(&*variant, device.is_gpu(), &query).map_err(|why| {
            Error::Unsupported {
                variant: variant.info().spelled(config),
                problem: Box::new(problem.clone()),
                why,
            }
        })?;
        Self::prepare(device, problem, variant, config, plan)
    }

    fn prepare(
        device: &Device,
        problem: &Problem,
        variant: Arc<dyn Variant>,
        config: usize,
        plan: Plan,
    ) -> Result<Self> {
        let limits = device.limits();
        let query = Query {
            problem,
            config,
            limits: &limits,
        };
        let prepared = variant.prepare(device, &query, plan)?;
        let name = &variant.info().name;
        let key = prepared
            .packing()
            .map(|packing| packed::Key::new(name, problem, packing));
        Ok(Conv {
            device: device.clone(),
            problem: problem.clone(),
            variant,
            config,
            prepared,
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
        self.variant.info().spelled(self.config)
    }

    /// The variant.
    pub fn variant(&self) -> &Arc<dyn Variant> {
        &self.variant
    }

    /// The index of its configuration.
    pub fn config(&self) -> usize {
        self.config
    }

    /// What was chosen inside: the name of a library's plan.
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
        self.check_view("the filter (w)", &w, self.problem.w_len())?;
        // SAFETY: the filter is of this device and of the right size, and stays as in `run_with`.
        unsafe { self.pack_raw(w.as_ptr(), stream) }
    }

    /// [`pack`](Self::pack) of a filter at a plain address.
    ///
    /// # Errors
    /// As [`pack`](Self::pack).
    ///
    /// # Safety
    /// `w` is a filter of the problem's size on this convolution's device until `stream` is past
    /// this work.
    pub unsafe fn pack_raw(&self, w: *const c_void, stream: &Stream) -> Result<Option<Packed>> {
        self.device.expect("the stream", &stream.device())?;
        self.check_align("the filter (w)", w, self.problem.align())?;
        let Some(key) = self.key.clone() else {
            return Ok(None);
        };
        let packing = self.packing().unwrap_or(Packing {
            bytes: 0,
            layout: 0,
            space: Space::Global,
        });
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
    /// caller's to give; otherwise as [`pack_raw`](Self::pack_raw).
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
        self.device.expect("the stream", &stream.device())?;
        self.check_align("the filter (w)", w, self.problem.align())?;
        self.check_align(PACKED, packed, Workspace::ALIGN)?;
        match self.packing() {
            None => Ok(()),
            Some(Packing {
                space: Space::Constant,
                ..
            }) => Err(Error::Unavailable(format!(
                "memory of the caller's for filters of {}, which lie in constant memory: \
                 Conv::pack and Conv::pack_raw take their own",
                self.name()
            ))),
            // SAFETY: the caller vouches for the addresses.
            Some(_) => unsafe { self.prepared.pack(w, packed, stream.raw()) },
        }
    }

    /// Enqueues y = conv(x, w) on `stream`. It can be captured in a graph: nothing is allocated,
    /// waited for or chosen here.
    ///
    /// Each operand is a buffer, `&x`, or a [`View`]: a part of a buffer, as a slice of a batch is, a
    /// slice on the CPU, or another crate's memory.
    ///
    /// # Errors
    /// Operands of the wrong type, length, device or alignment, a workspace that is too small or of
    /// another stream, operands missing that the epilogue needs; or what the launch answers.
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
    /// [`gpu::Stream::from_raw`](crate::gpu::Stream::from_raw) its streams.
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

    /// [`run_with`](Self::run_with), telling after which kernel each stage ends.
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

    /// [`run_raw`](Self::run_raw), telling after which kernel each stage ends.
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
            stage: stage.map(|stage| stage as &mut dyn FnMut(&CStr)),
        };
        // SAFETY: the caller vouches for the addresses, the rest was checked above.
        unsafe { self.prepared.launch(args) }
    }

    fn check_operands<T: Element>(&self, operands: Operands<T>) -> Result<RawOperands> {
        let problem = &self.problem;
        let Operands {
            x,
            w,
            mut y,
            bias,
            residual,
            packed,
        } = operands;
        self.check_presence(bias.is_some(), residual.is_some())?;
        self.check_view("the input (x)", &x, problem.x_len())?;
        self.check_view("the filter (w)", &w, problem.w_len())?;
        self.device.expect("the output (y)", y.device())?;
        self.check_storage::<T>("the output (y)")?;
        self.check_len("the output (y)", y.len(), problem.y_len())?;
        if let Some(residual) = &residual {
            self.check_view("the residual", residual, problem.residual_len())?;
        }
        if let Some(bias) = &bias {
            self.device.expect("the bias", bias.device())?;
            self.check_len("the bias", bias.len(), problem.bias_len())?;
        }
        if let Some(packed) = packed {
            self.device.expect("the packed filter", &packed.device)?;
            if self.key.as_ref() != Some(&packed.key) {
                let wanted = self.key.as_ref().map_or_else(
                    || format!("{} uses filters as they are", self.name()),
                    |key| format!("this convolution takes {key}"),
                );
                return Err(self.operand_error(format!(
                    "was given a filter packed as {}; {wanted}",
                    packed.key
                )));
            }
        }
        let pointer = |b: Option<*const c_void>| b.unwrap_or(null());
        Ok(RawOperands {
            x: x.as_ptr(),
            w: w.as_ptr(),
            y: y.as_mut_ptr(),
            bias: pointer(bias.map(|bias| bias.as_ptr())).cast(),
            residual: pointer(residual.map(|residual| residual.as_ptr())),
            packed: pointer(packed.map(Packed::as_ptr)),
        })
    }

    /// Refuses operands that are missing, or that the problem has no use for.
    fn check_presence(&self, bias: bool, residual: bool) -> Result<()> {
        let epilogue = self.problem.epilogue();
        for (what, wanted, given) in [
            ("a bias", epilogue.bias, bias),
            ("a residual", epilogue.residual, residual),
        ] {
            if wanted != given && self.problem.n() > 0 {
                let state = if wanted { "needs" } else { "has no use for" };
                return Err(self.operand_error(format!("{state} {what}")));
            }
        }
        Ok(())
    }

    fn check_raw(&self, raw: &RawOperands) -> Result<()> {
        self.check_presence(!raw.bias.is_null(), !raw.residual.is_null())?;
        if self.key.is_some() && raw.packed.is_null() {
            return Err(self.operand_error(format!(
                "needs its filter packed for {}: call Conv::pack once per filter",
                self.name()
            )));
        }
        let tensors = [
            ("the input (x)", raw.x),
            ("the filter (w)", raw.w),
            ("the output (y)", raw.y.cast_const()),
        ];
        let missing = tensors.iter().find(|(_, address)| address.is_null());
        if let Some((what, _)) = missing
            && self.problem.n() > 0
        {
            return Err(self.operand_error(format!("needs {what}, and was given a null address")));
        }
        for (what, address) in tensors.into_iter().chain([("the residual", raw.residual)]) {
            self.check_align(what, address, self.problem.align())?;
        }
        self.check_align(PACKED, raw.packed, Workspace::ALIGN)?;
        self.check_align("the bias", raw.bias.cast(), self.problem.align().max(4))
    }

    fn check_align(&self, what: &'static str, address: *const c_void, align: usize) -> Result<()> {
        let address = address as usize;
        if address.is_multiple_of(align) {
            return Ok(());
        }
        if what == PACKED {
            return Err(Error::WorkspaceMisaligned {
                what,
                address,
                align,
            });
        }
        Err(Error::Misaligned {
            what,
            address,
            align,
            natural: 1 << address.trailing_zeros(),
            problem: Box::new(self.problem.clone()),
        })
    }

    fn check_view<T: Element>(
        &self,
        what: &'static str,
        view: &View<T>,
        expected: usize,
    ) -> Result<()> {
        self.device.expect(what, view.device())?;
        self.check_storage::<T>(what)?;
        self.check_len(what, view.len(), expected)
    }

    fn check_storage<T: Element>(&self, what: &'static str) -> Result<()> {
        if T::STORAGE == self.problem.storage() {
            return Ok(());
        }
        Err(Error::Storage {
            what,
            expected: self.problem.storage().to_string(),
            found: T::STORAGE.to_string(),
            problem: Box::new(self.problem.clone()),
        })
    }

    fn check_len(&self, what: &'static str, found: usize, expected: usize) -> Result<()> {
        if found == expected {
            return Ok(());
        }
        let problem = Box::new(self.problem.clone());
        Err(Error::Length {
            what,
            expected,
            found,
            problem,
        })
    }

    fn operand_error(&self, why: String) -> Error {
        Error::Operand {
            problem: Box::new(self.problem.clone()),
            why,
        }
    }

    fn too_small(&self, have: usize) -> Error {
        Error::WorkspaceTooSmall {
            variant: self.name(),
            problem: Box::new(self.problem.clone()),
            need: self.prepared.workspace().least,
            have,
        }
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
