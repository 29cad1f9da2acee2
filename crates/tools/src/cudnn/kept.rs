//! What searches found. The next one who asks readies the plan that won and searches no more: both of
//! cuDNN's variants in a process, and later ones where there is a folder.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use convforge::cudnn::Choice;
use serde::{Deserialize, Serialize};

use crate::{
    Error, Result,
    files::{file_name, json, read_json, write_whole},
};

/// One search's result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// The plan that won among those that add up products; none where none is right.
    pub(super) exact: Option<Choice>,
    /// The transform that is faster than that; none where none is right.
    pub(super) transform: Option<Choice>,
    /// What was found on the way to them, for the reports.
    pub(super) search: String,
}

/// A file of the folder. Its name leaves out some letters of the key, so all of it stands in the file.
#[derive(Serialize, Deserialize)]
struct Filed {
    key: String,
    #[serde(flatten)]
    entry: Entry,
}

/// The results by problem, GPU and version of cuDNN.
pub(super) struct Kept {
    here: Mutex<BTreeMap<String, Entry>>,
    /// A file for each: processes that write at the same time do not meet.
    folder: Option<PathBuf>,
}

impl Kept {
    /// In this folder; without one they are kept as long as the process runs.
    pub(super) fn new(folder: Option<PathBuf>) -> Self {
        Kept {
            here: Mutex::default(),
            folder,
        }
    }

    fn file(&self, key: &str) -> Option<PathBuf> {
        let folder = self.folder.as_ref()?;
        Some(folder.join(file_name(key, "json")))
    }

    /// The result under this key. A file that cannot be read, or is another key's, is none: it is
    /// replaced after the next search.
    pub(super) fn get(&self, key: &str) -> Option<Entry> {
        let here = self.here.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = here.get(key) {
            return Some(entry.clone());
        }
        let filed: Filed = read_json(&self.file(key)?, "is no plan of cuDNN's").ok()?;
        (filed.key == key).then_some(filed.entry)
    }

    /// Keeps a result.
    ///
    /// # Errors
    /// [`Error::File`], for other processes; in this one it is kept.
    pub(super) fn put(&self, key: &str, entry: &Entry) -> Result<()> {
        let mut here = self.here.lock().unwrap_or_else(PoisonError::into_inner);
        here.insert(key.to_owned(), entry.clone());
        let (Some(folder), Some(path)) = (&self.folder, self.file(key)) else {
            return Ok(());
        };
        fs::create_dir_all(folder)
            .map_err(|why| Error::file_because(folder, "cannot be made", why))?;
        let filed = Filed {
            key: key.to_owned(),
            entry: entry.clone(),
        };
        write_whole(&path, json(&filed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        let choice = |text| serde_json::from_str(text).unwrap();
        Entry {
            exact: choice(
                r#"{"api": "graph", "form": "fused", "engine": 12, "knobs": [[2, 5], [13, -1]]}"#,
            ),
            transform: choice(r#"{"api": "legacy", "algorithm": 6, "math": 3, "form": "plain"}"#),
            search: "3 plans found".to_owned(),
        }
    }

    #[test]
    fn results_come_back_and_others_find_them() {
        let folder = tempfile::tempdir().unwrap();
        let plans = folder.path().join("plans");
        let none = Entry {
            transform: None,
            ..entry()
        };
        let kept = Kept::new(Some(plans.clone()));
        assert_eq!(kept.get("a on b"), None);
        kept.put("a on b", &entry()).unwrap();
        kept.put("a/b", &none).unwrap();
        let others = Kept::new(Some(plans.clone()));
        for kept in [&kept, &others] {
            assert_eq!(kept.get("a on b"), Some(entry()));
            assert_eq!(kept.get("a/b"), Some(none.clone()));
            // The same name, another key.
            assert_eq!(kept.get("a on/b"), None);
        }
        assert_eq!(fs::read_dir(plans).unwrap().count(), 2);

        let alone = Kept::new(None);
        alone.put("a", &entry()).unwrap();
        assert_eq!(alone.get("a"), Some(entry()));
    }

    #[test]
    fn a_broken_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let plans = || Kept::new(Some(folder.path().to_owned()));
        fs::write(folder.path().join("a.json"), "{").unwrap();
        assert_eq!(plans().get("a"), None);
        plans().put("a", &entry()).unwrap();
        assert_eq!(plans().get("a"), Some(entry()));
    }

    #[test]
    fn where_nothing_can_be_written_it_is_said_and_the_process_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let taken = folder.path().join("taken");
        fs::write(&taken, "").unwrap();
        let kept = Kept::new(Some(taken));
        let why = kept.put("a", &entry()).unwrap_err().to_string();
        assert!(why.contains("taken"), "{why}");
        assert_eq!(kept.get("a"), Some(entry()));
    }
}
