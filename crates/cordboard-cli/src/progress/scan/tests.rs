use super::*;

fn scanned(paths: &[&Path], recursive: bool, most: Option<u64>) -> Scan {
    scanned_beside(None, paths, recursive, most)
}

fn scanned_beside(
    own_socket: Option<SocketId>,
    paths: &[&Path],
    recursive: bool,
    most: Option<u64>,
) -> Scan {
    let scan = Scan {
        shared: Arc::default(),
        most,
        bytes: true,
        waits: None,
    };
    let operands = Operands {
        paths: paths.iter().map(|path| path.to_path_buf()).collect(),
        recursive,
        most,
        bytes: true,
        own_socket,
    };
    Walk::new(&scan.shared, operands.own_socket).run(&operands);
    scan
}

/// 1003 files of 10 bytes each in 3 levels, a symlink, an empty directory, a sparse file
/// and two links of a file.
fn tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("a/b");
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::create_dir(dir.path().join("empty")).unwrap();
    for n in 0..1000 {
        std::fs::write(deep.join(n.to_string()), [7; 10]).unwrap();
    }
    for folder in ["a", "a/b", "."] {
        std::fs::write(dir.path().join(folder).join("file"), [7; 10]).unwrap();
    }
    std::os::unix::fs::symlink("/", dir.path().join("a/root")).unwrap();
    let sparse = std::fs::File::create(dir.path().join("sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    std::fs::write(dir.path().join("one"), [7; 100]).unwrap();
    std::fs::hard_link(dir.path().join("one"), dir.path().join("two")).unwrap();
    dir
}

#[test]
fn a_tree_is_counted_as_the_copy_reads_it() {
    let dir = tree();
    let scan = scanned(&[dir.path()], true, None);
    assert_eq!(scan.files(), Some(Known::all(1003 + 1 + 1 + 2)));
    assert_eq!(scan.bytes(), Some(Known::all((1 << 40) + 10_030 + 200)));
}

#[test]
fn the_control_socket_is_not_counted() {
    let dir = tempfile::tempdir().unwrap();
    let [own, other] = ["own", "other"].map(|name| dir.path().join(name));
    let _bound = [&own, &other].map(|at| std::os::unix::net::UnixListener::bind(at).unwrap());
    std::fs::write(dir.path().join("file"), [7; 10]).unwrap();
    let own = SocketId::of(&own);
    assert!(own.is_some());
    let scan = scanned_beside(own, &[dir.path()], true, None);
    assert_eq!(scan.files(), Some(Known::all(2)));
}

#[test]
fn files_without_a_tree() {
    let dir = tree();
    let [file, one] = ["file", "one"].map(|name| dir.path().join(name));
    let missing = dir.path().join("missing");
    let scan = scanned(&[&file, &one, &missing, dir.path()], false, None);
    // A file that fails counts as done.
    assert_eq!(scan.files(), Some(Known::all(4)));
    let at_most = scanned(&[&file, &one], false, Some(50));
    assert_eq!(at_most.bytes(), Some(Known::all(50)));
    let device = scanned(&[&file, Path::new("/dev/zero")], false, None);
    assert_eq!(device.files(), Some(Known::all(2)));
    let at_least = Known {
        count: 10,
        is_all: false,
    };
    assert_eq!(device.bytes(), Some(at_least));
}

#[test]
fn a_scan_that_was_stopped_is_not_complete() {
    let dir = tree();
    let counts = Counts::default();
    counts.stop.store(true, Ordering::Relaxed);
    let mut walk = Walk::new(&counts, None);
    walk.tree(dir.path());
    assert!(!counts.ended.load(Ordering::Relaxed));
    assert!(counts.files.load(Ordering::Relaxed) < 1000);
}

/// A path that is too long for the kernel is not an end of the tree.
#[test]
fn a_tree_that_is_too_deep_is_not_complete() {
    let dir = tempfile::tempdir().unwrap();
    let name = "d".repeat(200);
    let mut at =
        rustix::fs::open(dir.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..30 {
        rustix::fs::mkdirat(&at, &name, Mode::RWXU).unwrap();
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        at = rustix::fs::openat(&at, &name, flags, Mode::empty()).unwrap();
    }
    let file = dir.path().join("file");
    std::fs::write(file, b"x").unwrap();
    let scan = scanned(&[dir.path()], true, None);
    let at_least = Known {
        count: 1,
        is_all: false,
    };
    assert_eq!(scan.files(), Some(at_least));
    assert_eq!(scan.bytes(), Some(at_least));
}

/// The thread does not hold the descriptors of the process, and opens none in its table.
#[test]
fn the_thread_has_descriptors_of_its_own() {
    let (reader, writer) = std::io::pipe().unwrap();
    let (done, wait) = std::sync::mpsc::channel();
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let left = sys::leave_descriptors();
        done.send(left).unwrap();
        gone.recv().unwrap();
    });
    let left = wait.recv().unwrap();
    drop(writer);
    if testkit::needs::Need::CloseRange.is_met() {
        assert!(left);
        // No other table has the write end.
        let mut end = Vec::new();
        std::io::Read::read_to_end(&mut &reader, &mut end).unwrap();
        assert!(end.is_empty());
    } else {
        testkit::skip::here("no close_range(2) here");
    }
    go.send(()).unwrap();
    thread.join().unwrap();
}

/// The close of a copy flushes the file: the server would report there that it has no space, and
/// not to the copy's own close.
#[test]
fn it_flushes_no_sink_that_is_opened_later() {
    use std::io::Write;
    use testkit::fuse::{Served, with_file};
    if !rustix::process::geteuid().is_root() {
        return testkit::skip::here("mounting needs root");
    }
    // A child of another test would have a copy of the sink, and its close flushes the file.
    let _only = testkit::child::without_children();
    let dir = tree();
    let mounted = with_file(Served::full(), |at| {
        let operands = Operands {
            paths: vec![dir.path().to_owned()],
            recursive: true,
            most: None,
            bytes: true,
            own_socket: None,
        };
        let mut scan = Scan::prepare(operands).unwrap();
        let mut sink = std::fs::File::options().write(true).open(at).unwrap();
        sink.write_all(b"a few bytes").unwrap();
        assert_eq!(scan.files(), None);
        scan.begin();
        let is_over = |scan: &Scan| scan.is_over() || scan.shared.missed.load(Ordering::Relaxed);
        while !is_over(&scan) {
            std::thread::yield_now();
        }
        assert_eq!(sys::close(sink.into()), Err(Errno::NOSPC));
    });
    if !mounted {
        testkit::skip::here("no FUSE here");
    }
}
