//! NumPy files (.npy, versions 1 and 2) of two-dimensional float32 arrays, and no others.
//!
//! Such a file is the magic `\x93NUMPY`, two bytes of version, the length of the header (u16 in
//! version 1, u32 in version 2), the header, which is a Python dictionary, and the values.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

const MAGIC: &[u8] = b"\x93NUMPY";

/// Far more than the header of a two-dimensional array takes.
const LONGEST_HEADER: usize = 4096;

/// A two-dimensional array.
#[derive(Clone, Debug, PartialEq)]
pub struct Array2 {
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub cols: usize,
    /// `[rows][cols]`, row-major.
    pub data: Vec<f32>,
}

impl Array2 {
    /// Reads a file of little-endian float32 values in C order.
    ///
    /// # Errors
    /// [`Error::File`] if the file is missing or unreadable, is no .npy file, holds another type,
    /// order or number of dimensions, or is shorter or longer than its header says.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        File::open(path)
            .map_err(|e| e.to_string())
            .and_then(decode)
            .map_err(|why| Error::file(path, format!("expected a 2-D float32 .npy file: {why}")))
    }

    /// Writes a version 1 file, byte for byte as NumPy would. The file appears whole or not at
    /// all: it is written under another name in the same folder and then renamed.
    ///
    /// # Errors
    /// [`Error::File`] if `data` does not hold `rows * cols` values or the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let (
            path,
            &Array2 {
                rows,
                cols,
                ref data,
            },
        ) = (path.as_ref(), self);
        if rows.checked_mul(cols) != Some(data.len()) {
            let found = data.len();
            let why = format!("expected {rows} x {cols} values to write, found {found}");
            return Err(Error::file(path, why));
        }
        let shape = format!("({rows}, {cols})");
        let dict = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
        // Spaces and a newline bring the values to a multiple of 64 bytes.
        let header = (10 + dict.len() + 1).next_multiple_of(64) - 10;
        let mut bytes = Vec::with_capacity(10 + header + 4 * data.len());
        bytes.extend(MAGIC);
        bytes.extend([1, 0]);
        bytes.extend((header as u16).to_le_bytes());
        bytes.extend(format!("{dict:<0$}\n", header - 1).bytes());
        bytes.extend(data.iter().flat_map(|value| value.to_le_bytes()));
        replace(path, &bytes).map_err(|e| Error::file(path, format!("could not be written: {e}")))
    }
}

fn decode(mut file: impl Read) -> Result<Array2, String> {
    // The vector grows with the data: no header can ask for memory that the file does not fill.
    let mut read_up_to = |bytes: u64| {
        let mut data = Vec::new();
        match file.by_ref().take(bytes).read_to_end(&mut data) {
            Ok(_) => Ok(data),
            Err(e) => Err(e.to_string()),
        }
    };

    let start = read_up_to(8)?;
    let length_bytes = match start.strip_prefix(MAGIC) {
        Some([1, 0]) => 2,
        Some([2, 0]) => 4,
        Some([major, minor]) => return Err(format!("found version {major}.{minor}, not 1 or 2")),
        _ => return Err("the magic \\x93NUMPY is not there".to_owned()),
    };
    let length = read_up_to(length_bytes)?;
    let header_bytes = length
        .iter()
        .rev()
        .fold(0, |n, &byte| n << 8 | usize::from(byte));
    if header_bytes > LONGEST_HEADER {
        return Err(format!(
            "the header has {header_bytes} bytes, more than {LONGEST_HEADER}"
        ));
    }
    let header = read_up_to(header_bytes as u64)?;
    if length.len() < length_bytes as usize || header.len() < header_bytes {
        return Err("truncated: the file ends in its header".to_owned());
    }
    let header = str::from_utf8(&header).map_err(|_| "the header is not text".to_owned())?;
    let [rows, cols] = parse_header(header)?;
    let expected = rows
        .checked_mul(cols)
        .and_then(|count| count.checked_mul(4))
        .filter(|&bytes| bytes < isize::MAX as usize)
        .ok_or_else(|| format!("the shape ({rows}, {cols}) fits in no memory"))?;

    let bytes = read_up_to(expected as u64 + 1)?;
    if bytes.len() < expected {
        let found = bytes.len();
        return Err(format!(
            "truncated: expected {expected} bytes of values, found {found}"
        ));
    }
    if bytes.len() > expected {
        return Err(format!(
            "trailing bytes: expected {expected} bytes of values, found more"
        ));
    }
    let (values, _) = bytes.as_chunks();
    Ok(Array2 {
        rows,
        cols,
        data: values.iter().map(|&b| f32::from_le_bytes(b)).collect(),
    })
}

/// The shape, once the header has said that the values are what this module reads.
fn parse_header(header: &str) -> Result<[usize; 2], String> {
    let broken = || format!("the header cannot be understood: {}", header.trim());
    let dict = header
        .trim()
        .strip_prefix('{')
        .and_then(|text| text.strip_suffix('}'));
    let (mut descr, mut order, mut shape) = (None, None, None);
    for entry in split(dict.ok_or_else(broken)?) {
        let (key, value) = entry.split_once(':').ok_or_else(broken)?;
        let slot = match key.trim() {
            "'descr'" => &mut descr,
            "'fortran_order'" => &mut order,
            "'shape'" => &mut shape,
            _ => return Err(broken()),
        };
        if slot.replace(value.trim()).is_some() {
            return Err(broken());
        }
    }
    let (Some(descr), Some(order), Some(shape)) = (descr, order, shape) else {
        return Err(broken());
    };
    if descr != "'<f4'" {
        return Err(format!("expected values of type '<f4', found {descr}"));
    }
    match order {
        "False" => {}
        "True" => return Err("expected C order, found Fortran order".to_owned()),
        _ => return Err(broken()),
    }
    let sizes = shape
        .strip_prefix('(')
        .and_then(|text| text.strip_suffix(')'));
    let sizes = split(sizes.ok_or_else(broken)?);
    let [rows, cols] = sizes[..] else {
        return Err(format!(
            "expected 2 dimensions, found {}: {shape}",
            sizes.len()
        ));
    };
    match (rows.parse(), cols.parse()) {
        (Ok(rows), Ok(cols)) => Ok([rows, cols]),
        _ => Err(broken()),
    }
}

/// The parts between those commas that are in no bracket; one comma may stand at the end.
fn split(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let mut parts: Vec<&str> = text
        .split(|c| {
            depth += i32::from("([{".contains(c)) - i32::from(")]}".contains(c));
            depth == 0 && c == ','
        })
        .map(str::trim)
        .collect();
    parts.pop_if(|last| last.is_empty());
    parts
}

/// Puts `bytes` where `path` is, in one step.
fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let (mut file, temporary) = create_beside(path)?;
    let done = file
        .write_all(bytes)
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&temporary, path));
    if done.is_err() {
        // The first error is the one to tell.
        let _ = fs::remove_file(&temporary);
    }
    done
}

/// A new file in the folder of `path`, under a name that was free.
fn create_beside(path: &Path) -> std::io::Result<(File, PathBuf)> {
    let name = path.file_name().ok_or(ErrorKind::InvalidFilename)?;
    let mut attempt = 0_u32;
    loop {
        let mut temporary = name.to_owned();
        temporary.push(format!(".{}-{attempt}.tmp", std::process::id()));
        let temporary = path.with_file_name(temporary);
        match File::create_new(&temporary) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => attempt += 1,
            result => return result.map(|file| (file, temporary)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";

    fn npy(version: u8, header: &str, values: usize) -> Vec<u8> {
        let mut bytes = [MAGIC, &[version, 0]].concat();
        let length = (header.len() as u32).to_le_bytes();
        bytes.extend(&length[..if version == 1 { 2 } else { 4 }]);
        bytes.extend(header.bytes());
        bytes.extend((0..values).flat_map(|value| (value as f32).to_le_bytes()));
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Array2> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        fs::write(&path, bytes).unwrap();
        Array2::read(path)
    }

    #[track_caller]
    fn assert_refused(bytes: &[u8], why: &str) {
        let text = read(bytes).unwrap_err().to_string();
        assert!(
            text.ends_with(&format!("a.npy: expected a 2-D float32 .npy file: {why}")),
            "{text}"
        );
    }

    #[test]
    fn reads_both_versions_and_any_order_of_keys() {
        let array = Array2 {
            rows: 2,
            cols: 3,
            data: vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0],
        };
        assert_eq!(read(&npy(1, GOOD, 6)).unwrap(), array);
        assert_eq!(read(&npy(2, GOOD, 6)).unwrap(), array);
        let other = "{'shape': (2,3),'fortran_order':False,'descr':'<f4'}  \n";
        assert_eq!(read(&npy(1, other, 6)).unwrap(), array);
    }

    #[test]
    fn refuses_other_arrays() {
        let changed = |from: &str, to: &str| npy(1, &GOOD.replace(from, to), 6);
        assert_refused(
            &changed("'<f4'", "'>f4'"),
            "expected values of type '<f4', found '>f4'",
        );
        assert_refused(
            &changed("'<f4'", "[('a', '<f4'), ('b', '<i2')]"),
            "expected values of type '<f4', found [('a', '<f4'), ('b', '<i2')]",
        );
        assert_refused(
            &changed("False", "True"),
            "expected C order, found Fortran order",
        );
        assert_refused(
            &changed("(2, 3)", "(6,)"),
            "expected 2 dimensions, found 1: (6,)",
        );
        assert_refused(
            &changed("(2, 3)", "()"),
            "expected 2 dimensions, found 0: ()",
        );
        assert_refused(
            &changed("(2, 3)", "(1, 2, 3)"),
            "expected 2 dimensions, found 3: (1, 2, 3)",
        );
        let huge = usize::MAX;
        assert_refused(
            &changed("(2, 3)", &format!("({huge}, 3)")),
            &format!("the shape ({huge}, 3) fits in no memory"),
        );
    }

    #[test]
    fn refuses_broken_headers() {
        let says = |header: &str| {
            let why = format!("the header cannot be understood: {header}");
            assert_refused(&npy(1, header, 6), &why);
        };
        says("");
        says("[2, 3]");
        says("{'descr': '<f4', 'shape': (2, 3), }");
        says("{'descr': '<f4', 'fortran_order': False, 'shape': (2, -3), }");
        says("{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 3), }");
        says("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }");
        says("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'more': 1, }");
        assert_refused(b"PNG", "the magic \\x93NUMPY is not there");
        assert_refused(&npy(3, GOOD, 6), "found version 3.0, not 1 or 2");
        assert_refused(
            &npy(2, &" ".repeat(5000), 0),
            "the header has 5000 bytes, more than 4096",
        );
        let mut not_text = npy(1, GOOD, 6);
        not_text[12] = 0xff;
        assert_refused(&not_text, "the header is not text");
    }

    #[test]
    fn refuses_wrong_lengths() {
        let good = npy(1, GOOD, 6);
        assert_refused(&good[..9], "truncated: the file ends in its header");
        assert_refused(&good[..30], "truncated: the file ends in its header");
        assert_refused(
            &good[..good.len() - 1],
            "truncated: expected 24 bytes of values, found 23",
        );
        let long = npy(1, GOOD, 7);
        assert_refused(
            &long,
            "trailing bytes: expected 24 bytes of values, found more",
        );
        let huge = GOOD.replace("(2, 3)", "(100000000000, 100)");
        assert_refused(
            &npy(1, &huge, 6),
            "truncated: expected 40000000000000 bytes of values, found 24",
        );
    }

    #[test]
    fn writes_what_it_reads_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        for (rows, cols) in [(3, 5), (0, 4), (7, 1)] {
            let data = (0..rows * cols).map(|i| i as f32 - 0.25).collect();
            let array = Array2 { rows, cols, data };
            array.write(&path).unwrap();
            assert_eq!(Array2::read(&path).unwrap(), array);
            assert_eq!(
                fs::metadata(&path).unwrap().len() as usize,
                128 + 4 * rows * cols
            );
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_write_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let array = Array2 {
            rows: 2,
            cols: 2,
            data: vec![0.0; 4],
        };
        let refused = |path: &Path| array.write(path).unwrap_err().to_string();
        // The target is a folder: only the renaming fails.
        let target = folder.path().join("taken");
        fs::create_dir(&target).unwrap();
        let text = refused(&target);
        assert!(
            text.contains("taken: could not be written: Is a directory"),
            "{text}"
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let text = refused(&folder.path().join("none").join("a.npy"));
        assert!(
            text.contains("could not be written: No such file or directory"),
            "{text}"
        );
        assert!(refused(Path::new("/")).contains("/: could not be written: invalid filename"));
    }

    #[test]
    fn refuses_shapes_that_do_not_fit_and_missing_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        let array = Array2 {
            rows: 2,
            cols: 2,
            data: vec![0.0; 3],
        };
        let text = array.write(&path).unwrap_err().to_string();
        assert!(
            text.ends_with("a.npy: expected 2 x 2 values to write, found 3"),
            "{text}"
        );
        let text = Array2::read(&path).unwrap_err().to_string();
        let expected = "a.npy: expected a 2-D float32 .npy file: No such file or directory";
        assert!(text.contains(expected), "{text}");
    }
}
