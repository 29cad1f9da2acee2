//! The models that are held against tract's answers. Each ends in a convolution, whose problem depends on all shapes
//! before it.

use convforge_tools::model::proto::Model;

use crate::build_model::{Build, float, floats, int, ints, list, value, word};

/// Their names and they.
pub fn all() -> Vec<(&'static str, Model)> {
    vec![
        ("attributes", attributes()),
        ("auto_pad", auto_pad()),
        ("line", line()),
        ("residual", residual()),
        ("unet", unet()),
        ("pools", pools()),
        ("cuts", cuts()),
        ("old_cuts", old_cuts()),
        ("reckoned", reckoned()),
        ("shuffle", shuffle()),
        ("excitation", excitation()),
        ("blocks", blocks()),
    ]
}

/// Every attribute of a convolution.
fn attributes() -> Model {
    let all = [
        list("pads", &[0, 3, 2, 1]),
        list("strides", &[2, 3]),
        list("dilations", &[3, 2]),
        list("kernel_shape", &[3, 5]),
        int("group", 2),
    ];
    Build::new(13, "2 6 37 41")
        .conv("a", "x", &[8, 3, 3, 5], &all)
        .conv(
            "b",
            "a",
            &[16, 1, 2, 4],
            &[int("group", 8), list("pads", &[1, 0, 0, 3])],
        )
        .weights("bias", &[4])
        .weights("w", &[4, 16, 1, 1])
        .node("c = Conv b w bias", &[list("strides", &[2, 2])])
        .answers("c")
}

/// Padding by words, where one side gets the odd pixel.
fn auto_pad() -> Model {
    let auto = |how: &str, stride: i64| [word("auto_pad", how), list("strides", &[stride, 1])];
    let dilated = [word("auto_pad", "SAME_UPPER"), list("dilations", &[2, 3])];
    let build = Build::new(13, "1 3 31 20")
        .conv("a", "x", &[4, 3, 4, 2], &auto("SAME_UPPER", 2))
        .conv("b", "a", &[4, 4, 4, 2], &auto("SAME_LOWER", 3))
        .conv("c", "b", &[4, 4, 3, 4], &auto("NOTSET", 1))
        .conv("d", "x", &[4, 3, 5, 6], &auto("VALID", 2))
        .conv("e", "x", &[4, 3, 2, 4], &dilated)
        .conv("f", "x", &[4, 3, 1, 1], &auto("SAME_UPPER", 3))
        .node(
            "p = MaxPool x",
            &[
                list("kernel_shape", &[2, 3]),
                word("auto_pad", "SAME_LOWER"),
                list("strides", &[2, 2]),
            ],
        )
        .conv("g", "p", &[4, 3, 2, 2], &[]);
    together(build, &["c", "d", "e", "f", "g"])
}

/// One dimension.
fn line() -> Model {
    Build::new(13, "2 8 100")
        .conv(
            "a",
            "x",
            &[16, 8, 5],
            &[list("pads", &[4, 1]), list("strides", &[2])],
        )
        .node(
            "p = AveragePool a",
            &[list("kernel_shape", &[3]), list("strides", &[2])],
        )
        .conv(
            "b",
            "p",
            &[16, 1, 3],
            &[list("dilations", &[4]), int("group", 16)],
        )
        .answers("b")
}

/// What residual networks are made of.
fn residual() -> Model {
    let one = [list("pads", &[1; 4])];
    let pool = [
        list("kernel_shape", &[3, 3]),
        list("strides", &[2, 2]),
        list("pads", &[1; 4]),
    ];
    Build::new(13, "1 3 57 61")
        .conv(
            "a",
            "x",
            &[8, 3, 7, 7],
            &[list("strides", &[2, 2]), list("pads", &[3; 4])],
        )
        .weights("s", &[8])
        .node(
            "n = BatchNormalization a s s s s",
            &[float("epsilon", 1e-5)],
        )
        .node("r = Relu n", &[])
        .node("p = MaxPool r", &pool)
        .conv("b", "p", &[8, 8, 3, 3], &one)
        .node("l = LeakyRelu b", &[float("alpha", 0.1)])
        .conv("c", "l", &[8, 8, 3, 3], &one)
        .node("y = Add c p", &[])
        .node("g = GlobalAveragePool y", &[])
        .node("m = Mul y g", &[])
        .conv("d", "m", &[5, 8, 1, 1], &[])
        .answers("d")
}

/// Down and up again, every way up.
fn unet() -> Model {
    let half = [list("strides", &[2, 2]), list("pads", &[1; 4])];
    let two = [list("kernel_shape", &[2, 2]), list("strides", &[2, 2])];
    let twice = [
        word("mode", "nearest"),
        word("coordinate_transformation_mode", "asymmetric"),
        word("nearest_mode", "floor"),
    ];
    Build::new(13, "1 3 40 36")
        .conv("a", "x", &[8, 3, 3, 3], &half)
        .node("p = MaxPool a", &two)
        .conv("b", "p", &[12, 8, 3, 3], &[list("pads", &[1; 4])])
        .weights("w", &[12, 4, 3, 3])
        .node(
            "t = ConvTranspose b w",
            &[
                list("strides", &[2, 2]),
                list("pads", &[1; 4]),
                list("output_padding", &[1, 1]),
            ],
        )
        .node("j = Concat a t", &[int("axis", -3)])
        .conv("c", "j", &[6, 12, 3, 3], &[list("pads", &[1; 4])])
        .floats("scales", &[1.0, 1.0, 2.0, 1.5])
        .floats("roi", &[])
        .node("u = Resize c roi scales", &twice)
        .conv("d", "u", &[6, 6, 3, 3], &[])
        .ints("sizes", &[1, 6, 50, 33])
        .node("v = Resize d _ _ sizes", &twice)
        .conv("e", "v", &[6, 6, 2, 2], &[])
        .answers("e")
}

/// Pools whose last window hangs over, or does not.
fn pools() -> Model {
    let pool = |ceil: i64, pads: &[i64]| {
        [
            list("kernel_shape", &[3, 2]),
            list("strides", &[2, 3]),
            list("pads", pads),
            int("ceil_mode", ceil),
        ]
    };
    let build = Build::new(13, "1 3 20 21")
        .node("a = MaxPool x", &pool(0, &[0; 4]))
        .node("b = MaxPool x", &pool(1, &[0; 4]))
        .node("c = MaxPool x", &pool(1, &[1, 0, 1, 1]))
        .node("d = AveragePool x", &pool(1, &[1, 1, 0, 0]))
        .node("e = GlobalMaxPool x", &[])
        .conv("ya", "a", &[2, 3, 1, 1], &[])
        .conv("yb", "b", &[2, 3, 1, 1], &[])
        .conv("yc", "c", &[2, 3, 1, 1], &[])
        .conv("yd", "d", &[2, 3, 1, 1], &[])
        .conv("ye", "e", &[2, 3, 1, 1], &[]);
    together(build, &["ya", "yb", "yc", "yd", "ye"])
}

/// Pieces of tensors by operators of version 13.
fn cuts() -> Model {
    Build::new(13, "1 6 30 24")
        .ints("starts", &[1, -20, 22])
        .ints("ends", &[i64::MAX, -3, i64::MIN])
        .ints("axes", &[1, 2, -1])
        .ints("steps", &[2, 3, -2])
        .node("a = Slice x starts ends axes steps", &[])
        .conv("b", "a", &[8, 3, 1, 2], &[])
        .ints("parts", &[3, 5])
        .node("c d = Split b parts", &[int("axis", 1)])
        .ints("pads", &[0, 0, 1, 2, 0, 0, 3, 4])
        .node("e = Pad d pads", &[])
        .conv("f", "e", &[4, 5, 3, 3], &[])
        .node("g h = Split f", &[int("axis", 1)])
        .node("i = Transpose g", &[list("perm", &[0, 1, 3, 2])])
        .conv("j", "i", &[4, 2, 3, 2], &[])
        .ints("one", &[1])
        .node("k = Unsqueeze j one", &[])
        .node("l = Squeeze k one", &[])
        .conv("m", "l", &[4, 4, 1, 2], &[])
        .answers("m")
}

/// Pieces of tensors by operators of version 9, whose arguments are attributes.
fn old_cuts() -> Model {
    let cut = [
        list("starts", &[0, 1]),
        list("ends", &[4, -2]),
        list("axes", &[1, 3]),
    ];
    Build::new(9, "1 6 30 24")
        .node("a = Slice x", &cut)
        .conv("b", "a", &[8, 4, 3, 3], &[])
        .node("c d = Split b", &[int("axis", 1), list("split", &[2, 6])])
        .node("e = Pad d", &[list("pads", &[0, 0, 1, 2, 0, 0, 3, 4])])
        .conv("g", "e", &[4, 6, 3, 3], &[])
        .node("h = Unsqueeze g", &[list("axes", &[0])])
        .node("i = Squeeze h", &[list("axes", &[0])])
        .conv("j", "i", &[4, 4, 1, 2], &[])
        .answers("j")
}

/// Sizes that the graph reckons from shapes, as exporters write them.
fn reckoned() -> Model {
    let one = |name: &str, number: i64| value(ints(name, &[number]));
    Build::new(13, "1 4 20 26")
        .conv("a", "x", &[8, 4, 3, 3], &[list("strides", &[2, 2])])
        .node("shape = Shape x", &[])
        .ints("hw", &[2, 3])
        .node("big = Gather shape hw", &[int("axis", 0)])
        .node("two = Constant", &[one("", 3)])
        .node("half = Div big two", &[])
        .node("shape2 = Shape a", &[])
        .ints("from", &[0])
        .ints("to", &[2])
        .node("nc = Slice shape2 from to", &[])
        .node("sizes = Concat nc half", &[int("axis", 0)])
        .node("b = Resize a _ _ sizes", &[word("mode", "nearest")])
        .conv("c", "b", &[8, 8, 3, 3], &[])
        .ints("channels", &[-1, 2, 4])
        .node("shape3 = Shape c", &[])
        .node("image = Gather shape3 hw", &[])
        .node("cut = Concat channels image", &[int("axis", 0)])
        .node("d = Reshape c cut", &[])
        .ints("last", &[2])
        .node("e = Gather d last", &[int("axis", 2)])
        .ints("axis", &[2])
        .node("f = Squeeze e axis", &[])
        .conv("g", "f", &[3, 2, 2, 1], &[])
        .answers("g")
}

/// Channels that are shuffled between groups, with sizes of 0 and -1.
fn shuffle() -> Model {
    Build::new(13, "2 3 28 20")
        .conv(
            "a",
            "x",
            &[12, 3, 3, 3],
            &[list("strides", &[2, 2]), list("pads", &[1; 4])],
        )
        .ints("apart", &[0, 3, 4, 14, 10])
        .node("b = Reshape a apart", &[])
        .node("c = Transpose b", &[list("perm", &[0, 2, 1, 3, 4])])
        .ints("together", &[0, -1, 14, 10])
        .node("d = Reshape c together", &[])
        .conv("e", "d", &[12, 4, 1, 1], &[int("group", 3)])
        .answers("e")
}

/// Squeeze and excitation, written as convolutions of one pixel.
fn excitation() -> Model {
    Build::new(13, "2 3 28 20")
        .conv("a", "x", &[16, 3, 3, 3], &[])
        .node("s = Sigmoid a", &[])
        .node("t = Mul a s", &[])
        .node(
            "m = ReduceMean t",
            &[list("axes", &[2, 3]), int("keepdims", 1)],
        )
        .conv("b", "m", &[4, 16, 1, 1], &[])
        .node("r = Relu b", &[])
        .conv("c", "r", &[16, 4, 1, 1], &[])
        .node("h = HardSigmoid c", &[])
        .node("y = Mul t h", &[])
        .node("n = ReduceMax y", &[list("axes", &[1]), int("keepdims", 0)])
        .ints("one", &[1])
        .node("o = Unsqueeze n one", &[])
        .conv("d", "o", &[2, 1, 3, 3], &[])
        .answers("d")
}

/// Pixels for channels and back.
fn blocks() -> Model {
    Build::new(13, "1 3 24 20")
        .node("a = SpaceToDepth x", &[int("blocksize", 2)])
        .conv("b", "a", &[18, 12, 3, 3], &[])
        .node(
            "c = DepthToSpace b",
            &[int("blocksize", 3), word("mode", "CRD")],
        )
        .conv("d", "c", &[4, 2, 3, 3], &[])
        .node("e = Cast d", &[int("to", 1)])
        .node("lo = Constant", &[floats("value_floats", &[0.5])])
        .node("f = Max e lo", &[])
        .conv("g", "f", &[4, 4, 3, 3], &[])
        .answers("g")
}

/// The model that answers all of these, one after the other in a list of numbers.
fn together(build: Build, names: &[&str]) -> Model {
    let flat =
        |build: Build, name: &&str| build.node(&format!("{name}_flat = Reshape {name} flat"), &[]);
    let build = names.iter().fold(build.ints("flat", &[-1]), flat);
    let lists: Vec<String> = names.iter().map(|name| format!("{name}_flat")).collect();
    build
        .node(
            &format!("z = Concat {}", lists.join(" ")),
            &[int("axis", 0)],
        )
        .answers("z")
}
