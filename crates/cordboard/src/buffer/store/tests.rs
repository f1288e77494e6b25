//! The store of a buffer, compared with a queue of bytes.

use proptest::prelude::*;

use super::*;

/// Fills and takes in any order, and compares with a queue of bytes.
fn compare(files: Files, by_splice: bool, copies: bool, length: u64, steps: &[(bool, usize)]) {
    let (from, into) = rustix::pipe::pipe().unwrap();
    let (out, to) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
    let mut store = Store::new(files, length, by_splice);
    let (mut model, mut next) = (VecDeque::new(), 0u8);
    for (fills, count) in steps {
        if *fills {
            let bytes: Vec<u8> = (0..*count).map(|n| next.wrapping_add(n as u8)).collect();
            next = next.wrapping_add(*count as u8);
            assert_eq!(rustix::io::write(&into, &bytes), Ok(bytes.len()));
            let mut left = bytes.len();
            if copies && store.is_empty() {
                left -= store.copy(from.as_fd(), left / 2 + 1).unwrap();
            }
            while left > 0 {
                left -= store.fill(from.as_fd(), left);
                assert_eq!(store.failed, None);
            }
            model.extend(bytes);
        } else if !store.is_empty() {
            let n = store.take(to.as_fd()).unwrap();
            let mut bytes = vec![0; n];
            assert_eq!(rustix::io::read(&out, &mut bytes), Ok(n));
            let expected: Vec<u8> = model.drain(..n).collect();
            assert_eq!(bytes, expected);
        }
        assert_eq!(store.is_empty(), model.is_empty());
    }
    let mut rest = Vec::new();
    for part in store.into_parts() {
        match part {
            Part::Bytes(bytes) => rest.extend(bytes),
            Part::File { file, at, end } => {
                let mut bytes = vec![0; (end - at) as usize];
                assert_eq!(pread(file.as_fd(), &mut bytes, at), Ok(bytes.len()));
                rest.extend(bytes);
            }
        }
    }
    assert_eq!(rest, Vec::from(model));
}

proptest! {
    #[test]
    fn bytes_leave_in_their_order(
        by_splice: bool,
        copies: bool,
        in_memory: bool,
        length in 1..9000u64,
        steps in prop::collection::vec((any::<bool>(), 1..5000usize), 1..40),
    ) {
        // At most a hundred files at a time: each takes a descriptor.
        let total: usize = steps.iter().map(|(_, count)| count).sum();
        let files = match in_memory {
            true => Files::Memory,
            false => Files::at(&std::env::temp_dir()).unwrap(),
        };
        compare(files, by_splice, copies, length.max(total as u64 / 100), &steps);
    }
}

/// The next pipe is full: a call that fills it from the file would not read the file, and
/// one that has room holds its lock while the disk reads.
#[test]
fn pages_of_a_file_are_read_before_the_next_pipe_is_locked() {
    let name = "pages_of_a_file_are_read_before_the_next_pipe_is_locked";
    if testkit::needs::missing(name, &[testkit::needs::Need::Splice]) {
        return;
    }
    // Those of a file in memory may be in the swap space.
    stages_pages(name, Files::Memory);
    stages_pages(name, Files::at(&std::env::temp_dir()).unwrap());
}

fn stages_pages(name: &str, files: Files) {
    let (from, into) = rustix::pipe::pipe().unwrap();
    let (out, to) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
    let bytes = vec![0; rustix::pipe::fcntl_getpipe_size(&to).unwrap()];
    assert_eq!(rustix::io::write(&to, &bytes), Ok(bytes.len()));
    let mut store = Store::new(files, 4096, true);
    assert_eq!(rustix::io::write(&into, b"staged"), Ok(6));
    assert_eq!(store.fill(from.as_fd(), 6), 6);
    if store.copies_in {
        return testkit::skip::report(name, "the file system has no splice_write");
    }
    assert_eq!(store.take(to.as_fd()), Err(Errno::EAGAIN));
    assert_eq!(store.staged(), 6);
    let mut drained = bytes;
    assert_eq!(rustix::io::read(&out, &mut drained), Ok(drained.len()));
    assert_eq!(rustix::io::write(&into, b"behind"), Ok(6));
    assert_eq!(store.fill(from.as_fd(), 6), 6);
    // The pages that were read are next.
    assert_eq!(store.take(to.as_fd()), Ok(6));
    let mut got = [0; 12];
    assert_eq!(rustix::io::read(&out, &mut got), Ok(6));
    assert_eq!(got[..6], *b"staged");
    assert_eq!(rustix::io::write(&to, &drained), Ok(drained.len()));
    assert_eq!(store.take(to.as_fd()), Err(Errno::EAGAIN));
    // What is left has them too.
    let left: Vec<Vec<u8>> = store
        .into_parts()
        .into_iter()
        .filter_map(|part| match part {
            Part::Bytes(bytes) if !bytes.is_empty() => Some(bytes),
            _ => None,
        })
        .collect();
    assert_eq!(left, [b"behind"]);
}

/// A page of the pipe cannot be read.
#[test]
fn a_read_that_fails_leaves_no_empty_file() {
    let (from, _into) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
    let mut store = Store::new(Files::Memory, 4096, false);
    assert_eq!(store.fill(from.as_fd(), 10), 0);
    assert_eq!(store.failed, Some(Errno::EAGAIN));
    assert!(store.is_empty());
}

#[test]
fn a_directory_keeps_no_names() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::new(Files::at(directory.path()).unwrap(), 4096, true);
    store.prepare().unwrap();
    let files = Files::at(directory.path()).unwrap();
    let _file = files.make().unwrap();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    let none = directory.path().join("none");
    assert_eq!(Files::at(&none).err(), Some(Errno::ENOENT));
}

/// As on NFS, FUSE, vfat and 9p, and before Linux 3.11 (`EISDIR`).
#[test]
fn a_file_system_without_unnamed_files_gets_names_that_are_removed_at_once() {
    for errno in [libc::EOPNOTSUPP, libc::EISDIR] {
        let directory = tempfile::tempdir().unwrap();
        let entries = || std::fs::read_dir(directory.path()).unwrap().count();
        // A process with the same number has left one.
        let taken = format!(".cordboard-{}-0", std::process::id());
        std::fs::write(directory.path().join(&taken), b"").unwrap();
        testkit::refuse::apart(|| {
            let unnamed = OFlags::RDWR | OFlags::CLOEXEC | OFlags::TMPFILE;
            // A C library may add this on 64 bits, where its headers have 0 for it.
            const LARGEFILE: u32 = 0o100_000;
            for more in [0, LARGEFILE] {
                let flags = unnamed.bits() | more;
                testkit::refuse::refuse_where(libc::SYS_openat, 2, flags, errno);
            }
            let refused = openat(rustix::fs::CWD, directory.path(), unnamed, Mode::RUSR);
            assert_eq!(refused.err().map(|e| e.raw_os_error()), Some(errno));
            let files = Files::at(directory.path()).unwrap();
            let made = files.make().unwrap();
            assert_eq!(rustix::fs::fstat(&made).unwrap().st_nlink, 0);
            assert_eq!(entries(), 1);
            let steps = [(true, 5000), (true, 4000), (false, 1), (true, 700)];
            compare(files, true, false, 1000, &steps);
        });
        assert_eq!(entries(), 1);
        assert!(directory.path().join(taken).exists());
    }
}

/// As a spool directory.
#[test]
fn a_directory_that_cannot_be_listed_is_used() {
    use std::os::unix::fs::PermissionsExt;
    let test = "a_directory_that_cannot_be_listed_is_used";
    let directory = tempfile::tempdir().unwrap();
    let name = directory.path().join("spool");
    std::fs::create_dir(&name).unwrap();
    let grant = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    grant(directory.path(), 0o711);
    // Also for another user.
    grant(&name, 0o333);
    testkit::refuse::apart(|| {
        let nobody = rustix::process::Uid::from_raw(65534);
        // Root may read every directory. Only this thread changes its user.
        let is_other = !rustix::process::geteuid().is_root()
            || rustix::thread::set_thread_res_uid(nobody, nobody, nobody).is_ok();
        let is_usable = is_other && std::fs::metadata(&name).is_ok();
        if !is_usable || std::fs::read_dir(&name).is_ok() {
            return testkit::skip::report(test, "no directory that cannot be listed");
        }
        let files = Files::at(&name).unwrap();
        let file = files.make().unwrap();
        assert_eq!(rustix::io::write(&file, b"kept"), Ok(4));
    });
    grant(&name, 0o700);
    assert_eq!(std::fs::read_dir(&name).unwrap().count(), 0);
}
