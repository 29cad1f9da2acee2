// Stands for the bindings on docs.rs, which has no CUDA toolkit: only the names that signatures
// and fields of the safe wrappers mention.

pub type CUdevice = i32;
pub type CUdeviceptr = u64;
pub type CUcontext = *mut core::ffi::c_void;
pub type CUstream = *mut core::ffi::c_void;
pub type CUevent = *mut core::ffi::c_void;
pub type CUgraph = *mut core::ffi::c_void;
pub type CUgraphExec = *mut core::ffi::c_void;
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CUresult(pub u32);
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CUdevice_attribute(pub u32);
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CUstreamCaptureMode(pub u32);
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CUpointer_attribute(pub u32);
