//! From the library's types to those of csrc, and from its answers to errors.

use std::{
    ffi::{CStr, c_char},
    ops::RangeInclusive,
};

use super::ffi;
use crate::{
    Activation, Error, Layout, Limits, Math, Problem, Result, Storage, Stream, variant::RawOperands,
};

/// A problem as kernels see it: the struct `cf_problem` of csrc/problem.h.
///
/// For kernels of other crates that are compiled against the library's headers, which the build
/// script of such a crate finds at `DEP_CONVFORGE_INCLUDE`.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct CProblem(pub(crate) ffi::cf_problem);

impl CProblem {
    /// The problem in C.
    pub fn new(problem: &Problem) -> Self {
        // Problem keeps every single dimension within an i32.
        let int = |v: usize| v as i32;
        let e = problem.epilogue();
        let pool = e.pool.as_ref();
        let activation = match e.activation {
            Activation::None => ffi::CF_ACT_NONE,
            Activation::Relu => ffi::CF_ACT_RELU,
            Activation::Relu6 => ffi::CF_ACT_RELU6,
            Activation::Tanh => ffi::CF_ACT_TANH,
            Activation::Sigmoid => ffi::CF_ACT_SIGMOID,
            Activation::Silu => ffi::CF_ACT_SILU,
        };
        let layout = match problem.layout() {
            Layout::Nchw => ffi::CF_NCHW,
            Layout::Nhwc => ffi::CF_NHWC,
        };
        let math = match problem.math() {
            Math::Fp32 => ffi::CF_MATH_FP32,
            Math::Tf32 => ffi::CF_MATH_TF32,
            Math::F16 => ffi::CF_MATH_F16,
            Math::Bf16 => ffi::CF_MATH_BF16,
            Math::F16Acc => ffi::CF_MATH_F16_ACC,
        };
        CProblem(ffi::cf_problem {
            n: problem.n() as i64,
            c: int(problem.c()),
            h: int(problem.h()),
            w: int(problem.w()),
            k: int(problem.k()),
            r: int(problem.r()),
            s: int(problem.s()),
            p: int(problem.p()),
            q: int(problem.q()),
            stride_h: int(problem.stride()[0]),
            stride_w: int(problem.stride()[1]),
            dilation_h: int(problem.dilation()[0]),
            dilation_w: int(problem.dilation()[1]),
            pad_top: int(problem.pad().top),
            pad_left: int(problem.pad().left),
            pad_bottom: int(problem.pad().bottom),
            pad_right: int(problem.pad().right),
            groups: int(problem.groups()),
            layout: layout as i32,
            storage: storage(problem.storage()),
            math: math as i32,
            align: int(problem.align()),
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
        })
    }
}

/// The addresses of one launch as kernels see them: the struct `cf_args` of csrc/row.h. For kernels
/// of other crates, as [`CProblem`].
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct CArgs(ffi::cf_args);

impl CArgs {
    /// Operands and stream in C, without a workspace.
    pub fn new(operands: &RawOperands, stream: &Stream) -> Self {
        CArgs(ffi::cf_args {
            x: operands.x,
            w: operands.w,
            packed: operands.packed,
            y: operands.y,
            bias: operands.bias,
            residual: operands.residual,
            stream: stream.raw(),
            ..ffi::cf_args::default()
        })
    }
}

impl std::fmt::Debug for CArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_tuple("CArgs").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for CProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_tuple("CProblem").finish_non_exhaustive()
    }
}

/// A storage as csrc spells it; for kernels of other crates, as [`CProblem`].
pub fn storage(storage: Storage) -> i32 {
    let code = match storage {
        Storage::F32 => ffi::CF_STORE_F32,
        Storage::F16 => ffi::CF_STORE_F16,
        Storage::Bf16 => ffi::CF_STORE_BF16,
    };
    code as i32
}

/// The limits of a device in C.
pub(super) fn device(limits: &Limits) -> ffi::cf_device {
    ffi::cf_device {
        arch: limits.arch as i32,
        sm_count: limits.sm_count as i32,
        shared_per_block: limits.shared_per_block as i32,
        shared_per_sm: limits.shared_per_sm as i32,
        registers_per_sm: limits.registers_per_sm as i32,
        l2_bytes: limits.l2_bytes as i64,
        memory_bytes: limits.memory_bytes,
        clocks_per_us: limits.clocks_per_us(),
        bytes_per_us: limits.bytes_per_us(),
    }
}

/// `cudaErrorJitCompilerNotFound`, `cudaErrorUnsupportedPtxVersion` and `cudaErrorJitCompilationDisabled`: the
/// driver does not translate PTX, or is older than the toolkit of the build.
const NOT_TRANSLATED: RangeInclusive<i32> = 221..=223;

/// The answer of a function that calls the CUDA runtime, as those of csrc do, as a result: 0 or a
/// `cudaError_t`.
///
/// # Errors
/// [`Error::Gpu`] with the runtime's name and text.
pub fn checked(call: &'static str, code: i32) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: both answer with constant strings, for any code.
    let (name, mut text) = unsafe {
        (
            text(ffi::cf_error_name(code)),
            text(ffi::cf_error_text(code)),
        )
    };
    if NOT_TRANSLATED.contains(&code) {
        text += "; take a newer or whole driver, or a build with CONVFORGE_ARCHS=90a or 80, which leaves \
                 it nothing to translate";
    }
    Err(Error::Gpu {
        call,
        code,
        name,
        text,
    })
}

/// # Safety
/// `chars` is null or a string that ends with a zero.
pub(super) unsafe fn text(chars: *const c_char) -> String {
    if chars.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(chars) }
        .to_string_lossy()
        .into_owned()
}
