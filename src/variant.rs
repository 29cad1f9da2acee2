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
//! these two traits. Both are unsafe to implement: [`Conv`](crate::Conv) hands addresses to what
//! safe code gave it, and relies on the sizes that plans tell.

use std::{
    any::{Any, TypeId},
    ffi::{CStr, c_void},
    fmt,
};

use crate::{Device, Error, Limits, Problem, Result, Stream};

/// Where a variant comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Kind {
    /// A handwritten CUDA kernel.
    Kernel,
    /// A vendor's library.
    Baseline,
    /// Runs on the CPU.
    Cpu,
}

/// How a variant comes to its sums, which decides what a check may ask of it on whole numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Arithmetic {
    /// It adds up the products of the operands, in any order. Where every partial sum is exact the
    /// result is too, and must be right in every bit.
    #[default]
    Exact,
    /// It multiplies transforms of the operands (Winograd, FFT), which are rounded even where the
    /// operands are whole.
    Transform,
}

impl Arithmetic {
    /// The word in lists and tables.
    pub fn word(self) -> &'static str {
        match self {
            Arithmetic::Exact => "exact",
            Arithmetic::Transform => "transform",
        }
    }
}

/// What a variant says of itself.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Info {
    /// Its name in every list, file and flag: `family_file`.
    pub name: String,
    /// Variants of one family share an approach.
    pub family: String,
    /// The idea in one line.
    pub idea: String,
    /// The paper or report that it comes from.
    pub source: String,
    /// What comes out where a loop of sums would give something else: infinities, NaN, numbers near
    /// the largest. Nothing where nothing does.
    pub caveat: Option<String>,
    /// Where it comes from.
    pub kind: Kind,
    /// How it comes to its sums.
    pub arithmetic: Arithmetic,
    /// Least compute capability times ten.
    pub min_arch: u32,
    /// Greatest compute capability times ten.
    pub max_arch: u32,
    /// Its configurations, `tile=16`; the first is the default. Empty where there is nothing to set.
    pub configs: Vec<String>,
    /// Whether a measurement backs its estimates, so that rules may choose it. Others run by name.
    pub ranked: bool,
}

impl Info {
    /// A variant of exact arithmetic, for any chip, without configurations, that rules may choose.
    pub fn new(name: &str, family: &str, idea: &str, source: &str, kind: Kind) -> Self {
        Info {
            name: name.to_owned(),
            family: family.to_owned(),
            idea: idea.to_owned(),
            source: source.to_owned(),
            caveat: None,
            kind,
            arithmetic: Arithmetic::Exact,
            min_arch: 0,
            max_arch: u32::MAX,
            configs: Vec::new(),
            ranked: true,
        }
    }

    /// The name with its configuration: `fused_shared:tile=24`.
    pub fn spelled(&self, config: usize) -> String {
        match self.configs.get(config) {
            Some(config) => format!("{}:{config}", self.name),
            None => self.name.clone(),
        }
    }

    /// The index of a configuration.
    ///
    /// # Errors
    /// [`Error::UnknownConfig`] with those there are.
    pub fn config(&self, config: &str) -> Result<usize> {
        self.configs
            .iter()
            .position(|known| known == config)
            .ok_or_else(|| {
                let known = match &self.configs[..] {
                    [] => "none".to_owned(),
                    configs => configs.join(", "),
                };
                Error::UnknownConfig {
                    variant: self.name.clone(),
                    config: config.to_owned(),
                    known,
                }
            })
    }
}

/// What a variant is asked about.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// The problem.
    pub problem: &'a Problem,
    /// Index into the variant's configurations; 0 where it has none.
    pub config: usize,
    /// The device it would run on.
    pub limits: &'a Limits,
}

/// Bytes of workspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bytes {
    /// Works with this much.
    pub least: usize,
    /// Gains nothing from more than this.
    pub preferred: usize,
}

/// Where a re-arranged filter lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Space {
    /// In the device's memory.
    Global,
    /// In the 64 KB of constant memory that a row's kernels have on a device. A rule never picks
    /// such a configuration by itself: there is room for few filters.
    Constant,
}

/// How a variant re-arranges a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packing {
    /// Bytes of it.
    pub bytes: usize,
    /// Tells arrangements of a variant apart. It depends on filter, configuration and device, not
    /// on the number of images: one packed filter serves every batch, and every configuration with
    /// the same one.
    pub layout: u64,
    /// Where it lies.
    pub space: Space,
}

/// What a variant would do with a problem, as far as numbers say it.
#[derive(Debug)]
pub struct Plan {
    /// Workspace that a launch may use, as far as it is known without the device.
    pub workspace: Bytes,
    /// Of the filter; none where it is used as it is.
    pub packing: Option<Packing>,
    /// Estimated microseconds, for the selection; none for no opinion.
    pub us: Option<f64>,
    /// What [`Variant::prepare`] goes on from: the variant's own.
    pub state: Box<dyn Any + Send + Sync>,
}

impl Default for Plan {
    /// No workspace, no packing, no estimate.
    fn default() -> Self {
        Plan {
            workspace: Bytes::default(),
            packing: None,
            us: None,
            state: Box::new(()),
        }
    }
}

/// A way to compute a convolution.
///
/// # Safety
/// What [`prepare`](Self::prepare) answers keeps what [`Prepared`] promises.
pub unsafe trait Variant: Send + Sync {
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

    /// Readies a plan of its own, for the same question, on a device.
    ///
    /// # Errors
    /// A library that is missing or refuses, no memory.
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

    /// What was chosen inside, for the reports: the name of a library's plan.
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
pub trait ConstantPart: Send + Sync {
    /// Where it begins, as an address of the device.
    fn address(&self) -> *mut c_void;
}

/// Plain addresses for one launch, and what goes with them.
#[non_exhaustive]
pub struct Args<'a> {
    /// Input.
    pub x: *const c_void,
    /// Filter.
    pub w: *const c_void,
    /// The filter re-arranged; null where the plan packs nothing.
    pub packed: *const c_void,
    /// Output.
    pub y: *mut c_void,
    /// Bias, f32; null without one.
    pub bias: *const f32,
    /// Residual; null without one.
    pub residual: *const c_void,
    /// Workspace, aligned to 128 bytes.
    pub workspace: *mut c_void,
    /// Its size.
    pub workspace_bytes: usize,
    /// The `cudaStream_t`; null on the CPU.
    pub stream: *mut c_void,
    /// What [`Prepared::handle`] made for this stream; none where there is none.
    pub handle: Option<&'a mut (dyn Any + Send)>,
    /// Called after each kernel was enqueued, to time it.
    pub stage: Option<&'a mut dyn FnMut(&CStr)>,
}

impl fmt::Debug for Args<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Args")
            .field("x", &self.x)
            .field("w", &self.w)
            .field("packed", &self.packed)
            .field("y", &self.y)
            .field("bias", &self.bias)
            .field("residual", &self.residual)
            .field("workspace", &self.workspace)
            .field("workspace_bytes", &self.workspace_bytes)
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}

impl Args<'_> {
    /// Marks the end of a stage.
    pub fn stage(&mut self, name: &CStr) {
        if let Some(stage) = &mut self.stage {
            stage(name);
        }
    }
}

/// Plans the problem of `query` for a device of this kind, or says why not.
///
/// # Errors
/// The reason, as [`Variant::plan`]'s.
pub fn plan(variant: &dyn Variant, on_gpu: bool, query: &Query) -> Result<Plan, String> {
    let info = variant.info();
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
