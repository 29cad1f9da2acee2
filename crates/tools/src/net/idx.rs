//! Images and labels from IDX files, plain or gzip, and synthetic ones for runs without files.
//!
//! An IDX file is big-endian: a magic number (2051 for images, 2049 for labels), the count, for
//! images also rows and columns, then one byte per pixel or label.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;

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
            *pixel = 192 * ink + (noise(seed, at as u64) >> 58) as u8;
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
    let fail = |why: String| Error::file(path, why);
    let because = |what: String, why: io::Error| Error::file_because(path, what, why);
    let opened = open(path).map_err(|why| because(format!("expected {}", kind(magic)), why));
    let (mut input, gzip) = opened?;
    // The vector grows with the data, so no header can ask for memory that the file does not fill.
    let mut read_up_to = |bytes: u64| {
        let mut data = Vec::new();
        match input.by_ref().take(bytes).read_to_end(&mut data) {
            Ok(_) => Ok(data),
            Err(why) if gzip => Err(because("could not be unpacked as gzip".to_owned(), why)),
            Err(why) => Err(because("could not be read".to_owned(), why)),
        }
    };

    let words = |bytes: Vec<u8>| {
        let word = |b: &[u8]| b.iter().fold(0, |n, &byte| n << 8 | u32::from(byte));
        bytes.chunks_exact(4).map(word).collect::<Vec<u32>>()
    };
    let first = read_up_to(4)?;
    let found = first.len();
    let [found] = words(first)[..] else {
        return Err(fail(format!(
            "expected {}, found only {found} bytes",
            kind(magic)
        )));
    };
    if found != magic {
        return Err(fail(match found {
            IMAGE_MAGIC => "this is an image file (magic 2051), expected labels (2049)".to_owned(),
            LABEL_MAGIC => "this is a label file (magic 2049), expected images (2051)".to_owned(),
            _ => format!("not IDX: expected {}, found magic {found}", kind(magic)),
        }));
    }

    let header = 4 + 4 * D;
    let sizes = read_up_to(4 * D as u64)?;
    let found = 4 + sizes.len();
    let sizes: [u32; D] = words(sizes).try_into().map_err(|_| {
        fail(format!(
            "truncated: expected a header of {header} bytes, found {found} bytes"
        ))
    })?;
    if sizes[1..].contains(&0) {
        return Err(fail(format!(
            "expected images with pixels, found sizes {sizes:?}"
        )));
    }
    let bytes = sizes
        .iter()
        .try_fold(1, |product: u64, &size| product.checked_mul(size.into()))
        .filter(|&bytes| bytes <= MOST_BYTES)
        .ok_or_else(|| {
            fail(format!(
                "expected at most {MOST_BYTES} bytes of data, found sizes {sizes:?}"
            ))
        })?;

    // Reading one byte past the end also makes the decoder compare its checksum.
    let data = read_up_to(bytes + 1)?;
    let (expected, found) = (header as u64 + bytes, header + data.len());
    if (found as u64) < expected {
        return Err(fail(format!(
            "truncated: expected {expected} bytes, found {found}"
        )));
    }
    if found as u64 > expected {
        return Err(fail(format!(
            "trailing bytes: expected {expected} bytes, found more"
        )));
    }
    Ok((sizes.map(|size| size as usize), data))
}

/// Opens the file, unpacking it if it starts with the magic of gzip; tells whether it does.
fn open(path: &Path) -> io::Result<(Box<dyn Read>, bool)> {
    let mut file = File::open(path)?;
    let mut start = Vec::new();
    file.by_ref().take(2).read_to_end(&mut start)?;
    let gzip = start == [0x1f, 0x8b];
    let whole = Cursor::new(start).chain(file);
    let input: Box<dyn Read> = match gzip {
        true => Box::new(MultiGzDecoder::new(whole)),
        false => Box::new(whole),
    };
    Ok((input, gzip))
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

/// The `index`-th number of a stream of evenly spread ones (SplitMix64, addressed at random).
pub(super) fn noise(seed: u64, index: u64) -> u64 {
    let z = seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
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
