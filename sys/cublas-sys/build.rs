//! Binds the part of cuBLAS that convforge uses, and the version of cuBLASLt.

use convforge_bind::{Cuda, Spec};

const SPEC: Spec<'static> = Spec {
    headers: &["cublas_v2.h", "cublasLt.h"],
    functions: &[
        "cublasCreate",
        "cublasDestroy",
        "cublasSetStream",
        "cublasSetWorkspace",
        "cublasSetMathMode",
        "cublasSetPointerMode",
        "cublasGetStatusName",
        "cublasGetStatusString",
        "cublasGemmEx",
        "cublasGemmStridedBatchedEx",
        // cuBLASLt's alone needs no handle
        "cublasLtGetVersion",
    ],
    types: &["cublasGemmAlgo_t"],
    constants: &[],
};

fn main() {
    convforge_bind::run(|| {
        if convforge_bind::stub_on_docs_rs()? {
            println!("cargo::rustc-env=CONVFORGE_CUBLAS_SONAME=libcublas.so.13");
            return Ok(());
        }
        let cuda = Cuda::from_metadata()?;
        // Since CUDA 11, cuBLAS bears the toolkit's major version.
        let major = cuda.version / 1000;
        println!("cargo::rustc-env=CONVFORGE_CUBLAS_SONAME=libcublas.so.{major}");
        if !cuda
            .include
            .iter()
            .any(|folder| folder.join("cublas_v2.h").is_file())
        {
            return Err(format!(
                "cublas_v2.h is not in {}: this CUDA toolkit came without cuBLAS\n\
                 unset CUDA_HOME and CUDA_PATH, then\n{}",
                cuda.include[0].display(),
                convforge_bind::remedy(
                    "toolkit,libclang",
                    "install its cuBLAS package (libcublas-dev), or a whole CUDA toolkit"
                )
            ));
        }
        cuda.bind(&SPEC)
    });
}
