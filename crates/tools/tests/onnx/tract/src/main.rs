//! What tract-onnx makes of the Conv nodes of ONNX files: `tract-answers FILE...`, a line for each, in the order of
//! their names: the file, the node, the numbers of its problem.

use std::{env, path::Path};

use tract_onnx::{
    prelude::*,
    tract_core::{internal::DimLike, ops::cnn::Conv},
};

fn main() -> TractResult<()> {
    for path in env::args().skip(1) {
        let path = Path::new(&path);
        let file = path.file_stem().unwrap_or_default().to_string_lossy();
        for line in answers(path)? {
            println!("{file} {line}");
        }
    }
    Ok(())
}

fn answers(path: &Path) -> TractResult<Vec<String>> {
    let model = tract_onnx::onnx().model_for_path(path)?.into_typed()?;
    let convs = model.nodes().iter();
    let convs = convs.filter_map(|node| Some((node, node.op_as::<Conv>()?)));
    let lines = convs.map(|(node, conv)| {
        let input = model.outlet_fact(node.inputs[0])?;
        Ok(format!("{} {}", node.name, numbers(conv, input)?))
    });
    let mut lines = lines.collect::<TractResult<Vec<_>>>()?;
    lines.sort();
    Ok(lines)
}

fn numbers(conv: &Conv, input: &TypedFact) -> TractResult<String> {
    let spec = &conv.pool_spec;
    let shape = spec.data_format.shape(input.shape.to_tvec())?;
    let n = shape.n().map_or(Ok(1), |n| n.to_usize())?;
    let sizes = shape.hw_dims().iter();
    let image: TVec<usize> = sizes
        .map(|size| Ok(size.to_usize()?))
        .collect::<TractResult<_>>()?;
    let (stride, dilation) = (spec.strides(), spec.dilations());
    let sides = spec
        .padding
        .compute(&image, &spec.kernel_shape, &dilation, &stride);
    let out: Vec<usize> = sides.iter().map(|side| side.convoluted).collect();
    let pad: Vec<usize> = sides.iter().map(|side| side.pad_before).collect();
    Ok(format!(
        "g{} mb{n} ic{} oc{} i{} o{} k{} s{} d{} p{}",
        conv.group,
        spec.input_channels,
        spec.output_channels,
        pair(&image, 1),
        pair(&out, 1),
        pair(&spec.kernel_shape, 1),
        pair(&stride, 1),
        pair(&dilation, 1),
        pair(&pad, 0)
    ))
}

/// `3x2`, of one dimension with what an image one pixel high has.
fn pair(sizes: &[usize], of_height: usize) -> String {
    match sizes {
        [across] => format!("{of_height}x{across}"),
        sizes => sizes
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("x"),
    }
}
