//! Images and labels from IDX files, plain or gzip, and synthetic ones for runs without files.
//!
//! An IDX file is big-endian: a magic number (2051 for images, 2049 for labels), the count, for
//! images also rows and columns, then one byte per pixel or label.

use std::cmp::Ordering;
use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;

use convforge_check::random_at;
use flate2::read::MultiGzDecoder;

use crate::{Error, Result};

const IMAGE_MAGIC: u32 = 2051;
const LABEL_MAGIC: u32 = 2049;

/// A header that announces more is taken for damaged: the sets this is for have 47 million bytes.
const MOST_BYTES: u64 = 1 << 32;

/// Side of the synthetic images, in pixels.
const SIDE: usize = 28;

/// Grey images of one size, one byte per pixel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    /// Number of images.
    pub count: usize,
    /// Height of an image in pixels.
    pub rows: usize,
    /// Width of an image in pixels.
    pub cols: usize,
    /// `[count][rows][cols]`, 0 to 255, without padding.
    pub pixels: Vec<u8>,
}

/// The class of each image of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    /// One class per image, as the file has it.
    pub values: Vec<u8>,
}

impl Images {
    /// Reads an IDX image file, plain or gzip; the content tells which, not the name.
    ///
    /// # Errors
    /// [`Error::File`] if the file is missing, unreadable or a corrupt gzip, holds no images, or
    /// is shorter or longer than its header says.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let ([count, rows, cols], pixels) = read_idx(path, IMAGE_MAGIC)?;
        Ok(Images {
            count,
            rows,
            cols,
            pixels,
        })
    }

    /// Makes `count` noisy images of 28x28 pixels and their labels: ten plain patterns in turn,
    /// image `i` being of class `i % 10`. Equal seeds give equal images.
    ///
    /// # Errors
    /// [`Error::Input`] if so many images do not fit in memory.
    pub fn synthetic(count: usize, seed: u64) -> Result<(Self, Labels)> {
        let mut images = Images::blank(count, SIDE, SIDE)?;
        for (at, pixel) in images.pixels.iter_mut().enumerate() {
            let (image, y, x) = (at / (SIDE * SIDE), at / SIDE % SIDE, at % SIDE);
            let ink = u8::from(inked(image % 10, x as i32, y as i32));
            *pixel = 192 * ink + (random_at(seed, at as u64) >> 58) as u8;
        }
        let values = (0..count).map(|image| (image % 10) as u8).collect();
        Ok((images, Labels { values }))
    }

    /// Keeps the first `count` images; all where there are fewer.
    pub fn truncate(&mut self, count: usize) {
        self.count = self.count.min(count);
        self.pixels.truncate(self.count * self.rows * self.cols);
    }

    /// Black images, or an error where they do not fit in memory.
    pub(super) fn blank(count: usize, rows: usize, cols: usize) -> Result<Self> {
        let mut pixels = Vec::new();
        rows.checked_mul(cols)
            .and_then(|area| area.checked_mul(count))
            .and_then(|bytes| pixels.try_reserve_exact(bytes).ok().map(|()| bytes))
            .map(|bytes| pixels.resize(bytes, 0))
            .ok_or_else(|| {
                Error::Input(format!(
                    "{count} images of {rows}x{cols} pixels do not fit in memory"
                ))
            })?;
        Ok(Images {
            count,
            rows,
            cols,
            pixels,
        })
    }
}

impl Labels {
    /// Reads an IDX label file, plain or gzip; the content tells which, not the name.
    ///
    /// # Errors
    /// [`Error::File`] if the file is missing, unreadable or a corrupt gzip, holds no labels, or
    /// is shorter or longer than its header says.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let ([_], values) = read_idx(path.as_ref(), LABEL_MAGIC)?;
        Ok(Labels { values })
    }
}

/// The sizes in the header, `D` of them, and the bytes behind it.
fn read_idx<const D: usize>(path: &Path, magic: u32) -> Result<([usize; D], Vec<u8>)> {
    let mut file = Idx::open(path, magic)?;
    file.check_magic(magic)?;
    let sizes = file.sizes::<D>()?;
    let data = file.data(sizes)?;
    Ok((sizes.map(|size| size as usize), data))
}

/// A file that is being read.
struct Idx<'a> {
    path: &'a Path,
    /// What the file has, unpacked.
    input: Box<dyn Read>,
    gzip: bool,
}

impl<'a> Idx<'a> {
    /// Opens the file, unpacking it if it starts with the magic of gzip.
    fn open(path: &'a Path, magic: u32) -> Result<Self> {
        let open = || -> io::Result<Self> {
            let mut file = File::open(path)?;
            let mut start = Vec::new();
            file.by_ref().take(2).read_to_end(&mut start)?;
            let gzip = start == [0x1f, 0x8b];
            let whole = Cursor::new(start).chain(file);
            let input: Box<dyn Read> = match gzip {
                true => Box::new(MultiGzDecoder::new(whole)),
                false => Box::new(whole),
            };
            Ok(Idx { path, input, gzip })
        };
        open().map_err(|why| Error::file_because(path, format!("expected {}", kind(magic)), why))
    }

    /// An error that names the file.
    fn fail(&self, why: String) -> Error {
        Error::file(self.path, why)
    }

    /// The next bytes; fewer where the file ends. The vector grows with the data, so no header can ask for
    /// memory that the file does not fill.
    fn up_to(&mut self, bytes: u64) -> Result<Vec<u8>> {
        let mut data = Vec::new();
        let read = self.input.by_ref().take(bytes).read_to_end(&mut data);
        let doing = match self.gzip {
            true => "could not be unpacked as gzip",
            false => "could not be read",
        };
        read.map_err(|why| Error::file_because(self.path, doing.to_owned(), why))?;
        Ok(data)
    }

    fn check_magic(&mut self, magic: u32) -> Result<()> {
        let first = self.up_to(4)?;
        let [found] = words(&first)[..] else {
            return Err(self.fail(format!(
                "expected {}, found only {} bytes",
                kind(magic),
                first.len()
            )));
        };
        if found == magic {
            return Ok(());
        }
        Err(self.fail(match found {
            IMAGE_MAGIC => "this is an image file (magic 2051), expected labels (2049)".to_owned(),
            LABEL_MAGIC => "this is a label file (magic 2049), expected images (2051)".to_owned(),
            _ => format!("not IDX: expected {}, found magic {found}", kind(magic)),
        }))
    }

    fn sizes<const D: usize>(&mut self) -> Result<[u32; D]> {
        let read = self.up_to(4 * D as u64)?;
        let sizes: [u32; D] = words(&read).try_into().map_err(|_| {
            self.fail(format!(
                "truncated: expected a header of {} bytes, found {} bytes",
                header_len::<D>(),
                4 + read.len()
            ))
        })?;
        if sizes[1..].contains(&0) {
            return Err(self.fail(format!(
                "expected images with pixels, found sizes {sizes:?}"
            )));
        }
        Ok(sizes)
    }

    /// The bytes that the sizes ask for: no more and no fewer.
    fn data<const D: usize>(&mut self, sizes: [u32; D]) -> Result<Vec<u8>> {
        let bytes = sizes
            .iter()
            .try_fold(1, |product: u64, &size| product.checked_mul(size.into()))
            .filter(|&bytes| bytes <= MOST_BYTES)
            .ok_or_else(|| {
                self.fail(format!(
                    "expected at most {MOST_BYTES} bytes of data, found sizes {sizes:?}"
                ))
            })?;
        // Reading one byte past the end also makes the decoder compare its checksum.
        let data = self.up_to(bytes + 1)?;
        let header = header_len::<D>() as u64;
        let (expected, found) = (header + bytes, header + data.len() as u64);
        match found.cmp(&expected) {
            Ordering::Equal => Ok(data),
            Ordering::Less => Err(self.fail(format!(
                "truncated: expected {expected} bytes, found {found}"
            ))),
            Ordering::Greater => Err(self.fail(format!(
                "trailing bytes: expected {expected} bytes, found more"
            ))),
        }
    }
}

/// Bytes of a header with so many sizes.
const fn header_len<const D: usize>() -> usize {
    4 + 4 * D
}

/// Whole big-endian words.
fn words(bytes: &[u8]) -> Vec<u32> {
    let word = |b: &[u8]| b.iter().fold(0, |n, &byte| n << 8 | u32::from(byte));
    bytes.chunks_exact(4).map(word).collect()
}

fn kind(magic: u32) -> &'static str {
    match magic {
        IMAGE_MAGIC => "IDX images (magic 2051)",
        _ => "IDX labels (magic 2049)",
    }
}

/// Whether a pixel belongs to the pattern of a class.
fn inked(class: usize, x: i32, y: i32) -> bool {
    // Twice the distance from the middle, which lies between two pixels.
    let (dx, dy) = (2 * x - 27, 2 * y - 27);
    let (near, far) = (dx.abs().min(dy.abs()), dx.abs().max(dy.abs()));
    match class {
        0 => dx * dx + dy * dy < 400,                   // disc
        1 => dx.abs() < 8,                              // upright bar
        2 => dy.abs() < 8,                              // level bar
        3 => (dx - dy).abs() < 12,                      // falling diagonal
        4 => (dx + dy).abs() < 12,                      // rising diagonal
        5 => (300..700).contains(&(dx * dx + dy * dy)), // ring
        6 => (x / 7 + y / 7) % 2 == 0,                  // chequers
        7 => far > 20,                                  // frame
        8 => near < 6,                                  // cross
        _ => y / 2 % 2 == 0,                            // stripes
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::path::PathBuf;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use tempfile::TempDir;

    use super::*;
    use crate::chain;

    fn idx(words: &[u32], data: &[u8]) -> Vec<u8> {
        let header = words.iter().flat_map(|word| word.to_be_bytes());
        header.chain(data.iter().copied()).collect()
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn file(bytes: &[u8]) -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, bytes).unwrap();
        (folder, path)
    }

    /// The reason given for not reading `bytes` as images; it must stand behind the path.
    fn refused(bytes: &[u8]) -> String {
        let (_folder, path) = file(bytes);
        let text = chain(&Images::read(&path).unwrap_err());
        text.strip_prefix(&format!("{}: ", path.display()))
            .unwrap()
            .to_owned()
    }

    #[test]
    fn reads_plain_and_gzip() {
        let plain = idx(&[2051, 2, 1, 3], &[1, 2, 3, 4, 5, 6]);
        for bytes in [gzip(&plain), plain] {
            let (_folder, path) = file(&bytes);
            let images = Images::read(path).unwrap();
            assert_eq!((images.count, images.rows, images.cols), (2, 1, 3));
            assert_eq!(images.pixels, [1, 2, 3, 4, 5, 6]);
        }
        let (_folder, path) = file(&gzip(&idx(&[2049, 3], &[7, 8, 9])));
        assert_eq!(Labels::read(path).unwrap().values, [7, 8, 9]);
    }

    #[test]
    fn refuses_what_is_not_the_right_idx() {
        assert_eq!(
            refused(&[]),
            "expected IDX images (magic 2051), found only 0 bytes"
        );
        assert_eq!(
            refused(&[0, 0, 8]),
            "expected IDX images (magic 2051), found only 3 bytes"
        );
        assert_eq!(
            refused(b"PNG, or so"),
            "not IDX: expected IDX images (magic 2051), found magic 1347307308"
        );
        assert_eq!(
            refused(&idx(&[2049, 1], &[0])),
            "this is a label file (magic 2049), expected images (2051)"
        );
        let (_folder, path) = file(&idx(&[2051, 1, 1, 1], &[0]));
        let text = Labels::read(path).unwrap_err().to_string();
        assert!(
            text.ends_with(": this is an image file (magic 2051), expected labels (2049)"),
            "{text}"
        );
    }

    #[test]
    fn refuses_wrong_lengths() {
        assert_eq!(
            refused(&idx(&[2051, 2], &[0])),
            "truncated: expected a header of 16 bytes, found 9 bytes"
        );
        let short = idx(&[2051, 2, 2, 2], &[0; 7]);
        assert_eq!(refused(&short), "truncated: expected 24 bytes, found 23");
        assert_eq!(
            refused(&gzip(&short)),
            "truncated: expected 24 bytes, found 23"
        );
        let long = idx(&[2051, 2, 2, 2], &[0; 9]);
        assert_eq!(
            refused(&long),
            "trailing bytes: expected 24 bytes, found more"
        );
        assert_eq!(
            refused(&gzip(&long)),
            "trailing bytes: expected 24 bytes, found more"
        );
    }

    #[test]
    fn refuses_absurd_sizes() {
        assert_eq!(
            refused(&idx(&[2051, u32::MAX, u32::MAX, u32::MAX], &[0; 8])),
            "expected at most 4294967296 bytes of data, \
             found sizes [4294967295, 4294967295, 4294967295]"
        );
        // Within the limit, but the file does not hold it: told without reserving 4 GB.
        assert_eq!(
            refused(&idx(&[2051, 1, 65535, 65535], &[0; 8])),
            "truncated: expected 4294836241 bytes, found 24"
        );
        assert_eq!(
            refused(&idx(&[2051, 5, 0, 28], &[])),
            "expected images with pixels, found sizes [5, 0, 28]"
        );
    }

    #[test]
    fn refuses_corrupt_gzip() {
        let good = gzip(&idx(&[2051, 1, 20, 20], &[3; 400]));
        let cut = refused(&good[..good.len() - 9]);
        assert!(cut.starts_with("could not be unpacked as gzip: "), "{cut}");
        let mut bad_sum = good.clone();
        let checksum = good.len() - 8;
        bad_sum[checksum] ^= 1;
        let text = refused(&bad_sum);
        assert!(
            text.contains("corrupt gzip stream does not have a matching checksum"),
            "{text}"
        );
        assert!(refused(&[0x1f, 0x8b]).starts_with("could not be unpacked as gzip: "));
        let junk_behind = refused(&[&good[..], b"junk behind it"].concat());
        assert!(junk_behind.contains("invalid gzip header"), "{junk_behind}");
    }

    #[test]
    fn refuses_missing_files_and_folders() {
        let folder = tempfile::tempdir().unwrap();
        let missing = chain(&Images::read(folder.path().join("none")).unwrap_err());
        let expected = "none: expected IDX images (magic 2051): No such file or directory";
        assert!(missing.contains(expected), "{missing}");
        let text = chain(&Labels::read(folder.path()).unwrap_err());
        assert!(
            text.contains("expected IDX labels (magic 2049): Is a directory"),
            "{text}"
        );
    }

    #[test]
    fn synthetic_images_differ_by_class() {
        let (images, labels) = Images::synthetic(25, 7).unwrap();
        assert_eq!(
            (images.rows, images.cols, images.pixels.len()),
            (28, 28, 25 * 784)
        );
        assert_eq!(labels.values[..12], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]);
        assert_eq!(Images::synthetic(25, 7).unwrap().0, images);
        assert_ne!(Images::synthetic(25, 8).unwrap().0, images);
        let image = |i: usize| &images.pixels[i * 784..][..784];
        let apart = |a: usize, b: usize| {
            image(a)
                .iter()
                .zip(image(b))
                .filter(|(a, b)| a.abs_diff(**b) >= 128)
                .count()
        };
        for a in 0..25 {
            for b in 0..a {
                let same_class = labels.values[a] == labels.values[b];
                assert_eq!(apart(a, b) == 0, same_class, "images {a} and {b}");
                assert!(
                    same_class || apart(a, b) > 120,
                    "{a} and {b}: {}",
                    apart(a, b)
                );
            }
        }
        assert_ne!(image(0), image(10), "there is noise");
    }

    #[test]
    fn refuses_more_images_than_memory() {
        assert_eq!(
            Images::synthetic(usize::MAX, 0).unwrap_err().to_string(),
            format!("{} images of 28x28 pixels do not fit in memory", usize::MAX)
        );
    }
}
