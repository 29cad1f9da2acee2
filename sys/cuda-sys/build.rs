//! Finds the CUDA toolkit, for this crate and for all that depend on it, and binds cuda.h.
//!
//! What it found is handed on as Cargo's metadata; dependent build scripts read
//!
//! | variable                       | value                                                       |
//! |--------------------------------|-------------------------------------------------------------|
//! | `DEP_CONVFORGE_CUDA_ROOT`      | the toolkit's folder                                        |
//! | `DEP_CONVFORGE_CUDA_NVCC`      | nvcc                                                        |
//! | `DEP_CONVFORGE_CUDA_VERSION`   | `CUDA_VERSION` of cuda.h: 13000 for 13.0                    |
//! | `DEP_CONVFORGE_CUDA_INCLUDE`   | folders of headers, joined as in `PATH`                     |
//! | `DEP_CONVFORGE_CUDA_LIB`       | folder of cudart_static                                     |
//! | `DEP_CONVFORGE_CUDA_LIBCLANG`  | folder of libclang; empty: look for it on the system        |
//! | `DEP_CONVFORGE_CUDA_CLANG_ARGS`| libclang's arguments for these headers, separated by tabs   |
//! | `DEP_CONVFORGE_CUDA_CACHE`     | where toolkit.py installs, be it there or not               |
//!
//! On docs.rs there is no toolkit: none of them is set and src/stub.rs stands for the bindings.

#[path = "src/cache.rs"]
mod cache;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The driver API as convforge uses it.
const SPEC: convforge_bind::Spec<'static> = convforge_bind::Spec {
    headers: &["cuda.h"],
    functions: &[
        // The driver and its errors
        "cuInit",
        "cuDriverGetVersion",
        "cuGetErrorName",
        "cuGetErrorString",
        // Devices and contexts
        "cuDeviceGetCount",
        "cuDeviceGet",
        "cuDeviceGetName",
        "cuDeviceGetAttribute",
        "cuDeviceTotalMem",
        "cuDevicePrimaryCtxRetain",
        "cuDevicePrimaryCtxRelease",
        "cuCtxPushCurrent",
        "cuCtxPopCurrent",
        "cuCtxGetCurrent",
        "cuCtxSynchronize",
        // Memory
        "cuMemGetInfo",
        "cuMemAlloc",
        "cuMemFree",
        "cuMemHostAlloc",
        "cuMemFreeHost",
        "cuMemcpyHtoDAsync",
        "cuMemcpyDtoHAsync",
        "cuMemcpyDtoDAsync",
        "cuMemsetD8Async",
        "cuPointerGetAttribute",
        // Streams and events
        "cuStreamCreate",
        "cuStreamDestroy",
        "cuStreamSynchronize",
        "cuStreamQuery",
        "cuStreamWaitEvent",
        "cuStreamGetId",
        "cuStreamGetCtx",
        "cuStreamBeginCapture",
        "cuStreamEndCapture",
        "cuStreamIsCapturing",
        "cuThreadExchangeStreamCaptureMode",
        "cuEventCreate",
        "cuEventDestroy",
        "cuEventRecord",
        "cuEventSynchronize",
        "cuEventQuery",
        "cuEventElapsedTime",
        // Graphs
        "cuGraphInstantiateWithFlags",
        "cuGraphUpload",
        "cuGraphLaunch",
        "cuGraphDestroy",
        "cuGraphExecDestroy",
    ],
    types: &["CUpointer_attribute"],
    constants: &["CUDA_VERSION"],
};

/// The oldest toolkit whose headers have all of the above.
const OLDEST: u32 = 12000;

fn main() {
    convforge_bind::run(build);
}

fn build() -> Result<(), String> {
    for name in [
        "CUDA_HOME",
        "CUDA_PATH",
        "CONVFORGE_CACHE",
        "XDG_CACHE_HOME",
    ] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    for name in ["LIBCLANG_PATH", "CC"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    println!("cargo::rerun-if-changed=src/cache.rs");
    if convforge_bind::stub_on_docs_rs()? {
        return Ok(());
    }

    let toolkit = find_toolkit()?;
    println!(
        "cargo::rerun-if-changed={}",
        toolkit.root.join("include/cuda.h").display()
    );
    let mut include = vec![toolkit.root.join("include")];
    // cuBLAS's headers need those of CCCL, which CUDA 13 keeps in a folder of their own.
    include.extend(Some(toolkit.root.join("include/cccl")).filter(|folder| folder.is_dir()));
    let mut clang_args: Vec<String> = include
        .iter()
        .map(|folder| format!("-I{}", folder.display()))
        .collect();
    clang_args.push(format!("-idirafter{}", compiler_headers()?));
    let libclang = libclang_folder();
    let lib = ["lib64", "lib"]
        .map(|name| toolkit.root.join(name))
        .into_iter()
        .find(|folder| folder.join("libcudart_static.a").is_file());

    let bindings = convforge_bind::bindings_file();
    convforge_bind::generate(&SPEC, &clang_args, libclang.as_deref(), &bindings)?;

    let joined = env::join_paths(&include).map_err(|why| why.to_string())?;
    println!("cargo::metadata=root={}", toolkit.root.display());
    println!(
        "cargo::metadata=nvcc={}",
        toolkit.root.join("bin/nvcc").display()
    );
    println!("cargo::metadata=version={}", toolkit.version);
    println!("cargo::metadata=include={}", joined.display());
    println!("cargo::metadata=lib={}", lib.unwrap_or_default().display());
    println!(
        "cargo::metadata=libclang={}",
        libclang.unwrap_or_default().display()
    );
    println!("cargo::metadata=clang_args={}", clang_args.join("\t"));
    println!(
        "cargo::metadata=cache={}",
        cache::toolkit_folder().unwrap_or_default().display()
    );
    Ok(())
}

struct Toolkit {
    root: PathBuf,
    version: u32,
}

/// The first place that has a toolkit. One that a variable names must be right: to pass it over
/// would build with another toolkit than the one asked for.
fn find_toolkit() -> Result<Toolkit, String> {
    let mut tried = Vec::new();
    for name in ["CUDA_HOME", "CUDA_PATH"] {
        match env::var_os(name).filter(|value| !value.is_empty()) {
            None => tried.push(format!("{name}: not set")),
            Some(root) => {
                return toolkit_at(Path::new(&root)).map_err(|why| {
                    format!(
                        "{name} is set, but no usable CUDA toolkit: {why}\n\
                         set it to the folder that holds bin/nvcc, or unset it, then\n{}",
                        remedy()
                    )
                });
            }
        }
    }
    let places = [
        (
            "installed by convforge's toolkit.py",
            cache::toolkit_folder(),
        ),
        ("nvcc on PATH", nvcc_on_path()),
        ("the usual place", Some(PathBuf::from("/usr/local/cuda"))),
    ];
    for (name, root) in places {
        match root
            .ok_or_else(|| "none".to_owned())
            .and_then(|root| toolkit_at(&root))
        {
            Ok(toolkit) => return Ok(toolkit),
            Err(why) => tried.push(format!("{name}: {why}")),
        }
    }
    Err(format!(
        "convforge's feature `cuda` needs a CUDA toolkit to build, and none was found:\n  - {}\n\
         {}\n\
         or build for the CPU alone, without the default features: --no-default-features, or\n\
         `default-features = false, features = [\"cpu\"]` where it is a dependency",
        tried.join("\n  - "),
        remedy()
    ))
}

fn remedy() -> String {
    convforge_bind::remedy(
        "toolkit,libclang",
        "install NVIDIA's CUDA toolkit, 12.0 or newer\n\
         (https://developer.nvidia.com/cuda-downloads; neither a GPU nor a driver is needed to \
         build),\nand set CUDA_HOME to the folder that holds bin/nvcc",
    )
}

/// The toolkit in `root`, or what it lacks.
fn toolkit_at(root: &Path) -> Result<Toolkit, String> {
    if !root.is_dir() {
        return Err(format!("{} is no folder", root.display()));
    }
    for file in ["bin/nvcc", "include/cuda.h"] {
        if !root.join(file).is_file() {
            return Err(format!("{} has no {file}", root.display()));
        }
    }
    let header = fs::read(root.join("include/cuda.h")).map_err(|why| why.to_string())?;
    let version = String::from_utf8_lossy(&header)
        .lines()
        .find_map(|line| {
            line.strip_prefix("#define CUDA_VERSION ")?
                .trim()
                .parse()
                .ok()
        })
        .ok_or_else(|| format!("{}/include/cuda.h names no version", root.display()))?;
    if version < OLDEST {
        let said = |version| format!("{}.{}", version / 1000, version % 1000 / 10);
        return Err(format!(
            "{} is CUDA {}, and {} is the least",
            root.display(),
            said(version),
            said(OLDEST)
        ));
    }
    Ok(Toolkit {
        root: root.to_owned(),
        version,
    })
}

/// The folder above the `bin` of the nvcc that a shell would start.
fn nvcc_on_path() -> Option<PathBuf> {
    let nvcc = env::split_paths(&env::var_os("PATH")?)
        .map(|folder| folder.join("nvcc"))
        .find(|file| file.is_file())?;
    Some(nvcc.canonicalize().ok()?.parent()?.parent()?.to_owned())
}

/// The folder of the host compiler's own headers (stddef.h), which a libclang from PyPI lacks.
fn compiler_headers() -> Result<String, String> {
    let compiler = env::var("CC")
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or("cc".to_owned());
    let output = Command::new(&compiler)
        .arg("-print-file-name=include")
        .output()
        .map_err(|why| format!("the host compiler `{compiler}` does not start: {why}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The user's libclang, or the installed one; nothing leaves the search to clang-sys.
fn libclang_folder() -> Option<PathBuf> {
    env::var_os("LIBCLANG_PATH")
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
        .or_else(|| {
            let folder = cache::toolkit_folder()?.join("lib");
            folder.join("libclang.so").is_file().then_some(folder)
        })
}
