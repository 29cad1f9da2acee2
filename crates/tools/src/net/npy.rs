//! NumPy files (.npy) of two-dimensional float32 arrays, and no others.

use std::{fs, io, path::Path};

use npyz::{NpyFile, Order, WriteOptions, WriterBuilder};

use crate::{Error, Result, files::write_whole};

/// What such a file is called where it is none.
const WANTED: &str = "expected a 2-D float32 .npy file";

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
    /// Reads a file of float32 values in C order.
    ///
    /// # Errors
    /// [`Error::File`] if the file is missing or unreadable, is no .npy file, holds another type,
    /// order or number of dimensions, or is shorter or longer than its header says.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let array = fs::read(path).and_then(|bytes| decode(&bytes));
        array.map_err(|why| Error::file_because(path, WANTED, why))
    }

    /// Writes a file that NumPy reads, whole or not at all.
    ///
    /// # Errors
    /// [`Error::File`] if `data` does not hold `rows * cols` values or the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let Array2 { rows, cols, data } = self;
        if rows.checked_mul(*cols) != Some(data.len()) {
            let found = data.len();
            let what = format!("expected {rows} x {cols} values to write, found {found}");
            return Err(Error::file(path, what));
        }
        let bytes = encode(self).map_err(|why| Error::file_because(path, "cannot be made", why))?;
        write_whole(path, bytes)
    }
}

fn encode(array: &Array2) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let shape = [array.rows as u64, array.cols as u64];
    let options = WriteOptions::new().default_dtype().shape(&shape);
    let mut writer = options.writer(&mut bytes).begin_nd()?;
    writer.extend(&array.data)?;
    writer.finish()?;
    Ok(bytes)
}

fn decode(bytes: &[u8]) -> io::Result<Array2> {
    let other = |what: String| Err(io::Error::new(io::ErrorKind::InvalidData, what));
    let mut rest = bytes;
    let file = NpyFile::new(&mut rest)?;
    if file.order() != Order::C {
        return other("found Fortran order".to_owned());
    }
    let [rows, cols] = *file.shape() else {
        return other(format!("found {} dimensions", file.shape().len()));
    };
    let (rows, cols) = (rows as usize, cols as usize);
    let data = file.into_vec::<f32>()?;
    // A product that no number holds is of no file.
    if !rest.is_empty() || rows.checked_mul(cols) != Some(data.len()) {
        return other(format!("found other than {rows} x {cols} values"));
    }
    Ok(Array2 { rows, cols, data })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain;

    const GOOD: &str = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";

    fn npy(version: u8, header: &str, values: usize) -> Vec<u8> {
        let mut bytes = [b"\x93NUMPY", &[version, 0][..]].concat();
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
        let text = chain(&read(bytes).unwrap_err());
        let start = format!("a.npy: {WANTED}: ");
        assert!(text.contains(&start) && text.contains(why), "{text}");
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
    fn refuses_other_arrays_and_other_files() {
        let changed = |from: &str, to: &str| npy(1, &GOOD.replace(from, to), 6);
        assert_refused(&changed("'<f4'", "'<f8'"), "<f8");
        assert_refused(&changed("False", "True"), "Fortran order");
        assert_refused(&changed("(2, 3)", "(6,)"), "found 1 dimensions");
        assert_refused(&changed("(2, 3)", "()"), "found 0 dimensions");
        assert_refused(&changed("(2, 3)", "(2, -3)"), "");
        assert_refused(b"PNG", "magic");
        assert_refused(&npy(1, "[2, 3]", 6), "");
        assert_refused(&npy(1, GOOD, 5), "");
        assert_refused(&npy(1, GOOD, 7), "found other than 2 x 3 values");
        let huge = GOOD.replace("(2, 3)", "(100000000000, 100)");
        assert_refused(&npy(1, &huge, 6), "");
    }

    #[test]
    fn writes_what_it_reads() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        for (rows, cols) in [(3, 5), (0, 4), (7, 1)] {
            let data = (0..rows * cols).map(|i| i as f32 - 0.25).collect();
            let array = Array2 { rows, cols, data };
            array.write(&path).unwrap();
            assert_eq!(Array2::read(&path).unwrap(), array);
            let bytes = fs::read(&path).unwrap();
            assert_eq!(bytes.len(), 128 + 4 * rows * cols);
        }
    }

    #[test]
    fn refuses_shapes_that_do_not_fit_and_missing_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        for count in [3, 5] {
            let array = Array2 {
                rows: 2,
                cols: 2,
                data: vec![0.0; count],
            };
            let text = array.write(&path).unwrap_err().to_string();
            let expected = format!("a.npy: expected 2 x 2 values to write, found {count}");
            assert!(text.ends_with(&expected), "{text}");
        }
        let text = chain(&Array2::read(&path).unwrap_err());
        assert!(
            text.ends_with("No such file or directory (os error 2)"),
            "{text}"
        );
    }
}
