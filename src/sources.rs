//! What variants are made of in csrc, by hashes that the build script works out.

/// What the build script says of csrc: the hash of each row, and that of the passes.
type Hashes = (&'static [(&'static str, &'static str)], &'static str);

const HASHES: Hashes = include!(concat!(env!("OUT_DIR"), "/hashes.rs"));

/// The hash of what the row of this name is made of.
pub(crate) fn hash_of_row(name: &str) -> Option<String> {
    let found = HASHES.0.iter().find(|(row, _)| *row == name)?;
    Some(found.1.to_owned())
}

/// The hash of the passes that baselines run around a library's call.
pub(crate) fn hash_of_passes() -> Option<String> {
    Some(HASHES.1.to_owned())
}
