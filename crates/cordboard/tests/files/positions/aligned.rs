//! Direct I/O carries whole blocks only. Heads and tails are moved at offsets,
//! without a lock of the position, while another transfer uses the same position.

use std::fs::File;
use std::io::{Seek, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use cordboard::DataPath::ReadWrite;
use rustix::fs::OFlags;
use testkit::{midst, refuse, skip};

use super::{bytes_of, counts, moved};
use crate::common::{only, watchdog};

/// Makes a file with this many of these bytes, opened for direct I/O; `None` if that
/// is not supported.
fn direct(byte: u8, bytes: usize) -> Option<File> {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().write_all_at(&vec![byte; bytes], 0).unwrap();
    let mut options = File::options();
    let options = options.read(true).write(true);
    options.custom_flags(libc::O_DIRECT).open(file.path()).ok()
}

fn move_all(source: &File, sink: &File) -> u64 {
    moved(source, sink, only(&[ReadWrite])).0
}

/// Makes a pipe with this many of these bytes and no writer.
fn pipe_with(byte: u8, bytes: usize) -> File {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    File::from(writer).write_all(&vec![byte; bytes]).unwrap();
    reader.into()
}

/// The position cannot be moved after a tail was appended: the bytes are written once,
/// and count.
#[test]
fn an_appended_tail_counts_though_the_position_stays() {
    let _watchdog = watchdog("an_appended_tail_counts_though_the_position_stays");
    for errno in [libc::EINTR, libc::EPERM] {
        let Some(sink) = direct(0, 0) else {
            return skip::here("no direct I/O here");
        };
        rustix::fs::fcntl_setfl(&sink, OFlags::DIRECT | OFlags::APPEND).unwrap();
        let whence = if cfg!(target_pointer_width = "64") {
            2
        } else {
            4
        };
        refuse::apart(|| {
            refuse::refuse_where(refuse::SEEK, whence, libc::SEEK_END as u32, errno);
            for bytes in [5000, 100] {
                assert_eq!(move_all(&pipe_with(1, bytes), &sink), bytes as u64);
            }
        });
        assert_eq!(sink.metadata().unwrap().len(), 5100, "{errno}");
    }
}

#[test]
fn a_tail_is_not_written_over_what_others_write() {
    let _watchdog = watchdog("a_tail_is_not_written_over_what_others_write");
    let (first, second) = (5000, 3000);
    let mut moments = 0;
    loop {
        let Some(sink) = direct(0, 0) else {
            return skip::here("no direct I/O here");
        };
        let mut calls = 0;
        let held = midst::at_each(
            &[libc::SYS_pwrite64, libc::SYS_write, libc::SYS_pwritev2],
            || assert_eq!(move_all(&pipe_with(1, first), &sink), first as u64),
            || {
                if calls == moments {
                    assert_eq!(move_all(&pipe_with(2, second), &sink), second as u64);
                }
                calls += 1;
            },
        );
        if held.is_none() {
            return skip::here("no seccomp_unotify(2) here");
        }
        if moments >= calls {
            break;
        }
        let found = counts(&bytes_of(
            &File::options().read(true).open(name(&sink)).unwrap(),
        ));
        assert_eq!(found[..3], [0, first, second], "at call {moments}");
        assert_eq!((&sink).stream_position().unwrap(), (first + second) as u64);
        moments += 1;
    }
    assert!(moments > 0);
}

/// The name that opens another description of the file.
fn name(file: &File) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

#[test]
fn a_head_is_not_read_twice() {
    let _watchdog = watchdog("a_head_is_not_read_twice");
    let (from, all) = (100, 10_000);
    let mut moments = 0;
    loop {
        let Some(source) = direct(1, all) else {
            return skip::here("no direct I/O here");
        };
        (&source).seek(std::io::SeekFrom::Start(from)).unwrap();
        let (ours, theirs) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let (mut calls, mut other, mut first) = (0, 0, 0);
        let held = midst::at_each(
            &[libc::SYS_pread64, libc::SYS_read],
            || first = move_all(&source, &ours),
            || {
                if calls == moments {
                    other = move_all(&source, &theirs);
                }
                calls += 1;
            },
        );
        if held.is_none() {
            return skip::here("no seccomp_unotify(2) here");
        }
        if moments >= calls {
            break;
        }
        let (there, position) = (all as u64 - from, (&source).stream_position().unwrap());
        assert_eq!(
            (first + other, position),
            (there, all as u64),
            "at call {moments}"
        );
        moments += 1;
    }
    assert!(moments > 0);
}
