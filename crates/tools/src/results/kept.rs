//! A folder of committed results: each report in its compact form, without what later ones measured
//! again.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use super::{lines, source::Source};
use crate::{
    Error, Result,
    files::{file_stem, files_ending, write_whole},
    measure::{Entry, Row, Status, View},
    study::Study,
};

/// Where the repository has them.
const COMMITTED: &str = "benches/results";
const ALONE: &str = "benches/results/rows";

/// The files of the committed results; to be asked for in the root of the repository.
///
/// # Errors
/// [`Error::File`] where there are none.
pub fn committed() -> Result<Vec<PathBuf>> {
    let files = files(Path::new(COMMITTED)).unwrap_or_default();
    match files.is_empty() {
        true => Err(Error::file(
            COMMITTED,
            "has no committed results; go to the root of the repository, or name files",
        )),
        false => Ok(files),
    }
}

/// The files of the committed rows that ran by themselves, which tables and page do not show; none where there is no
/// folder of them, since git keeps no empty one.
///
/// # Errors
/// [`Error::File`] where the folder cannot be read.
pub fn committed_alone() -> Result<Vec<PathBuf>> {
    match fs::exists(ALONE) {
        Ok(false) => Ok(Vec::new()),
        _ => files(Path::new(ALONE)),
    }
}

/// A folder's files in the compact form, by their names.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    files_ending(folder, &[lines::EXTENSION])
}

/// The reports of such a folder.
#[derive(Debug)]
pub struct Kept {
    folder: PathBuf,
    /// Names and contents.
    files: Vec<(String, Source)>,
    /// Problems that were left out, since their comparisons were interrupted.
    interrupted: usize,
}

impl Kept {
    /// Reads a folder.
    ///
    /// # Errors
    /// [`Error::File`] where it cannot be read, or a file in it is damaged.
    pub fn read(folder: &Path) -> Result<Self> {
        let mut kept = Kept {
            folder: folder.to_owned(),
            files: Vec::new(),
            interrupted: 0,
        };
        for file in files(folder)? {
            kept.files.push((file_stem(&file), Source::read(&file)?));
        }
        Ok(kept)
    }

    /// Adds a report under the name of its file, or to the one of that name if it is the same run,
    /// continued. What a variant cannot do is left out, as it says so again without a device; of
    /// cuDNN's it stays, since only a search finds out. A problem whose comparison was interrupted is
    /// left out whole: without its last variants the fastest of them may be missing, and tables show
    /// a problem as the latest report has it.
    ///
    /// # Errors
    /// [`Error::File`] where the file cannot be read, or the one of its name is of another run.
    pub fn add(&mut self, file: &Path) -> Result<()> {
        let (name, mut source) = (file_stem(file), Source::read(file)?);
        if let Source::Report(report) = &mut source {
            let tells = |row: &Row| row.status != Status::Unsupported || row.family() == "cudnn";
            report.rows.retain(tells);
            if report.view == View::Compare {
                self.interrupted += leave_interrupted(&mut report.rows);
            }
        }
        match self.files.iter_mut().find(|(other, _)| *other == name) {
            None => self.files.push((name, source)),
            Some((_, old)) => absorb(old, source).map_err(|what| {
                let why = format!(
                    "{} has a report of this name, of another {what}; give the file another name",
                    self.folder.display()
                );
                Error::file(file, why)
            })?,
        }
        Ok(())
    }

    /// Drops superseded rows, and says how many. A row is superseded once a later report of the same
    /// device has a row of the same work: suite, layer, problem, cold or warm, variant and
    /// configuration, in a comparison or in a sweep as it was; the fastest configuration that a comparison
    /// found, once a later one has tried the variant's. A row that was measured outlasts later
    /// ones that were skipped or interrupted. A row keeps the median of the one that it superseded.
    /// Counters of a profiler stay.
    pub fn prune(&mut self) -> usize {
        let count =
            |files: &[(String, Source)]| files.iter().map(|(_, one)| one.len()).sum::<usize>();
        let before = count(&self.files);
        self.files
            .sort_by(|(_, a), (_, b)| b.stamp().cmp(&a.stamp()));
        for i in 1..self.files.len() {
            let (later, rest) = self.files.split_at_mut(i);
            let source = &mut rest[0].1;
            for (_, other) in later.iter_mut().rev() {
                remember(source, other);
            }
            let later = later.iter().map(|(_, other)| other);
            let later: Vec<&Source> = later
                .filter(|other| other.device() == source.device())
                .collect();
            supersede(source, &later);
        }
        before - count(&self.files)
    }

    /// Writes the folder. A report that has no row left goes.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn write(&self) -> Result<()> {
        for (name, source) in &self.files {
            let path = self.folder.join(format!("{name}.{}", lines::EXTENSION));
            if source.len() > 0 {
                let text = lines::text(source);
                let text =
                    text.map_err(|why| Error::file_because(&path, "cannot be written", why))?;
                write_whole(&path, text)?;
            } else if path.exists() {
                let failed = |why| Error::file_because(&path, "cannot be removed", why);
                fs::remove_file(&path).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Problems that were left out so far, since their comparisons were interrupted.
    pub fn interrupted(&self) -> usize {
        self.interrupted
    }

    /// Rows of all kinds, and the reports that they are in.
    pub fn count(&self) -> (usize, usize) {
        let rows = self.files.iter().map(|(_, source)| source.len());
        (rows.clone().sum(), rows.filter(|rows| *rows > 0).count())
    }
}

/// Drops the problems of a comparison of which a row was interrupted, and says how many.
fn leave_interrupted(rows: &mut Vec<Row>) -> usize {
    let problem = |row: &Row| {
        let names = (row.suite.clone(), row.layer.clone());
        (names, row.problem.to_string(), row.cold)
    };
    let in_part = rows.iter().filter(|row| !row.is_whole());
    let interrupted: BTreeSet<_> = in_part.map(problem).collect();
    rows.retain(|row| !interrupted.contains(&problem(row)));
    interrupted.len()
}

/// Takes over what the same run found when it was continued, or says what differs.
fn absorb(old: &mut Source, new: Source) -> std::result::Result<(), &'static str> {
    let differs = match (old.environment(), new.environment()) {
        (Some(old), Some(new)) => new.differs_from(old),
        _ => None,
    };
    match (old, new) {
        _ if differs.is_some() => return Err(differs.unwrap_or_default()),
        (Source::Report(old), Source::Report(new)) if old.view == new.view => {
            let loads = old.load().into_iter().chain(new.load());
            let load = loads.reduce(|one, other| one.and(&other));
            let mut rows = new.rows;
            for row in &mut rows {
                let same = old.rows.iter().find(|other| row.is_same(other));
                row.before_us = same.and_then(|row| row.before_us);
            }
            old.put(&rows);
            (old.environment, old.notes) = (new.environment, new.notes);
            old.environment.load = load;
        }
        (Source::Study(old), Source::Study(new)) => {
            old.environment = new.environment.clone();
            old.merge(new);
        }
        (Source::Profile(old), Source::Profile(new)) => *old = new,
        _ => return Err("kind"),
    }
    Ok(())
}

/// Notes in the rows of a later report what they took in this one, unless they know it of one between.
fn remember(source: &Source, later: &mut Source) {
    if source.device() != later.device() {
        return;
    }
    let Source::Report(later) = later else {
        return;
    };
    let old = source.compared(later.view);
    let timed = later.rows.iter_mut().filter(|row| row.median_us.is_some());
    for row in timed.filter(|row| row.before_us.is_none()) {
        let same = old.iter().find(|other| row.is_same(other));
        row.before_us = same.and_then(|row| row.median_us);
    }
}

/// Drops the rows of a file that later ones have.
fn supersede(source: &mut Source, later: &[&Source]) {
    fn drop<'a, E: Entry + 'a>(rows: &mut Vec<E>, later: impl Iterator<Item = &'a [E]>) {
        let later: Vec<&E> = later.flatten().collect();
        rows.retain(|row| {
            let again = |other: &&E| row.is_same(other) && !row.outlasts([*other].into_iter());
            !later.iter().any(again)
        });
    }
    let compared = |view| later.iter().map(move |source| source.compared(view));
    let studies = || later.iter().filter_map(|source| source.study());
    match source {
        Source::Report(report) => {
            drop(&mut report.rows, compared(report.view));
            let decided =
                |row: &Row| compared(View::Compare).any(|later| row.is_outdated_by(later));
            report.rows.retain(|row| !decided(row));
        }
        Source::Study(study) => {
            drop(&mut study.layers, compared(View::Compare));
            drop(
                &mut study.network,
                studies().map(|study| &study.network[..]),
            );
            drop(
                &mut study.overlap,
                studies().map(|study| &study.overlap[..]),
            );
            drop(&mut study.errors, studies().map(|study| &study.errors[..]));
        }
        Source::Profile(_) => {}
    }
}

impl Source {
    /// Rows of all kinds.
    fn len(&self) -> usize {
        match self {
            Source::Report(report) => report.rows.len(),
            Source::Study(study) => {
                study.layers.len() + study.network.len() + study.overlap.len() + study.errors.len()
            }
            Source::Profile(profile) => profile.rows.len(),
        }
    }

    /// The rows that were measured for this view.
    fn compared(&self, view: View) -> &[Row] {
        match self {
            Source::Report(report) if report.view == view => &report.rows,
            Source::Study(study) if view == View::Compare => &study.layers,
            _ => &[],
        }
    }

    fn study(&self) -> Option<&Study> {
        match self {
            Source::Study(study) => Some(study),
            _ => None,
        }
    }
}
