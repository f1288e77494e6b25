//! Files without a name.

use std::fs::File;
use std::io::{Seek, Write};

/// Returns a file with these bytes, positioned at its start.
pub fn file_with(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    file
}
