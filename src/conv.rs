//! A problem with its chosen variant. Everything is settled in [`Conv::new`]; [`Conv::run`] checks
//! its operands and enqueues.

mod operands;
mod workspace;

use std::{
    any::Any,
    ffi::{CStr, c_void},
    ptr::{null, null_mut},
    sync::Arc,
};

use crate::{
    Buffer, Device, Element, Error, Pick, Problem, Result, Stream,
    select::Candidates,
    variant::{self, Args, Bound, Bytes, Plan, Query, Variant},
};

pub use operands::{Operands, Packed, RawOperands};
pub use workspace::Workspace;

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
    plan: Box<dyn Plan>,
    /// What a packed filter must have been made for.
    key: Arc<str>,
}

impl Conv {
    /// Finds the variant, asks whether it can do the problem and settles what depends on shapes.
    /// A rule goes on to its next best where a library is missing or has no plan.
    ///
    /// # Errors
    /// [`Error::UnknownVariant`], [`Error::UnknownConfig`], [`Error::UnknownPolicy`],
    /// [`Error::NoVariant`] where a rule finds none; for a variant that was named,
    /// [`Error::Unsupported`] with its reason, or a missing library.
    pub fn new(device: &Device, problem: &Problem, pick: &Pick) -> Result<Self> {
        Self::first_of(device, problem, pick.candidates(device, problem)?)
    }

    /// The first candidate that can be planned.
    pub(crate) fn first_of(
        device: &Device,
        problem: &Problem,
        mut candidates: Candidates,
    ) -> Result<Self> {
        for (variant, config) in std::mem::take(&mut candidates.order) {
            match Self::with_variant(device, problem, variant, config) {
                Err(error) if candidates.passes_over(&error) => candidates.pass(error),
                answer => return answer,
            }
        }
        Err(candidates.none(device, problem))
    }

    /// A variant of one's own, or one of [`variants::all`](crate::variants::all), with one of its configurations.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the variant's reason, or what planning answers.
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
        variant::supports(&*variant, device, &query).map_err(|why| Error::Unsupported {
            variant: variant.info().spelled(config),
            problem: Box::new(problem.clone()),
            why,
        })?;
        let plan = variant.plan(device, &query)?;
        let key = format!("{} of {problem}", variant.info().spelled(config)).into();
        Ok(Conv {
            key,
            device: device.clone(),
            problem: problem.clone(),
            variant,
            config,
            plan,
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
    pub(crate) fn config(&self) -> usize {
        self.config
    }

    /// What was chosen inside: the name of a library's plan.
    pub fn note(&self) -> Option<String> {
        self.plan.note()
    }

    /// Bytes of workspace.
    pub fn workspace_bytes(&self) -> Bytes {
        self.plan.workspace()
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

    /// Bytes of the re-arranged filter; 0 where the variant uses the filter as it is.
    pub fn packed_bytes(&self) -> usize {
        self.plan.packed_bytes()
    }

    /// Re-arranges the filter for this convolution, once; `None` where the variant uses it as it
    /// is. Enqueued on `stream`.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn pack<T: Element>(&self, w: &Buffer<T>, stream: &Stream) -> Result<Option<Packed>> {
        self.check_buffer("the filter (w)", w, self.problem.w_len())?;
        self.device.expect("the stream", &stream.device())?;
        if self.packed_bytes() == 0 {
            return Ok(None);
        }
        let mut bytes = self.device.alloc(self.packed_bytes())?;
        // SAFETY: both buffers are of this device and have the sizes the plan asked for.
        unsafe { self.pack_raw(w.as_ptr(), bytes.as_mut_ptr(), stream)? };
        Ok(Some(Packed {
            bytes,
            made_for: self.key.clone(),
        }))
    }

    /// [`pack`](Self::pack) for plain addresses.
    ///
    /// # Errors
    /// What the launch answers.
    ///
    /// # Safety
    /// `w` is a filter of the problem's size and `packed` has [`packed_bytes`](Self::packed_bytes)
    /// bytes, both on this convolution's device until `stream` is past this work.
    pub unsafe fn pack_raw(
        &self,
        w: *const c_void,
        packed: *mut c_void,
        stream: &Stream,
    ) -> Result<()> {
        // SAFETY: the caller vouches for the addresses.
        unsafe { self.plan.pack(w, packed, stream.raw()) }
    }

    /// Enqueues y = conv(x, w) on `stream`. It can be captured in a graph: nothing is allocated,
    /// waited for or chosen here.
    ///
    /// # Errors
    /// Operands of the wrong type, length, device or alignment, a workspace that is too small or of
    /// another stream, operands missing that the epilogue needs; or what the launch answers.
    pub fn run<T: Element>(
        &self,
        x: &Buffer<T>,
        w: &Buffer<T>,
        y: &mut Buffer<T>,
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
        // SAFETY: the buffers were just checked. Work that is still queued when one of them is
        // dropped is waited for by the driver's free.
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
    /// `stream` is past this work; nothing else writes to them meanwhile.
    pub unsafe fn run_raw(
        &self,
        operands: &RawOperands,
        workspace: &mut Workspace,
        stream: &Stream,
    ) -> Result<()> {
        // SAFETY: as this function's.
        unsafe { self.enqueue(operands, workspace, stream, None, None) }
    }

    /// [`run_with`](Self::run_with), telling after which kernel each stage ends.
    pub(crate) fn run_staged<T: Element>(
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
    /// # Safety
    /// As [`run_raw`](Self::run_raw).
    pub(crate) unsafe fn run_raw_staged(
        &self,
        operands: &RawOperands,
        workspace: &mut Workspace,
        stream: &Stream,
        stage: &mut dyn FnMut(&CStr),
    ) -> Result<()> {
        // SAFETY: as this function's.
        unsafe { self.enqueue(operands, workspace, stream, None, Some(stage)) }
    }

    /// Fixes the operands: whatever depends on addresses (tensor maps) is prepared once. The
    /// operands stay borrowed for as long.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn bind<'a, T: Element>(&'a self, operands: Operands<'a, T>) -> Result<BoundConv<'a>> {
        let raw = self.check_operands(operands)?;
        self.check_raw(&raw)?;
        let mut nothing = ();
        // SAFETY: the operands were checked and stay borrowed.
        let bound = unsafe {
            self.plan
                .bind(&args(&raw, null_mut(), 0, null_mut(), &mut nothing))?
        };
        Ok(BoundConv {
            conv: self,
            raw,
            bound,
        })
    }

    unsafe fn enqueue(
        &self,
        operands: &RawOperands,
        workspace: &mut Workspace,
        stream: &Stream,
        bound: Option<&Bound>,
        stage: Option<&mut dyn FnMut(&CStr)>,
    ) -> Result<()> {
        self.device.expect("the workspace", &workspace.device)?;
        workspace.check_stream(stream)?;
        self.check_raw(operands)?;
        let bytes = workspace.memory.len();
        if bytes < self.plan.workspace().least {
            return Err(self.too_small(bytes));
        }
        if self.problem.n == 0 {
            return Ok(());
        }
        let handles = workspace
            .handles
            .get_mut(&self.variant.info().name)
            .ok_or_else(|| {
                self.operand_error(
                    "was not reserved in this workspace; call Workspace::reserve".into(),
                )
            })?;
        let args = Args {
            bound,
            stage: stage.map(|stage| stage as &mut dyn FnMut(&CStr)),
            ..args(
                operands,
                workspace.memory.as_mut_ptr(),
                bytes,
                stream.raw(),
                &mut **handles,
            )
        };
        // SAFETY: the caller vouches for the addresses, the rest was checked above.
        unsafe { self.plan.launch(args) }
    }

    fn check_operands<T: Element>(&self, operands: Operands<T>) -> Result<RawOperands> {
        let problem = &self.problem;
        let Operands {
            x,
            w,
            y,
            bias,
            residual,
            packed,
        } = operands;
        self.check_presence(bias.is_some(), residual.is_some())?;
        self.check_buffer("the input (x)", x, problem.x_len())?;
        self.check_buffer("the filter (w)", w, problem.w_len())?;
        self.check_buffer("the output (y)", y, problem.y_len())?;
        if let Some(residual) = residual {
            self.check_buffer("the residual", residual, problem.residual_len())?;
        }
        if let Some(bias) = bias {
            self.device.expect("the bias", &bias.device())?;
            self.check_len("the bias", bias.len(), problem.bias_len())?;
        }
        if let Some(packed) = packed
            && packed.made_for != self.key
        {
            return Err(self.operand_error(format!(
                "was given a filter packed for {}, not for {}",
                packed.made_for, self.key
            )));
        }
        let pointer = |b: Option<*const c_void>| b.unwrap_or(null());
        Ok(RawOperands {
            x: x.as_ptr(),
            w: w.as_ptr(),
            y: y.as_mut_ptr(),
            bias: pointer(bias.map(Buffer::as_ptr)).cast(),
            residual: pointer(residual.map(Buffer::as_ptr)),
            packed: pointer(packed.map(|p| p.bytes.as_ptr())),
        })
    }

    /// Refuses operands that are missing, or that the problem has no use for.
    fn check_presence(&self, bias: bool, residual: bool) -> Result<()> {
        let epilogue = &self.problem.epilogue;
        for (what, wanted, given) in [
            ("a bias", epilogue.bias, bias),
            ("a residual", epilogue.residual, residual),
        ] {
            if wanted != given && self.problem.n > 0 {
                let state = if wanted { "needs" } else { "has no use for" };
                return Err(self.operand_error(format!("{state} {what}")));
            }
        }
        Ok(())
    }

    fn check_raw(&self, raw: &RawOperands) -> Result<()> {
        self.check_presence(!raw.bias.is_null(), !raw.residual.is_null())?;
        if self.packed_bytes() > 0 && raw.packed.is_null() {
            return Err(self.operand_error(format!(
                "needs its filter packed for {}: call Conv::pack once per filter",
                self.name()
            )));
        }
        for (what, address) in [
            ("the input (x)", raw.x),
            ("the filter (w)", raw.w),
            ("the output (y)", raw.y.cast_const()),
            ("the residual", raw.residual),
        ] {
            self.check_align(what, address, self.problem.align)?;
        }
        self.check_align("the bias", raw.bias.cast(), self.problem.align.max(4))
    }

    fn check_align(&self, what: &'static str, address: *const c_void, align: usize) -> Result<()> {
        let address = address as usize;
        if address.is_multiple_of(align) {
            return Ok(());
        }
        Err(Error::Misaligned {
            what,
            address,
            align,
            natural: 1 << address.trailing_zeros(),
            problem: Box::new(self.problem.clone()),
        })
    }

    fn check_buffer<T: Element>(
        &self,
        what: &'static str,
        buffer: &Buffer<T>,
        expected: usize,
    ) -> Result<()> {
        self.device.expect(what, &buffer.device())?;
        if T::STORAGE != self.problem.storage {
            return Err(Error::Storage {
                what,
                expected: self.problem.storage.to_string(),
                found: T::STORAGE.to_string(),
                problem: Box::new(self.problem.clone()),
            });
        }
        self.check_len(what, buffer.len(), expected)
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
            need: self.plan.workspace().least,
            have,
        }
    }
}

/// A convolution with its operands fixed.
pub struct BoundConv<'a> {
    conv: &'a Conv,
    raw: RawOperands,
    bound: Bound,
}

impl BoundConv<'_> {
    /// Enqueues the convolution of the fixed operands.
    ///
    /// # Errors
    /// As [`Conv::run`].
    pub fn run(&mut self, workspace: &mut Workspace, stream: &Stream) -> Result<()> {
        // SAFETY: the operands were checked when they were bound, and stay borrowed.
        unsafe {
            self.conv
                .enqueue(&self.raw, workspace, stream, Some(&self.bound), None)
        }
    }
}

fn args<'a>(
    raw: &RawOperands,
    workspace: *mut c_void,
    workspace_bytes: usize,
    stream: *mut c_void,
    handles: &'a mut (dyn Any + Send),
) -> Args<'a> {
    Args {
        x: raw.x,
        w: raw.w,
        packed: raw.packed,
        y: raw.y,
        bias: raw.bias,
        residual: raw.residual,
        workspace,
        workspace_bytes,
        stream,
        handles,
        bound: None,
        stage: None,
    }
}
