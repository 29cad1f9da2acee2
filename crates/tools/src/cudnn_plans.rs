//! What searches found. The next one who asks builds the plan that won and searches no more: both
//! of cuDNN's variants in a process, and later ones where the caller names a file.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};

use super::plan::Choice;
use crate::{Error, Result};

/// One search's result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// The plan that won; none where none is right.
    pub(super) choice: Option<Choice>,
    /// What was found on the way to it, for the reports.
    pub(super) search: String,
}

/// The results by variant, problem, GPU and version of cuDNN.
pub(super) enum Plans {
    /// In a file, as JSON.
    File(PathBuf),
    /// In this process.
    Here(Mutex<BTreeMap<String, Entry>>),
}

impl Plans {
    /// In this file; without one they are kept as long as the process runs.
    pub(super) fn new(file: Option<&Path>) -> Self {
        match file {
            Some(path) => Plans::File(path.to_owned()),
            None => Plans::Here(Mutex::default()),
        }
    }

    /// The result under this key. A file that does not exist is an empty one.
    ///
    /// # Errors
    /// [`Error::File`].
    pub(super) fn get(&self, key: &str) -> Result<Option<Entry>> {
        match self {
            Plans::File(path) => Ok(read(path)?.remove(key)),
            Plans::Here(entries) => {
                let entries = entries.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(entries.get(key).cloned())
            }
        }
    }

    /// Adds results. A file is replaced as a whole, so that no reader meets half of one.
    ///
    /// # Errors
    /// [`Error::File`].
    pub(super) fn put(&self, found: impl IntoIterator<Item = (String, Entry)>) -> Result<()> {
        match self {
            Plans::File(path) => {
                let mut entries = read(path)?;
                entries.extend(found);
                write(path, &entries)
            }
            Plans::Here(entries) => {
                let mut entries = entries.lock().unwrap_or_else(PoisonError::into_inner);
                entries.extend(found);
                Ok(())
            }
        }
    }
}

fn read(path: &Path) -> Result<BTreeMap<String, Entry>> {
    let text = match fs::read_to_string(path) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        text => text.map_err(|why| Error::file(path, why))?,
    };
    serde_json::from_str(&text)
        .map_err(|why| Error::file(path, format!("is no file of cuDNN plans: {why}")))
}

fn write(path: &Path, entries: &BTreeMap<String, Entry>) -> Result<()> {
    let fail = |why: io::Error| Error::file(path, why);
    let mut text = serde_json::to_string_pretty(entries).map_err(|why| Error::file(path, why))?;
    text.push('\n');
    // A name of this process's own, on the same file system.
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    fs::write(&beside, text).map_err(fail)?;
    fs::rename(&beside, path).map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::{super::rules::Form, *};

    fn entries() -> [(String, Entry); 3] {
        let knobs = vec![(2, 5), (13, -1)];
        let graph = Choice::Graph {
            form: Form::Fused,
            engine: 12,
            knobs,
        };
        let legacy = super::super::legacy::Choice {
            algorithm: 1,
            math: 3,
            form: Form::Plain,
        };
        let entry = |key: &str, choice| {
            let search = "3 plans found".to_owned();
            (key.to_owned(), Entry { choice, search })
        };
        [
            entry("a", Some(graph)),
            entry("b", Some(Choice::Legacy(legacy))),
            entry("none is right", None),
        ]
    }

    #[test]
    fn results_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plans.json");
        for plans in [Plans::new(Some(&path)), Plans::new(None)] {
            assert_eq!(plans.get("a").unwrap(), None);
            let [a, b, none] = entries();
            plans.put([a]).unwrap();
            plans.put([b, none]).unwrap();
            for (key, entry) in entries() {
                assert_eq!(plans.get(&key).unwrap(), Some(entry));
            }
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    /// From before there was a second variant.
    #[test]
    fn older_files_serve() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plans.json");
        let text = r#"{"a": {"choice": {"api": "legacy", "algorithm": 1, "math": 3,
            "form": "plain"}, "search": "3 plans found"}}"#;
        fs::write(&path, text).unwrap();
        let entry = Plans::new(Some(&path)).get("a").unwrap().unwrap();
        let [_, (_, known), _] = entries();
        assert_eq!(entry, known);
    }

    #[test]
    fn a_broken_file_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plans.json");
        fs::write(&path, "{").unwrap();
        let text = Plans::new(Some(&path)).get("a").unwrap_err().to_string();
        assert!(
            text.contains("plans.json") && text.contains("no file of cuDNN plans"),
            "{text}"
        );
        let nowhere = folder.path().join("no/such/plans.json");
        assert!(Plans::new(Some(&nowhere)).put(entries()).is_err());
    }
}
