//! cuBLAS's own calls: a handle for one stream, and products through it.

use std::ffi::{CStr, c_char, c_void};

use cublas_sys::{
    cublasComputeType_t as Compute, cublasGemmAlgo_t, cublasHandle_t, cublasMath_t,
    cublasOperation_t, cublasPointerMode_t, cublasStatus_t, cudaDataType, loader::Missing,
};
use half::f16;

use super::product::{Gemm, Product};
use crate::{
    Error, Math, Result, Storage,
    gpu::{Gpu, missing},
};

/// `blas!(cublasCreate(&mut handle))`: the call, with its failure as an [`Error`]. Unsafe as the
/// function.
macro_rules! blas {
    ($name:ident($($argument:expr),* $(,)?)) => {
        check(stringify!($name), cublas_sys::$name($($argument),*))
    };
}

/// What cuBLAS answered to `call`, as a result.
fn check(call: &'static str, answer: Result<cublasStatus_t, Missing>) -> Result<()> {
    let status = answer.map_err(missing)?;
    if status == cublasStatus_t::CUBLAS_STATUS_SUCCESS {
        return Ok(());
    }
    // SAFETY: both answer with constant strings, for any status.
    let (name, explanation) = unsafe {
        (
            text(cublas_sys::cublasGetStatusName(status)),
            text(cublas_sys::cublasGetStatusString(status)),
        )
    };
    Err(Error::Gpu {
        call,
        code: status.0 as i32,
        name,
        text: explanation,
    })
}

/// # Safety
/// An address, if there is one, is null or of a string that ends with a zero.
unsafe fn text(answer: Result<*const c_char, Missing>) -> String {
    match answer {
        // SAFETY: the caller's promise.
        Ok(text) if !text.is_null() => unsafe { CStr::from_ptr(text) }.to_string_lossy().into(),
        _ => "cuBLAS has no text for it".to_owned(),
    }
}

/// Opens the library, if that has not been done.
///
/// # Errors
/// [`Error::Library`], whose source names every place looked at.
pub(super) fn open() -> Result<()> {
    cublas_sys::LIBRARY.open().map(drop).map_err(missing)
}

/// The library's version, `13.1.0`.
///
/// # Errors
/// As [`open`].
pub(super) fn version() -> Result<String> {
    // SAFETY: the function takes no argument.
    let version = unsafe { cublas_sys::cublasLtGetVersion() }.map_err(missing)?;
    let [major, minor, patch] = [version / 10_000, version / 100 % 100, version % 100];
    Ok(format!("{major}.{minor}.{patch}"))
}

/// cuBLAS for one stream. Every plan of the variant sets it up alike, so one serves them all.
pub(super) struct Handle {
    gpu: Gpu,
    raw: cublasHandle_t,
    /// cuBLAS's scratch memory, as it knows it.
    workspace: *mut c_void,
}

// SAFETY: a handle may be used from any thread, by one at a time; it is reached through `&mut`.
unsafe impl Send for Handle {}

impl Handle {
    /// # Safety
    /// `stream` is a `cudaStream_t` of `gpu`'s primary context; it is not used after it is
    /// destroyed.
    pub unsafe fn new(gpu: &Gpu, stream: *mut c_void) -> Result<Self> {
        let _current = gpu.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: it writes one handle, which `drop` destroys.
        unsafe { blas!(cublasCreate(&mut raw)) }?;
        let handle = Handle {
            gpu: gpu.clone(),
            raw,
            workspace: std::ptr::null_mut(),
        };
        // Partial sums of a 16-bit C stay in f32. What is strict and what is TF32 is said at each
        // call, by its compute type.
        let math = cublasMath_t(
            cublasMath_t::CUBLAS_DEFAULT_MATH.0
                | cublasMath_t::CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION.0,
        );
        let scalars = cublasPointerMode_t::CUBLAS_POINTER_MODE_HOST;
        // SAFETY: the handle is alive, and so is the stream, as the caller promised.
        unsafe {
            blas!(cublasSetStream(raw, stream.cast()))?;
            blas!(cublasSetMathMode(raw, math))?;
            blas!(cublasSetPointerMode(raw, scalars))?;
        }
        Ok(handle)
    }

    /// For calls with this scratch memory, which cuBLAS is told of only where it is another than
    /// before. Given some, it takes none from its own pool: nothing is allocated under a recording,
    /// and results do not depend on what else runs.
    ///
    /// # Safety
    /// The handle's context is current. The memory is of its device, aligned to 256 bytes, and
    /// nobody else's until the stream is past the products that follow.
    pub unsafe fn with_workspace(&mut self, address: *mut c_void, bytes: usize) -> Result<Blas> {
        if self.workspace != address {
            // SAFETY: the handle is alive; the memory is as the caller promised.
            unsafe { blas!(cublasSetWorkspace(self.raw, address, bytes)) }?;
            self.workspace = address;
        }
        Ok(Blas(self.raw))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Ok(_current) = self.gpu.enter() {
            // It waits for the whole device, which spoils what any thread records: `Workspace` says so.
            // SAFETY: made in `new`, destroyed once.
            let _ = unsafe { blas!(cublasDestroy(self.raw)) };
        }
    }
}

/// A [`Handle`] without its lifetime.
pub(super) struct Blas(cublasHandle_t);

impl Blas {
    /// Enqueues C = op(A) B.
    ///
    /// # Safety
    /// The handle is alive and its context current; the matrices are as large as `gemm` says, and
    /// valid until the stream is past this work.
    pub unsafe fn multiply(
        &self,
        product: &Product,
        math: Math,
        gemm: &Gemm,
        [a, b]: [*const c_void; 2],
        c: *mut c_void,
    ) -> Result<()> {
        let call = Call::new(product, math, gemm);
        for i in 0..gemm.calls.count {
            let at = |step: usize, of: Storage| i * step * of.bytes();
            let a = a.wrapping_byte_add(at(gemm.calls.a, product.operand));
            let b = b.wrapping_byte_add(at(gemm.calls.b, product.operand));
            let c = c.wrapping_byte_add(at(gemm.calls.c, product.sum));
            // SAFETY: the caller's promise.
            unsafe { call.enqueue(self.0, [a, b], c) }?;
        }
        Ok(())
    }
}

/// What the calls of one product have in common, as cuBLAS takes it.
struct Call {
    op_a: cublasOperation_t,
    /// m, n and k.
    sizes: [i32; 3],
    /// Leading dimensions of A, B and C.
    leading: [i32; 3],
    /// Products of a call, and elements from one to the next.
    batch: i32,
    steps: [i64; 3],
    /// Of the operands, and of C.
    types: [cudaDataType; 2],
    compute: Compute,
    factors: [*const c_void; 2],
}

impl Call {
    fn new(product: &Product, math: Math, gemm: &Gemm) -> Self {
        let batch = gemm.batch;
        Call {
            op_a: match gemm.filter_first {
                true => cublasOperation_t::CUBLAS_OP_T,
                false => cublasOperation_t::CUBLAS_OP_N,
            },
            // `Product` keeps these below 2^31.
            sizes: [gemm.m, gemm.n, gemm.k].map(|size| size as i32),
            leading: [gemm.lda, gemm.ldb, gemm.ldc].map(|size| size as i32),
            batch: batch.count as i32,
            steps: [batch.a, batch.b, batch.c].map(|step| step as i64),
            types: [product.operand, product.sum].map(data_type),
            compute: compute_type(math),
            factors: factors(math),
        }
    }

    /// Enqueues one.
    ///
    /// # Safety
    /// As [`Blas::multiply`], with the addresses of this call.
    unsafe fn enqueue(
        &self,
        handle: cublasHandle_t,
        [a, b]: [*const c_void; 2],
        c: *mut c_void,
    ) -> Result<()> {
        let (op_a, op_b) = (self.op_a, cublasOperation_t::CUBLAS_OP_N);
        let ([m, n, k], [lda, ldb, ldc]) = (self.sizes, self.leading);
        let (count, [step_a, step_b, step_c]) = (self.batch, self.steps);
        let ([ab, cc], compute, [alpha, beta]) = (self.types, self.compute, self.factors);
        let algorithm = cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT;
        // SAFETY: the caller vouches for handle and matrices; the factors are there for good.
        unsafe {
            if count == 1 {
                return blas!(cublasGemmEx(
                    handle, op_a, op_b, m, n, k, alpha, a, ab, lda, b, ab, ldb, beta, c, cc, ldc,
                    compute, algorithm
                ));
            }
            blas!(cublasGemmStridedBatchedEx(
                handle, op_a, op_b, m, n, k, alpha, a, ab, lda, step_a, b, ab, ldb, step_b, beta,
                c, cc, ldc, step_c, count, compute, algorithm
            ))
        }
    }
}

fn compute_type(math: Math) -> Compute {
    match math {
        // Never below fp32: TF32 is used only where it is allowed by name.
        Math::Fp32 | Math::F16 | Math::Bf16 => Compute::CUBLAS_COMPUTE_32F,
        Math::Tf32 => Compute::CUBLAS_COMPUTE_32F_FAST_TF32,
        Math::F16Acc => Compute::CUBLAS_COMPUTE_16F,
    }
}

/// Where alpha, 1, and beta, 0, lie; they are of the type that is computed in.
fn factors(math: Math) -> [*const c_void; 2] {
    static F32: [f32; 2] = [1.0, 0.0];
    static F16: [f16; 2] = [f16::ONE, f16::ZERO];
    match math {
        Math::F16Acc => [(&raw const F16[0]).cast(), (&raw const F16[1]).cast()],
        _ => [(&raw const F32[0]).cast(), (&raw const F32[1]).cast()],
    }
}

fn data_type(storage: Storage) -> cudaDataType {
    match storage {
        Storage::F32 => cudaDataType::CUDA_R_32F,
        Storage::F16 => cudaDataType::CUDA_R_16F,
        Storage::Bf16 => cudaDataType::CUDA_R_16BF,
    }
}
