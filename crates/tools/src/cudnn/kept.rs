//! What searches found: winners, every other plan with its time or with why it has none, and whether
//! all were tried. In a process the next one who asks, which is cuDNN's other variant, readies the plan
//! that won. Where there is a folder, later processes do so as well, or add to what they find there; beside
//! it there may be a file of searches that were made elsewhere.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use convforge::cudnn::Found;

use super::searches::{Filed, NO_SEARCH, Searches};
use crate::{
    Error, Result,
    files::{file_name, read_json, write_whole},
};

/// The results by problem, GPU and version of cuDNN.
pub(super) struct Kept {
    here: Mutex<BTreeMap<String, Found>>,
    /// Held while a search is made, so that whoever wants the same waits for it.
    searching: Mutex<()>,
    /// A file for each: processes that write at the same time do not meet.
    folder: Option<PathBuf>,
    /// What was found elsewhere.
    known: Searches,
}

impl Kept {
    /// In this folder; without one they are kept as long as the process runs. What it does not have may be
    /// known.
    pub(super) fn new(folder: Option<PathBuf>, known: Searches) -> Self {
        Kept {
            here: Mutex::default(),
            searching: Mutex::default(),
            folder,
            known,
        }
    }

    /// What another thread has found, or else what `search` finds; one search at a time is made.
    pub(super) fn or_search<E>(
        &self,
        key: &str,
        search: impl FnOnce() -> Result<Found, E>,
    ) -> Result<Found, E> {
        let _alone = self
            .searching
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match self.here(key) {
            Some(found) => Ok(found),
            None => search(),
        }
    }

    /// Forgets what this process has under a key.
    pub(super) fn forget(&self, key: &str) {
        let mut here = self.here.lock().unwrap_or_else(PoisonError::into_inner);
        here.remove(key);
    }

    fn file(&self, key: &str) -> Option<PathBuf> {
        let folder = self.folder.as_ref()?;
        Some(folder.join(file_name(key, "json")))
    }

    /// What this process found under this key, or took for found.
    pub(super) fn here(&self, key: &str) -> Option<Found> {
        let here = self.here.lock().unwrap_or_else(PoisonError::into_inner);
        here.get(key).cloned()
    }

    /// Takes something for found in this process.
    pub(super) fn keep_here(&self, key: &str, found: &Found) {
        let mut here = self.here.lock().unwrap_or_else(PoisonError::into_inner);
        here.insert(key.to_owned(), found.clone());
    }

    /// What an earlier process found. A file that cannot be read, or is another key's, is none: it is
    /// replaced after the next search.
    pub(super) fn earlier(&self, key: &str) -> Option<Found> {
        let file = self.file(key);
        let filed = file.and_then(|file| read_json(&file, NO_SEARCH).ok());
        let filed = filed.filter(|filed: &Filed| filed.key == key);
        let known = || self.known.get(key).cloned();
        filed.map(|filed| filed.found).or_else(known)
    }

    /// Keeps a result for this process and for others.
    ///
    /// # Errors
    /// [`Error::File`], for other processes; in this one it is kept.
    pub(super) fn put(&self, key: &str, found: &Found) -> Result<()> {
        self.keep_here(key, found);
        let (Some(folder), Some(path)) = (&self.folder, self.file(key)) else {
            return Ok(());
        };
        fs::create_dir_all(folder)
            .map_err(|why| Error::file_because(folder, "cannot be made", why))?;
        let filed = Filed {
            key: key.to_owned(),
            found: found.clone(),
        };
        write_whole(&path, filed.line())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        thread,
    };

    use super::*;
    use crate::cudnn::tests::found_on_h200;

    fn kept_in(folder: Option<PathBuf>) -> Kept {
        Kept::new(folder, Searches::default())
    }

    #[test]
    fn results_come_back_and_others_find_them() {
        let folder = tempfile::tempdir().unwrap();
        let plans = folder.path().join("plans");
        let mut none = found_on_h200();
        none.transform = None;
        let kept = kept_in(Some(plans.clone()));
        assert_eq!((kept.here("a on b"), kept.earlier("a on b")), (None, None));
        kept.put("a on b", &found_on_h200()).unwrap();
        kept.put("a/b", &none).unwrap();
        assert_eq!(kept.here("a on b"), Some(found_on_h200()));
        let others = kept_in(Some(plans.clone()));
        assert_eq!(others.here("a on b"), None);
        assert_eq!(others.earlier("a on b"), Some(found_on_h200()));
        assert_eq!(others.earlier("a/b"), Some(none));
        // The same name, another key.
        assert_eq!(others.earlier("a on/b"), None);
        assert_eq!(fs::read_dir(plans).unwrap().count(), 2);

        let alone = kept_in(None);
        alone.put("a", &found_on_h200()).unwrap();
        assert_eq!(
            (alone.here("a"), alone.earlier("a")),
            (Some(found_on_h200()), None)
        );
    }

    #[test]
    fn threads_that_want_the_same_search_once() {
        let kept = kept_in(None);
        let searches = AtomicUsize::new(0);
        let want = || {
            let search = || {
                searches.fetch_add(1, Ordering::Relaxed);
                kept.keep_here("a", &found_on_h200());
                Ok::<_, Error>(found_on_h200())
            };
            assert_eq!(kept.or_search("a", search).unwrap(), found_on_h200());
        };
        thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(want))));
        assert_eq!(searches.load(Ordering::Relaxed), 1);
        kept.forget("a");
        want();
        assert_eq!(searches.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_broken_file_or_one_of_another_form_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let kept = kept_in(Some(folder.path().to_owned()));
        let winners_only = r#"{"key": "a", "exact": null, "transform": null, "search": "3 plans"}"#;
        for text in ["{", winners_only] {
            fs::write(folder.path().join("a.json"), text).unwrap();
            assert_eq!(kept.earlier("a"), None);
        }
        kept.put("a", &found_on_h200()).unwrap();
        assert_eq!(kept.earlier("a"), Some(found_on_h200()));
    }

    #[test]
    fn where_nothing_can_be_written_it_is_said_and_the_process_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let taken = folder.path().join("taken");
        fs::write(&taken, "").unwrap();
        let kept = kept_in(Some(taken));
        let why = kept.put("a", &found_on_h200()).unwrap_err().to_string();
        assert!(why.contains("taken"), "{why}");
        assert_eq!(kept.here("a"), Some(found_on_h200()));
    }

    #[test]
    fn what_was_found_elsewhere_is_known_where_the_folder_has_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let mut slow = found_on_h200();
        slow.exact.as_mut().unwrap().us = 200.0;
        let elsewhere = kept_in(Some(path("elsewhere")));
        elsewhere.put("a on b", &found_on_h200()).unwrap();
        elsewhere.put("a on c", &slow).unwrap();
        let mut cut_short = found_on_h200();
        cut_short.incomplete = Some("40 plans left out".to_owned());
        elsewhere.put("a on d", &cut_short).unwrap();

        let mut searches = Searches::default();
        assert_eq!(searches.add(&path("elsewhere")).unwrap(), (2, 1));
        searches.write(&path("known.jsonl")).unwrap();
        let known = Searches::read(&path("known.jsonl")).unwrap();
        assert_eq!(known.len(), 2);
        let mut more = Searches::default();
        assert_eq!(more.add(&path("known.jsonl")).unwrap(), (2, 0));
        assert!(more.add(&path("absent")).is_err());

        let here = kept_in(Some(path("here")));
        here.put("a on c", &found_on_h200()).unwrap();
        let kept = Kept::new(Some(path("here")), known);
        assert_eq!(kept.earlier("a on b"), Some(found_on_h200().finalists()));
        assert_eq!(kept.earlier("a on c"), Some(found_on_h200()));
        assert_eq!(kept.earlier("a on d"), None);
    }

    #[test]
    fn a_line_that_is_no_search_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("known.jsonl");
        let searches = || Searches::read(&path).map(|searches| searches.len());
        assert!(searches().unwrap_err().to_string().contains("known.jsonl"));
        fs::write(&path, "").unwrap();
        assert_eq!(searches().unwrap(), 0);
        fs::write(&path, "{}\n").unwrap();
        let said = searches().unwrap_err().to_string();
        assert!(
            said.contains("line 1 is no search of cuDNN's plans"),
            "{said}"
        );
    }
}
