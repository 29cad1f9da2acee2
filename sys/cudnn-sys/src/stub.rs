// Stands for the bindings on docs.rs, which has no CUDA toolkit: only the names that signatures
// and fields of the safe wrappers mention.

pub type cudnnHandle_t = *mut core::ffi::c_void;
pub type cudnnBackendDescriptor_t = *mut core::ffi::c_void;
pub type cudnnTensorDescriptor_t = *mut core::ffi::c_void;
pub type cudnnFilterDescriptor_t = *mut core::ffi::c_void;
pub type cudnnActivationDescriptor_t = *mut core::ffi::c_void;
pub type cudnnConvolutionDescriptor_t = *mut core::ffi::c_void;
macro_rules! numbers {
    ($($name:ident)*) => {$(
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name(pub u32);
    )*};
}
numbers! { cudnnStatus_t cudnnDataType_t cudnnTensorFormat_t cudnnMathType_t cudnnNanPropagation_t
cudnnActivationMode_t cudnnConvolutionMode_t cudnnConvolutionFwdAlgo_t cudnnPointwiseMode_t
cudnnBackendDescriptorType_t cudnnBackendAttributeName_t cudnnBackendAttributeType_t
cudnnBackendHeurMode_t cudnnBackendBehaviorNote_t cudnnBackendNumericalNote_t }
