//! The contents of a directory.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::fs::{FileType, RawDir};
use rustix::io::Errno;

use crate::signals::stop;

/// Calls `each` with the name and the type of each entry of a directory, except
/// `.` and `..`, up to the first error.
///
/// # Errors
///
/// An error of `each`, or `failed` of an error of the listing.
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
