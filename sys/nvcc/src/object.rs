//! One file to one object, unless it is fresh.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use crate::{
    children::Children,
    images::{Image, Images, Needs},
    ptxas,
    queue::Job,
    record::{self, Contents, Recipe, Times},
};

/// Where nvcc finds flags besides.
pub(crate) const ENVIRONMENT: [&str; 2] = ["NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"];

pub(crate) fn told(path: &Path) -> impl Fn(io::Error) -> String + '_ {
    move |why| format!("{}: {why}", path.display())
}

/// What the objects of a package have in common.
pub(crate) struct Compiler {
    nvcc: cc::Tool,
    /// Of nvcc and of the host compiler.
    versions: String,
    images: Images,
    includes: Vec<PathBuf>,
    contents: Contents,
    /// Of the objects.
    pub(crate) folder: PathBuf,
    /// Where an object is until it is whole.
    temporary: PathBuf,
}

/// A source and where its object is or will be.
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    needs: Needs,
    pub(crate) object: PathBuf,
}

impl Source {
    fn beside(&self, extension: &str) -> PathBuf {
        self.object.with_extension(extension)
    }

    /// What nvcc and ptxas said; scripts/sass.py reads it.
    fn report(&self) -> PathBuf {
        self.beside("ptxas")
    }

    fn record(&self) -> PathBuf {
        self.beside("made")
    }

    /// CPU seconds that the object took the last time, whatever it was made from.
    pub(crate) fn took(&self) -> Option<f64> {
        record::took(&fs::read_to_string(self.record()).ok()?)
    }
}

impl Compiler {
    /// `objects` is the package's folder of them; each configuration has its own in it, so that
    /// going back to one finds everything there.
    pub(crate) fn new(
        nvcc: cc::Tool,
        images: Images,
        includes: &[PathBuf],
        objects: &Path,
        temporary: PathBuf,
    ) -> Result<Compiler, String> {
        let versions = format!(
            "{}, {}",
            version(nvcc.path(), 9)?,
            version(&host(&nvcc), 1)?
        );
        let mut compiler = Compiler {
            nvcc,
            versions,
            images,
            includes: includes.to_vec(),
            contents: Contents::read(includes)?,
            folder: PathBuf::new(),
            temporary,
        };
        let common = record::fnv1a(compiler.recipe(&[]).head().as_bytes()) >> 32;
        compiler.folder = objects.join(format!("{}-{common:08x}", compiler.images.name()));
        for folder in [&compiler.folder, &compiler.temporary] {
            fs::create_dir_all(folder).map_err(told(folder))?;
        }
        Ok(compiler)
    }

    pub(crate) fn source(&self, path: &Path) -> Result<Source, String> {
        let text = fs::read_to_string(path).map_err(told(path))?;
        let name = path.to_string_lossy().replace(['/', '.'], "_");
        Ok(Source {
            path: path.to_owned(),
            needs: Needs::of(&text),
            object: self.folder.join(name + ".o"),
        })
    }

    pub(crate) fn job(&self, source: &Source) -> Job {
        // About what kernels take whose time nobody has recorded.
        let guess = || fs::metadata(&source.path).map_or(0.0, |file| file.len() as f64 * 0.003);
        Job {
            expected: source.took().unwrap_or_else(guess),
            parts: self.images.of(source.needs).len(),
        }
    }

    /// What nvcc gets beside the flags that all files share.
    fn arguments(&self, images: &[Image]) -> Vec<String> {
        let gencodes = images
            .iter()
            .map(|image| format!("-gencode={}", image.gencode));
        self.images.defines().chain(gencodes).collect()
    }

    fn recipe(&self, images: &[Image]) -> Recipe {
        let shared = self
            .nvcc
            .args()
            .iter()
            .map(|flag| flag.to_string_lossy().into_owned());
        let users = ENVIRONMENT.iter().filter_map(|name| env::var(name).ok());
        let flags: Vec<String> = shared.chain(self.arguments(images)).chain(users).collect();
        Recipe {
            compiler: self.versions.clone(),
            flags: flags.join(" "),
        }
    }

    pub(crate) fn is_fresh(&self, source: &Source) -> bool {
        let record = fs::read_to_string(source.record()).unwrap_or_default();
        let recipe = self.recipe(&self.images.of(source.needs));
        source.object.is_file()
            && source.report().is_file()
            && recipe.is_fresh(&record, &self.contents)
    }

    /// Judges what was said when the object was made, now or by an earlier build.
    pub(crate) fn judge(&self, source: &Source) -> Result<Vec<String>, String> {
        let report = fs::read_to_string(source.report()).map_err(told(&source.report()))?;
        ptxas::judge(&source.path, &report)
    }

    /// Runs nvcc with so many threads.
    pub(crate) fn compile(
        &self,
        source: &Source,
        threads: usize,
        children: &Children,
    ) -> Result<Times, String> {
        let name = source.object.file_name().unwrap_or_default();
        let object = self.temporary.join(name);
        let [depfile, phases] = ["d", "csv"].map(|extension| object.with_extension(extension));
        // nvcc appends to it.
        let _ = fs::remove_file(&phases);
        let images = self.images.of(source.needs);
        let mut nvcc = self.nvcc.to_command();
        nvcc.args(self.arguments(&images));
        for folder in &self.includes {
            nvcc.arg("-I").arg(folder);
        }
        nvcc.arg("-c").arg(&source.path).arg("-o").arg(&object);
        nvcc.arg("-MD")
            .arg("-MF")
            .arg(&depfile)
            .arg("--time")
            .arg(&phases);
        if threads > 1 {
            nvcc.arg(format!("--threads={threads}"));
        }
        let words = std::iter::once(nvcc.get_program()).chain(nvcc.get_args());
        let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
        let command = words.join(" ");

        let begun = Instant::now();
        let ended = children
            .run(nvcc)
            .map_err(|why| format!("{command}: {why}"))?;
        if !ended.status.success() {
            let path = source.path.display();
            return Err(format!("{path}: nvcc failed\n{command}\n{}", ended.said));
        }
        let read = |path: &PathBuf| fs::read_to_string(path).map_err(told(path));
        let times = Times {
            seconds: begun.elapsed().as_secs_f64(),
            cpu_seconds: ended.cpu_seconds,
            phases: record::phases(&fs::read_to_string(&phases).unwrap_or_default()),
        };
        let recipe = self.recipe(&images);
        let record = recipe.record(&read(&depfile)?, &self.contents, &times);
        // The record goes first and comes last: whenever this ends half way, nothing is fresh.
        let _ = fs::remove_file(source.record());
        fs::rename(&object, &source.object).map_err(told(&source.object))?;
        fs::write(source.report(), ended.said).map_err(told(&source.report()))?;
        let whole = object.with_extension("made");
        fs::write(&whole, record).map_err(told(&whole))?;
        fs::rename(&whole, source.record()).map_err(told(&source.record()))?;
        Ok(times)
    }
}

/// The program that nvcc compiles its host code with.
fn host(nvcc: &cc::Tool) -> PathBuf {
    let named = |flag: &std::ffi::OsString| Some(flag.to_str()?.strip_prefix("-ccbin=")?.into());
    nvcc.args()
        .iter()
        .find_map(named)
        .unwrap_or_else(|| "c++".into())
}

/// The first lines of what a program says to --version.
fn version(program: &Path, lines: usize) -> Result<String, String> {
    let output = Command::new(program).arg("--version").output();
    let output = output.map_err(|why| format!("{} does not start: {why}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let said: Vec<&str> = text.lines().take(lines).map(str::trim).collect();
    Ok(said.join(", "))
}
