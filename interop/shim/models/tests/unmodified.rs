//! Models of candle-transformers, which know nothing of convforge, are computed by it.

use std::time::Duration;

use candle_core::{DType, Device};
use models::{Answer, Net, Options, measure};

fn answer(net: Net, dtype: DType) -> Answer {
    let options = Options {
        device: Device::Cpu,
        dtype,
        batch: 1,
        size: 64,
        seed: 7,
        least: Duration::ZERO,
        layers: false,
        pick: None,
    };
    let answer = measure(net, &options).unwrap();
    println!("{answer:?}");
    assert_eq!(answer.wrong(), None);
    answer
}

/// All of its 20, and the outputs are candle's.
#[test]
fn resnet18() {
    assert_eq!(answer(Net::Resnet18, DType::F32).convolutions, 20);
}

#[test]
fn resnet18_in_f16() {
    assert_eq!(answer(Net::Resnet18, DType::F16).convolutions, 20);
}

/// Depthwise ones too.
#[test]
fn efficientnet_b0() {
    assert_eq!(answer(Net::EfficientnetB0, DType::F32).convolutions, 81);
}

/// A wrong output is seen.
#[test]
fn another_output_is_wrong() {
    let mut answer = answer(Net::Resnet18, DType::F32);
    for difference in [1e-3, f64::NAN] {
        answer.difference = difference;
        assert!(answer.wrong().is_some());
    }
    answer.from_f32 = Some([2e-3, 1e-3]);
    assert!(answer.wrong().is_some());
}
