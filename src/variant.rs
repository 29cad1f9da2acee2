//! What every kernel and baseline offers. [`variants`](crate::variants) is the list of them.
//!
//! A [`Variant`] is a way to compute a convolution: it says which problems it can do and makes a
//! [`Plan`] for one. A plan has everything settled that depends on shapes; its `launch` only
//! enqueues. Handwritten kernels (`src/kernels.rs`), cuBLAS, cuDNN and the CPU
//! (`src/baselines`) all stand behind these two traits.

use std::{
    any::Any,
    ffi::{CStr, c_void},
};

use serde::{Deserialize, Serialize};

use crate::{Device, Error, Limits, Problem, Result, Stream};

/// Where a variant comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A handwritten CUDA kernel.
    Kernel,
    /// A vendor's library.
    Baseline,
    /// Runs on the CPU.
    Cpu,
}

/// How a variant comes to its sums, which decides what the check asks of it on whole numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arithmetic {
    /// It adds up the products of the operands, in any order. Where every partial sum is exact the
    /// result is too, and must be right in every bit.
    #[default]
    Exact,
    /// It multiplies transforms of the operands (Winograd, FFT), which are rounded even where the
    /// operands are whole. On whole numbers it is held to the bound of each element that holds on
    /// real data; on real data to all that the others are held to.
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
#[derive(Clone, Debug, Serialize)]
pub struct Info {
    /// Its name in every list, file and flag: `family_file`.
    pub name: String,
    /// Variants of one family share an approach.
    pub family: String,
    /// The idea in one line.
    pub idea: String,
    /// The paper or report that it comes from.
    pub source: String,
    /// Where it comes from.
    pub kind: Kind,
    /// How it comes to its sums. This declaration, and nothing else, decides by which rule its
    /// results on whole numbers are judged.
    pub arithmetic: Arithmetic,
    /// Least compute capability times ten.
    pub min_arch: u32,
    /// Greatest compute capability times ten.
    pub max_arch: u32,
    /// Its configurations, `tile=16`; the first is the default. Empty where there is nothing to set.
    pub configs: Vec<String>,
}

impl Info {
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    /// Works with this much.
    pub least: usize,
    /// Gains nothing from more than this.
    pub preferred: usize,
}

/// A way to compute a convolution.
pub trait Variant: Send + Sync {
    /// What it says of itself.
    fn info(&self) -> &Info;

    /// Whether it can do the problem; otherwise the reason.
    ///
    /// # Errors
    /// The reason, as a clause that follows the words "cannot do this:".
    fn supports(&self, query: &Query) -> Result<(), String>;

    /// Estimated time in microseconds, for the selection, or no opinion.
    fn rank(&self, query: &Query) -> Option<f64> {
        let _ = query;
        None
    }

    /// Opens the library that it is made of, if that has not been done.
    ///
    /// # Errors
    /// [`Error::Library`] where it is missing or too old.
    fn open(&self) -> Result<()> {
        Ok(())
    }

    /// Settles everything that depends on shapes. Called only for what it supports.
    ///
    /// # Errors
    /// A library that is missing or refuses.
    fn plan(&self, device: &Device, query: &Query) -> Result<Box<dyn Plan>>;
}

/// A variant settled on one problem.
pub trait Plan: Send + Sync {
    /// Bytes of workspace that `launch` may use.
    fn workspace(&self) -> Bytes {
        Bytes::default()
    }

    /// Bytes of the re-arranged filter; 0 where the filter is used as it is.
    fn packed_bytes(&self) -> usize {
        0
    }

    /// What the plan needs once per stream: a library handle. Kept in the workspace.
    ///
    /// # Errors
    /// What the library answers.
    fn handles(&self, stream: &Stream) -> Result<Box<dyn Any + Send>> {
        let _ = stream;
        Ok(Box::new(()))
    }

    /// What was chosen inside, for the reports: the name of a library's plan.
    fn note(&self) -> Option<String> {
        None
    }

    /// Enqueues the re-arrangement of the filter `w` into `packed`.
    ///
    /// # Errors
    /// What the launch answers.
    ///
    /// # Safety
    /// The addresses are of the plan's device, and as large as the problem says.
    unsafe fn pack(
        &self,
        w: *const c_void,
        packed: *mut c_void,
        stream: *mut c_void,
    ) -> Result<()> {
        let _ = (w, packed, stream);
        Ok(())
    }

    /// Prepares launches with fixed addresses: encoded tensor maps, say.
    ///
    /// # Errors
    /// What the driver answers.
    ///
    /// # Safety
    /// As [`launch`](Self::launch).
    unsafe fn bind(&self, args: &Args) -> Result<Bound> {
        let _ = args;
        Ok(Bound::default())
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

/// What a plan prepared for fixed addresses.
#[derive(Default)]
pub struct Bound(
    #[cfg_attr(
        not(feature = "cuda"),
        expect(dead_code, reason = "kernels alone bind")
    )]
    pub(crate) Option<Box<dyn Any + Send + Sync>>,
);

/// Plain addresses for one launch, and what goes with them.
pub struct Args<'a> {
    /// Input.
    pub x: *const c_void,
    /// Filter.
    pub w: *const c_void,
    /// The filter re-arranged, aligned to 128 bytes; null where the plan packs nothing.
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
    /// What [`Plan::handles`] made for this stream.
    pub handles: &'a mut (dyn Any + Send),
    /// What [`Plan::bind`] made for these addresses.
    pub bound: Option<&'a Bound>,
    /// Called after each kernel was enqueued, to time it.
    pub stage: Option<&'a mut dyn FnMut(&CStr)>,
}

impl Args<'_> {
    /// Marks the end of a stage.
    pub fn stage(&mut self, name: &CStr) {
        if let Some(stage) = &mut self.stage {
            stage(name);
        }
    }
}

/// Whether `variant` can do `problem` on `device`; otherwise the reason.
///
/// # Errors
/// The reason.
pub fn supports(variant: &dyn Variant, device: &Device, query: &Query) -> Result<(), String> {
    let info = variant.info();
    match (info.kind, device.is_gpu()) {
        (Kind::Cpu, true) => return Err("runs on the CPU only".to_owned()),
        (Kind::Kernel | Kind::Baseline, false) => return Err("needs a GPU".to_owned()),
        _ => {}
    }
    let arch = query.limits.arch;
    if device.is_gpu() && !(info.min_arch..=info.max_arch).contains(&arch) {
        return Err(format!(
            "is built for sm_{} to sm_{}; this GPU is sm_{arch}",
            info.min_arch, info.max_arch
        ));
    }
    variant.supports(query)
}
