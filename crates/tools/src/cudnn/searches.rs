//! Searches of many problems in one file, a line each: short enough to be committed, so that a machine that
//! never searched races their finalists alone.

use std::{collections::BTreeMap, path::Path};

use convforge::cudnn::Found;
use serde::{Deserialize, Serialize};

use crate::{
    Error, Result,
    files::{files_ending, read_json, read_text, write_whole},
};

/// A search and what it is of. The name of a file in a folder leaves out some letters of the key.
#[derive(Serialize, Deserialize)]
pub(super) struct Filed {
    pub(super) key: String,
    #[serde(flatten)]
    pub(super) found: Found,
}

impl Filed {
    /// It as a line.
    pub(super) fn line(&self) -> String {
        // Strings and numbers only, which all have a form.
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }
}

/// What a file of a folder is if it is no search.
pub(super) const NO_SEARCH: &str = "is no search of cuDNN's plans";

/// Complete searches, shortened to their finalists, by problem, device and version of cuDNN.
#[derive(Clone, Debug, Default)]
pub struct Searches(BTreeMap<String, Found>);

impl Searches {
    /// Reads a file with a line per search.
    ///
    /// # Errors
    /// [`Error::File`] where it cannot be read, with the line that is no search.
    pub fn read(path: &Path) -> Result<Self> {
        let mut searches = BTreeMap::new();
        for (number, line) in (1..).zip(read_text(path)?.lines()) {
            let filed = serde_json::from_str(line);
            let Filed { key, found } = filed.map_err(|why| {
                Error::file_because(path, format!("line {number} {NO_SEARCH}"), why)
            })?;
            searches.insert(key, found);
        }
        Ok(Searches(searches))
    }

    /// Adds what a folder keeps of complete searches with a winner, or what another such file has, in the
    /// place of what is known of the same problems. Answers how many those are, and how many of the folder's
    /// are left out.
    ///
    /// # Errors
    /// [`Error::File`] where the folder or the file cannot be read, or has what is no search.
    pub fn add(&mut self, from: &Path) -> Result<(usize, usize)> {
        if from.is_file() {
            let others = Searches::read(from)?.0;
            let added = others.len();
            self.0.extend(others);
            return Ok((added, 0));
        }
        let files = files_ending(from, &["json"])?;
        let mut added = 0;
        for file in &files {
            let Filed { key, found } = read_json(file, NO_SEARCH)?;
            if found.incomplete.is_none() && found.exact.is_some() {
                self.0.insert(key, found.finalists());
                added += 1;
            }
        }
        Ok((added, files.len() - added))
    }

    /// Writes them, a line each.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn write(&self, path: &Path) -> Result<()> {
        let lines = self.0.iter().map(|(key, found)| {
            let (key, found) = (key.clone(), found.clone());
            Filed { key, found }.line()
        });
        write_whole(path, lines.collect::<String>())
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is known under a key.
    pub(super) fn get(&self, key: &str) -> Option<&Found> {
        self.0.get(key)
    }
}

#[cfg(test)]
mod tests {
    use convforge::Problem;

    use super::*;

    #[test]
    fn the_committed_searches_say_who_may_win() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../benches/cudnn-plans.jsonl"
        );
        let searches = Searches::read(Path::new(path)).unwrap();
        assert!(!searches.is_empty());
        for (key, found) in &searches.0 {
            let (problem, place) = key.split_once(" on ").unwrap();
            let parsed: Problem = problem.parse().unwrap();
            assert_eq!(parsed.to_string(), problem);
            assert!(place.contains(" by cuDNN "), "{key}");
            assert_eq!(found.incomplete, None, "{key}");
            assert!(found.plans > 0, "{key}");
            let winners = [
                Some(found.exact.as_ref().unwrap()),
                found.transform.as_ref(),
            ];
            let raced = found.finalists();
            for winner in winners.into_iter().flatten() {
                let mut trials = raced.trials.iter();
                assert!(trials.any(|trial| trial.plan == winner.choice), "{key}");
            }
            assert_eq!(raced.trials.len(), found.trials.len(), "{key}");
        }
    }
}
