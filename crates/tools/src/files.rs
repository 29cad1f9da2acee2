//! Files that are whole at any time, and JSON.

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
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

/// A file's name of a text, `mb1ic3ih8oc4kh3-on-NVIDIA-H200.json`: without what file systems dislike.
pub fn file_name(text: &str, extension: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-._+=".contains(c);
    let name = text.chars().map(|c| if fits(c) { c } else { '-' });
    format!("{}.{extension}", name.collect::<String>())
}

/// Writes a file under another name in the same folder and renames it: nobody ever sees half of it,
/// and where that fails nothing is left behind.
///
/// # Errors
/// [`Error::File`].
pub fn write_whole(path: &Path, bytes: impl AsRef<[u8]>) -> Result<()> {
    let failed = |why| Error::file_because(path, "cannot be written", why);
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    // With the rights that any new file has.
    let create = |path: &Path| File::create_new(path);
    let made = tempfile::Builder::new().make_in(folder, create);
    let mut made = made.map_err(failed)?;
    let file = made.as_file_mut();
    let written = file.write_all(bytes.as_ref());
    written.and_then(|()| file.sync_all()).map_err(failed)?;
    made.persist(path).map_err(|why| failed(why.error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
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
