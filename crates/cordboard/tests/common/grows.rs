//! A source that grows.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use cordboard::{Observer, Progress};

/// Lengthens a file by these bytes once the transfer has begun.
pub struct Grows<'a>(pub &'a File, pub Option<&'a [u8]>);

impl Observer for Grows<'_> {
    fn progress(&mut self, progress: &Progress) {
        if let Some(more) = self.1.take_if(|_| progress.read > 0) {
            let end = self.0.metadata().unwrap().len();
            self.0.write_all_at(more, end).unwrap();
        }
    }
}
