//! A folder of records: a folder for each model of device, in it one for each problem without its
//! number of images, in that a file for each number.
//!
//! Nothing is locked. A file is written under another name and renamed, so that whoever reads sees a
//! whole one, and of several who write at once the last one's stays. Whatever is wrong with a file or a
//! folder is a note.

use std::{
    env, fs,
    fs::File,
    hash::{BuildHasher, Hasher, RandomState},
    io::{self, Read, Write},
    iter,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{Batchless, Conditions, Record, distance, record};
use crate::Problem;

/// Files of a folder that are looked through for the nearest number of images; where there are more, as many
/// numbers are asked for one by one. Either takes half a millisecond.
const MOST_FILES: usize = 500;
/// How files of records end.
const END: &str = "txt";
/// Nobody writes a file for so long: its writer was killed.
const ABANDONED: Duration = Duration::from_secs(60 * 60);

/// A folder of tuning results, taken under the same conditions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Store {
    /// None where not even a home folder is known: nothing is found or kept.
    folder: Option<PathBuf>,
    conditions: Conditions,
}

impl Default for Store {
    fn default() -> Self {
        Store::of_user()
    }
}

impl Store {
    /// The user's own, `${CONVFORGE_CACHE:-${XDG_CACHE_HOME:-~/.cache}/convforge}/tuning`.
    pub fn of_user() -> Self {
        let var = |name| {
            env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let cache = var("CONVFORGE_CACHE")
            .or_else(|| Some(var("XDG_CACHE_HOME")?.join("convforge")))
            .or_else(|| Some(var("HOME")?.join(".cache/convforge")));
        Store {
            folder: cache.map(|cache| cache.join("tuning")),
            conditions: Conditions::default(),
        }
    }

    /// In this folder, which is made when something is kept.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Store {
            folder: Some(folder.into()),
            conditions: Conditions::default(),
        }
    }

    /// The results that were taken under these conditions.
    #[must_use]
    pub fn under(self, conditions: Conditions) -> Self {
        Store { conditions, ..self }
    }

    /// How its times are taken.
    pub fn conditions(&self) -> Conditions {
        self.conditions
    }

    /// Where it is, if it is anywhere.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// The record of a problem on a model of device, if there is one.
    ///
    /// # Errors
    /// A note: why a file that is there cannot be used. It is as good as none, and replaced when the
    /// problem is measured again.
    pub fn get(&self, model: &str, problem: &Problem) -> Result<Option<Record>, String> {
        let text = problem.to_string();
        match Batchless::of(&text).and_then(|parts| self.file(model, &parts)) {
            Some(path) => self.read(&path, model, problem),
            None => Ok(None),
        }
    }

    /// The record of the same problem with the nearest other number of images, at most
    /// [`NEAR`](super::NEAR) times as many or as few; of two as near, that with more.
    ///
    /// # Errors
    /// As [`get`](Self::get). A note as well where a folder has too many numbers of images to look through,
    /// and none of those that are next to the problem's.
    pub fn nearest(&self, model: &str, problem: &Problem) -> Result<Option<Record>, String> {
        let text = problem.to_string();
        let Some(parts) = Batchless::of(&text) else {
            return Ok(None);
        };
        let nearest = self.nearest_images(model, &parts)?;
        match nearest.map(|images| problem.with(|shape| shape.n = images)) {
            Some(Ok(near)) => self.get(model, &near),
            _ => Ok(None),
        }
    }

    /// Keeps a record under its own conditions, with those lines of an earlier one of the same problem that it has no line for.
    ///
    /// # Errors
    /// A note: why it could not be kept. What was there stays.
    pub fn put(&self, record: &Record) -> Result<(), String> {
        let store = self.clone().under(record.conditions);
        let text = record.problem.to_string();
        let path = Batchless::of(&text).and_then(|parts| store.file(&record.model, &parts));
        let path = path.ok_or(
            "tuning results are not kept: there is no home folder; CONVFORGE_CACHE names another",
        )?;
        let mut whole = match store.read(&path, &record.model, &record.problem) {
            Ok(Some(earlier)) => earlier,
            _ => Record::new(&record.problem, &record.model, record.conditions),
        };
        for line in &record.lines {
            whole.put(line.clone());
        }
        let text = whole.to_string();
        let note = |why: &str| format!("{}: not kept: {why}", path.display());
        store
            .whole(&text, &record.model, &record.problem)
            .map_err(|why| note(&format!("it could not be read again: {why}")))?;
        replace(&path, &text).map_err(|why| note(&why.to_string()))
    }

    /// Every record that can be read, under any conditions and of any model; and a note for each file
    /// that cannot.
    pub fn all(&self) -> (Vec<Record>, Vec<String>) {
        let (mut records, mut notes) = (Vec::new(), Vec::new());
        let models = self.folder.iter().flat_map(|folder| children(folder));
        for path in models
            .flat_map(|model| children(&model))
            .flat_map(|shape| children(&shape))
        {
            if !is_record(&path) {
                continue;
            }
            match read_limited(&path).map(|text| text.parse::<Record>()) {
                Ok(Ok(record)) => records.push(record),
                Ok(Err(why)) => notes.push(format!("{}: {why}", path.display())),
                Err(why) => notes.push(format!("{}: cannot be read: {why}", path.display())),
            }
        }
        (records, notes)
    }

    fn file(&self, model: &str, parts: &Batchless) -> Option<PathBuf> {
        Some(
            self.shape_folder(model, parts)?
                .join(self.name(parts.images)),
        )
    }

    /// What the file of so many images is called.
    fn name(&self, images: usize) -> String {
        format!("mb{images}{}.{END}", self.suffix())
    }

    fn shape_folder(&self, model: &str, parts: &Batchless) -> Option<PathBuf> {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        let model: String = model
            .chars()
            .map(|c| if fits(c) { c } else { '-' })
            .collect();
        Some(self.folder.as_ref()?.join(model).join(parts.shared()))
    }

    /// What sets files of other conditions than usual apart.
    fn suffix(&self) -> &'static str {
        match (self.conditions.graph, self.conditions.cold) {
            (true, true) => "",
            (true, false) => "-warm",
            (false, true) => "-calls",
            (false, false) => "-calls-warm",
        }
    }

    /// The number of images that a file's name says.
    fn images(&self, path: &Path) -> Option<usize> {
        let end = format!("{}.{END}", self.suffix());
        let name = path.file_name()?.to_str()?;
        name.strip_prefix("mb")?.strip_suffix(&end)?.parse().ok()
    }

    /// The nearest other number of images that there is a record of.
    fn nearest_images(&self, model: &str, parts: &Batchless) -> Result<Option<usize>, String> {
        let Some(folder) = self.shape_folder(model, parts) else {
            return Ok(None);
        };
        let files: Vec<PathBuf> = children(&folder).take(MOST_FILES + 1).collect();
        if files.len() <= MOST_FILES {
            let others = files.iter().filter_map(|path| self.images(path));
            let others = others.filter(|images| *images != parts.images);
            let near = others.filter_map(|n| Some((distance(n, parts.images)?, n)));
            let nearest = near.min_by(|(a, m), (b, n)| a.total_cmp(b).then(n.cmp(m)));
            return Ok(nearest.map(|(_, images)| images));
        }
        let mut near = outward(parts.images);
        let mut asked = near.by_ref().take(MOST_FILES);
        let nearest = asked.find(|images| folder.join(self.name(*images)).is_file());
        if nearest.is_none() && near.next().is_some() {
            return Err(format!(
                "{}: there are more than {MOST_FILES} files, and none of the {MOST_FILES} numbers of \
                 images next to {}; others were not looked for",
                folder.display(),
                parts.images
            ));
        }
        Ok(nearest)
    }

    fn read(&self, path: &Path, model: &str, problem: &Problem) -> Result<Option<Record>, String> {
        let note = |why: &str| format!("{}: {why}", path.display());
        let text = match read_limited(path) {
            Ok(text) => text,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(why) => return Err(note(&format!("cannot be read: {why}"))),
        };
        let record = self.whole(&text, model, problem);
        record
            .map(Some)
            .map_err(|why| note(&format!("{why}; tuning this problem again replaces it")))
    }

    /// The record that is a file's text, if it is of what the file's name says.
    fn whole(&self, text: &str, model: &str, problem: &Problem) -> Result<Record, String> {
        let record: Record = text.parse().map_err(|why| format!("{why}"))?;
        let is = (&*record.model, &record.problem, record.conditions);
        match is == (model, problem, self.conditions) {
            true => Ok(record),
            false => Err(format!(
                "is of {} on {}, {}, and not of what its name says",
                record.problem, record.model, record.conditions
            )),
        }
    }
}

/// The other numbers of images whose results may serve so many, the nearest first; of two as near, that
/// with more.
fn outward(images: usize) -> impl Iterator<Item = usize> {
    let (mut fewer, mut more) = (images, images);
    iter::from_fn(move || {
        let (below, above) = (fewer.checked_sub(1)?, more.checked_add(1)?);
        match (distance(below, images), distance(above, images)) {
            (None, None) => None,
            (Some(down), up) if up.is_none_or(|up| down < up) => {
                fewer = below;
                Some(below)
            }
            _ => {
                more = above;
                Some(above)
            }
        }
    })
}

/// What is in a folder; nothing where it cannot be read.
fn children(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path()))
}

/// Whether a file is called as records are, and not as one that is being written.
fn is_record(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("mb") && name.ends_with(&format!(".{END}")))
}

/// The text of a plain file, of one that is too large to be a record so much that this is seen. What is no
/// plain file, as a pipe, would be waited for.
fn read_limited(path: &Path) -> io::Result<String> {
    let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    if !fs::metadata(path)?.is_file() {
        return Err(invalid("it is no plain file"));
    }
    let mut text = String::new();
    let most = record::LARGEST as u64;
    File::open(path)?.take(most + 1).read_to_string(&mut text)?;
    Ok(text)
}

/// Writes a file under another name in the same folder and renames it; where that fails nothing is left
/// behind, and what a killed writer has left is removed. It is not waited until the disk has it: a file that
/// is cut off is seen by its sum.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    for left in children(folder).filter(|path| is_abandoned(path) == Some(true)) {
        // Another writer may be faster; whatever else keeps it there, nothing depends on it.
        let _ = fs::remove_file(left);
    }
    // Random, as containers that share a folder have the same numbers of processes; seeded anew each time.
    let random = RandomState::new().build_hasher().finish();
    let made = folder.join(format!(".{random:016x}"));
    let mut file = File::create_new(&made)?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| fs::rename(&made, path));
    if written.is_err() {
        // Whatever keeps it there, the first failure is what is told.
        let _ = fs::remove_file(&made);
    }
    written
}

/// Whether a file is one that [`replace`] began, and nobody goes on with.
fn is_abandoned(path: &Path) -> Option<bool> {
    let digits = path.file_name()?.to_str()?.strip_prefix('.')?;
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if digits.len() != 16 || !digits.bytes().all(is_digit) {
        return None;
    }
    // Nothing that a link leads to is looked at.
    let file = fs::symlink_metadata(path).ok()?;
    let age = file.modified().ok()?.elapsed().ok()?;
    Some(file.is_file() && age > ABANDONED)
}
