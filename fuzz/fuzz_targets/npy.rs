//! NumPy files: what is read is written as a file of the same array.
#![no_main]

use convforge_fuzz::with_file;
use convforge_tools::net::npy::Array2;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    with_file(bytes, |path| {
        let Ok(array) = Array2::read(path) else {
            return;
        };
        array.write(path).expect("an array that was read");
        let again = Array2::read(path).expect("a file that was written");
        assert_eq!((again.rows, again.cols), (array.rows, array.cols));
        let bits = |array: &Array2| -> Vec<u32> { array.data.iter().map(|v| v.to_bits()).collect() };
        assert_eq!(bits(&again), bits(&array));
    });
});
