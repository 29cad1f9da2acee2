//! Compiles csrc with nvcc and binds its headers.
//!
//! How is sys/nvcc's and sys/bind's business; where the toolkit is, sys/cuda-sys's. Packages with
//! kernels of their own find these headers in the folder `DEP_CONVFORGE_INCLUDE`.

use std::{
    collections::BTreeSet,
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
        write_hashes(&files)?;
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
    let mut hash = FNV;
    for path in files {
        let content = fs::read(path).map_err(|why| format!("{}: {why}", path.display()))?;
        hash = fnv1a(hash, path.to_string_lossy().bytes().chain(content));
    }
    Ok(hash)
}

/// Where the hash begins.
const FNV: u64 = 0xcbf2_9ce4_8422_2325;

fn fnv1a(hash: u64, bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(hash, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// What a row depends on, so that results can tell whether it changed since: of each row a hash of its
/// own files and of all that they include, and one of the passes, which baselines run as well.
/// scripts/sources.py reckons the same without a build.
fn write_hashes(files: &[PathBuf]) -> Result<(), String> {
    let mut lines = String::new();
    for (name, sources) in rows(files)? {
        lines += &format!("(\"{name}\", \"{}\"),\n", hash_of(&sources)?);
    }
    let passes = hash_of(&[PathBuf::from(PASSES)])?;
    let text = format!("(&[{lines}], \"{passes}\")");
    let out = env::var("OUT_DIR").map_err(|why| why.to_string())?;
    fs::write(Path::new(&out).join("hashes.rs"), text).map_err(|why| why.to_string())
}

const PASSES: &str = "csrc/passes.h";

/// The rows of the table by name, each with its own files.
fn rows(files: &[PathBuf]) -> Result<Vec<(String, Vec<PathBuf>)>, String> {
    let rows = table()?.into_iter().map(|(family, file)| {
        let own = Path::new("csrc/kernels").join(&family).join(&file);
        let is_own = |path: &&PathBuf| {
            is_source(path) && (path.with_extension("") == own || path.parent() == Some(&own))
        };
        let sources = files.iter().filter(is_own).cloned().collect();
        (format!("{family}_{file}"), sources)
    });
    Ok(rows.collect())
}

/// FNV-1a over the names and hashes of sources and of all files of csrc that they include, without
/// comments: those change no measurement. Who includes the passes' header calls the passes.
fn hash_of(sources: &[PathBuf]) -> Result<String, String> {
    let csrc = Path::new("csrc");
    let mut all = BTreeSet::new();
    let mut open = sources.to_vec();
    while let Some(path) = open.pop() {
        if !all.insert(path.clone()) {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(|why| format!("{}: {why}", path.display()))?;
        let names = text.lines().filter_map(|line| {
            let name = line.trim().strip_prefix("#include \"")?;
            name.split('"').next()
        });
        open.extend(names.map(|name| csrc.join(name)));
        if path == Path::new(PASSES) {
            open.extend(
                files(&csrc.join("passes"))?
                    .into_iter()
                    .filter(|path| is_source(path)),
            );
        }
    }
    let mut text = String::new();
    for path in all {
        let content =
            fs::read_to_string(&path).map_err(|why| format!("{}: {why}", path.display()))?;
        let code = fnv1a(FNV, code_of(&content).into_bytes());
        text += &format!("{} {code:016x}\n", path.display());
    }
    Ok(format!("{:016x}", fnv1a(FNV, text.into_bytes())))
}

/// A file of C++ without its comments, blank lines and blanks at the end of others.
fn code_of(content: &str) -> String {
    let mut code = String::new();
    let mut rest = content;
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(comment) = rest.strip_prefix("/*") {
            comment.find("*/").map_or(rest.len(), |end| end + 4)
        } else {
            let length = if first == '"' {
                length_of_string(rest)
            } else {
                first.len_utf8()
            };
            code += &rest[..length];
            length
        };
        rest = &rest[length..];
    }
    let lines = code.lines().map(|line| line.trim_end());
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    lines.join("\n")
}

/// Bytes of the string literal that a text begins with; it ends with its line at the latest.
fn length_of_string(text: &str) -> usize {
    let mut escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            '\n' => return at,
            _ => {}
        }
    }
    text.len()
}

fn is_source(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "cu")
}

/// Family and file of each line of csrc/kernels.def.
fn table() -> Result<Vec<(String, String)>, String> {
    let table = fs::read_to_string("csrc/kernels.def").map_err(|why| why.to_string())?;
    // A remark may follow.
    let row = |words: &str| {
        let (family, file) = words.split_once(')')?.0.split_once(',')?;
        Some((family.trim().to_owned(), file.trim().to_owned()))
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
    Ok(rows)
}

/// The .cu files. Those under csrc/kernels are rows, `family/row.cu`, with a line each in
/// csrc/kernels.def, or further files of one, in the folder `family/row`.
#[cfg(feature = "cuda")]
fn sources(files: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let kernels = Path::new("csrc/kernels");
    let rows = table()?.into_iter();
    let rows: Vec<PathBuf> = rows
        .map(|(family, file)| kernels.join(format!("{family}/{file}.cu")))
        .collect();
    let sources = files.iter().filter(|path| is_source(path));
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
