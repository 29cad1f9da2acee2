//! The weights as safetensors: a tensor by name and shape for each part, f32, and nothing else.

use safetensors::{Dtype, SafeTensors};

use super::Weights;

/// The tensors of the file. The convolutions have no bias, so a file with one is of another network.
const TENSORS: [(&str, &[usize]); 6] = [
    ("conv1.weight", &[4, 1, 7, 7]),
    ("conv2.weight", &[16, 4, 7, 7]),
    ("fc1.weight", &[32, 1296]),
    ("fc1.bias", &[32]),
    ("fc2.weight", &[10, 32]),
    ("fc2.bias", &[10]),
];

/// Whether these are the first bytes of such a file: the length of a JSON object in eight bytes,
/// then the object. In the other format bytes 4 to 8 are a count that is not 0.
pub(super) fn begins(bytes: &[u8]) -> bool {
    matches!(bytes, [_, _, _, _, 0, 0, 0, 0, b'{', ..])
}

pub(super) fn parse(bytes: &[u8]) -> Result<Weights, String> {
    let file = SafeTensors::deserialize(bytes)
        .map_err(|why| format!("expected a whole safetensors file: {why}"))?;
    let mut names = file.names();
    names.sort_unstable();
    let known = |name: &&str| TENSORS.iter().any(|(known, _)| known == name);
    if let Some(name) = names.iter().find(|name| !known(name)) {
        return Err(format!("the network has no tensor {name}"));
    }
    let [conv1, conv2, fc1_weight, fc1_bias, fc2_weight, fc2_bias] =
        TENSORS.map(|(name, shape)| values(&file, name, shape));
    Ok(Weights {
        conv1: conv1?,
        conv2: conv2?,
        fc1_weight: fc1_weight?,
        fc1_bias: fc1_bias?,
        fc2_weight: fc2_weight?,
        fc2_bias: fc2_bias?,
    })
}

fn values(file: &SafeTensors, name: &str, shape: &[usize]) -> Result<Vec<f32>, String> {
    let expected = format!("tensor {name}: expected F32 {shape:?}");
    let tensor = file
        .tensor(name)
        .map_err(|_| format!("{expected}, found none of this name"))?;
    if (tensor.dtype(), tensor.shape()) != (Dtype::F32, shape) {
        let (dtype, shape) = (tensor.dtype(), tensor.shape());
        return Err(format!("{expected}, found {dtype:?} {shape:?}"));
    }
    let (words, _) = tensor.data().as_chunks();
    let values: Vec<f32> = words.iter().map(|&word| f32::from_le_bytes(word)).collect();
    match values.iter().position(|value| !value.is_finite()) {
        Some(at) => Err(format!(
            "tensor {name}: expected finite values, found {} at {at}",
            values[at]
        )),
        None => Ok(values),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use safetensors::tensor::TensorView;

    use super::*;

    /// A tensor to be written.
    struct Made {
        name: &'static str,
        dtype: Dtype,
        shape: Vec<usize>,
        bytes: Vec<u8>,
    }

    /// The tensors of a right file; the `i`-th value of all is `i`.
    fn good() -> Vec<Made> {
        let mut next = 0;
        let mut count = || {
            next += 1;
            (next - 1) as f32
        };
        let mut made = |(name, shape): (&'static str, &[usize])| Made {
            name,
            dtype: Dtype::F32,
            shape: shape.to_vec(),
            bytes: (0..shape.iter().product())
                .flat_map(|_: usize| count().to_le_bytes())
                .collect(),
        };
        TENSORS.into_iter().map(&mut made).collect()
    }

    fn file(tensors: &[Made]) -> Vec<u8> {
        let views = tensors.iter().map(|tensor| {
            let view = TensorView::new(tensor.dtype, tensor.shape.clone(), &tensor.bytes);
            (tensor.name, view.unwrap())
        });
        safetensors::serialize(views, None).unwrap()
    }

    #[track_caller]
    fn assert_refused(bytes: &[u8], why: &str) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("some.safetensors");
        fs::write(&path, bytes).unwrap();
        let text = Weights::read(path).unwrap_err().to_string();
        assert!(text.contains(&format!("some.safetensors: {why}")), "{text}");
    }

    #[test]
    fn puts_every_tensor_in_its_place() {
        let folder = tempfile::tempdir().unwrap();
        // The name says nothing; the content does.
        let path = folder.path().join("weights.bin");
        fs::write(&path, file(&good())).unwrap();
        let weights = Weights::read(path).unwrap();
        let first_and_len = |v: &[f32]| (v[0], v.len());
        assert_eq!(first_and_len(&weights.conv1), (0.0, 196));
        assert_eq!(first_and_len(&weights.conv2), (196.0, 3136));
        assert_eq!(first_and_len(&weights.fc1_weight), (3332.0, 41472));
        assert_eq!(first_and_len(&weights.fc1_bias), (44804.0, 32));
        assert_eq!(first_and_len(&weights.fc2_weight), (44836.0, 320));
        assert_eq!(first_and_len(&weights.fc2_bias), (45156.0, 10));
    }

    #[test]
    fn refuses_other_tensors() {
        let mut missing = good();
        missing.remove(3);
        assert_refused(
            &file(&missing),
            "tensor fc1.bias: expected F32 [32], found none of this name",
        );
        let mut turned = good();
        turned[2].shape = vec![1296, 32];
        assert_refused(
            &file(&turned),
            "tensor fc1.weight: expected F32 [32, 1296], found F32 [1296, 32]",
        );
        let mut integer = good();
        integer[5].dtype = Dtype::I32;
        assert_refused(
            &file(&integer),
            "tensor fc2.bias: expected F32 [10], found I32 [10]",
        );
        let mut biased = good();
        biased.push(Made {
            name: "conv1.bias",
            dtype: Dtype::F32,
            shape: vec![4],
            bytes: vec![0; 16],
        });
        assert_refused(&file(&biased), "the network has no tensor conv1.bias");
    }

    #[test]
    fn refuses_values_that_are_not_finite() {
        let mut tensors = good();
        tensors[1].bytes[40..44].copy_from_slice(&f32::NAN.to_le_bytes());
        assert_refused(
            &file(&tensors),
            "tensor conv2.weight: expected finite values, found NaN at 10",
        );
    }

    #[test]
    fn refuses_wrong_lengths() {
        let good = file(&good());
        let part = "expected a whole safetensors file: ";
        assert_refused(&good[..good.len() - 1], part);
        assert_refused(&good[..100], part);
        assert_refused(&[&good[..], &[0]].concat(), part);
        let huge = vec![0; 2 << 20];
        assert_refused(
            &[&good[..], &huge].concat(),
            "expected a weight file of at most 1048576 bytes",
        );
    }
}
