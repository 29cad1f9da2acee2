//! Binds the part of cuDNN that convforge uses: the graph API by its backend descriptors, and the
//! older convolution API with its algorithms.

use std::path::PathBuf;

use convforge_bind::{Cuda, Spec};

const SPEC: Spec<'static> = Spec {
    headers: &["cudnn_graph.h", "cudnn_ops.h", "cudnn_cnn.h"],
    functions: &[
        "cudnnCreate",
        "cudnnDestroy",
        "cudnnSetStream",
        "cudnnGetVersion",
        "cudnnGetErrorString",
        "cudnnGetLastErrorString",
        // The graph API
        "cudnnBackendCreateDescriptor",
        "cudnnBackendDestroyDescriptor",
        "cudnnBackendFinalize",
        "cudnnBackendSetAttribute",
        "cudnnBackendGetAttribute",
        "cudnnBackendExecute",
        // The older convolution API
        "cudnnCreateTensorDescriptor",
        "cudnnDestroyTensorDescriptor",
        "cudnnSetTensor4dDescriptorEx",
        "cudnnCreateFilterDescriptor",
        "cudnnDestroyFilterDescriptor",
        "cudnnSetFilter4dDescriptor",
        "cudnnCreateActivationDescriptor",
        "cudnnDestroyActivationDescriptor",
        "cudnnSetActivationDescriptor",
        "cudnnCreateConvolutionDescriptor",
        "cudnnDestroyConvolutionDescriptor",
        "cudnnSetConvolution2dDescriptor",
        "cudnnSetConvolutionMathType",
        "cudnnSetConvolutionGroupCount",
        "cudnnGetConvolutionForwardWorkspaceSize",
        "cudnnConvolutionForward",
        "cudnnConvolutionBiasActivationForward",
    ],
    types: &[
        "cudnnBackend.*_t",
        "cudnnConvolutionMode_t",
        "cudnnDataType_t",
        "cudnnPointwiseMode_t",
    ],
    constants: &["CUDNN_MAJOR", "CUDNN_MINOR", "CUDNN_PATCHLEVEL"],
};

fn main() {
    convforge_bind::run(|| {
        if convforge_bind::stub_on_docs_rs()? {
            return Ok(());
        }
        println!("cargo::rerun-if-env-changed=CUDNN_PATH");
        let mut cuda = Cuda::from_metadata()?;
        let folder = find_headers(&cuda)?;
        // After the toolkit's own, which may be of another version than what lies beside cuDNN.
        cuda.clang_args
            .push(format!("-idirafter{}", folder.display()));
        cuda.bind(&SPEC)
    });
}

/// The folder of cuDNN's headers, which many toolkits come without.
fn find_headers(cuda: &Cuda) -> Result<PathBuf, String> {
    let own = std::env::var_os("CUDNN_PATH").filter(|path| !path.is_empty());
    let mut places: Vec<PathBuf> = own
        .iter()
        .map(|p| PathBuf::from(p).join("include"))
        .collect();
    if own.is_none() {
        places.extend(cuda.include.first().cloned());
        places.push(cuda.cache.join("include"));
        places.extend(["/usr/include/x86_64-linux-gnu", "/usr/include"].map(PathBuf::from));
    }
    let found = places
        .iter()
        .find(|folder| folder.join("cudnn_graph.h").is_file());
    found.cloned().ok_or_else(|| {
        let tried: Vec<_> = places
            .iter()
            .map(|folder| folder.display().to_string())
            .collect();
        format!(
            "convforge's feature `cudnn` needs cuDNN 9; cudnn_graph.h is in none of\n  - {}\n\
             {}\n\
             or set CUDNN_PATH to the folder that holds include/cudnn_graph.h",
            tried.join("\n  - "),
            convforge_bind::remedy(
                "cudnn,libclang",
                "install NVIDIA's cuDNN 9 with its headers (https://developer.nvidia.com/cudnn)"
            )
        )
    })
}
