//! Error messages about a buffer.

use std::ffi::OsStr;
use std::path::Path;

use cordboard::Errno;

use super::message::Problem;
use crate::units;

/// The problem of a buffer that cannot be created or written. `directory`: the operand of
/// `--buffer-file`. `written`: the bytes that the sink has accepted; `None`: the buffer was
/// not created.
pub fn buffer_failed(directory: Option<&OsStr>, errno: Errno, written: Option<u64>) -> Problem {
    let operand = match directory {
        Some(directory) => directory.to_string_lossy().into_owned(),
        None => "the buffer".to_owned(),
    };
    let text = match written {
        Some(bytes) => {
            let bytes = units::number_of(bytes, "byte");
            format!("{errno} in the buffer; the sink has accepted {bytes}")
        }
        None => format!("{errno} creating the buffer"),
    };
    let help = match (errno, directory) {
        (Errno::ENOSPC | Errno::EDQUOT, Some(_)) => {
            "free some space there, or use another directory or a smaller --buffer"
        }
        (Errno::ENOSPC | Errno::ENOMEM, None) => "use --buffer-file, or a smaller --buffer",
        (Errno::EFBIG, _) => "the file size limit is reached (ulimit -f)",
        (Errno::EMFILE, _) => "raise the limit of open files (ulimit -n)",
        // A file system in which no file can be created, for example procfs.
        (Errno::ENOENT | Errno::EOPNOTSUPP | Errno::EISDIR, Some(directory))
            if Path::new(directory).is_dir() =>
        {
            "use a directory in which files can be created"
        }
        (Errno::ENOENT, Some(_)) => "create the directory first (mkdir -p)",
        (Errno::ENOTDIR, Some(_)) => "--buffer-file needs a directory",
        (Errno::EACCES | Errno::EROFS | Errno::EPERM, Some(_)) => {
            "use a directory in which files can be created"
        }
        (Errno::EIO, _) => "the device or its link failed: see dmesg",
        (_, Some(_)) => "use another directory",
        (_, None) => "use --buffer-file",
    };
    Problem::unsided(operand, errno, text).help(help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_depends_on_the_place() {
        let full = |directory| buffer_failed(directory, Errno::ENOSPC, Some(7)).to_string();
        let in_memory = full(None);
        assert!(in_memory.contains("the buffer: ") && in_memory.contains("--buffer-file"));
        let on_disk = full(Some(OsStr::new("/spool")));
        assert!(on_disk.contains("/spool: ") && on_disk.contains("free some space"));
        assert!(on_disk.contains("ENOSPC") && on_disk.contains("accepted 7 bytes"));
    }
}
