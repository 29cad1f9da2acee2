//! What an object was made from and what that took, kept in a file beside it. It says whether the
//! object is fresh by content, so that a copied or moved checkout, whose time stamps and absolute
//! paths are others, has nothing to compile.
//!
//! Read by scripts/objects.py as well. Lines of a word and its value:
//!
//! ```text
//! compiler Cuda compilation tools, release 13.0, V13.0.88 ...
//! flags -O3 -std=c++17 ...
//! input 9f3ac0d1e2b35c77 csrc/kernels/direct/naive.cu
//! input 0a6b6e1f1c2a9d10 csrc/core/launch.cuh
//! seconds 5.21
//! cpu_seconds 5.05
//! phase 0.95 compute_90a cicc
//! ```

use std::{
    collections::HashMap,
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
};

/// FNV-1a.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// The project's files as they were when the build began: sources, and headers in the include
/// folders. All others come with the toolkit or the host compiler, whose versions stand for them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    includes: Vec<PathBuf>,
    hashes: HashMap<String, u64>,
}

impl Contents {
    /// Reads all of the include folders now: what is edited while nvcc runs is then stale the next
    /// time, whatever nvcc saw of it.
    pub(crate) fn read(includes: &[PathBuf]) -> Result<Contents, String> {
        let mut contents = Contents {
            includes: includes.to_vec(),
            hashes: HashMap::new(),
        };
        for folder in includes {
            contents.read_folder(folder)?;
        }
        Ok(contents)
    }

    fn read_folder(&mut self, folder: &Path) -> Result<(), String> {
        let fail = |why: io::Error| format!("{}: {why}", folder.display());
        for entry in fs::read_dir(folder).map_err(fail)? {
            let path = entry.map_err(fail)?.path();
            if path.is_dir() {
                self.read_folder(&path)?;
            } else if let Some(name) = self.name(&path) {
                let bytes = fs::read(&path).map_err(fail)?;
                self.hashes.insert(name, fnv1a(&bytes));
            }
        }
        Ok(())
    }

    /// A name that stays when the checkout moves; nothing for a file that is not the project's.
    fn name(&self, path: &Path) -> Option<String> {
        if path.is_relative() {
            return Some(path.display().to_string());
        }
        let inside = |(number, root)| Some((number, path.strip_prefix(root).ok()?));
        let (number, rest) = self.includes.iter().enumerate().find_map(inside)?;
        Some(format!("include[{number}]/{}", rest.display()))
    }

    fn hash(&self, name: &str) -> Option<u64> {
        let read = || Some(fnv1a(&fs::read(name).ok()?));
        self.hashes.get(name).copied().or_else(read)
    }
}

/// The files that a rule of a depfile names after its colon.
fn inputs(rule: &str) -> Vec<String> {
    let rule = rule.replace("\\\n", " ");
    let Some((_, listed)) = rule.split_once(": ") else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut path = String::new();
    let mut letters = listed.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            // make's way to write a blank in a name
            '\\' if letters.peek() == Some(&' ') => path.extend(letters.next()),
            ' ' | '\n' | '\t' if path.is_empty() => {}
            ' ' | '\n' | '\t' => found.push(std::mem::take(&mut path)),
            _ => path.push(letter),
        }
    }
    found.extend(Some(path).filter(|path| !path.is_empty()));
    found
}

/// What a compilation took.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Times {
    pub(crate) seconds: f64,
    /// nvcc's and all its children's.
    pub(crate) cpu_seconds: f64,
    /// Seconds, architecture and tool of each step.
    pub(crate) phases: Vec<(f64, String, String)>,
}

/// How objects are made, but for their inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recipe {
    /// Versions of nvcc and of the host compiler.
    pub(crate) compiler: String,
    pub(crate) flags: String,
}

impl Recipe {
    /// The part of a record that is the same for all inputs.
    pub(crate) fn head(&self) -> String {
        format!("compiler {}\nflags {}\n", self.compiler, self.flags)
    }

    /// The record of an object that was made so, from what `depfile` lists.
    pub(crate) fn record(&self, depfile: &str, contents: &Contents, times: &Times) -> String {
        let mut text = self.head();
        let listed = inputs(depfile);
        for name in listed
            .iter()
            .filter_map(|path| contents.name(path.as_ref()))
        {
            // 0 for one that is gone meanwhile: nothing has that hash the next time.
            let hash = contents.hash(&name).unwrap_or(0);
            let _ = writeln!(text, "input {hash:016x} {name}");
        }
        let _ = writeln!(text, "seconds {:.2}", times.seconds);
        let _ = writeln!(text, "cpu_seconds {:.2}", times.cpu_seconds);
        for (seconds, arch, tool) in &times.phases {
            let _ = writeln!(text, "phase {seconds:.3} {arch} {tool}");
        }
        text
    }

    /// Whether an object with this record would come out the same.
    pub(crate) fn is_fresh(&self, record: &str, contents: &Contents) -> bool {
        let Some(rest) = record.strip_prefix(&self.head()) else {
            return false;
        };
        let mut inputs = rest.lines().filter_map(|line| line.strip_prefix("input "));
        let same = |line: &str| -> Option<bool> {
            let (hash, name) = line.split_once(' ')?;
            Some(contents.hash(name)? == u64::from_str_radix(hash, 16).ok()?)
        };
        // Times are written last.
        rest.contains("\nseconds ") && inputs.all(|line| same(line) == Some(true))
    }
}

/// The steps in a table that nvcc wrote for --time: what was compiled for an architecture.
pub(crate) fn phases(table: &str) -> Vec<(f64, String, String)> {
    let phase = |line: &str| -> Option<(f64, String, String)> {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let [
            _,
            tool @ ("cicc" | "ptxas" | "cudafe++"),
            ..,
            arch,
            _,
            milliseconds,
            "ms",
        ] = cells[..]
        else {
            return None;
        };
        let seconds = milliseconds.parse::<f64>().ok()? / 1000.0;
        Some((seconds, arch.to_owned(), tool.to_owned()))
    };
    table.lines().filter_map(phase).collect()
}

/// What an earlier compilation took, whatever it was made from.
pub(crate) fn took(record: &str) -> Option<f64> {
    let mut lines = record.lines();
    lines.find_map(|line| line.strip_prefix("cpu_seconds ")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_depfile_lists_inputs() {
        let rule = "out/a.o : csrc/a.cu \\\n    /usr/include/b.h \\\n  with\\ blank.h\n";
        assert_eq!(
            inputs(rule),
            ["csrc/a.cu", "/usr/include/b.h", "with blank.h"]
        );
        assert!(inputs("nothing").is_empty());
    }

    #[test]
    fn a_table_has_phases() {
        let table = "source file name , phase name , phase input files , phase output file , arch , \
             tool, metric , unit\n\
             a.cu , gcc (preprocessing 1) , a.cu  , a.ii , compute_80 , nvcc , 161.3 , ms\n\
             a.cu , cicc ,  a.ii  , a.ptx , compute_80 , nvcc , 7816.0 , ms\n\
             a.cu , ptxas , a.ptx  , a.cubin , sm_80 , nvcc , 500.5 , ms\n";
        let cicc = (7.816, "compute_80".to_owned(), "cicc".to_owned());
        let ptxas = (0.5005, "sm_80".to_owned(), "ptxas".to_owned());
        assert_eq!(phases(table), [cicc, ptxas]);
    }

    struct Package(tempfile::TempDir);

    impl Package {
        /// With a header inside of an include folder, and one of a toolkit outside.
        fn new() -> Package {
            let package = Package(tempfile::tempdir().unwrap());
            fs::create_dir_all(package.header().parent().unwrap()).unwrap();
            fs::write(package.header(), "one").unwrap();
            fs::write(package.toolkit_header(), "one").unwrap();
            package
        }

        fn header(&self) -> PathBuf {
            self.0.path().join("include/core/a.cuh")
        }

        fn toolkit_header(&self) -> PathBuf {
            self.0.path().join("toolkit.h")
        }

        fn depfile(&self) -> String {
            let (header, toolkit) = (self.header(), self.toolkit_header());
            format!("a.o : {} \\\n {}\n", header.display(), toolkit.display())
        }

        fn contents(&self) -> Contents {
            Contents::read(&[self.0.path().join("include")]).unwrap()
        }

        fn record(&self) -> String {
            recipe().record(&self.depfile(), &self.contents(), &Times::default())
        }
    }

    fn recipe() -> Recipe {
        Recipe {
            compiler: "nvcc 13".to_owned(),
            flags: "-O3".to_owned(),
        }
    }

    #[test]
    fn freshness_is_a_matter_of_content() {
        let package = Package::new();
        let record = package.record();
        let fresh = || recipe().is_fresh(&record, &package.contents());
        assert!(fresh());
        assert!(
            recipe().is_fresh(&record, &Package::new().contents()),
            "elsewhere"
        );

        fs::write(package.toolkit_header(), "two").unwrap();
        assert!(fresh(), "its version stands for it");
        fs::write(package.header(), "two").unwrap();
        assert!(!fresh());
        fs::write(package.header(), "one").unwrap();
        assert!(fresh());
        fs::remove_file(package.header()).unwrap();
        assert!(!fresh());
    }

    #[test]
    fn what_changes_while_nvcc_runs_is_not_fresh() {
        let package = Package::new();
        let before = package.contents();
        fs::write(package.header(), "two").unwrap();
        let record = recipe().record(&package.depfile(), &before, &Times::default());
        assert!(!recipe().is_fresh(&record, &package.contents()));
    }

    #[test]
    fn other_flags_and_compilers_are_not_fresh() {
        let package = Package::new();
        let record = package.record();
        let flags = Recipe {
            flags: "-O3 -G".to_owned(),
            ..recipe()
        };
        let compiler = Recipe {
            compiler: "nvcc 14".to_owned(),
            ..recipe()
        };
        let (half, _) = record.split_once("seconds").unwrap();
        assert!(!flags.is_fresh(&record, &package.contents()));
        assert!(!compiler.is_fresh(&record, &package.contents()));
        assert!(!recipe().is_fresh(half, &package.contents()));
        assert!(!recipe().is_fresh("", &package.contents()));
    }

    #[test]
    fn times_are_kept() {
        let package = Package::new();
        let times = Times {
            seconds: 2.0,
            cpu_seconds: 3.5,
            phases: vec![(1.25, "compute_90a".to_owned(), "cicc".to_owned())],
        };
        let record = recipe().record(&package.depfile(), &package.contents(), &times);
        assert_eq!(took(&record), Some(3.5));
        assert!(record.ends_with("phase 1.250 compute_90a cicc\n"));
        assert_eq!(took("compiler x\n"), None);
    }
}
