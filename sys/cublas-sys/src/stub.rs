// Stands for the bindings on docs.rs, which has no CUDA toolkit: only the names that signatures
// and fields of the safe wrappers mention.

pub type cublasHandle_t = *mut core::ffi::c_void;
pub type cublasLtHandle_t = *mut core::ffi::c_void;
pub type cublasLtMatmulDesc_t = *mut core::ffi::c_void;
pub type cublasLtMatrixLayout_t = *mut core::ffi::c_void;
pub type cublasLtMatmulPreference_t = *mut core::ffi::c_void;
#[derive(Clone, Copy)]
pub struct cublasLtMatmulAlgo_t {
    pub data: [u64; 8],
}
macro_rules! numbers {
    ($($name:ident)*) => {$(
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name(pub u32);
    )*};
}
numbers! { cublasStatus_t cublasMath_t cublasOperation_t cublasComputeType_t cublasGemmAlgo_t
cudaDataType }
pub type cudaDataType_t = cudaDataType;
