//! The codes of the replies to errors of files.

use std::io;

use rustix::io::Errno;

/// Returns the code of the reply to an error.
pub fn code(error: &io::Error) -> u16 {
    match Errno::from_io_error(error) {
        Some(Errno::NOSPC | Errno::DQUOT) => 452,
        // The file is in use: by a lease, as a mount point, or as a running program.
        Some(Errno::AGAIN | Errno::BUSY | Errno::TXTBSY) => 450,
        // A later attempt may succeed. 550 would mean that the file does not exist.
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::IO) => 451,
        Some(Errno::TIMEDOUT | Errno::STALE | Errno::INTR) => 451,
        // `Root::set_modified`: 504 is for a parameter that is not supported (RFC 959).
        Some(Errno::RANGE) => 504,
        // Without an errno: a listing.
        _ if error.kind() == io::ErrorKind::OutOfMemory => 451,
        _ => 550,
    }
}

/// Returns whether a later attempt may succeed, so that the error says nothing about the file.
pub fn is_temporary(error: &io::Error) -> bool {
    matches!(code(error), 450 | 451)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client does not repeat what was refused with 550, and may take the file as missing.
    #[test]
    fn temporary_errors_have_temporary_codes() {
        for (errno, expected) in [
            (Errno::AGAIN, 450),
            (Errno::BUSY, 450),
            (Errno::TXTBSY, 450),
            (Errno::TIMEDOUT, 451),
            (Errno::STALE, 451),
            (Errno::INTR, 451),
            (Errno::MFILE, 451),
            (Errno::NFILE, 451),
            (Errno::NOMEM, 451),
            (Errno::IO, 451),
            (Errno::NOSPC, 452),
            (Errno::DQUOT, 452),
            (Errno::RANGE, 504),
            (Errno::NOENT, 550),
            (Errno::ACCESS, 550),
        ] {
            let error = errno.into();
            assert_eq!(code(&error), expected, "{errno:?}");
            assert_eq!(is_temporary(&error), expected <= 451, "{errno:?}");
        }
        assert_eq!(code(&io::Error::other("no errno")), 550);
        let error = io::Error::new(io::ErrorKind::OutOfMemory, "no errno");
        assert_eq!(code(&error), 451);
    }
}
