//! The crate `convforge` for programs in C and C++: `include/convforge.h` says what each function
//! does, `docs/c.md` of the repository how to build and link.
//!
//! Nothing but codes, texts and handles crosses this border: a failure is a [`Status`] and the text of
//! [`convforge_last_error`], a panic is one of them, and every handle is checked before it is used.

mod handle;
mod status;

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    ptr::null_mut,
    sync::{Mutex, PoisonError, TryLockError},
};

use convforge::{Conv, Pick, Problem, RawOperands, Stream};

pub use handle::Handle;
use handle::Kind;
pub use status::Status;
use status::{Failure, guard, last, text_or_null};

/// `convforge_device`.
pub type Device = Handle<convforge::Device>;
/// `convforge_plan`.
pub type Plan = Handle<Planned>;
/// `convforge_workspace`.
pub type Workspace = Handle<Lane>;

impl Kind for convforge::Device {
    const MAGIC: u64 = u64::from_le_bytes(*b"cfdevice");
    const NAME: &'static str = "convforge_device";
}

impl Kind for Planned {
    const MAGIC: u64 = u64::from_le_bytes(*b"cf_plan.");
    const NAME: &'static str = "convforge_plan";
}

impl Kind for Lane {
    const MAGIC: u64 = u64::from_le_bytes(*b"cf_space");
    const NAME: &'static str = "convforge_workspace";
}

/// A convolution, and what is said of it.
#[derive(Debug)]
pub struct Planned {
    conv: Conv,
    name: CString,
    reason: CString,
}

impl Planned {
    fn new(conv: Conv, reason: &str) -> Self {
        let reason = match conv.note() {
            Some(note) => format!("{reason}; {note}"),
            None => reason.to_owned(),
        };
        Planned {
            name: CString::new(conv.name()).unwrap_or_default(),
            reason: CString::new(reason).unwrap_or_default(),
            conv,
        }
    }
}

/// A plan for C of a convolution that Rust made, with a variant of its own for instance. C destroys it.
pub fn plan_of(conv: Conv, reason: &str) -> *mut Plan {
    Handle::new(Planned::new(conv, reason))
}

/// A stream, and the memory and library handles of what runs on it.
#[derive(Debug)]
pub struct Lane {
    stream: Stream,
    /// C may call from two threads at once; the second one is refused.
    workspace: Mutex<convforge::Workspace>,
}

/// `convforge_operands`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Operands {
    pub x: *const c_void,
    pub w: *const c_void,
    pub y: *mut c_void,
    pub packed: *const c_void,
    pub bias: *const f32,
    pub residual: *const c_void,
}

/// `convforge_what`: whose bytes are asked for.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum What {
    X = 0,
    W = 1,
    Y = 2,
    Bias = 3,
    Residual = 4,
    Packed = 5,
    WorkspaceLeast = 6,
    Workspace = 7,
}

impl What {
    const ALL: [What; 8] = [
        What::X,
        What::W,
        What::Y,
        What::Bias,
        What::Residual,
        What::Packed,
        What::WorkspaceLeast,
        What::Workspace,
    ];
}

/// The version of this library, as `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn convforge_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convforge_last_error(status: *mut Status) -> *const c_char {
    let (code, text) = last();
    if !status.is_null() {
        // SAFETY: the caller's to write.
        unsafe { status.write(code) };
    }
    text
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convforge_device_open(ordinal: c_int, out: *mut *mut Device) -> Status {
    guard(|| {
        // SAFETY: the caller's to write.
        unsafe { clear("out", out) }?;
        let device = match usize::try_from(ordinal) {
            Ok(ordinal) => convforge::Device::gpu(ordinal)?,
            Err(_) if ordinal == -1 => convforge::Device::cpu(),
            Err(_) => {
                return Err(argument(format!(
                    "{ordinal} is neither a GPU's number nor -1"
                )));
            }
        };
        // SAFETY: as above.
        unsafe { out.write(Handle::new(device)) };
        Ok(())
    })
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convforge_device_close(device: *mut Device) -> Status {
    // SAFETY: the caller's promise.
    guard(|| unsafe { Handle::take(device) }.map(drop))
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convforge_plan_create(
    device: *const Device,
    problem: *const c_char,
    pick: *const c_char,
    out: *mut *mut Plan,
) -> Status {
    guard(|| {
        // SAFETY: the caller's to write.
        unsafe { clear("out", out) }?;
        // SAFETY: the caller's promise.
        let (device, problem) = unsafe { (Handle::of(device)?, text("problem", problem)?) };
        let problem: Problem = problem.parse()?;
        let pick: Pick = match pick.is_null() {
            true => Pick::default(),
            // SAFETY: the caller's promise.
            false => unsafe { text("pick", pick) }?.parse()?,
        };
        let conv = Conv::new(device, &problem, &pick)?;
        let reason = format!("{pick}: {}", conv.reason());
        let planned = Planned::new(conv, &reason);
        // SAFETY: as above.
        unsafe { out.write(Handle::new(planned)) };
        Ok(())
    })
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convforge_plan_destroy(plan: *mut Plan) -> Status {
    // SAFETY: the caller's promise.
    guard(|| unsafe { Handle::take(plan) }.map(drop))
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convforge_plan_name(plan: *const Plan) -> *const c_char {
    // SAFETY: the caller's promise.
    text_or_null(|| Ok(unsafe { Handle::of(plan) }?.name.as_ptr()))
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convforge_plan_reason(plan: *const Plan) -> *const c_char {
    // SAFETY: the caller's promise.
    text_or_null(|| Ok(unsafe { Handle::of(plan) }?.reason.as_ptr()))
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convforge_plan_bytes(
    plan: *const Plan,
    what: c_int,
    bytes: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let conv = &unsafe { Handle::of(plan) }?.conv;
        if bytes.is_null() {
            return Err(argument("bytes is null"));
        }
        let what = What::ALL.into_iter().find(|known| *known as c_int == what);
        let what = what.ok_or_else(|| argument("there is no such operand to ask about"))?;
        // SAFETY: the caller's to write.
        unsafe { bytes.write(bytes_of(conv, what)) };
        Ok(())
    })
}

fn bytes_of(conv: &Conv, what: What) -> usize {
    let problem = conv.problem();
    let element = problem.storage().bytes();
    match what {
        What::X => problem.x_len() * element,
        What::W => problem.w_len() * element,
        What::Y => problem.y_len() * element,
        What::Bias => problem.bias_len() * size_of::<f32>(),
        What::Residual => problem.residual_len() * element,
        What::Packed => conv.packing().map_or(0, |packing| packing.bytes),
        What::WorkspaceLeast => conv.workspace_bytes().least,
        What::Workspace => conv.workspace_bytes().preferred,
    }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convforge_workspace_create(
    plan: *const Plan,
    stream: *mut c_void,
    memory: *mut c_void,
    bytes: usize,
    out: *mut *mut Workspace,
) -> Status {
    guard(|| {
        // SAFETY: the caller's to write.
        unsafe { clear("out", out) }?;
        // SAFETY: the caller's promise.
        let conv = &unsafe { Handle::of(plan) }?.conv;
        // SAFETY: the caller's promise.
        let stream = unsafe { stream_of(conv.device(), stream) }?;
        let mut workspace = match memory.is_null() {
            true if bytes > 0 => return Err(argument("memory is null, and bytes is not 0")),
            true => convforge::Workspace::new(&stream)?,
            // SAFETY: the caller's promise.
            false => unsafe { convforge::Workspace::from_raw(&stream, memory, bytes) }?,
        };
        workspace.reserve(conv, &stream)?;
        let lane = Lane {
            stream,
            workspace: Mutex::new(workspace),
        };
        // SAFETY: as above.
        unsafe { out.write(Handle::new(lane)) };
        Ok(())
    })
}

/// # Safety
/// `raw` is null on the CPU, and on a GPU a stream that outlives the answer.
unsafe fn stream_of(device: &convforge::Device, raw: *mut c_void) -> Result<Stream, Failure> {
    #[cfg(feature = "cuda")]
    if let Some(gpu) = device.as_gpu() {
        // SAFETY: as this function's.
        return Ok(unsafe { convforge::gpu::Stream::from_raw(gpu, raw) }?.into());
    }
    match raw.is_null() {
        true => Ok(device.stream()?),
        false => Err(argument("the CPU has no streams: give null")),
    }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convforge_workspace_reserve(
    workspace: *mut Workspace,
    plan: *const Plan,
) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (lane, planned) = unsafe { (Handle::of(workspace)?, Handle::of(plan)?) };
        lane.alone(|workspace| workspace.reserve(&planned.conv, &lane.stream))
    })
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convforge_workspace_destroy(workspace: *mut Workspace) -> Status {
    guard(|| {
        if !workspace.is_null() {
            // SAFETY: the caller's promise.
            unsafe { Handle::of(workspace) }?.alone(|_| Ok(()))?;
        }
        // SAFETY: the caller's promise.
        unsafe { Handle::take(workspace) }.map(drop)
    })
}

impl Lane {
    /// Does something with the workspace, unless another thread is doing so.
    fn alone(
        &self,
        work: impl FnOnce(&mut convforge::Workspace) -> convforge::Result<()>,
    ) -> Result<(), Failure> {
        let mut workspace = match self.workspace.try_lock() {
            Ok(workspace) => workspace,
            Err(TryLockError::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
            Err(TryLockError::WouldBlock) => {
                let text = "another thread is using this workspace; each one needs its own";
                return Err(Failure::new(Status::Busy, text));
            }
        };
        Ok(work(&mut workspace)?)
    }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convforge_pack(
    plan: *const Plan,
    workspace: *const Workspace,
    w: *const c_void,
    packed: *mut c_void,
) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (planned, lane) = unsafe { (Handle::of(plan)?, Handle::of(workspace)?) };
        if planned.conv.packing().is_some() && (w.is_null() || packed.is_null()) {
            return Err(argument("w or packed is null"));
        }
        // SAFETY: the caller's promise.
        Ok(unsafe { planned.conv.pack_into(w, packed, &lane.stream) }?)
    })
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convforge_run(
    plan: *const Plan,
    workspace: *mut Workspace,
    operands: *const Operands,
) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (planned, lane) = unsafe { (Handle::of(plan)?, Handle::of(workspace)?) };
        if operands.is_null() {
            return Err(argument("operands is null"));
        }
        // SAFETY: the caller's to read.
        let given = unsafe { operands.read() };
        let operands = RawOperands::new(given.x, given.w, given.y)
            .bias(given.bias)
            .residual(given.residual)
            .packed(given.packed);
        // SAFETY: the caller's promise.
        lane.alone(|workspace| unsafe { planned.conv.run_raw(&operands, workspace, &lane.stream) })
    })
}

fn argument(text: impl Into<String>) -> Failure {
    Failure::new(Status::Argument, text)
}

/// Nothing is in `out` until something is made.
///
/// # Safety
/// `out` is null, or may be written to.
unsafe fn clear<T>(name: &str, out: *mut *mut T) -> Result<(), Failure> {
    if out.is_null() {
        return Err(argument(format!("{name} is null")));
    }
    // SAFETY: as the caller promised.
    unsafe { out.write(null_mut()) };
    Ok(())
}

/// A text of C's.
///
/// # Safety
/// `text` is null, or ends with a zero and stays while the answer lives.
unsafe fn text<'a>(name: &str, text: *const c_char) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(argument(format!("{name} is null")));
    }
    // SAFETY: as the caller promised.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str()
        .map_err(|_| Failure::new(Status::Text, format!("{name} is not UTF-8")))
}
