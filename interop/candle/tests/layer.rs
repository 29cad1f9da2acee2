//! Layers on the CPU, beside candle's own.

use candle_core::{DType, Device, Module, Result, Tensor, Var};
use convforge_candle::{Activation, Config, Layer, by_candle, watch};

/// Small whole numbers, so that every sum is exact.
fn tensor(dims: (usize, usize, usize, usize), dtype: DType) -> Result<Tensor> {
    let len = dims.0 * dims.1 * dims.2 * dims.3;
    let numbers: Vec<f32> = (0..len).map(|i| (i * 7 % 5) as f32 - 2.).collect();
    Tensor::from_vec(numbers, dims, &Device::Cpu)?.to_dtype(dtype)
}

fn layer(dtype: DType, groups: usize) -> Result<Layer> {
    let bias = Tensor::arange(0f32, 8., &Device::Cpu)?.to_dtype(dtype)?;
    let config = Config {
        padding: 1,
        stride: 2,
        dilation: 1,
        groups,
    };
    Ok(Layer::new(
        tensor((8, 8 / groups, 3, 3), dtype)?,
        Some(bias),
        config,
    ))
}

fn numbers(tensor: &Tensor) -> Result<Vec<f32>> {
    tensor.to_dtype(DType::F32)?.flatten_all()?.to_vec1()
}

#[test]
fn outputs_are_candles() -> Result<()> {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for (groups, batch) in [(1, 1), (1, 3), (2, 2), (8, 2)] {
            for activation in [Activation::None, Activation::Relu, Activation::Relu6] {
                let ours = layer(dtype, groups)?.activation(activation);
                let x = tensor((batch, 8, 9, 7), dtype)?;
                let (y, calls) = watch(|| ours.forward(&x));
                // In f32, rounded once at the end: candle has no bf16 here.
                let exact = layer(DType::F32, groups)?.activation(activation);
                let exact = by_candle(|| exact.forward(&x.to_dtype(DType::F32)?))?;
                let (y, candles) = (y?, exact.to_dtype(dtype)?);
                assert_eq!(calls.len(), 1);
                assert_eq!((y.dims(), y.dtype()), (candles.dims(), dtype));
                assert_eq!(
                    numbers(&y)?,
                    numbers(&candles)?,
                    "{dtype:?} {}",
                    calls[0].problem
                );
            }
        }
    }
    Ok(())
}

#[test]
fn inputs_need_not_be_contiguous() -> Result<()> {
    let layer = layer(DType::F32, 1)?;
    let x = tensor((2, 9, 7, 8), DType::F32)?.permute((0, 3, 1, 2))?;
    let part = tensor((4, 8, 9, 7), DType::F32)?.narrow(0, 1, 2)?;
    for x in [x, part] {
        let candles = by_candle(|| layer.forward(&x))?;
        assert_eq!(numbers(&layer.forward(&x)?)?, numbers(&candles)?);
    }
    Ok(())
}

#[test]
fn going_backward_is_an_error() -> Result<()> {
    let layer = layer(DType::F32, 1)?;
    let x = Var::from_tensor(&tensor((1, 8, 9, 7), DType::F32)?)?;
    let error = layer.forward(&x)?.sum_all()?.backward().unwrap_err();
    assert!(error.to_string().contains("for inference"), "{error}");
    Ok(())
}

#[test]
fn variables_may_change() -> Result<()> {
    let weight = Var::from_tensor(&tensor((8, 8, 3, 3), DType::F32)?)?;
    let layer = Layer::new(weight.as_tensor().clone(), None, Config::default());
    let x = tensor((1, 8, 9, 7), DType::F32)?;
    let before = numbers(&layer.forward(&x)?)?;
    weight.set(&(weight.as_tensor() * 2.)?)?;
    let after: Vec<f32> = before.iter().map(|y| 2. * y).collect();
    assert_eq!(numbers(&layer.forward(&x)?)?, after);
    Ok(())
}

#[test]
fn what_is_not_ours_is_candles() -> Result<()> {
    let layer = layer(DType::F64, 1)?;
    let (y, calls) = watch(|| layer.forward(&tensor((1, 8, 9, 7), DType::F64)?));
    assert_eq!(y?.dtype(), DType::F64);
    assert!(calls.is_empty());
    Ok(())
}

#[test]
fn shapes_that_do_not_fit_are_errors() -> Result<()> {
    let layer = layer(DType::F32, 1)?;
    for dims in [(1, 7, 9, 7), (1, 9, 9, 7)] {
        let x = Tensor::zeros(dims, DType::F32, &Device::Cpu)?;
        assert!(layer.forward(&x).is_err());
    }
    let none = Layer::new(
        layer.weight().clone(),
        None,
        Config {
            stride: 0,
            ..Config::default()
        },
    );
    assert!(none.forward(&tensor((1, 8, 9, 7), DType::F32)?).is_err());
    Ok(())
}
