//! What the targets share.

use std::{cell::RefCell, fs, path::Path};

use tempfile::TempDir;

thread_local! {
    static FOLDER: RefCell<Option<TempDir>> = const { RefCell::new(None) };
}

/// Calls `read` with a file of these bytes.
pub fn with_file(bytes: &[u8], read: impl FnOnce(&Path)) {
    FOLDER.with_borrow_mut(|folder| {
        let folder = folder.get_or_insert_with(|| tempfile::tempdir().expect("a folder"));
        let path = folder.path().join("input");
        fs::write(&path, bytes).expect("a file");
        read(&path);
    });
}
