//! A file of weights, in one of two formats, told apart by its content.
//!
//! As `scripts/train.py` writes it, it is safetensors (`tensors`). The other one is little-endian: an
//! int32 number of layers, then per layer an int32 count and that many float32, weights before biases.
//! Layers without weights are there with a count of 0.

use std::{fs::File, io::Read, path::Path};

use super::{Weights, tensors};
use crate::{Error, Result};

/// Each layer of the file: its name, the number of its weights and of its biases.
const LAYERS: [(&str, usize, usize); 10] = [
    ("convolution 1", 4 * 7 * 7, 4),
    ("ReLU 1", 0, 0),
    ("pooling 1", 0, 0),
    ("convolution 2", 16 * 4 * 7 * 7, 16),
    ("ReLU 2", 0, 0),
    ("pooling 2", 0, 0),
    ("fully connected 1", 32 * 1296, 32),
    ("ReLU 3", 0, 0),
    ("fully connected 2", 10 * 32, 10),
    ("softmax", 0, 0),
];

/// Bytes of a file at most; a right one has less than a fifth of it.
const MOST_BYTES: usize = 1 << 20;

/// What begins with a larger count than any network's is no weight file.
const MOST_LAYERS: i32 = 1000;

impl Weights {
    /// Reads a weight file of either format.
    ///
    /// # Errors
    /// [`Error::File`] if the file is missing or unreadable, has other layers, tensors or shapes than
    /// the network, is too short or too long, or holds a value that is not finite.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes))
            .map_err(|why| Error::file_because(path, "expected a weight file", why))?;
        let weights = match tensors::begins(&bytes) {
            _ if bytes.len() > MOST_BYTES => Err(format!(
                "expected a weight file of at most {MOST_BYTES} bytes, found more"
            )),
            true => tensors::parse(&bytes),
            false => parse(&bytes),
        };
        weights.map_err(|why| Error::file(path, why))
    }
}

fn parse(mut bytes: &[u8]) -> Result<Weights, String> {
    let layers = take_int(&mut bytes, "the number of layers")?;
    if layers != LAYERS.len() as i32 {
        return Err(match layers {
            // Another network's.
            0..MOST_LAYERS => format!("expected {} layers, found {layers}", LAYERS.len()),
            _ => "is neither safetensors, as scripts/train.py writes it, nor counted layers of float32"
                .to_owned(),
        });
    }
    let mut found = Vec::new();
    for (i, (name, weights, biases)) in LAYERS.into_iter().enumerate() {
        let layer = format!("layer {} ({name})", i + 1);
        let count = take_int(&mut bytes, &format!("the count of {layer}"))?;
        if usize::try_from(count) != Ok(weights + biases) {
            return Err(format!(
                "{layer}: expected {} values, found {count}",
                weights + biases
            ));
        }
        let values = take(&mut bytes, 4 * (weights + biases), &layer)?;
        let (values, _) = values.as_chunks();
        let mut values: Vec<f32> = values.iter().map(|&b| f32::from_le_bytes(b)).collect();
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            return Err(format!(
                "{layer}: expected finite values, found {} at {at}",
                values[at]
            ));
        }
        let biases = values.split_off(weights);
        if weights > 0 {
            found.push((values, biases));
        }
    }
    if !bytes.is_empty() {
        let expected: usize = LAYERS.iter().map(|(_, w, b)| 4 + 4 * (w + b)).sum();
        return Err(format!(
            "trailing bytes: expected {} bytes, found more",
            4 + expected
        ));
    }
    let [
        (conv1, _),
        (conv2, _),
        (fc1_weight, fc1_bias),
        (fc2_weight, fc2_bias),
    ] = found
        .try_into()
        .map_err(|_| "expected 4 layers with weights".to_owned())?;
    Ok(Weights {
        conv1,
        conv2,
        fc1_weight,
        fc1_bias,
        fc2_weight,
        fc2_bias,
    })
}

fn take_int(bytes: &mut &[u8], what: &str) -> Result<i32, String> {
    let word = take(bytes, 4, what)?;
    Ok(word
        .iter()
        .rev()
        .fold(0, |n, &byte| n << 8 | i32::from(byte)))
}

fn take<'a>(bytes: &mut &'a [u8], count: usize, what: &str) -> Result<&'a [u8], String> {
    bytes.split_off(..count).ok_or_else(|| {
        format!(
            "truncated: expected {count} bytes for {what}, found {}",
            bytes.len()
        )
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::chain;

    /// A file of the right form whose `i`-th value is `i`.
    fn good() -> Vec<u8> {
        let mut bytes = 10_i32.to_le_bytes().to_vec();
        let mut next = 0;
        for count in [200, 0, 0, 3152, 0, 0, 41504, 0, 330, 0] {
            bytes.extend(i32::to_le_bytes(count));
            for _ in 0..count {
                bytes.extend((next as f32).to_le_bytes());
                next += 1;
            }
        }
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Weights> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weights.bin");
        fs::write(&path, bytes).unwrap();
        Weights::read(path)
    }

    #[track_caller]
    fn assert_refused(bytes: &[u8], why: &str) {
        let text = read(bytes).unwrap_err().to_string();
        assert!(text.ends_with(&format!("weights.bin: {why}")), "{text}");
    }

    fn with(at: usize, word: [u8; 4]) -> Vec<u8> {
        let mut bytes = good();
        bytes[at..at + 4].copy_from_slice(&word);
        bytes
    }

    #[test]
    fn puts_every_value_in_its_place() {
        let weights = read(&good()).unwrap();
        let first_and_len = |v: &[f32]| (v[0], v.len());
        assert_eq!(first_and_len(&weights.conv1), (0.0, 196));
        assert_eq!(first_and_len(&weights.conv2), (200.0, 3136));
        assert_eq!(first_and_len(&weights.fc1_weight), (3352.0, 41472));
        assert_eq!(first_and_len(&weights.fc1_bias), (44824.0, 32));
        assert_eq!(first_and_len(&weights.fc2_weight), (44856.0, 320));
        assert_eq!(first_and_len(&weights.fc2_bias), (45176.0, 10));
    }

    #[test]
    fn refuses_other_layers() {
        assert_refused(&with(0, 9_i32.to_le_bytes()), "expected 10 layers, found 9");
        assert_refused(
            &with(4, 196_i32.to_le_bytes()),
            "layer 1 (convolution 1): expected 200 values, found 196",
        );
        assert_refused(
            &with(808, (-1_i32).to_le_bytes()),
            "layer 2 (ReLU 1): expected 0 values, found -1",
        );
        assert_refused(
            &with(816, i32::MAX.to_le_bytes()),
            "layer 4 (convolution 2): expected 3152 values, found 2147483647",
        );
    }

    #[test]
    fn what_is_no_weight_file_is_said_to_be_none() {
        let neither = "is neither safetensors, as scripts/train.py writes it, nor counted layers of \
                       float32";
        assert_refused(b"not weights at all", neither);
        assert_refused(&[0xc4; 4096], neither);
    }

    #[test]
    fn refuses_wrong_lengths() {
        let good = good();
        assert_refused(
            &good[..3],
            "truncated: expected 4 bytes for the number of layers, found 3",
        );
        assert_refused(
            &good[..1000],
            "truncated: expected 12608 bytes for layer 4 (convolution 2), found 180",
        );
        assert_refused(
            &good[..good.len() - 1],
            "truncated: expected 4 bytes for the count of layer 10 (softmax), found 3",
        );
        let long = [&good[..], &[0]].concat();
        assert_refused(&long, "trailing bytes: expected 180788 bytes, found more");
    }

    #[test]
    fn refuses_values_that_are_not_finite() {
        assert_refused(
            &with(8 + 4 * 199, f32::NAN.to_le_bytes()),
            "layer 1 (convolution 1): expected finite values, found NaN at 199",
        );
        assert_refused(
            &with(820, f32::NEG_INFINITY.to_le_bytes()),
            "layer 4 (convolution 2): expected finite values, found -inf at 0",
        );
    }

    #[test]
    fn refuses_missing_files() {
        let folder = tempfile::tempdir().unwrap();
        let text = chain(&Weights::read(folder.path().join("none")).unwrap_err());
        let expected = "none: expected a weight file: No such file or directory";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn synthetic_weights_have_the_shapes_and_follow_the_seed() {
        let (made, file) = (Weights::synthetic(1), read(&good()).unwrap());
        let lengths = |w: &Weights| {
            [
                &w.conv1,
                &w.conv2,
                &w.fc1_weight,
                &w.fc1_bias,
                &w.fc2_weight,
                &w.fc2_bias,
            ]
            .map(Vec::len)
        };
        assert_eq!(lengths(&made), lengths(&file));
        assert_eq!(made, Weights::synthetic(1));
        assert_ne!(made, Weights::synthetic(2));
        assert!(made.conv2.iter().all(|w| w.abs() <= 0.175));
    }
}
