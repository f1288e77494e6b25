//! The value of an extended attribute.

use rustix::io::Errno;

use crate::memory;
use crate::signals::retry;

/// Reads a value of unknown length.
pub fn read_value(
    mut read: impl FnMut(&mut [u8]) -> Result<usize, Errno>,
) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0; 256];
    loop {
        match retry(|| read(&mut buffer)) {
            Ok(length) => {
                buffer.truncate(length);
                return Ok(buffer);
            }
            // A value has at most 64 KiB (`XATTR_SIZE_MAX`), and so has a list
            // of names (`XATTR_LIST_MAX`).
            Err(Errno::RANGE) if buffer.len() < 1 << 17 => {
                let length = buffer.len() * 16;
                memory::grow(&mut buffer, length).map_err(|_| Errno::NOMEM)?;
            }
            Err(errno) => return Err(errno),
        }
    }
}
