//! What every kernel and baseline offers. [`variants`](crate::variants) is the list of them.
//!
//! | step | what happens | when |
//! | --- | --- | --- |
//! | [`Variant::plan`] | from problem, limits of a device and configuration: cannot, or a [`Plan`] | once; numbers alone, needs no device |
//! | [`Variant::prepare`] | readies a plan on a device: kernels loaded, handles and descriptors made | once |
//! | [`Prepared::pack`] | re-arranges a filter | once per filter |
//! | [`Prepared::launch`] | enqueues | at every run |
//!
//! Handwritten kernels (`src/kernels`), cuBLAS, cuDNN and the CPU (`src/baselines`) all stand behind
//! these traits. They are unsafe to implement: [`Conv`](crate::Conv) hands addresses to what safe
//! code gave it, and relies on the sizes that plans tell.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `variant` | the traits: [`Variant`], [`Prepared`], [`ConstantPart`] |
//! | `info` | [`Info`]: what a variant says of itself |
//! | `configured` | [`Configured`]: a variant in one of its configurations |
//! | `plan` | [`Query`], and the [`Plan`] that answers it |
//! | `args` | plain addresses: [`RawOperands`], and the [`Args`] of a launch |

mod args;
mod configured;
mod info;
mod plan;

use std::{
    any::{Any, TypeId},
    ffi::c_void,
};

use crate::{Device, Error, Result, Stream};

pub use args::{Args, RawOperands};
pub use configured::Configured;
pub use info::{Arithmetic, Info, Kind};
pub use plan::{Bytes, Packing, Plan, Query, Space};

/// A way to compute a convolution.
///
/// # Safety
/// What [`prepare`](Self::prepare) answers keeps what [`Prepared`] promises, whatever plan it was handed:
/// a plan's fields are anybody's to change, and it may be another variant's or of another question.
pub unsafe trait Variant: Any + Send + Sync {
    /// What it says of itself.
    fn info(&self) -> &Info;

    /// Plans the problem: arithmetic on numbers, no call of a device or a library, no search by
    /// time. What it costs is a few microseconds.
    ///
    /// # Errors
    /// Why it cannot do the problem, as a clause that follows its name: `takes one group; this has
    /// 32`.
    fn plan(&self, query: &Query) -> Result<Plan, String>;

    /// Opens the library that it is made of, if that has not been done.
    ///
    /// # Errors
    /// [`Error::Library`] where it is missing or too old.
    fn open(&self) -> Result<()> {
        Ok(())
    }

    /// The library that it is made of with its version, `cuBLAS-13.1.0`, which is opened for it; none
    /// where it is made of none.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    fn library(&self) -> Result<Option<String>> {
        Ok(None)
    }

    /// Readies a plan of its own, for the same question, on a device.
    ///
    /// # Errors
    /// [`Error::Unavailable`] for a plan that is not; a library that is missing or refuses, no memory.
    fn prepare(&self, device: &Device, query: &Query, plan: Plan) -> Result<Box<dyn Prepared>>;
}

/// A variant settled on one problem and one device.
///
/// # Safety
/// `pack` and `launch` touch no other memory than the operands of the problem's sizes, `packing`'s
/// bytes and the workspace they are given, of which [`workspace`](Self::workspace)`.least` bytes
/// always suffice.
pub unsafe trait Prepared: Send + Sync {
    /// Bytes of workspace that `launch` may use.
    fn workspace(&self) -> Bytes {
        Bytes::default()
    }

    /// How the filter is re-arranged; none where it is used as it is.
    fn packing(&self) -> Option<Packing> {
        None
    }

    /// The type of what [`handle`](Self::handle) makes; none where a launch needs no handle.
    fn handle_type(&self) -> Option<TypeId> {
        None
    }

    /// What a launch needs once per stream: a library's handle. Kept in the workspace, shared by all
    /// convolutions that ask for the same type.
    ///
    /// # Errors
    /// What the library answers.
    fn handle(&self, stream: &Stream) -> Result<Box<dyn Any + Send>> {
        let _ = stream;
        Ok(Box::new(()))
    }

    /// What was chosen inside, for the reports: the name of a library's plan, or what a kernel's is made of.
    fn note(&self) -> Option<String> {
        None
    }

    /// Takes a part of constant memory for a filter, where [`Packing::space`] says so.
    ///
    /// # Errors
    /// [`Error::ConstantMemory`] where other filters leave too little of it.
    fn constant_part(&self) -> Result<Box<dyn ConstantPart>> {
        Err(Error::Unavailable(
            "constant memory: this variant packs no filter into it".to_owned(),
        ))
    }

    /// Enqueues the re-arrangement of the filter `w` into `packed`.
    ///
    /// # Errors
    /// What the launch answers.
    ///
    /// # Safety
    /// The addresses are of the plan's device, and as large as the problem and
    /// [`packing`](Self::packing) say, until the stream is past this work.
    unsafe fn pack(
        &self,
        w: *const c_void,
        packed: *mut c_void,
        stream: *mut c_void,
    ) -> Result<()> {
        let _ = (w, packed, stream);
        Ok(())
    }

    /// Enqueues the convolution: no allocation, no synchronisation, no choice.
    ///
    /// # Errors
    /// What the launch answers.
    ///
    /// # Safety
    /// Every address is of the plan's device, aligned and as large as the problem says, and stays
    /// valid until the stream is past this work.
    unsafe fn launch(&self, args: Args) -> Result<()>;
}

/// A part of a row's constant memory that one packed filter has to itself until this is dropped.
///
/// # Safety
/// From [`address`](Self::address), which never changes, lie as many bytes of constant memory as
/// the [`Packing`] has that it was taken for, and nobody else writes to them while this lives, nor
/// before the device is past the work that was queued until then.
pub unsafe trait ConstantPart: Send + Sync {
    /// Where it begins, as an address of the device.
    fn address(&self) -> *mut c_void;
}

/// The error of a variant that is to ready a plan of another one's, or of another question.
#[cfg(feature = "cuda")]
pub(crate) fn not_its_plan(info: &Info, query: &Query) -> Error {
    Error::Unavailable(format!(
        "plan of {} for {} on this device: what was given is another variant's, or of another question",
        info.spelled(query.config),
        query.problem
    ))
}

/// What a measurement of a variant depends on beside the device, in one word: its [`code`], and where it
/// is made of a library that one and its version before it, `cuBLAS-13.1.0/0f3a77c2d1e85b69`.
///
/// # Errors
/// As [`Variant::open`].
pub fn source(variant: &dyn Variant) -> Result<String> {
    let code = code(variant.info());
    Ok(match variant.library()? {
        Some(library) => format!("{library}/{code}"),
        None => code,
    })
}

/// The part of [`source`] that is known without a library: the hash of what a variant is made of; the
/// version of this crate for the CPU's, which have none.
pub fn code(info: &Info) -> String {
    let version = || concat!("convforge-", env!("CARGO_PKG_VERSION")).to_owned();
    info.hash.clone().unwrap_or_else(version)
}

/// Plans the problem of `query` for a device of this kind, or says why not.
///
/// # Errors
/// The reason, as [`Variant::plan`]'s.
pub fn plan(variant: &dyn Variant, on_gpu: bool, query: &Query) -> Result<Plan, String> {
    let info = variant.info();
    info.check_config(query.config)?;
    match (info.kind, on_gpu) {
        (Kind::Cpu, true) => return Err("runs on the CPU only".to_owned()),
        (Kind::Kernel | Kind::Baseline, false) => return Err("needs a GPU".to_owned()),
        _ => {}
    }
    let arch = query.limits.arch;
    if on_gpu && !(info.min_arch..=info.max_arch).contains(&arch) {
        let archs = match (info.min_arch, info.max_arch) {
            (least, u32::MAX) => format!("sm_{least} and newer"),
            (least, most) if least == most => format!("sm_{least}"),
            (least, most) => format!("sm_{least} to sm_{most}"),
        };
        return Err(format!("is for {archs}; this GPU is sm_{arch}"));
    }
    variant.plan(query)
}
