//! Compiles csrc with nvcc through `cc`, one object per file, and binds csrc/convforge.h.
//!
//! Where the toolkit is, is convforge-cuda-sys's finding. `CONVFORGE_ARCHS` narrows what is compiled
//! for: `80`, `90a`, `ptx` (for chips newer than Hopper), joined by commas.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

fn main() {
    println!("cargo::rerun-if-changed=csrc");
    println!("cargo::rerun-if-changed=build.rs");
    let result = hash_of_csrc().and_then(|hash| {
        println!("cargo::rustc-env=CONVFORGE_CSRC_HASH={hash}");
        println!("cargo::rerun-if-env-changed=DOCS_RS");
        println!("cargo::rustc-check-cfg=cfg(no_toolkit)");
        // docs.rs has no toolkit, and rustdoc does not look into functions: the types that their
        // signatures name are enough.
        if env::var_os("DOCS_RS").is_some() {
            stub()
        } else {
            cuda()
        }
    });
    if let Err(why) = result {
        eprintln!("\n{why}\n");
        std::process::exit(1);
    }
}

/// Stands in for the bindings of csrc/convforge.h.
fn stub() -> Result<(), String> {
    println!("cargo::rustc-cfg=no_toolkit");
    let path = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("convforge.rs");
    let types = "pub struct cf_row;\n#[derive(Clone, Copy)]\npub struct cf_call;\n";
    fs::write(&path, types).map_err(|why| format!("{}: {why}", path.display()))
}

#[cfg(not(feature = "cuda"))]
fn cuda() -> Result<(), String> {
    Ok(())
}

#[cfg(feature = "cuda")]
fn cuda() -> Result<(), String> {
    let sources = kernels::sources()?;
    kernels::bind()?;
    kernels::compile(&sources)
}

/// Every file under csrc, sorted, so that results can name the code that made them.
fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let fail = |why: std::io::Error| format!("{}: {why}", folder.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// FNV-1a over names and contents.
fn hash_of_csrc() -> Result<String, String> {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for path in files(Path::new("csrc"))? {
        let content = fs::read(&path).map_err(|why| format!("{}: {why}", path.display()))?;
        for byte in path.to_string_lossy().bytes().chain(content) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    Ok(format!("{hash:016x}"))
}

#[cfg(feature = "cuda")]
mod kernels {
    use super::*;

    use std::{
        collections::BTreeSet,
        process::{Command, Output},
        sync::{
            Mutex,
            atomic::{AtomicUsize, Ordering},
        },
        thread,
    };

    /// The .cu files to compile: those beside kernels.def, and one per line of it.
    pub fn sources() -> Result<Vec<PathBuf>, String> {
        let table = fs::read_to_string("csrc/kernels.def").map_err(|why| why.to_string())?;
        let listed: BTreeSet<PathBuf> = table
            .lines()
            .filter_map(|line| {
                line.strip_prefix("ROW(")?
                    .strip_suffix(')')?
                    .split_once(',')
            })
            .map(|(family, file)| {
                format!("csrc/kernels/{}/{}.cu", family.trim(), file.trim()).into()
            })
            .collect();
        let is_cu = |path: &PathBuf| path.extension().is_some_and(|e| e == "cu");
        let present: BTreeSet<PathBuf> = files(Path::new("csrc/kernels"))?
            .into_iter()
            .filter(is_cu)
            .collect();
        if let Some(path) = listed.difference(&present).next() {
            return Err(format!(
                "csrc/kernels.def has a line for {}, which does not exist",
                path.display()
            ));
        }
        if let Some(path) = present.difference(&listed).next() {
            return Err(format!(
                "{} has no line in csrc/kernels.def: add ROW(family, file)",
                path.display()
            ));
        }
        let beside = fs::read_dir("csrc").map_err(|why| why.to_string())?;
        let beside = beside
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(is_cu);
        Ok(beside.chain(listed).collect())
    }

    /// What convforge-cuda-sys found.
    fn found(key: &str) -> Result<String, String> {
        env::var(format!("DEP_CONVFORGE_CUDA_{key}"))
            .map_err(|why| format!("convforge-cuda-sys did not say {key}: {why}"))
    }

    fn out_dir() -> PathBuf {
        PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default())
    }

    /// Where objects are kept: beside the folders that Cargo makes for each set of features, which
    /// change nothing here and would compile everything again.
    fn objects() -> PathBuf {
        let out = out_dir();
        let build = out.ancestors().nth(2).unwrap_or(&out);
        build.join("convforge-objects")
    }

    pub fn bind() -> Result<(), String> {
        let libclang = found("LIBCLANG")?;
        if !libclang.is_empty() {
            // SAFETY: no other thread runs yet.
            unsafe { env::set_var("LIBCLANG_PATH", libclang) };
        }
        let bindings = bindgen::Builder::default()
            .header("csrc/convforge.h")
            .clang_args(found("CLANG_ARGS")?.split('\t'))
            .allowlist_item("(cf|CF)_.*")
            .derive_default(true)
            .prepend_enum_name(false)
            .generate()
            .map_err(|why| format!("csrc/convforge.h: {why}"))?;
        let path = out_dir().join("convforge.rs");
        bindings
            .write_to_file(&path)
            .map_err(|why| format!("{}: {why}", path.display()))
    }

    /// nvcc's -gencode values for `CONVFORGE_ARCHS`.
    fn architectures() -> Result<Vec<&'static str>, String> {
        println!("cargo::rerun-if-env-changed=CONVFORGE_ARCHS");
        let wanted = env::var("CONVFORGE_ARCHS").unwrap_or_else(|_| "80,90a,ptx".to_owned());
        wanted
            .split(',')
            .map(|word| match word.trim() {
                "80" => Ok("arch=compute_80,code=sm_80"),
                // wgmma and setmaxnreg exist for sm_90a only, and only in this spelling.
                "90a" => Ok("arch=compute_90a,code=sm_90a"),
                "ptx" => Ok("arch=compute_90,code=compute_90"),
                other => Err(format!(
                    "CONVFORGE_ARCHS names `{other}`; it is a list of 80, 90a and ptx"
                )),
            })
            .collect()
    }

    /// Compiles each file by itself (two in one `cc::Build` would turn on relocatable device code),
    /// in parallel, and skips what is fresh (`cc` looks at neither time stamps nor headers).
    pub fn compile(sources: &[PathBuf]) -> Result<(), String> {
        println!("cargo::rerun-if-env-changed=NUM_JOBS");
        let include = found("INCLUDE")?;
        let archs = architectures()?;
        // `cc` knows nvcc as such only by this variable. SAFETY: no other thread runs yet.
        unsafe { env::set_var("NVCC", found("NVCC")?) };
        let mut build = cc::Build::new();
        // The same flags in every profile: in a debug profile `cc` would pass -G, and kernels under
        // `cargo test` would be unoptimised.
        build
            .cuda(true)
            .cudart("none")
            .debug(false)
            .opt_level(3)
            .warnings(false)
            .include("csrc")
            .includes(env::split_paths(&include))
            .flag("-std=c++17")
            .flag("-lineinfo")
            .flag("-Xptxas=-v,-warn-lmem-usage")
            // Hundreds of instantiations for three architectures: a quarter of the size.
            .flag("-Xfatbin=-compress-all");
        let compiler = build
            .try_get_compiler()
            .map_err(|why| format!("nvcc: {why}"))?;

        let next = AtomicUsize::new(0);
        let results = Mutex::new(Vec::new());
        let jobs = thread::available_parallelism().map_or(1, usize::from);
        let jobs = env::var("NUM_JOBS")
            .ok()
            .and_then(|n| n.parse().ok())
            .unwrap_or(jobs);
        thread::scope(|scope| {
            for _ in 0..jobs.min(sources.len()) {
                scope.spawn(|| {
                    while let Some(source) = sources.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let result = compile_one(compiler.to_command(), source, &archs);
                        results
                            .lock()
                            .unwrap_or_else(|e| e.into_inner())
                            .push(result);
                    }
                });
            }
        });
        let results = results.into_inner().unwrap_or_else(|e| e.into_inner());
        let mut objects = results.into_iter().collect::<Result<Vec<_>, _>>()?;
        objects.sort();
        build.objects(objects);
        build
            .try_compile("convforge_kernels")
            .map_err(|why| why.to_string())?;

        println!("cargo::rustc-link-search=native={}", found("LIB")?);
        for library in ["static=cudart_static", "stdc++", "dl", "rt", "pthread"] {
            println!("cargo::rustc-link-lib={library}");
        }
        Ok(())
    }

    fn compile_one(mut nvcc: Command, source: &Path, archs: &[&str]) -> Result<PathBuf, String> {
        let stem = source.to_string_lossy().replace(['/', '.'], "_");
        let folder = objects();
        fs::create_dir_all(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
        let object = folder.join(&stem).with_extension("o");
        let depfile = folder.join(&stem).with_extension("d");
        let report = folder.join(&stem).with_extension("ptxas");
        nvcc.arg("-c")
            .arg(source)
            .arg("-o")
            .arg(&object)
            .arg("-MD")
            .arg("-MF")
            .arg(&depfile);
        for arch in archs {
            nvcc.arg("-gencode").arg(arch);
        }
        let words = std::iter::once(nvcc.get_program()).chain(nvcc.get_args());
        let command = words
            .map(|w| w.to_string_lossy())
            .collect::<Vec<_>>()
            .join(" ");
        let stamp = folder.join(&stem).with_extension("cmd");
        if fs::read_to_string(&stamp).is_ok_and(|old| old == command) && is_fresh(&object, &depfile)
        {
            return Ok(object);
        }
        let Output {
            status,
            stderr,
            stdout,
        } = nvcc.output().map_err(|why| format!("{command}: {why}"))?;
        let said = String::from_utf8_lossy(&stderr) + String::from_utf8_lossy(&stdout);
        if !status.success() {
            return Err(format!(
                "{}: nvcc failed\n{command}\n{said}",
                source.display()
            ));
        }
        judge(source, &said)?;
        let written = fs::write(&report, said.as_bytes()).and_then(|()| fs::write(&stamp, command));
        written.map_err(|why| format!("{}: {why}", report.display()))?;
        Ok(object)
    }

    /// Whether the object is newer than everything it was made from.
    fn is_fresh(object: &Path, depfile: &Path) -> bool {
        let modified = |path: &Path| path.metadata().and_then(|m| m.modified()).ok();
        let Some(made) = modified(object) else {
            return false;
        };
        let Ok(rule) = fs::read_to_string(depfile) else {
            return false;
        };
        let Some((_, inputs)) = rule.split_once(": ") else {
            return false;
        };
        inputs
            .split_whitespace()
            .filter(|word| *word != "\\")
            .all(|input| modified(Path::new(input)).is_some_and(|time| time <= made))
    }

    /// Spills are reported, in one line for a file; a wgmma that ptxas serialised (C7510 to C7514) is
    /// many times slower than it looks, and fails the build.
    fn judge(source: &Path, said: &str) -> Result<(), String> {
        let source = source.display();
        let spilled = |line: &str| -> Option<u32> {
            let before = line.split_once(" bytes spill stores")?.0;
            before.split_whitespace().last()?.parse().ok()
        };
        let kernels: Vec<u32> = said.lines().filter_map(spilled).collect();
        let spilling = kernels.iter().filter(|bytes| **bytes > 0).count();
        if spilling > 0 {
            println!(
                "cargo::warning={source}: {spilling} of {} kernels spill registers, at most {} bytes",
                kernels.len(),
                kernels.iter().max().unwrap_or(&0)
            );
        }
        // What ptxas says of single kernels that spill.
        let told = ["lmem", "Local memory used", "Registers are spilled"];
        for line in said.lines().map(str::trim) {
            let serialised = ["C7510", "C7511", "C7512", "C7513", "C7514"];
            if serialised.iter().any(|code| line.contains(code)) {
                return Err(format!("{source}: {line}"));
            }
            if line.contains("warning") && !told.iter().any(|words| line.contains(words)) {
                println!("cargo::warning={source}: {line}");
            }
        }
        Ok(())
    }
}
