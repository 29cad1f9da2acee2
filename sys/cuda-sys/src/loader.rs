//! Opening shared libraries at run time, symbol by symbol; used by all three sys crates.
//!
//! Symbols are looked up lazily, one by one: an older library that lacks a symbol serves as long
//! as nobody calls it, and profilers that wrap the libraries are not upset.

use std::{
    env,
    error::Error,
    ffi::{CStr, c_void},
    fmt, fs,
    path::{Path, PathBuf},
    ptr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicPtr, Ordering},
    },
};

/// What a [`Library`] is called, and by whom.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// For people: "cuBLAS".
    pub name: &'static str,
    /// The file that the loader knows: "libcublas.so.13".
    pub soname: &'static str,
    /// The environment variable that names the file, or a folder that has it.
    pub variable: &'static str,
    /// Whether toolkit.py and NVIDIA's Python wheels carry it.
    pub packaged: bool,
    /// What to do where it is missing.
    pub remedy: &'static str,
}

/// A shared library that is opened at first use and never closed.
///
/// It is looked for in this order: the environment variable (which must be right, if it is set);
/// the folder that toolkit.py installs into; the loader's own path; the site-packages of a Python
/// that has NVIDIA's wheels. The answer, also a bad one, holds for the process.
#[derive(Debug)]
pub struct Library {
    names: Names,
    opened: OnceLock<Result<(libloading::Library, PathBuf), Missing>>,
}

/// A function of a [`Library`], looked up at first use.
#[derive(Debug)]
pub struct Symbol {
    library: &'static Library,
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

/// A library that could not be opened, or a symbol that it lacks. What was looked for is its source.
#[derive(Clone, Debug)]
pub struct Missing {
    /// The library, for people.
    pub library: &'static str,
    /// The symbol, if the library is there and lacks it.
    pub symbol: Option<&'static CStr>,
    /// What would mend it, or which function it lacks.
    pub remedy: Arc<str>,
    /// What was looked for, and what was wrong with it.
    pub tried: Tried,
}

/// What was looked for in vain, where, and what was wrong there.
#[derive(Clone, Debug)]
pub struct Tried(pub Arc<str>);

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Tried {}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} could not be used: {}", self.library, self.remedy)
    }
}

impl Error for Missing {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.tried)
    }
}

impl Library {
    /// A library of these names; nothing is opened yet.
    pub const fn new(names: Names) -> Self {
        Library {
            names,
            opened: OnceLock::new(),
        }
    }

    /// Opens the library, if that has not been done.
    ///
    /// # Errors
    /// [`Missing`], with every place tried and what was wrong there.
    pub fn open(&self) -> Result<&libloading::Library, Missing> {
        Ok(&self.opened()?.0)
    }

    /// Opens the library, and tells as what: its file, or the bare name that the loader knew.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn path(&self) -> Result<&Path, Missing> {
        Ok(&self.opened()?.1)
    }

    fn opened(&self) -> Result<&(libloading::Library, PathBuf), Missing> {
        self.opened
            .get_or_init(|| open(&self.names))
            .as_ref()
            .map_err(Clone::clone)
    }
}

impl Symbol {
    /// The symbol `name` of `library`; nothing is looked up yet.
    pub const fn new(library: &'static Library, name: &'static CStr) -> Self {
        Symbol {
            library,
            name,
            address: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// The symbol's address, never null.
    ///
    /// # Errors
    /// [`Missing`], if the library cannot be opened or lacks the symbol.
    pub fn address(&self) -> Result<*mut c_void, Missing> {
        // Two threads may both look it up at first; they find the same address.
        let known = self.address.load(Ordering::Acquire);
        if !known.is_null() {
            return Ok(known);
        }
        let (library, path) = self.library.opened()?;
        // SAFETY: the type is a plain pointer; what it points at is for the caller to know.
        let found = unsafe { library.get::<*mut c_void>(self.name.to_bytes_with_nul()) };
        match found.map(|symbol| *symbol) {
            Ok(address) if !address.is_null() => {
                self.address.store(address, Ordering::Release);
                Ok(address)
            }
            _ => Err(Missing {
                library: self.library.names.name,
                symbol: Some(self.name),
                remedy: format!(
                    "it has no function `{}`; it is probably too old",
                    self.name.to_string_lossy()
                )
                .into(),
                tried: Tried(format!("opened as {}", path.display()).into()),
            }),
        }
    }
}

fn open(names: &Names) -> Result<(libloading::Library, PathBuf), Missing> {
    let mut failures = Vec::new();
    let mut attempt = |path: &Path| match dlopen(path) {
        Ok(library) => Some((library, path.to_owned())),
        Err(why) => {
            failures.push(why);
            None
        }
    };
    let set = env::var_os(names.variable)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from);
    let found = match &set {
        Some(path) if path.is_dir() => attempt(&path.join(names.soname)),
        Some(path) => attempt(path),
        None => places(names).iter().find_map(|path| attempt(path)),
    };
    found.ok_or_else(|| {
        let remedy = match &set {
            Some(_) => format!("{} is set and must name the library", names.variable),
            None => format!("{}, or set {} to its file", names.remedy, names.variable),
        };
        Missing {
            library: names.name,
            symbol: None,
            remedy: remedy.into(),
            tried: Tried(format!("tried {}", failures.join("; ")).into()),
        }
    })
}

fn dlopen(path: &Path) -> Result<libloading::Library, String> {
    // A loader's "cannot open" hides which of the two it was: absent, or there and broken.
    if path.is_absolute() && !path.exists() {
        return Err(format!("{}: no such file", path.display()));
    }
    // SAFETY: the libraries named by the sys crates have well-behaved initialisers.
    unsafe { libloading::Library::new(path) }.map_err(|error| {
        // The loader's own words are the error behind the error.
        let why = error
            .source()
            .map_or_else(|| error.to_string(), ToString::to_string);
        // They mostly begin with the path.
        if why.contains(&*path.to_string_lossy()) {
            why
        } else {
            format!("{}: {why}", path.display())
        }
    })
}

/// The files to try in turn, where no variable says which. A bare name is for the loader.
fn places(names: &Names) -> Vec<PathBuf> {
    let mut places = Vec::new();
    if names.packaged {
        places.extend(crate::cache::toolkit_folder().map(|f| f.join("lib").join(names.soname)));
    }
    places.push(PathBuf::from(names.soname));
    if names.packaged {
        places.extend(
            python_prefixes()
                .iter()
                .flat_map(|prefix| in_python(prefix, names.soname)),
        );
    }
    places
}

/// Where Pythons are installed: the active environment's, and that of the python3 on PATH, whose
/// link is not followed because it would lead out of a virtual environment.
fn python_prefixes() -> Vec<PathBuf> {
    let active = env::var_os("VIRTUAL_ENV").map(PathBuf::from);
    let on_path = env::var_os("PATH").and_then(|path| {
        let folder = env::split_paths(&path).find(|folder| folder.join("python3").exists())?;
        Some(folder.parent()?.to_owned())
    });
    active.into_iter().chain(on_path).collect()
}

/// `<prefix>/lib/python3*/site-packages/nvidia/*/lib/<soname>`, as far as it exists.
fn in_python(prefix: &Path, soname: &str) -> Vec<PathBuf> {
    let children = |folder: PathBuf| {
        fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
    };
    let mut found: Vec<PathBuf> = ["lib", "local/lib"]
        .into_iter()
        .flat_map(|lib| children(prefix.join(lib)))
        .filter(|path| {
            path.file_name()
                .is_some_and(|n| n.as_encoded_bytes().starts_with(b"python3"))
        })
        .flat_map(|python| ["site-packages", "dist-packages"].map(|packages| python.join(packages)))
        .flat_map(|packages| children(packages.join("nvidia")))
        .map(|package| package.join("lib").join(soname))
        .filter(|file| file.exists())
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const NAMES: Names = Names {
        name: "the fake library",
        soname: "libconvforge_fake.so.1",
        variable: "CONVFORGE_FAKE_LIB",
        packaged: true,
        remedy: "install it",
    };

    /// A shared library with one function, `answer`.
    fn compile(folder: &Path) -> PathBuf {
        let source = folder.join("fake.c");
        let library = folder.join(NAMES.soname);
        fs::write(&source, "int answer(void) { return 42; }").unwrap();
        let mut compiler = Command::new("cc");
        compiler
            .args(["-shared", "-fPIC", "-o"])
            .args([&library, &source]);
        assert!(compiler.status().unwrap().success());
        library
    }

    fn whole(missing: &Missing) -> String {
        format!("{missing}: {}", missing.source().unwrap())
    }

    fn set(variable: &'static str, path: &Path) -> &'static Library {
        // SAFETY: each test has a variable of its own, and no other thread reads it.
        unsafe { env::set_var(variable, path) };
        Box::leak(Box::new(Library::new(Names { variable, ..NAMES })))
    }

    #[test]
    fn a_missing_library_is_an_error_that_names_the_places() {
        static LIBRARY: Library = Library::new(NAMES);
        let missing = Symbol::new(&LIBRARY, c"answer").address().unwrap_err();
        assert!(missing.symbol.is_none());
        let text = whole(&missing);
        // Where not even a home folder is known, there is no such place.
        let toolkit = crate::cache::toolkit_folder().unwrap_or_default();
        for part in [
            "the fake library",
            NAMES.soname,
            toolkit.join("lib").to_str().unwrap(),
            NAMES.variable,
            NAMES.remedy,
        ] {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
    }

    #[test]
    fn a_variable_names_a_folder_or_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = compile(folder.path());
        let by_folder = set("CONVFORGE_FAKE_LIB_FOLDER", folder.path());
        let by_file = set("CONVFORGE_FAKE_LIB_FILE", &file);
        for library in [by_folder, by_file] {
            let address = Symbol::new(library, c"answer").address().unwrap();
            // SAFETY: that is the type it was compiled with.
            let answer: extern "C" fn() -> i32 = unsafe { std::mem::transmute(address) };
            assert_eq!(answer(), 42);
            let missing = Symbol::new(library, c"question").address().unwrap_err();
            assert_eq!(missing.symbol, Some(c"question"));
            let text = whole(&missing);
            assert!(
                missing.to_string().contains("no function `question`"),
                "{text}"
            );
            assert!(text.contains(NAMES.soname), "{text}");
        }
    }

    #[test]
    fn a_wrong_variable_is_not_passed_over() {
        let library = set(
            "CONVFORGE_FAKE_LIB_WRONG",
            Path::new("/nonexistent/libfake.so"),
        );
        let text = whole(&library.open().unwrap_err());
        assert!(
            text.contains("/nonexistent/libfake.so: no such file"),
            "{text}"
        );
        assert!(text.contains("CONVFORGE_FAKE_LIB_WRONG is set"), "{text}");
    }

    #[test]
    fn wheels_are_found_in_a_python() {
        let prefix = tempfile::tempdir().unwrap();
        let lib = prefix
            .path()
            .join("lib/python3.11/site-packages/nvidia/cu13/lib");
        fs::create_dir_all(&lib).unwrap();
        fs::write(lib.join("libx.so.1"), "").unwrap();
        assert_eq!(
            in_python(prefix.path(), "libx.so.1"),
            [lib.join("libx.so.1")]
        );
        assert!(in_python(prefix.path(), "liby.so.1").is_empty());
    }
}
