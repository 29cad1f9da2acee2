//! A model's file, read without its weights.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::Path,
};

use prost::{Message, bytes::Buf};

use super::proto;
use crate::{Error, Result};

/// Reads a file. What is skipped is sought over, so that a model of gigabytes takes no more memory than its nodes
/// and the names of its tensors.
///
/// # Errors
/// [`Error::File`] with what the file is instead of a model, if that shows.
pub fn read(path: &Path) -> Result<proto::Model> {
    let cannot = |why| Error::file_because(path, "cannot be read", why);
    let mut file = File::open(path).map_err(cannot)?;
    let about = file.metadata().map_err(cannot)?;
    if !about.is_file() {
        return Err(Error::file(path, "is no plain file, as a model must be"));
    }
    if let Some(what) = something_else(&mut file).map_err(cannot)? {
        return Err(Error::file(
            path,
            format!("is {what}, and no ONNX model; export the model to ONNX"),
        ));
    }
    let mut window = Window::new(file, about.len());
    let model = proto::Model::decode(&mut window);
    if let Some(why) = window.failed {
        return Err(cannot(why));
    }
    model.map_err(|why| Error::file_because(path, "is no ONNX model, or not all of one", why))
}

/// What begins like this: a few kinds of files that are taken for a model.
fn something_else(file: &mut File) -> io::Result<Option<&'static str>> {
    let mut start = Vec::new();
    file.take(16).read_to_end(&mut start)?;
    file.rewind()?;
    let begins = |with: &[u8]| start.starts_with(with);
    Ok(match () {
        () if begins(b"PK\x03\x04") => Some("a zip archive, as PyTorch's checkpoints are"),
        () if begins(b"\x80\x02") => Some("a pickle of Python's, as old checkpoints are"),
        () if begins(b"\x1f\x8b") => Some("compressed by gzip"),
        () if begins(b"\x89HDF") => Some("an HDF5 file, as Keras has them"),
        () if begins(b"GGUF") => Some("a GGUF file"),
        () if begins(b"version https:/") => {
            Some("what Git LFS keeps in place of a file (`git lfs pull` gets it)")
        }
        // Behind the length of the header, eight bytes.
        () if start.get(5..10) == Some(b"\0\0\0{\"") => {
            Some("a safetensors file, weights without a graph")
        }
        () if start.get(4..8) == Some(b"TFL3") => Some("a TensorFlow Lite model"),
        () if begins(b"{") || begins(b"<") => Some("a text"),
        () => None,
    })
}

/// Bytes that are read at a time.
const WINDOW: u64 = 1 << 16;

/// A file as prost reads it.
struct Window {
    file: File,
    /// The bytes before the file's position.
    bytes: Vec<u8>,
    /// How many of them were taken.
    taken: usize,
    /// Bytes that are left, those in the window among them.
    left: u64,
    /// A failure of reading; from then on all bytes are zeros, which are no message.
    failed: Option<io::Error>,
}

impl Window {
    fn new(file: File, length: u64) -> Self {
        let mut window = Window {
            file,
            bytes: Vec::new(),
            taken: 0,
            left: length,
            failed: None,
        };
        window.fill(0);
        window
    }

    /// Goes on so many bytes behind the window.
    fn fill(&mut self, skipped: u64) {
        let wanted = self.left.min(WINDOW);
        self.taken = 0;
        let read = self.read(skipped, wanted);
        if let Err(why) = read {
            self.failed.get_or_insert(why);
            self.bytes = vec![0; wanted as usize];
        }
    }

    fn read(&mut self, skipped: u64, wanted: u64) -> io::Result<()> {
        self.bytes.clear();
        if skipped > 0 {
            // A file has fewer bytes than an i64 counts.
            self.file.seek(SeekFrom::Current(skipped as i64))?;
        }
        let read = (&mut self.file).take(wanted).read_to_end(&mut self.bytes)?;
        match read as u64 == wanted {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl Buf for Window {
    fn remaining(&self) -> usize {
        usize::try_from(self.left).unwrap_or(usize::MAX)
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    fn advance(&mut self, count: usize) {
        let here = self.bytes.len() - self.taken;
        self.left = self.left.saturating_sub(count as u64);
        match count.checked_sub(here) {
            None => self.taken += count,
            Some(behind) => self.fill(behind as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_window_reads_and_skips_as_memory_does() {
        let bytes: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        file.rewind().unwrap();
        let mut window = Window::new(file, bytes.len() as u64);
        let mut memory = &bytes[..];
        for (skipped, taken) in [
            (0, 3),
            (65_533, 1),
            (10, 70_000),
            (100_000, 64_000),
            (0, 453),
        ] {
            window.advance(skipped);
            memory.advance(skipped);
            assert_eq!(window.copy_to_bytes(taken), memory.copy_to_bytes(taken));
            assert_eq!(window.remaining(), memory.remaining());
        }
        assert_eq!((window.remaining(), window.chunk()), (0, &[][..]));
        assert!(window.failed.is_none());
    }

    #[test]
    fn a_file_that_became_shorter_is_an_error() {
        let mut window = Window::new(tempfile::tempfile().unwrap(), 100_000);
        assert!(proto::Model::decode(&mut window).is_err());
        let why = window.failed.unwrap();
        assert_eq!(why.kind(), io::ErrorKind::UnexpectedEof);
    }
}
