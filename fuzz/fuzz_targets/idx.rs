//! IDX files, plain and gzip.
#![no_main]

use convforge_fuzz::with_file;
use convforge_tools::net::idx::{Images, Labels};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    with_file(bytes, |path| {
        if let Ok(mut images) = Images::read(path) {
            let pixels = images.count * images.rows * images.cols;
            assert_eq!(images.pixels.len(), pixels);
            images.truncate(1);
        }
        let _ = Labels::read(path);
    });
});
