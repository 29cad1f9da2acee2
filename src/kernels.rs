//! The handwritten kernels: the rows of csrc/kernels.def as variants.

use std::{
    ffi::{CStr, c_char, c_void},
    ptr::{null, null_mut},
    sync::Arc,
};

use crate::{
    Activation, Device, Error, Layout, Limits, Math, Problem, Result, Storage,
    gpu::Gpu,
    variant::{Args, Arithmetic, Bound, Bytes, Info, Kind, Plan, Query, Variant},
};

/// csrc/convforge.h.
#[allow(
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    clippy::all,
    clippy::undocumented_unsafe_blocks
)]
pub(crate) mod ffi {
    include!(concat!(env!("OUT_DIR"), "/convforge.rs"));
}

/// Every row, in the order of the table.
pub(crate) fn rows() -> impl Iterator<Item = Arc<dyn Variant>> {
    // SAFETY: the table is a constant array that ends with a null.
    let table = unsafe { ffi::cf_rows() };
    (0..)
        // SAFETY: `take_while` stops at the null, before the end of the array.
        .map(move |i| unsafe { *table.add(i) })
        .take_while(|row| !row.is_null())
        // SAFETY: rows are constants of this program.
        .map(|row| Arc::new(Row::new(unsafe { &*row })) as Arc<dyn Variant>)
}

/// The problem in the kernels' own form, with null addresses.
pub(crate) fn call(problem: &Problem, limits: &Limits, config: usize) -> ffi::cf_call {
    // Problem keeps every single dimension within an i32.
    let int = |v: usize| v as i32;
    let e = &problem.epilogue;
    let pool = e.pool.as_ref();
    let activation = match e.activation {
        Activation::None => ffi::CF_ACT_NONE,
        Activation::Relu => ffi::CF_ACT_RELU,
        Activation::Relu6 => ffi::CF_ACT_RELU6,
        Activation::Tanh => ffi::CF_ACT_TANH,
        Activation::Sigmoid => ffi::CF_ACT_SIGMOID,
        Activation::Silu => ffi::CF_ACT_SILU,
    };
    let layout = match problem.layout {
        Layout::Nchw => ffi::CF_NCHW,
        Layout::Nhwc => ffi::CF_NHWC,
    };
    let storage = match problem.storage {
        Storage::F32 => ffi::CF_STORE_F32,
        Storage::F16 => ffi::CF_STORE_F16,
        Storage::Bf16 => ffi::CF_STORE_BF16,
    };
    let math = match problem.math {
        Math::Fp32 => ffi::CF_MATH_FP32,
        Math::Tf32 => ffi::CF_MATH_TF32,
        Math::F16 => ffi::CF_MATH_F16,
        Math::Bf16 => ffi::CF_MATH_BF16,
        Math::F16Acc => ffi::CF_MATH_F16_ACC,
    };
    ffi::cf_call {
        problem: ffi::cf_problem {
            n: problem.n as i64,
            c: int(problem.c),
            h: int(problem.h),
            w: int(problem.w),
            k: int(problem.k),
            r: int(problem.r),
            s: int(problem.s),
            p: int(problem.p()),
            q: int(problem.q()),
            stride_h: int(problem.stride[0]),
            stride_w: int(problem.stride[1]),
            dilation_h: int(problem.dilation[0]),
            dilation_w: int(problem.dilation[1]),
            pad_top: int(problem.pad.top),
            pad_left: int(problem.pad.left),
            pad_bottom: int(problem.pad.bottom),
            pad_right: int(problem.pad.right),
            groups: int(problem.groups),
            layout: layout as i32,
            storage: storage as i32,
            math: math as i32,
            align: int(problem.align),
            epilogue: ffi::cf_epilogue {
                scale: e.scale,
                bias: e.bias.into(),
                residual: e.residual.into(),
                activation: activation as i32,
                pool_h: pool.map_or(0, |p| int(p.window[0])),
                pool_w: pool.map_or(0, |p| int(p.window[1])),
                pool_stride_h: pool.map_or(0, |p| int(p.stride[0])),
                pool_stride_w: pool.map_or(0, |p| int(p.stride[1])),
                out_h: int(problem.out()[0]),
                out_w: int(problem.out()[1]),
            },
        },
        device: ffi::cf_device {
            arch: limits.arch as i32,
            sm_count: limits.sm_count as i32,
            shared_per_block: limits.shared_per_block as i32,
            shared_per_sm: limits.shared_per_sm as i32,
            registers_per_sm: limits.registers_per_sm as i32,
            l2_bytes: limits.l2_bytes as i32,
            memory_bytes: limits.memory_bytes,
        },
        config: config as i32,
        x: null(),
        w: null(),
        packed: null(),
        y: null_mut(),
        bias: null(),
        residual: null(),
        workspace: null_mut(),
        workspace_bytes: 0,
        bound: null(),
        stream: null_mut(),
        stage: None,
        stage_user: null_mut(),
    }
}

/// The answer of a function of csrc as a result.
pub(crate) fn checked(call: &'static str, code: i32) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: both answer with constant strings, for any code.
    let (name, text) = unsafe {
        (
            text(ffi::cf_error_name(code)),
            text(ffi::cf_error_text(code)),
        )
    };
    Err(Error::Gpu {
        call,
        code,
        name,
        text,
    })
}

/// # Safety
/// `chars` is null or a string that ends with a zero.
unsafe fn text(chars: *const c_char) -> String {
    if chars.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(chars) }
        .to_string_lossy()
        .into_owned()
}

struct Row {
    row: &'static ffi::cf_row,
    info: Info,
}

// SAFETY: the row is a constant of this program.
unsafe impl Send for Row {}
// SAFETY: as above.
unsafe impl Sync for Row {}

impl Row {
    fn new(row: &'static ffi::cf_row) -> Self {
        let mut configs = Vec::new();
        let mut next = row.configs;
        // SAFETY: a row's strings are constants, and its configurations end with a null.
        let (name, family, idea, source) = unsafe {
            while !next.is_null() && !(*next).is_null() {
                configs.push(text(*next));
                next = next.add(1);
            }
            (
                text(row.name),
                text(row.family),
                text(row.idea),
                text(row.source),
            )
        };
        let info = Info {
            name,
            family,
            idea,
            source,
            kind: Kind::Kernel,
            arithmetic: Arithmetic::Exact,
            min_arch: row.min_arch as u32,
            max_arch: row.max_arch as u32,
            configs,
        };
        Row { row, info }
    }

    fn ask(&self, query: &Query) -> ffi::cf_call {
        call(query.problem, query.limits, query.config)
    }
}

impl Variant for Row {
    fn info(&self) -> &Info {
        &self.info
    }

    fn supports(&self, query: &Query) -> Result<(), String> {
        let Some(supports) = self.row.supports else {
            return Ok(());
        };
        let mut why = [0 as c_char; 512];
        // SAFETY: the function writes a string of at most the given size.
        if unsafe { supports(&self.ask(query), why.as_mut_ptr(), why.len() as u64) } != 0 {
            return Ok(());
        }
        // SAFETY: as above.
        Err(unsafe { text(why.as_ptr()) })
    }

    fn rank(&self, query: &Query) -> Option<f64> {
        // SAFETY: the function only reads the call.
        let time = unsafe { (self.row.rank?)(&self.ask(query)) };
        (time >= 0.0).then_some(time)
    }

    fn plan(&self, device: &Device, query: &Query) -> Result<Box<dyn Plan>> {
        let Device::Gpu(gpu) = device else {
            return Err(Error::NoGpu(format!("{} is a CUDA kernel", self.info.name)));
        };
        let call = self.ask(query);
        // SAFETY: these functions only read the call.
        let (workspace, packed_bytes) = unsafe {
            (
                self.row
                    .workspace
                    .map_or_else(Default::default, |f| f(&call)),
                self.row.packed_bytes.map_or(0, |f| f(&call)),
            )
        };
        Ok(Box::new(RowPlan {
            row: self.row,
            gpu: gpu.clone(),
            call,
            workspace: Bytes {
                least: workspace.least as usize,
                preferred: workspace.preferred.max(workspace.least) as usize,
            },
            packed_bytes: packed_bytes as usize,
        }))
    }
}

struct RowPlan {
    row: &'static ffi::cf_row,
    gpu: Gpu,
    /// Its addresses are null.
    call: ffi::cf_call,
    workspace: Bytes,
    packed_bytes: usize,
}

// SAFETY: the row is a constant of this program and the call's addresses are null.
unsafe impl Send for RowPlan {}
// SAFETY: as above.
unsafe impl Sync for RowPlan {}

impl RowPlan {
    fn call(&self, args: &Args) -> ffi::cf_call {
        let bound = args
            .bound
            .and_then(|b| b.0.as_ref()?.downcast_ref::<ffi::cf_bound>());
        ffi::cf_call {
            x: args.x,
            w: args.w,
            packed: args.packed,
            y: args.y,
            bias: args.bias,
            residual: args.residual,
            workspace: args.workspace,
            workspace_bytes: args.workspace_bytes as u64,
            bound: bound.map_or(null(), |b| b as *const _),
            stream: args.stream,
            ..self.call
        }
    }
}

impl Plan for RowPlan {
    fn workspace(&self) -> Bytes {
        self.workspace
    }

    fn packed_bytes(&self) -> usize {
        self.packed_bytes
    }

    unsafe fn pack(
        &self,
        w: *const c_void,
        packed: *mut c_void,
        stream: *mut c_void,
    ) -> Result<()> {
        let Some(pack) = self.row.pack else {
            return Ok(());
        };
        let _current = self.gpu.enter()?;
        // SAFETY: the caller vouches for the addresses.
        checked("pack", unsafe {
            pack(
                &ffi::cf_call {
                    w,
                    stream,
                    ..self.call
                },
                packed,
            )
        })
    }

    unsafe fn bind(&self, args: &Args) -> Result<Bound> {
        let Some(bind) = self.row.bind else {
            return Ok(Bound::default());
        };
        let _current = self.gpu.enter()?;
        let mut bound = Box::new(ffi::cf_bound::default());
        // SAFETY: the caller vouches for the addresses.
        checked("bind", unsafe { bind(&self.call(args), &mut *bound) })?;
        Ok(Bound(Some(bound)))
    }

    unsafe fn launch(&self, mut args: Args) -> Result<()> {
        let Some(launch) = self.row.launch else {
            return Ok(());
        };
        let _current = self.gpu.enter()?;
        let mut call = self.call(&args);
        if let Some(stage) = &mut args.stage {
            call.stage = Some(end_of_stage);
            call.stage_user = stage as *mut &mut dyn FnMut(&CStr) as *mut c_void;
        }
        // SAFETY: the caller vouches for the addresses; `stage` outlives the call.
        checked("launch", unsafe { launch(&call) })
    }
}

/// Hands a stage's name on to the closure behind `user`.
extern "C" fn end_of_stage(user: *mut c_void, name: *const c_char) {
    // SAFETY: `launch` passes a pointer to the closure, which lives until it returns; names are
    // constant strings.
    unsafe { (*user.cast::<&mut dyn FnMut(&CStr)>())(CStr::from_ptr(name)) }
}
