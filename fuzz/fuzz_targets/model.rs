//! ONNX files.
#![no_main]

use convforge_fuzz::with_file;
use convforge_tools::model::{Asked, Model};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    with_file(bytes, |path| {
        for fuse in [false, true] {
            let asked = Asked {
                batch: Some(2),
                fuse,
                skip_unknown: fuse,
                ..Asked::default()
            };
            if let Ok(model) = Model::open(path, &asked) {
                assert!(!model.layers.is_empty());
            }
        }
    });
});
