//! What searches found, in a file that the caller names: the next run builds the plan that won and
//! searches no more. Without such a file nothing is kept.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::plan::Choice;
use crate::{Error, Result};

/// One search's result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// The plan that won.
    pub(super) choice: Choice,
    /// What was found on the way to it, for the reports.
    pub(super) search: String,
}

/// The results by problem, GPU and version of cuDNN, as JSON.
pub(super) struct File<'a> {
    path: &'a Path,
}

impl<'a> File<'a> {
    pub(super) fn new(path: &'a Path) -> Self {
        File { path }
    }

    /// The result under this key. A file that does not exist is an empty one.
    ///
    /// # Errors
    /// [`Error::File`].
    pub(super) fn get(&self, key: &str) -> Result<Option<Entry>> {
        Ok(self.read()?.remove(key))
    }

    /// Adds a result. The file is replaced as a whole, so that no reader meets half of one.
    ///
    /// # Errors
    /// [`Error::File`].
    pub(super) fn put(&self, key: String, entry: Entry) -> Result<()> {
        let mut entries = self.read()?;
        entries.insert(key, entry);
        let fail = |why: io::Error| Error::file(self.path, why);
        let mut text =
            serde_json::to_string_pretty(&entries).map_err(|why| Error::file(self.path, why))?;
        text.push('\n');
        let beside = self.beside();
        fs::write(&beside, text).map_err(fail)?;
        fs::rename(&beside, self.path).map_err(fail)
    }

    fn read(&self) -> Result<BTreeMap<String, Entry>> {
        let text = match fs::read_to_string(self.path) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            text => text.map_err(|why| Error::file(self.path, why))?,
        };
        serde_json::from_str(&text)
            .map_err(|why| Error::file(self.path, format!("is no file of cuDNN plans: {why}")))
    }

    /// A name of this process's own, on the same file system.
    fn beside(&self) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(format!(".{}", std::process::id()));
        name.into()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::rules::Form, *};

    #[test]
    fn results_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plans.json");
        let file = File::new(&path);
        assert_eq!(file.get("a").unwrap(), None);
        let knobs = vec![(2, 5), (13, -1)];
        let graph = Entry {
            choice: Choice::Graph {
                form: Form::Fused,
                engine: 12,
                knobs,
            },
            search: "3 plans found".to_owned(),
        };
        let choice = super::super::legacy::Choice {
            algorithm: 1,
            math: 3,
            form: Form::Plain,
        };
        let legacy = Entry {
            choice: Choice::Legacy(choice),
            search: String::new(),
        };
        file.put("a".to_owned(), graph.clone()).unwrap();
        file.put("b".to_owned(), legacy.clone()).unwrap();
        assert_eq!(file.get("a").unwrap(), Some(graph));
        assert_eq!(file.get("b").unwrap(), Some(legacy));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_broken_file_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plans.json");
        fs::write(&path, "{").unwrap();
        let text = File::new(&path).get("a").unwrap_err().to_string();
        assert!(
            text.contains("plans.json") && text.contains("no file of cuDNN plans"),
            "{text}"
        );
        let nowhere = folder.path().join("no/such/plans.json");
        let entry = Entry {
            choice: Choice::Graph {
                form: Form::Plain,
                engine: 0,
                knobs: Vec::new(),
            },
            search: String::new(),
        };
        assert!(File::new(&nowhere).put("a".to_owned(), entry).is_err());
    }
}
