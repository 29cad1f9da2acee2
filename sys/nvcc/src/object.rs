//! One file to one object, unless it is fresh.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use crate::{
    children::Children,
    images::{Images, Needs},
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
    pub(crate) images: Images,
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
    /// nvcc's flags for its architectures, one for each compilation.
    gencodes: Vec<String>,
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
        let (nvccs, hosts) = (version(nvcc.path())?, version(&host(&nvcc))?);
        // nvcc's build, and the host compiler's first line.
        let build = nvccs.lines().last().unwrap_or_default();
        let versions = format!("{build}, {}", hosts.lines().next().unwrap_or_default());
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
        let name = path.to_string_lossy().replace(['/', '.'], "_");
        Ok(Source {
            path: path.to_owned(),
            gencodes: self.images.gencodes(Needs::of_file(path)?),
            object: self.folder.join(name + ".o"),
        })
    }

    pub(crate) fn job(&self, source: &Source) -> Job {
        // About what kernels take whose time nobody has recorded.
        let guess = || fs::metadata(&source.path).map_or(0.0, |file| file.len() as f64 * 0.003);
        Job {
            expected: source.took().unwrap_or_else(guess),
            parts: source.gencodes.len(),
        }
    }

    /// How objects with these architectures are made; none: what is the same for all.
    fn recipe(&self, gencodes: &[String]) -> Recipe {
        let mut flags: Vec<String> = Vec::new();
        let shared = self.nvcc.args().iter();
        flags.extend(shared.map(|flag| flag.to_string_lossy().into_owned()));
        flags.extend(self.images.defines().map(str::to_owned));
        flags.extend_from_slice(gencodes);
        flags.extend(ENVIRONMENT.iter().filter_map(|name| env::var(name).ok()));
        Recipe {
            compiler: self.versions.clone(),
            flags: flags.join(" "),
        }
    }

    pub(crate) fn is_fresh(&self, source: &Source) -> bool {
        let record = fs::read_to_string(source.record()).unwrap_or_default();
        let recipe = self.recipe(&source.gencodes);
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
        let mut nvcc = self.nvcc.to_command();
        nvcc.args(self.images.defines()).args(&source.gencodes);
        for folder in &self.includes {
            nvcc.arg("-I").arg(folder);
        }
        nvcc.arg("-c").arg(&source.path).arg("-o").arg(&object);
        nvcc.arg("-MD").arg("-MF").arg(&depfile);
        nvcc.arg("--time").arg(&phases);
        nvcc.arg(format!("--threads={threads}"));
        let words = std::iter::once(nvcc.get_program()).chain(nvcc.get_args());
        let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
        let command = words.join(" ");

        // nvcc appends to it.
        let _ = fs::remove_file(&phases);
        let begun = Instant::now();
        let ended = children.run(nvcc);
        let ended = ended.map_err(|why| format!("{command}: {why}"))?;
        if !ended.status.success() {
            let path = source.path.display();
            return Err(format!("{path}: nvcc failed\n{command}\n{}", ended.said));
        }
        let times = Times {
            seconds: begun.elapsed().as_secs_f64(),
            cpu_seconds: ended.cpu_seconds,
            phases: record::phases(&fs::read_to_string(&phases).unwrap_or_default()),
        };
        let depfile = fs::read_to_string(&depfile).map_err(told(&depfile))?;
        let recipe = self.recipe(&source.gencodes);
        self.keep(
            source,
            &object,
            &ended.said,
            &recipe.record(&depfile, &self.contents, &times),
        )?;
        Ok(times)
    }

    /// Puts a new object in its place. The record goes first and comes last: wherever this ends half
    /// done, nothing is fresh.
    fn keep(&self, source: &Source, object: &Path, said: &str, record: &str) -> Result<(), String> {
        let _ = fs::remove_file(source.record());
        fs::rename(object, &source.object).map_err(told(&source.object))?;
        fs::write(source.report(), said).map_err(told(&source.report()))?;
        let whole = object.with_extension("made");
        fs::write(&whole, record).map_err(told(&whole))?;
        fs::rename(&whole, source.record()).map_err(told(&source.record()))
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

fn version(program: &Path) -> Result<String, String> {
    let output = Command::new(program).arg("--version").output();
    let output = output.map_err(|why| format!("{} does not start: {why}", program.display()))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
