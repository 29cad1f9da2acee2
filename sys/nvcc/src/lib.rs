//! Build-time helper of convforge's crates: compiles CUDA kernels with nvcc through `cc`, one
//! object per file.
//!
//! Kernels take minutes, so an object is made once per checkout and again only where the content of
//! what it was made from changed: not for another profile, feature or target, nor because the
//! checkout moved. Objects lie in
//!
//! ```text
//! <Cargo's target folder>/convforge-objects/<package>/<images>-<compiler and flags>/
//!     csrc_kernels_direct_naive_cu.o       the object
//!     csrc_kernels_direct_naive_cu.ptxas   what nvcc and ptxas said of it
//!     csrc_kernels_direct_naive_cu.made    from what it was made, and how long that took
//! ```
//!
//! and `cargo clean` removes them.
//!
//! `CONVFORGE_ARCHS` says what is compiled: a list of `80` (machine code for Ampere to Ada), `90a` (for
//! Hopper) and `ptx` (what drivers translate for Hopper and newer chips); `all`, as without it; or
//! `native`: what the GPUs of this machine run, and `ptx` where none is Hopper. A file whose code names
//! `CF_NEEDS_SM90` or `CF_NEEDS_SM90A` of csrc/row.h, and with `row.cu` all files `row/*.cu`, is not
//! compiled to images in which its kernels would be empty. `CONVFORGE_LINEINFO=1` adds the lines that profilers show.

mod children;
mod images;
mod object;
mod progress;
mod ptxas;
mod queue;
mod record;

use std::{
    env,
    fs::File,
    path::{Path, PathBuf},
    sync::Mutex,
    thread,
};

use convforge_bind::Cuda;

use crate::{
    children::Children,
    images::Images,
    object::{Compiler, ENVIRONMENT, Source, told},
    progress::Progress,
    queue::{Job, Tokens, lock},
};

/// Set to 1, profilers and sanitizers show lines of the source; objects are two times as large then,
/// the code the same.
const LINE_INFO: &str = "CONVFORGE_LINEINFO";

/// The kernels of the package whose build script runs, as one static library.
#[derive(Debug)]
pub struct Kernels<'a> {
    cuda: &'a Cuda,
    includes: Vec<PathBuf>,
}

impl<'a> Kernels<'a> {
    /// To be compiled with this toolkit.
    pub fn new(cuda: &'a Cuda) -> Self {
        Kernels {
            cuda,
            includes: Vec::new(),
        }
    }

    /// A folder of headers. Those of the package itself are named relative to it.
    #[must_use]
    pub fn include(mut self, folder: impl Into<PathBuf>) -> Self {
        self.includes.push(folder.into());
        self
    }

    /// Compiles what is not fresh of `sources`, files in the folders of headers, and has Cargo link
    /// all of it as `library`.
    ///
    /// # Errors
    /// The first one of nvcc's, when it happens; a kernel that is not what its source says.
    pub fn compile(&self, library: &str, sources: &[PathBuf]) -> Result<(), String> {
        for name in ENVIRONMENT.iter().chain(&["CONVFORGE_ARCHS", LINE_INFO]) {
            println!("cargo::rerun-if-env-changed={name}");
        }
        for path in self.includes.iter().chain(sources) {
            println!("cargo::rerun-if-changed={}", path.display());
        }
        let mut archive = self.flags();
        let nvcc = archive
            .try_get_compiler()
            .map_err(|why| format!("nvcc: {why}"))?;
        let images = Images::from_variable(env::var("CONVFORGE_ARCHS").ok().as_deref())?;
        let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
        let temporary = out.join("nvcc");
        let compiler = Compiler::new(nvcc, images, &self.includes, &objects(&out), temporary)?;
        let sources = sources.iter().map(|path| compiler.source(path));
        let sources = sources.collect::<Result<Vec<Source>, String>>()?;

        let progress = Progress::new();
        let _alone = alone(&compiler.folder, &progress)?;
        for warning in compile(&compiler, &sources, &progress)? {
            println!("cargo::warning={warning}");
        }
        archive.objects(sources.iter().map(|source| &source.object));
        archive.try_compile(library).map_err(|why| why.to_string())
    }

    /// The same flags in every profile: in a debug profile `cc` would pass -G, and kernels under
    /// `cargo test` would be unoptimised. Files are compiled one by one; two in one `cc::Build`
    /// would turn on relocatable device code.
    fn flags(&self) -> cc::Build {
        // `cc` knows nvcc as such only by this variable. SAFETY: no other thread runs yet.
        unsafe { env::set_var("NVCC", &self.cuda.nvcc) };
        let mut build = cc::Build::new();
        build
            .cuda(true)
            .cudart("none")
            .debug(false)
            .opt_level(3)
            .warnings(false)
            .inherit_rustflags(false)
            .flag("-std=c++17")
            .flag("-Xptxas=-v,-warn-lmem-usage")
            // Hundreds of instantiations for three architectures: a ninth of the size.
            .flag("-Xfatbin=-compress-all");
        // Six tenths of that, unpacked as fast.
        if self.cuda.version >= 13000 {
            build.flag("--compress-mode=size");
        }
        if env::var(LINE_INFO).is_ok_and(|value| value == "1") {
            build.flag("-lineinfo");
        }
        build
    }
}

/// Links CUDA's runtime, through which kernels are launched: once in a program, so only in the
/// package that all others with kernels depend on.
///
/// # Errors
/// The toolkit has none.
pub fn link_runtime(cuda: &Cuda) -> Result<(), String> {
    if !cuda.lib.join("libcudart_static.a").is_file() {
        return Err(format!(
            "the CUDA toolkit in {} has no libcudart_static.a in lib64 or lib; install its runtime \
             as well (the package cuda-cudart-dev), or set CUDA_HOME to a whole toolkit",
            cuda.root.display()
        ));
    }
    println!("cargo::rustc-link-search=native={}", cuda.lib.display());
    for library in ["static=cudart_static", "stdc++", "dl", "rt", "pthread"] {
        println!("cargo::rustc-link-lib={library}");
    }
    Ok(())
}

/// The folder of the package's objects: beside what Cargo makes for each profile, target and set of
/// features, which change nothing here.
fn objects(out: &Path) -> PathBuf {
    let package = env::var("CARGO_PKG_NAME").unwrap_or_default();
    target(out).join("convforge-objects").join(package)
}

/// Cargo's target folder, from `OUT_DIR` inside of it. Cargo marks it, and those in it for a --target,
/// but not one that was there before; from that one it is <profile>/build/<package>/out.
fn target(out: &Path) -> &Path {
    let marked = |folder: &&Path| folder.join("CACHEDIR.TAG").is_file();
    let unmarked = |folder: &&Path| !marked(folder);
    let mut marked_ones = out.ancestors().skip_while(unmarked).take_while(marked);
    match marked_ones.next() {
        Some(inner) => marked_ones.last().unwrap_or(inner),
        None => out.ancestors().nth(4).unwrap_or(out),
    }
}

/// Keeps other builds of this checkout (a debug one beside a release one, an editor's) out of the
/// folder; they find everything fresh afterwards. It ends with this process, however that ends.
fn alone(folder: &Path, progress: &Progress) -> Result<File, String> {
    let path = folder.join("lock");
    let file = File::create(&path).map_err(told(&path))?;
    if file.try_lock().is_err() {
        progress.say("nvcc waits for another build of the same kernels");
        file.lock().map_err(told(&path))?;
    }
    Ok(file)
}

/// Makes all objects fresh; answers warnings.
fn compile(
    compiler: &Compiler,
    sources: &[Source],
    progress: &Progress,
) -> Result<Vec<String>, String> {
    let (fresh, stale): (Vec<_>, Vec<_>) = (sources.iter()).partition(|s| compiler.is_fresh(s));
    let mut warnings = Vec::new();
    for source in fresh {
        warnings.extend(compiler.judge(source)?);
    }
    if stale.is_empty() {
        return Ok(warnings);
    }

    if compiler.images.are_ptx_alone() {
        progress.say(
            "nvcc makes PTX alone: drivers of Hopper and newer chips translate it at first use, and Ampere \
             and Ada have nothing; with CONVFORGE_ARCHS=90a, 80 or all it makes machine code",
        );
    }
    let cores = env::var("NUM_JOBS").ok().and_then(|n| n.parse().ok());
    let cores = cores.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    let jobs: Vec<Job> = stale.iter().map(|source| compiler.job(source)).collect();
    let children = Children::default();
    let begun = Mutex::new(0);
    let told = Mutex::new(warnings);
    let seconds = Mutex::new(0.0);
    let work = |index: usize, threads: usize| {
        let source: &Source = stale[index];
        {
            let mut begun = lock(&begun);
            *begun += 1;
            progress.begins(&source.path, *begun, stale.len(), source.took());
        }
        let times = compiler.compile(source, threads, &children)?;
        *lock(&seconds) += times.cpu_seconds;
        lock(&told).extend(compiler.judge(source)?);
        Ok(())
    };
    queue::run(&jobs, cores, &Tokens::new(cores)?, work, || children.stop())?;
    progress.ends(stale.len(), *lock(&seconds));
    let mut warnings = told.into_inner().unwrap_or_default();
    warnings.sort();
    Ok(warnings)
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::fs;

    #[test]
    fn the_target_folder_is_the_outermost_marked_one() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("target");
        let native = root.join("debug/build/convforge-1/out");
        let cross = root.join("x86_64-unknown-linux-gnu/debug/build/convforge-1/out");
        fs::create_dir_all(&native).unwrap();
        fs::create_dir_all(&cross).unwrap();
        assert_eq!(target(&native), root, "nothing is marked");
        fs::write(root.join("CACHEDIR.TAG"), "").unwrap();
        fs::write(root.join("x86_64-unknown-linux-gnu/CACHEDIR.TAG"), "").unwrap();
        assert_eq!(target(&native), root);
        assert_eq!(target(&cross), root);
    }
}
