//! Files that are whole at any time, and JSON.

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use serde::{Serialize, de::DeserializeOwned};

use crate::{Error, Result};

/// The text of a file.
pub(crate) fn read_text(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|why| Error::file_because(path, "cannot be read", why))
}

/// Reads a value; `what` says what the file is if it is not one: `is no file of `study``.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path, what: &str) -> Result<T> {
    serde_json::from_str(&read_text(path)?).map_err(|why| Error::file_because(path, what, why))
}

/// A value as the text of a file, one field a line.
pub(crate) fn json(value: &impl Serialize) -> String {
    // What is written here consists of strings and numbers only, which all have a form.
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

/// A folder's files with one of these endings, by their names.
pub(crate) fn files_ending(folder: &Path, endings: &[&str]) -> Result<Vec<PathBuf>> {
    let failed = |why| Error::file_because(folder, "cannot be read", why);
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        files.push(entry.map_err(failed)?.path());
    }
    files.retain(|file| {
        let ending = file.extension().and_then(OsStr::to_str);
        ending.is_some_and(|ending| endings.contains(&ending))
    });
    files.sort();
    Ok(files)
}

/// A file's name of a text, `mb1ic3ih8oc4kh3-on-NVIDIA-H200.json`: without what file systems dislike.
pub fn file_name(text: &str, extension: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-._+=".contains(c);
    let name = text.chars().map(|c| if fits(c) { c } else { '-' });
    format!("{}.{extension}", name.collect::<String>())
}

/// Whether there is a plain file with anything in it. [`Target::open`] makes what a link to nothing names.
#[must_use]
pub fn is_filled(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|there| there.is_file() && there.len() > 0)
}

/// Where results go while work goes on.
#[derive(Debug)]
pub enum Target {
    /// A plain file, or none yet: replaced as a whole each time. What was written last is locked, so
    /// that another run does not write over it.
    Plain(PathBuf, Option<Locked>),
    /// A device, a pipe, or what this process has open: what was written cannot be taken back, so it is
    /// written once, at the end.
    Stream(PathBuf, File),
}

/// A file that no other run locks.
#[derive(Debug)]
pub struct Locked(File);

/// Closing it is not enough: a program that another thread is just starting has all open files of this
/// one, with their locks, until it runs.
impl Drop for Locked {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

impl Target {
    /// Looks at what is there, behind symbolic links. A named pipe is waited for until somebody reads.
    ///
    /// # Errors
    /// [`Error::File`] where it cannot be written, or another run writes to it.
    pub fn open(path: &Path) -> Result<Self> {
        let mut target = open(path).map_err(|why| cannot_be_written(path, why))?;
        if let Target::Plain(path, held) = &mut target {
            while let Ok(there) = File::open(&*path) {
                // A file system without locks has none that could be held.
                if let Err(TryLockError::WouldBlock) = there.try_lock() {
                    let why = "another run writes to it; wait for its end, or name another file";
                    return Err(Error::file(path.clone(), why));
                }
                let is_there_still = is_same(&there, path);
                *held = Some(Locked(there));
                if is_there_still {
                    break;
                }
            }
        }
        Ok(target)
    }

    /// Keeps what there is so far; nobody ever sees half of a plain file.
    ///
    /// # Errors
    /// [`Error::File`]; nothing is left behind then.
    pub fn keep(&mut self, text: impl FnOnce() -> String) -> Result<()> {
        match self {
            Target::Plain(path, held) => hold(held, path, text().as_bytes()),
            Target::Stream(..) => Ok(()),
        }
    }

    /// Writes what there is in the end.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn finish(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Target::Plain(path, held) => hold(held, path, bytes),
            Target::Stream(path, file) => {
                let written = file.write_all(bytes).and_then(|()| file.flush());
                written.map_err(|why| cannot_be_written(path, why))
            }
        }
    }
}

/// Writes a file so that nobody ever sees half of it; through what is no plain file, such as a device, a
/// pipe or a symbolic link.
///
/// # Errors
/// [`Error::File`]; nothing is left behind then.
pub fn write_whole(path: &Path, bytes: impl AsRef<[u8]>) -> Result<()> {
    let target = open(path).map_err(|why| cannot_be_written(path, why));
    target?.finish(bytes.as_ref())
}

/// Replaces a file, and lets go of what was there once the new one is locked.
fn hold(held: &mut Option<Locked>, path: &Path, bytes: &[u8]) -> Result<()> {
    *held = Some(replace(path, bytes)?);
    Ok(())
}

/// Whether this is the file of that name, and none that another run has replaced since.
fn is_same(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(held), Ok(named)) => (held.dev(), held.ino()) == (named.dev(), named.ino()),
        _ => true,
    }
}

fn open(path: &Path) -> io::Result<Target> {
    let streams = match fs::metadata(path) {
        Ok(there) => !(there.is_file() || there.is_dir()) || is_open_file(path),
        Err(_) => false,
    };
    if streams {
        // At its end where it is a file that standard output was sent to.
        let file = OpenOptions::new().append(true).open(path)?;
        return Ok(Target::Stream(path.to_owned(), file));
    }
    if !path.is_symlink() {
        return Ok(Target::Plain(path.to_owned(), None));
    }
    if !path.exists() {
        // A link to nothing yet: what it names is made.
        File::create(path)?;
    }
    Ok(Target::Plain(fs::canonicalize(path)?, None))
}

/// Whether a path is a way to a file that is open already: /dev/stdout, /dev/fd/3.
fn is_open_file(path: &Path) -> bool {
    let mut at = path.to_owned();
    while let (Ok(to), Some(folder)) = (fs::read_link(&at), at.parent().map(Path::to_owned)) {
        if fs::canonicalize(&folder).is_ok_and(|folder| folder.starts_with("/proc")) {
            return true;
        }
        at = folder.join(to);
    }
    false
}

/// Writes a plain file under another name in the same folder and renames it; where that fails nothing
/// is left behind. It is locked before it has its name.
fn replace(path: &Path, bytes: &[u8]) -> Result<Locked> {
    let failed = |why| cannot_be_written(path, why);
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    // With the rights that any new file has.
    let create = |path: &Path| File::create_new(path);
    let made = tempfile::Builder::new().make_in(folder, create);
    let mut made = made.map_err(failed)?;
    let file = made.as_file_mut();
    let written = file.write_all(bytes);
    written.and_then(|()| file.sync_all()).map_err(failed)?;
    let _ = file.try_lock();
    let file = made.persist(path).map_err(|why| failed(why.error))?;
    Ok(Locked(file))
}

fn cannot_be_written(path: &Path, why: io::Error) -> Error {
    Error::file_because(path, "cannot be written", why)
}

/// A file's name without its folder and its ending: what a suite or a report from it is called.
pub fn file_stem(path: &Path) -> String {
    path.file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use std::{process::Command, thread};

    use super::*;
    use crate::chain;

    #[test]
    fn a_file_is_replaced_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        for text in ["one", "two"] {
            write_whole(&path, text).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn two_runs_do_not_share_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        let mut first = Target::open(&path).unwrap();
        for text in ["one", "two"] {
            first.keep(|| text.to_owned()).unwrap();
            let said = chain(&Target::open(&path).unwrap_err());
            assert!(said.contains("a.json: another run writes to it"), "{said}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        drop(first);
        Target::open(&path).unwrap().finish(b"three").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "three");
    }

    /// As a program that is being started has it.
    #[test]
    fn a_copy_of_an_open_file_does_not_keep_its_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        let mut first = Target::open(&path).unwrap();
        first.keep(|| "one".to_owned()).unwrap();
        let Target::Plain(_, Some(Locked(held))) = &first else {
            panic!("{first:?} holds nothing");
        };
        let copy = held.try_clone().unwrap();
        Target::open(&path).unwrap_err();
        drop(first);
        Target::open(&path).unwrap().finish(b"two").unwrap();
        drop(copy);
    }

    #[test]
    fn a_failed_write_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        // The target is a folder: only the renaming fails.
        let taken = folder.path().join("taken");
        fs::create_dir(&taken).unwrap();
        let text = |path: &Path| chain(&write_whole(path, "text").unwrap_err());
        let said = text(&taken);
        assert!(said.contains("taken: cannot be written: "), "{said}");
        assert!(said.contains("Is a directory"), "{said}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let said = text(&folder.path().join("none/a.json"));
        assert!(said.contains("No such file or directory"), "{said}");
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_plain_file_stays_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        // A link to a file, a link to nothing yet, and a link to that link.
        fs::write(path("file"), "old").unwrap();
        for (link, to) in [("link", "file"), ("early", "new"), ("far", "early")] {
            std::os::unix::fs::symlink(to, path(link)).unwrap();
        }
        for (link, file) in [("link", "file"), ("early", "new"), ("far", "new")] {
            write_whole(&path(link), link).unwrap();
            assert!(path(link).is_symlink(), "{link}");
            assert_eq!(fs::read_to_string(path(file)).unwrap(), link);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 5);

        let pipe = path("pipe");
        let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let read = thread::spawn({
            let pipe = pipe.clone();
            move || fs::read_to_string(pipe).unwrap()
        });
        let mut target = Target::open(&pipe).unwrap();
        // Once only: a reader cannot tell two results apart.
        target.keep(|| "so far".to_owned()).unwrap();
        target.finish(b"in the end").unwrap();
        drop(target);
        assert_eq!(read.join().unwrap(), "in the end");
        assert!(!pipe.metadata().unwrap().is_file());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_device_says_what_is_wrong() {
        let full = Path::new("/dev/full");
        let text = chain(&write_whole(full, "text").unwrap_err());
        assert!(
            text.contains("/dev/full: cannot be written: No space"),
            "{text}"
        );
        write_whole(Path::new("/dev/null"), "text").unwrap();
        assert!(!Path::new("/dev/null").metadata().unwrap().is_file());
        assert!(is_open_file(Path::new("/dev/stdout")));
        assert!(!is_open_file(Path::new("/bin/sh")));
    }

    #[test]
    fn a_name_is_the_text_without_what_file_systems_dislike() {
        let name = file_name("vgg16 a/b mb1ic1ih3oc1oh3kh1+f16", "svg");
        assert_eq!(name, "vgg16-a-b-mb1ic1ih3oc1oh3kh1+f16.svg");
    }

    #[test]
    fn what_is_no_such_file_is_named_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        let read = || read_json::<Vec<u32>>(&path, "is no list").unwrap_err();
        assert!(chain(&read()).contains("a.json: cannot be read: No such file"));
        write_whole(&path, "[").unwrap();
        let said = chain(&read());
        assert!(said.contains("a.json: is no list: EOF"), "{said}");
    }
}
