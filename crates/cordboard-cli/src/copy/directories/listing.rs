//! What is in a directory.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::fs::{FileType, RawDir};
use rustix::io::Errno;

use crate::signals::stop;

/// Shows `each` what is in a directory, by name and type, up to its first error;
/// not the directory itself and the one above.
///
/// # Errors
///
/// What `each` says, or `failed` of a listing's error.
pub fn list<E>(
    directory: BorrowedFd<'_>,
    buffer: &mut [MaybeUninit<u8>],
    failed: impl Fn(Errno) -> E,
    mut each: impl FnMut(&CStr, FileType) -> Result<(), E>,
) -> Result<(), E> {
    let mut listing = RawDir::new(directory, buffer);
    while let Some(entry) = listing.next() {
        let entry = match entry {
            Err(Errno::INTR) if stop().is_none() => continue,
            entry => entry.map_err(&failed)?,
        };
        let name = entry.file_name();
        if name != c"." && name != c".." {
            each(name, entry.file_type())?;
        }
    }
    Ok(())
}
