//! Compiles csrc with nvcc and binds its headers.
//!
//! How is sys/nvcc's and sys/bind's business; where the toolkit is, sys/cuda-sys's. Packages with
//! kernels of their own find these headers in the folder `DEP_CONVFORGE_INCLUDE`.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

fn main() {
    println!("cargo::rerun-if-changed=csrc");
    println!("cargo::rerun-if-changed=build.rs");
    let result = files(Path::new("csrc")).and_then(|files| {
        println!(
            "cargo::rustc-env=CONVFORGE_CSRC_HASH={:016x}",
            hash(&files)?
        );
        let package = env::current_dir().map_err(|why| why.to_string())?;
        println!("cargo::metadata=include={}", package.join("csrc").display());
        kernels(&files)
    });
    if let Err(why) = result {
        eprintln!("\n{why}\n");
        std::process::exit(1);
    }
}

#[cfg(not(feature = "cuda"))]
fn kernels(_files: &[PathBuf]) -> Result<(), String> {
    Ok(())
}

#[cfg(feature = "cuda")]
fn kernels(files: &[PathBuf]) -> Result<(), String> {
    const HEADERS: [&str; 4] = [
        "csrc/problem.h",
        "csrc/row.h",
        "csrc/registry.h",
        "csrc/passes.h",
    ];
    if convforge_bind::no_toolkit() {
        return convforge_bind::stub_of_headers(&HEADERS);
    }
    let cuda = convforge_bind::Cuda::from_metadata()?;
    cuda.bind_headers(&HEADERS, &["csrc".into()])?;
    convforge_nvcc::Kernels::new(&cuda)
        .include("csrc")
        .compile("convforge_kernels", &sources(files)?)?;
    convforge_nvcc::link_runtime(&cuda)
}

/// Every source in a folder, sorted; its index is none.
fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let fail = |why: std::io::Error| format!("{}: {why}", folder.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else if path.extension().is_none_or(|e| e != "md") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// FNV-1a over names and contents, so that results can name the code that made them.
fn hash(files: &[PathBuf]) -> Result<u64, String> {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for path in files {
        let content = fs::read(path).map_err(|why| format!("{}: {why}", path.display()))?;
        for byte in path.to_string_lossy().bytes().chain(content) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    Ok(hash)
}

/// The .cu files. Those under csrc/kernels are rows, `family/row.cu`, with a line each in
/// csrc/kernels.def, or further files of one, in the folder `family/row`.
#[cfg(feature = "cuda")]
fn sources(files: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let kernels = Path::new("csrc/kernels");
    let table = fs::read_to_string("csrc/kernels.def").map_err(|why| why.to_string())?;
    // A remark may follow.
    let row = |words: &str| {
        let (family, file) = words.split_once(')')?.0.split_once(',')?;
        Some(kernels.join(format!("{}/{}.cu", family.trim(), file.trim())))
    };
    let mut rows = Vec::new();
    for line in table.lines() {
        let words = line.strip_prefix("ROW(").or(line.strip_prefix("UNRANKED("));
        if let Some(words) = words {
            rows.push(row(words).ok_or_else(|| {
                format!(
                    "csrc/kernels.def: no row can be read from \"{line}\"; a line is ROW(family, file) or \
                     UNRANKED(family, file)"
                )
            })?);
        }
    }
    let sources = files
        .iter()
        .filter(|path| path.extension().is_some_and(|e| e == "cu"));
    let sources: Vec<PathBuf> = sources.cloned().collect();
    if let Some(path) = rows.iter().find(|row| !sources.contains(row)) {
        return Err(format!(
            "csrc/kernels.def has a line for {}, which does not exist",
            path.display()
        ));
    }
    let listed = |path: &Path| rows.iter().any(|row| row == path);
    let belongs = |path: &PathBuf| {
        let folder = path.parent().map(|folder| folder.with_extension("cu"));
        !path.starts_with(kernels) || listed(path) || folder.is_some_and(|row| listed(&row))
    };
    if let Some(path) = sources.iter().find(|path| !belongs(path)) {
        return Err(format!(
            "{} has no line in csrc/kernels.def: add UNRANKED(family, file), or ROW once it is \
             measured; a further file of a row goes into the folder family/file",
            path.display()
        ));
    }
    Ok(sources)
}
