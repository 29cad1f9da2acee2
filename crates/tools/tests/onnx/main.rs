//! ONNX files as suites: the shapes that are found in them, what is said of files that are none, and the command.

mod build_model;
mod models;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use build_model::{Build, body, float, floats, int, ints, list, word};
use convforge::Problem;
use convforge_tools::{
    chain,
    model::{
        Asked, Model,
        proto::{self, Function, Graph, Tensor},
    },
    suite::Layer,
};
use proptest::prelude::*;
use prost::Message;
use tempfile::TempDir;

/// What tract-onnx says of the models; its first lines say how it was made.
const TRACT: &str = include_str!("tract.txt");

/// A folder with a model's file, and the file.
fn file(model: &proto::Model) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.onnx");
    fs::write(&path, model.encode_to_vec()).unwrap();
    (folder, path)
}

fn open(model: &proto::Model, asked: &Asked) -> Result<Model, String> {
    let (_folder, path) = file(model);
    Model::open(&path, asked).map_err(|why| chain(&why))
}

/// The problems of a model that leaves nothing open, each with its nodes.
#[track_caller]
fn layers(model: &proto::Model) -> Vec<String> {
    spelled(&open(model, &Asked::default()).unwrap().layers)
}

fn spelled(layers: &[Layer]) -> Vec<String> {
    let layer = |layer: &Layer| format!("{} {}", layer.nodes.join(","), layer.problem);
    layers.iter().map(layer).collect()
}

#[track_caller]
fn refuses(model: &proto::Model, asked: &Asked, parts: &[&str]) {
    let why = open(model, asked).expect_err("it was read");
    for part in parts {
        assert!(why.contains(part), "no `{part}` in: {why}");
    }
}

/// A problem as the lines of tract.txt have it.
fn numbers(p: &Problem) -> String {
    format!(
        "g{} mb{} ic{} oc{} i{}x{} o{}x{} k{}x{} s{}x{} d{}x{} p{}x{}",
        p.groups(),
        p.n(),
        p.c(),
        p.k(),
        p.h(),
        p.w(),
        p.p(),
        p.q(),
        p.r(),
        p.s(),
        p.stride()[0],
        p.stride()[1],
        p.dilation()[0],
        p.dilation()[1],
        p.pad().top,
        p.pad().left
    )
}

#[test]
fn shapes_are_what_tract_finds() {
    let mut lines = Vec::new();
    for (name, model) in models::all() {
        for layer in open(&model, &Asked::default()).unwrap().layers {
            let nodes = layer.nodes.iter();
            lines.extend(nodes.map(|node| format!("{name} {node} {}", numbers(&layer.problem))));
        }
    }
    lines.sort();
    let tract: Vec<&str> = TRACT
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    assert!(tract.len() > 30);
    assert_eq!(lines, tract);
}

/// tract does not follow these.
#[test]
fn images_are_enlarged_by_older_operators_too() {
    let by = [1.0, 1.0, 2.0, 1.5];
    let image = |opset| Build::new(opset, "1 3 8 9").floats("scales", &by);
    let ways = [
        image(7).node("u = Upsample x", &[floats("scales", &by)]),
        image(9).node("u = Upsample x scales", &[]),
        image(10).node("u = Resize x scales", &[]),
        image(18)
            .node("u = Resize x _ two", &[list("axes", &[3, 2])])
            .floats("two", &[1.5, 2.0]),
    ];
    for way in ways {
        let model = way.conv("y", "u", &[4, 3, 3, 3], &[]).answers("y");
        assert_eq!(layers(&model), ["Y mb1ic3ih16iw13oc4oh14ow11kh3"]);
    }
}

/// `scripts/onnx_reference.py tract` runs it, and tract on what it writes.
#[test]
#[ignore = "writes the models for scripts/onnx_reference.py"]
fn write_models() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("onnx");
    fs::create_dir_all(&folder).unwrap();
    for (name, model) in models::all() {
        let path = folder.join(name).with_extension("onnx");
        fs::write(path, model.encode_to_vec()).unwrap();
    }
}

#[test]
fn equal_convolutions_are_one_layer_with_its_nodes() {
    let same = [list("pads", &[1; 4])];
    let model = Build::new(13, "2 8 10 12")
        .conv("a", "x", &[8, 8, 3, 3], &same)
        .conv("b", "a", &[8, 8, 1, 1], &[])
        .conv("c", "b", &[8, 8, 3, 3], &same)
        .weights("bias", &[8])
        .weights("w", &[8, 8, 3, 3])
        .node("d = Conv c w bias", &same)
        .answers("d");
    let found = open(&model, &Asked::default()).unwrap();
    assert_eq!(
        spelled(&found.layers),
        [
            "A,C mb2ic8ih10iw12oc8oh10ow12kh3ph1",
            "B mb2ic8ih10iw12oc8oh10ow12kh1",
            "D mb2ic8ih10iw12oc8oh10ow12kh3ph1+bias",
        ]
    );
    let first = &found.layers[0];
    assert_eq!((&*first.suite, &*first.layer), ("net.onnx", "A"));
    assert!(found.notes.is_empty());
}

#[test]
fn a_node_without_a_name_of_its_own_is_called_as_its_output() {
    let build = Build::new(13, "1 3 8 8").conv("a", "x", &[4, 3, 3, 3], &[]);
    let mut model = build.conv("b", "a", &[4, 4, 3, 3], &[]).answers("b");
    let nodes = &mut model.graph.as_mut().unwrap().node;
    nodes[0].name = "B".to_owned();
    nodes[1].output[0] = "out\n\u{1b}[2J b".to_owned();
    let names: Vec<String> = open(&model, &Asked::default())
        .unwrap()
        .layers
        .into_iter()
        .map(|layer| layer.layer)
        .collect();
    assert_eq!(names, ["a", "out__[2J_b"]);
}

#[test]
fn storage_is_that_of_the_weights() {
    for (elements, storage) in [(10, "+f16"), (16, "+bf16"), (1, "")] {
        let model = Build::new(13, "1 3 8 8")
            .constant(Tensor {
                dims: vec![4, 3, 1, 1],
                data_type: elements,
                name: "w".to_owned(),
                ..Tensor::default()
            })
            .node("y = Conv x w", &[])
            .answers("y");
        assert_eq!(layers(&model), [format!("Y mb1ic3ih8oc4oh8kh1{storage}")]);
    }
    let double = Tensor {
        dims: vec![4, 3, 1, 1],
        data_type: 11,
        name: "w".to_owned(),
        ..Tensor::default()
    };
    let model = Build::new(13, "1 3 8 8").constant(double);
    let model = model.node("y = Conv x w", &[]).answers("y");
    let parts = [
        "1 of its 1 Conv nodes",
        "Y: its elements are of ONNX's type 11",
    ];
    refuses(&model, &Asked::default(), &parts);
}

#[test]
fn what_the_file_says_of_a_tensor_is_trusted() {
    // Nobody knows what this operator does.
    let build = Build::new(13, "1 3 8 8").node("a = com.example.Magic x", &[]);
    let told = build.told("a", "1 5 20 ?").told("b", "1 ? 9 11");
    let model = told
        .node("b = com.example.Magic a", &[])
        .node("c = Relu a", &[])
        .weights("w", &[4, 5, 1, 1])
        .node("y = Conv b w", &[])
        .answers("y");
    let unknown = "Y: its input `b` is 1x?x9x11; it is lost in the com.example.Magic node `A`";
    refuses(
        &model,
        &Asked::default(),
        &[
            unknown,
            "onnx.shape_inference.infer_shapes_path",
            "--skip-unknown",
        ],
    );
    let mut known = model.clone();
    known.graph.as_mut().unwrap().value_info.pop();
    let known = {
        let mut graph = known.graph.take().unwrap();
        let more = Build::new(13, "1 3 8 8").told("b", "1 5 9 11").answers("b");
        graph.value_info.extend(more.graph.unwrap().value_info);
        proto::Model {
            graph: Some(graph),
            ..known
        }
    };
    assert_eq!(layers(&known), ["Y mb1ic5ih9iw11oc4oh9ow11kh1"]);
}

fn batch(batch: usize) -> Asked {
    Asked {
        batch: Some(batch),
        ..Asked::default()
    }
}

#[test]
fn open_sizes_are_asked_for_and_given() {
    let model = Build::new(13, "n 3 height 17")
        .conv("y", "x", &[4, 3, 3, 3], &[])
        .answers("y");
    let parts = ["`x` is nx3xheightx17", "--batch IMAGES --dim height=SIZE"];
    refuses(&model, &Asked::default(), &parts);
    refuses(&model, &batch(5), &["give --dim height=SIZE"]);
    let asked = Asked {
        sizes: vec![("height".to_owned(), 20)],
        ..batch(5)
    };
    let found = open(&model, &asked).unwrap();
    assert_eq!(spelled(&found.layers), ["Y mb5ic3ih20iw17oc4oh18ow15kh3"]);

    let wrong = Asked {
        sizes: vec![("heigth".to_owned(), 20)],
        ..batch(5)
    };
    let parts = [
        "no size of its inputs is called `heigth`",
        "are height, n",
        "did you mean `height`",
    ];
    refuses(&model, &wrong, &parts);

    // Old files have sizes of -1 and 0, or none.
    for first in ["-1", "0", "?"] {
        let model = Build::new(13, &format!("{first} 3 8 8"))
            .conv("y", "x", &[4, 3, 3, 3], &[])
            .answers("y");
        refuses(&model, &Asked::default(), &["give --batch IMAGES"]);
        let found = open(&model, &batch(7)).unwrap();
        assert_eq!(spelled(&found.layers), ["Y mb7ic3ih8oc4oh6kh3"]);
    }
    let model = Build::new(13, "2 3 ? 8")
        .conv("y", "x", &[4, 3, 3, 3], &[])
        .answers("y");
    refuses(
        &model,
        &Asked::default(),
        &["`x` is 2x3x?x8; fix them in the file"],
    );
}

#[test]
fn what_follows_is_taken_in_where_that_is_exact() {
    let fuse = Asked {
        fuse: true,
        ..Asked::default()
    };
    let of = |model: &proto::Model| spelled(&open(model, &fuse).unwrap().layers);
    let start = |y: &str| Build::new(13, "1 4 9 9").conv(y, "x", &[4, 4, 1, 1], &[]);
    let plain = "mb1ic4ih9oc4oh9kh1";
    for (node, attributes, words) in [
        ("y = Relu a", vec![], "+relu"),
        ("y = Tanh a", vec![], "+tanh"),
        ("y = Sigmoid a", vec![], "+sigmoid"),
        (
            "y = Clip a",
            vec![float("min", 0.0), float("max", 6.0)],
            "+relu6",
        ),
        ("y = Clip a", vec![float("min", 0.0), float("max", 1.0)], ""),
        ("y = LeakyRelu a", vec![], ""),
        ("y = Add a x", vec![], "+residual"),
        ("y = Add x a", vec![], "+residual"),
        ("y = BatchNormalization a s s s s", vec![], "+bias"),
    ] {
        let model = start("a")
            .weights("s", &[4])
            .node(node, &attributes)
            .answers("y");
        assert_eq!(of(&model), [format!("A {plain}{words}")], "{node}");
        assert_eq!(layers(&model), [format!("A {plain}")], "{node}");
    }

    let whole = start("a")
        .weights("s", &[4])
        .node("b = BatchNormalization a s s s s", &[])
        .node("c = Add b x", &[])
        .node("d = Sigmoid c", &[])
        .node("y = Mul d c", &[]);
    assert_eq!(
        of(&whole.answers("y")),
        [format!("A {plain}+bias+residual+silu")]
    );

    let bounds = start("a").float("lo", 0.0).float("hi", 6.0);
    let clipped = bounds.node("y = Clip a lo hi", &[]).answers("y");
    assert_eq!(of(&clipped), [format!("A {plain}+relu6")]);

    // What somebody else reads stays.
    let read_twice = start("a").node("b = Relu a", &[]).node("y = Add b a", &[]);
    assert_eq!(of(&read_twice.answers("y")), [format!("A {plain}")]);
    assert_eq!(
        of(&start("a").node("y = Relu a", &[]).answers("a")),
        [format!("A {plain}")]
    );
    // A tensor of another shape, and after an activation nothing.
    let smaller = start("a").weights("s", &[4, 1, 1]).node("y = Add a s", &[]);
    assert_eq!(of(&smaller.answers("y")), [format!("A {plain}")]);
    let late = start("a").node("b = Relu a", &[]).node("y = Add b x", &[]);
    assert_eq!(of(&late.answers("y")), [format!("A {plain}+relu")]);
    // Of two convolutions that are added the second one adds.
    let both = start("a").conv("b", "x", &[4, 4, 1, 1], &[list("strides", &[1, 1])]);
    let both = both.node("y = Add a b", &[]).answers("y");
    assert_eq!(
        of(&both),
        [format!("A {plain}"), format!("B {plain}+residual")]
    );
}

#[test]
fn what_follows_in_a_ring_or_has_no_name_is_not_taken_in() {
    let fuse = Asked {
        fuse: true,
        ..Asked::default()
    };
    let of = |build: Build| spelled(&open(&build.answers("y"), &fuse).unwrap().layers);
    let start = |y: &str| {
        let conv = Build::new(13, "1 4 9 9").conv(y, "x", &[4, 4, 1, 1], &[]);
        conv.weights("s", &[4])
    };
    let plain = "mb1ic4ih9oc4oh9kh1";
    let itself = start("a").node("a = BatchNormalization a s s s s", &[]);
    assert_eq!(of(itself), [format!("A {plain}")]);
    let ring = start("a")
        .node("b = BatchNormalization a s s s s", &[])
        .node("a = BatchNormalization b s s s s", &[]);
    assert_eq!(of(ring), [format!("A {plain}")]);
    let before = Build::new(13, "1 4 9 9").node("y = Relu a", &[]);
    let before = before.conv("a", "x", &[4, 4, 1, 1], &[]);
    assert_eq!(of(before), [format!("A {plain}")]);

    // What is left out of the one is not what the other makes.
    let unnamed = Build::new(13, "1 4 9 9").weights("w", &[4, 4, 1, 1]);
    let mut model = unnamed
        .node("_ = Conv x w", &[])
        .node("y = Relu x _", &[])
        .answers("y");
    model.graph.as_mut().unwrap().node[0].name = "A".to_owned();
    let found = open(&model, &fuse).unwrap();
    assert_eq!(spelled(&found.layers), [format!("A {plain}")]);
}

#[test]
fn a_split_into_nothing_is_passed_over() {
    let split = Build::new(13, "1 4 9 9").node("y = Split x", &[]);
    let mut model = split.conv("a", "x", &[4, 4, 1, 1], &[]).answers("a");
    model.graph.as_mut().unwrap().node[0].output.clear();
    assert_eq!(layers(&model), ["A mb1ic4ih9oc4oh9kh1"]);
}

#[test]
fn empty_axes_are_all_axes_unless_the_node_says_none() {
    let reduced = |attributes: &[proto::Attribute]| {
        let build = Build::new(18, "1 4 9 9").ints("none", &[]);
        let build = build.node("a = ReduceSum x none", attributes);
        layers(&build.conv("b", "a", &[4, 1, 1, 1], &[]).answers("b"))
    };
    assert_eq!(reduced(&[]), ["B mb1ic1ih1oc4oh1kh1"]);
    let keeps = int("noop_with_empty_axes", 0);
    assert_eq!(reduced(&[keeps]), ["B mb1ic1ih1oc4oh1kh1"]);
    let build = Build::new(18, "1 4 9 9").ints("none", &[]);
    let noop = build.node("a = ReduceSum x none", &[int("noop_with_empty_axes", 1)]);
    let noop = noop.conv("b", "a", &[4, 4, 1, 1], &[]).answers("b");
    assert_eq!(layers(&noop), ["B mb1ic4ih9oc4oh9kh1"]);
}

#[test]
fn nodes_that_are_no_problem_are_listed_or_left_out() {
    let model = Build::new(13, "1 3 8 8")
        .conv("a", "x", &[4, 3, 3, 3], &[])
        .node("b = Reshape a nowhere", &[])
        .conv("c", "b", &[4, 4, 3, 3], &[])
        .input("v", "1 3 8 8 8")
        .conv("d", "v", &[4, 3, 3, 3, 3], &[])
        .conv("e", "x", &[4, 5, 3, 3], &[])
        .conv("f", "x", &[4, 3, 9, 9], &[])
        .conv("g", "x", &[4, 3, 3, 3], &[word("auto_pad", "SOME")])
        .conv("h", "x", &[4, 3, 3, 3], &[list("pads", &[-1, 0, 0, 0])])
        .conv("i", "x", &[4, 3, 3, 3], &[list("strides", &[0, 1])])
        .conv("j", "x", &[4, 3, 3, 3], &[list("strides", &[1])])
        .node("k = Conv x", &[])
        .node("l = Conv x missing", &[])
        .weights("t", &[3, 4, 2, 2])
        .node("m = ConvTranspose x t", &[])
        .answers("a");
    let parts = [
        "10 of its 11 Conv nodes cannot be computed:",
        "C: the shape of its input `b` is not known; it comes from `nowhere`",
        "D: it is a convolution of 3 dimensions",
        "E: 3 input channels do not go with weights of 4x5x3x3 in 1 groups",
        "F: invalid problem: the 9x9 filter",
        "G: its auto_pad is `SOME`",
        "H: -1 is one of its pads",
        "I: 0 is one of its strides",
        "J: its strides are 1 and not 2",
        "K: it has no weights",
        "L: the shape of its weights `missing` is not known",
        "--skip-unknown",
    ];
    refuses(&model, &Asked::default(), &parts);
    let skip = Asked {
        skip_unknown: true,
        ..Asked::default()
    };
    let found = open(&model, &skip).unwrap();
    assert_eq!(spelled(&found.layers), ["A mb1ic3ih8oc4oh6kh3"]);
    assert_eq!(found.notes.len(), 11);
    assert!(
        found
            .notes
            .contains(&"net.onnx: 1 ConvTranspose left out".to_owned())
    );

    let none = Build::new(13, "1 3 8 8")
        .node("y = Relu x", &[])
        .answers("y");
    refuses(&none, &skip, &["net.onnx: has no Conv node"]);
}

#[test]
fn bodies_are_walked_and_functions_are_named() {
    let inner = Build::new(13, "1 3 8 8").conv("b", "r", &[4, 3, 3, 3], &[]);
    let graph = Graph {
        input: Vec::new(),
        ..inner.answers("b").graph.unwrap()
    };
    let branches = [
        body("then_branch", graph.clone()),
        body("else_branch", graph),
    ];
    let model = Build::new(13, "1 3 8 8")
        .node("r = Relu x", &[])
        .node("y = If c", &branches)
        .answers("y");
    assert_eq!(layers(&model), ["b,b mb1ic3ih8oc4oh6kh3"]);

    let mut model = Build::new(13, "1 3 8 8")
        .node("y = own.Block x", &[])
        .answers("y");
    let body = Build::new(13, "1 3 8 8")
        .conv("y", "x", &[4, 3, 3, 3], &[])
        .answers("y");
    model.functions.push(Function {
        name: "Block".to_owned(),
        node: body.graph.unwrap().node,
        domain: "own".to_owned(),
    });
    let parts = [
        "the_own.Block_node_`Y`: it calls a function",
        "inline_local_functions",
    ];
    refuses(&model, &Asked::default(), &parts);
}

#[test]
fn weights_are_skipped_and_shapes_are_read() {
    // Sizes in another field than raw_data, and so many weights that reading them would show.
    let mut sizes = ints("sizes", &[1, 4, 6, 7]);
    sizes.raw_data.clear();
    sizes.int64_data = vec![1, 4, 6, 7];
    let mut model = Build::new(13, "1 3 8 8")
        .conv("a", "x", &[4, 3, 3, 3], &[])
        .constant(sizes)
        .node("b = Resize a _ _ sizes", &[])
        .conv("c", "b", &[500, 4, 5, 5], &[])
        .answers("c");
    let expected = ["A mb1ic3ih8oc4oh6kh3", "C mb1ic4ih6iw7oc500oh2ow3kh5"];
    assert_eq!(layers(&model), expected);
    let decoded = proto::Model::decode(&model.encode_to_vec()[..]).unwrap();
    let constants = decoded.graph.unwrap().initializer;
    let held: Vec<usize> = constants.iter().map(|c| c.0.raw_data.len()).collect();
    assert_eq!(held, [432, 0, 0]);

    // Outside the file they need not be there at all.
    for constant in &mut model.graph.as_mut().unwrap().initializer {
        if constant.0.name.ends_with('w') {
            constant.0.raw_data.clear();
        }
    }
    assert_eq!(layers(&model), expected);
}

#[test]
fn files_that_are_no_models_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.onnx");
    let model = models::all().remove(0).1;
    let whole = model.encode_to_vec();
    for (bytes, part) in [
        (
            &b""[..],
            "net.onnx: has no graph: it is no ONNX model, or not all of one",
        ),
        (b"PK\x03\x04....", "is a zip archive"),
        (b"\x10\0\0\0\0\0\0\0{\"w\": {}}", "is a safetensors file"),
        (b"\x89HDF\r\n", "is an HDF5 file"),
        (b"{\"a\": 1}", "is a text"),
        (
            b"version https://git-lfs.github.com/spec/v1\n",
            "git lfs pull",
        ),
        (b"\xff\xff\xff", "is no ONNX model, or not all of one"),
        (
            &whole[..whole.len() / 2],
            "is no ONNX model, or not all of one",
        ),
    ] {
        fs::write(&path, bytes).unwrap();
        let why = chain(&Model::open(&path, &Asked::default()).unwrap_err());
        assert!(why.contains(part), "{why}");
    }
    let missing = folder.path().join("no.onnx");
    let why = chain(&Model::open(&missing, &Asked::default()).unwrap_err());
    assert!(
        why.contains("no.onnx: cannot be read: No such file"),
        "{why}"
    );
    let why = chain(&Model::open(folder.path(), &Asked::default()).unwrap_err());
    assert!(why.contains("is no plain file"), "{why}");

    let mut nameless = model.clone();
    nameless.opset_import[0].domain = "com.example".to_owned();
    let part = "does not say which version of ONNX's operators";
    refuses(&nameless, &Asked::default(), &[part]);
    let old = proto::Model {
        ir_version: 2,
        opset_import: Vec::new(),
        ..model.clone()
    };
    assert_eq!(layers(&old), layers(&model));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever becomes of a file, it is read or refused.
    #[test]
    fn damaged_files_are_read_or_refused(
        which in 0..models::all().len(),
        end in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let mut bytes = models::all().swap_remove(which).1.encode_to_vec();
        bytes.truncate(end.index(bytes.len()) + 1);
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("net.onnx");
        fs::write(&path, bytes).unwrap();
        for fuse in [false, true] {
            let asked = Asked { fuse, skip_unknown: true, ..batch(2) };
            let _ = Model::open(&path, &asked);
        }
    }

    /// A file that was cut off within its graph is refused: no half of a model passes for one.
    #[test]
    fn cut_files_are_refused(which in 0..models::all().len(), end in any::<prop::sample::Index>()) {
        let model = models::all().swap_remove(which).1;
        let mut bytes = model.encode_to_vec();
        let operators = model.opset_import[0].encoded_len() + 2;
        bytes.truncate(end.index(bytes.len() - operators));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("net.onnx");
        fs::write(&path, bytes).unwrap();
        prop_assert!(Model::open(&path, &Asked::default()).is_err());
    }
}

fn convforge(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_convforge"));
    command.args(args).output().unwrap()
}

#[test]
fn the_command_takes_models_where_it_takes_suites() {
    let same = [list("pads", &[1; 4])];
    let model = Build::new(13, "n 4 6 6")
        .conv("a", "x", &[4, 4, 3, 3], &same)
        .conv("b", "a", &[4, 4, 3, 3], &same)
        .conv("c", "b", &[4, 4, 3, 3], &[int("group", 2)])
        .answers("c");
    // The last has a group too few channels.
    let mut model = model;
    model.graph.as_mut().unwrap().initializer[2].0.dims[1] = 2;
    let (_folder, path) = file(&model);
    let path = path.to_str().unwrap();
    let on_cpu = |command: &str, more: &[&str]| {
        convforge(&[&[command, "--device", "cpu", "--model", path], more].concat())
    };
    let failed = on_cpu("list", &[]);
    let why = String::from_utf8(failed.stderr).unwrap();
    assert!(
        !failed.status.success() && why.contains("give --batch IMAGES"),
        "{why}"
    );

    let two = ["--batch", "2"];
    let says = |command: &str, more: &[&str]| {
        let output = on_cpu(command, &[&two, more].concat());
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{command}: {why}");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = says("list", &["--layout", "nhwc"]);
    for part in [
        "net.onnx A mb2ic4ih6oc4oh6kh3ph1+nhwc on",
        "2 nodes: A, B",
        "net.onnx C g2mb2",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let text = says("check", &[]);
    assert!(
        text.contains("Problems: 2") && text.contains(" 0 failed"),
        "{text}"
    );

    let few = ["--samples", "5", "--seconds", "0"];
    let text = says("compare", &few);
    let end = text
        .split("net.onnx: 3 convolutions, 2 of them distinct")
        .nth(1)
        .unwrap();
    for part in ["fastest", "cpu_direct", "rule", " all "] {
        assert!(end.contains(part), "{text}");
    }
    let report = says("compare", &[&few[..], &["--json"]].concat());
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let [network] = &report["networks"].as_array().unwrap()[..] else {
        panic!("{report}");
    };
    assert_eq!(network["layers"][0]["nodes"], serde_json::json!(["A", "B"]));
    let us = |layer: usize, who: &str| {
        let times = network["layers"][layer]["times"].as_array().unwrap();
        let time = times.iter().find(|time| time["who"] == who).unwrap();
        time["us"].as_f64().unwrap()
    };
    let sums = network["sums"].as_array().unwrap();
    let sum = sums.iter().find(|sum| sum["who"] == "cpu_direct").unwrap();
    let expected = 2.0 * us(0, "cpu_direct") + us(1, "cpu_direct");
    assert!(
        (sum["us"].as_f64().unwrap() - expected).abs() < 1e-6,
        "{network}"
    );

    // Kept and shown again.
    let kept = Path::new(path).with_file_name("kept.json");
    fs::write(&kept, report.to_string()).unwrap();
    for more in [None, Some("--markdown")] {
        let args: Vec<&str> = ["report", kept.to_str().unwrap()]
            .into_iter()
            .chain(more)
            .collect();
        let shown = String::from_utf8(convforge(&args).stdout).unwrap();
        assert!(shown.contains("net.onnx: 3 convolutions"), "{shown}");
    }
}

#[test]
fn options_of_models_are_read() {
    for (args, part) in [
        (&["--dim", "h=3"][..], "--model"),
        (&["--model", "a.onnx", "--dim", "h"], "as in height=224"),
        (&["--model", "a.onnx", "--dim", "h=0"], "as in height=224"),
        (&["--fuse"], "--model"),
        (&["--model", "a.onnx"], "a.onnx: cannot be read"),
    ] {
        let output = convforge(&[&["list", "--device", "cpu"], args].concat());
        let why = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && why.contains(part),
            "{args:?}: {why}"
        );
    }
}
