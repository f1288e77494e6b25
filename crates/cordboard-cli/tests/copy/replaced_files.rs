//! Files that another process has put in the place of a tree, or puts there
//! meanwhile.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::fs::{CWD, FileType, Mode, OFlags, RenameFlags, mknodat, renameat_with};
use testkit::ends::Ends;
use testkit::stall::{Call, Stall};

use crate::common::*;
use crate::few_descriptors::{least, with};
use crate::{chmod, mode};

/// A tree with a file, and a directory with another; the destination; and files
/// that no operand names.
fn places() -> TempDir {
    let dir = dir();
    for name in ["tree/d", "into", "outside"] {
        std::fs::create_dir_all(dir.path().join(name)).unwrap();
    }
    file(&dir, "tree/f", b"contents");
    file(&dir, "tree/d/f", b"below");
    file(&dir, "precious", b"precious");
    chmod(&dir.path().join("outside"), 0o750);
    chmod(&dir.path().join("tree"), 0o700);
    dir
}

fn copy(dir: &TempDir, flags: &[&str], names: [&str; 2]) -> Run {
    let names = names.map(|name| dir.path().join(name));
    run(cordboard().arg("copy").args(flags).args(names))
}

/// Checks that nothing outside was changed.
#[track_caller]
fn untouched(dir: &TempDir) {
    let at = |name: &str| dir.path().join(name);
    assert_eq!(std::fs::read_dir(at("outside")).unwrap().count(), 0);
    assert_eq!(mode(&at("outside")), 0o750);
    assert_eq!(read(at("precious")), b"precious");
}

#[test]
fn a_symlink_in_the_place_of_a_tree() {
    let dir = places();
    let at = |name: &str| dir.path().join(name);
    let before = at("outside").metadata().unwrap();
    symlink(at("outside"), at("into/tree")).unwrap();
    symlink("nowhere", at("dangling")).unwrap();
    symlink(at("precious"), at("link")).unwrap();
    for (sink, says) in [
        ("into", "into/tree: exists and is not a directory"),
        ("dangling", "dangling: exists and is not a directory"),
        ("dangling/", "dangling/: exists and is not a directory"),
        ("link", "link: exists and is not a directory"),
    ] {
        copy(&dir, &["-rp"], ["tree", sink]).fails(1, &[says]);
    }
    untouched(&dir);
    let after = at("outside").metadata().unwrap();
    let times = |of: &std::fs::Metadata| (of.ctime(), of.ctime_nsec());
    assert_eq!(times(&before), times(&after));
    assert!(!at("nowhere").exists());
}

#[test]
fn symlinks_below_are_not_written_through() {
    for jobs in ["-j1", "-j4"] {
        let dir = places();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("tree/up")).unwrap();
        file(&dir, "tree/up/precious", b"not");
        file(&dir, "tree/plain", b"plain");
        symlink("../precious", at("into/f")).unwrap();
        symlink(at("outside"), at("into/d")).unwrap();
        symlink("..", at("into/up")).unwrap();
        let tree = copy(&dir, &["-rp", jobs], ["tree/.", "into"]);
        let stderr = tree.stderr();
        assert_eq!(tree.code(), 1, "{stderr}");
        for says in [
            "into/f: is a symlink, and copy -r does not write through symlinks below DST",
            "into/d: exists and is not a directory",
            "into/up: exists and is not a directory",
        ] {
            assert!(stderr.contains(says), "{says}: {stderr}");
        }
        assert!(stderr.ends_with(" copied, 3 failed\n"), "{stderr}");
        assert_eq!(stderr.lines().count(), 4, "{stderr}");
        untouched(&dir);
        // The rest was copied.
        assert_eq!(read(at("into/plain")), b"plain");
        // A file that is copied along is not affected.
        copy(&dir, &["-r", jobs], ["tree/f", "into"]).fails(1, &["into/f: is a symlink"]);
        untouched(&dir);
        // As an operand, or without -r, it is followed, as by cp.
        copy(&dir, &["-r", jobs], ["tree/f", "into/f"]).ok();
        assert_eq!(read(at("precious")), b"contents");
        copy(&dir, &[jobs], ["tree/plain", "into/f"]).ok();
        assert_eq!(read(at("precious")), b"plain");
    }
}

#[test]
fn fifos_are_not_waited_for() {
    for jobs in ["-j1", "-j4"] {
        let dir = places();
        let at = |name: &str| dir.path().join(name);
        file(&dir, "tree/g", b"g");
        for name in ["f", "g", "d"] {
            fifo(&at("into").join(name));
        }
        // One has a reader, which must not notice anything.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let reader = rustix::fs::open(at("into/g"), flags, Mode::empty()).unwrap();
        let tree = copy(&dir, &["-r", jobs], ["tree/.", "into"]);
        let stderr = tree.stderr();
        assert_eq!(tree.code(), 1, "{stderr}");
        for says in [
            "into/f: exists and is a FIFO",
            "into/g: exists and is a FIFO",
            "into/d: exists and is not a directory",
        ] {
            assert!(stderr.contains(says), "{says}: {stderr}");
        }
        // Opening and closing a FIFO would report a hang-up to it.
        let mut fds = [rustix::event::PollFd::new(
            &reader,
            rustix::event::PollFlags::IN,
        )];
        assert_eq!(rustix::event::poll(&mut fds, Some(&NOW)).unwrap(), 0);
        assert!(
            std::fs::symlink_metadata(at("into/f"))
                .unwrap()
                .file_type()
                .is_fifo()
        );
    }
}

const NOW: rustix::event::Timespec = rustix::event::Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

#[test]
fn devices_sockets_and_directories_in_the_place_of_files() {
    let dir = places();
    let at = |name: &str| dir.path().join(name);
    for name in ["socket", "directory"] {
        file(&dir, &format!("tree/{name}"), b"x");
    }
    let _socket = std::os::unix::net::UnixListener::bind(at("into/socket")).unwrap();
    std::fs::create_dir(at("into/directory")).unwrap();
    let device = root("making a device") && {
        let mode = Mode::from_raw_mode(0o666);
        // /dev/full: a write to it would be an error.
        let number = rustix::fs::makedev(1, 7);
        mknodat(CWD, at("into/f"), FileType::CharacterDevice, mode, number).is_ok()
    };
    for jobs in ["-j1", "-j4"] {
        let tree = copy(&dir, &["-r", jobs, "--json"], ["tree/.", "into"]);
        let stderr = tree.stderr();
        assert_eq!(tree.code(), 1, "{stderr}");
        for (says, there) in [
            ("into/socket: exists and is a socket", true),
            ("into/directory: exists and is a directory", true),
            ("into/f: exists and is a device", device),
        ] {
            assert_eq!(stderr.contains(says), there, "{says}: {stderr}");
        }
        let below = b"below".len();
        let written = if device {
            below
        } else {
            below + b"contents".len()
        };
        assert_eq!(tree.json()["written"], written);
    }
}

/// Changes the file of a name continuously, while `work` runs.
fn while_changing(dir: &Path, change: impl Fn(&Path) + Sync, work: impl FnOnce()) {
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = Ends(&end);
        scope.spawn(|| {
            while !end.load(Ordering::Relaxed) {
                change(dir);
            }
        });
        work();
    });
}

/// Puts one after the other at a name: a symlink, a FIFO, a file, and nothing.
fn other_files(name: &Path, points_to: &Path) {
    let new = name.with_extension("new");
    let put = || {
        let _ = std::fs::rename(&new, name);
    };
    let _ = symlink(points_to, &new);
    put();
    let _ = mknodat(CWD, &new, FileType::Fifo, Mode::from_raw_mode(0o666), 0);
    put();
    let _ = std::fs::write(&new, b"");
    put();
    let _ = std::fs::remove_file(name);
}

/// Swaps two files at a name.
fn other_directory(name: &Path, other: &Path) {
    renameat_with(CWD, name, CWD, other, RenameFlags::EXCHANGE).unwrap();
}

/// Whether names can be exchanged here (`RENAME_EXCHANGE`): `EINVAL` of a file
/// system without that, `ENOSYS` or `EPERM` of a filter.
fn exchanges(dir: &TempDir) -> bool {
    let [one, other] = ["precious", "outside"].map(|name| dir.path().join(name));
    for _ in 0..2 {
        if let Err(errno) = renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE) {
            testkit::skip::here(format!("names cannot be exchanged here: {errno}"));
            return false;
        }
    }
    true
}

/// A name is looked up first and opened then. Between the two, at an open of
/// `opened`, another file gets the name `swapped`.
#[test]
fn what_comes_to_a_name_between_its_lookup_and_its_open_leads_nowhere() {
    let cases: [(&str, usize, &str, &str, &str); 5] = [
        ("tree", 0, "tree", "evil", "(ENOTDIR) opening the source"),
        ("d", 0, "tree/d", "evil", "(ENOTDIR) opening the source"),
        (
            "d",
            1,
            "into/tree/d",
            "evil",
            "exists and is not a directory",
        ),
        ("f", 0, "tree/f", "link", "(ELOOP) opening the source"),
        // The first one would create it.
        ("f", 2, "into/tree/f", "link", "is a symlink"),
    ];
    for (opened, before, swapped, by, says) in cases {
        let dir = places();
        let at = |name: &str| dir.path().join(name);
        if !exchanges(&dir) {
            return;
        }
        // Only one of the names occurs.
        std::fs::remove_file(at("tree/d/f")).unwrap();
        std::fs::create_dir_all(at("into/tree/d")).unwrap();
        file(&dir, "into/tree/f", b"old");
        symlink(at("outside"), at("evil")).unwrap();
        symlink(at("precious"), at("link")).unwrap();
        let mut command = cordboard();
        command.args(["copy", "-rp", "--jobs", "1"]);
        command.args(["tree", "into"].map(at));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let count = AtomicUsize::new(0);
        let started = Stall::spawn(&mut command, move |call, path| {
            call == Call::Open
                && Path::new(path).file_name() == Some(opened.as_ref())
                && count.fetch_add(1, Ordering::Relaxed) == before
        });
        let (child, stall) = match started {
            Ok(started) => started,
            Err(error) => return testkit::skip::here(testkit::stall::why(&error)),
        };
        let held = stall.reached();
        other_directory(&at(swapped), &at(by));
        held.release();
        end(child).fails(1, &[swapped, says]);
        other_directory(&at(swapped), &at(by));
        untouched(&dir);
    }
}

const ROUNDS: usize = 40;

#[test]
fn what_comes_to_the_sinks_names_meanwhile_leads_nowhere() {
    let dir = places();
    let at = |name: &str| dir.path().join(name);
    if !exchanges(&dir) {
        return;
    }
    for i in 0..40 {
        file(&dir, &format!("tree/d/{i}"), b"another");
    }
    std::fs::create_dir_all(at("tree/d/e/e")).unwrap();
    file(&dir, "tree/d/e/e/f", b"another");
    std::fs::create_dir(at("into/d")).unwrap();
    symlink(at("outside"), at("evil")).unwrap();
    let change = |dir: &Path| {
        other_directory(&dir.join("into/d"), &dir.join("evil"));
        other_files(&dir.join("into/f"), &dir.join("precious"));
    };
    while_changing(dir.path(), change, || {
        for round in 0..ROUNDS {
            // With few descriptors, directories are opened again and again.
            let tree = match round % 3 {
                2 => run(with(least()).arg("-rp").args(["tree/.", "into"].map(at))),
                jobs => copy(&dir, &["-rp", ["-j1", "-j4"][jobs]], ["tree/.", "into"]),
            };
            assert!([0, 1].contains(&tree.code()), "{}", tree.stderr());
        }
    });
    untouched(&dir);
}

#[test]
fn what_comes_to_the_sources_names_meanwhile_leads_nowhere() {
    let dir = places();
    let at = |name: &str| dir.path().join(name);
    if !exchanges(&dir) {
        return;
    }
    file(&dir, "outside/secret", b"secret");
    symlink(at("outside"), at("evil")).unwrap();
    let change = |dir: &Path| {
        other_directory(&dir.join("tree/d"), &dir.join("evil"));
        other_files(&dir.join("tree/f"), &dir.join("precious"));
    };
    while_changing(dir.path(), change, || {
        for round in 0..ROUNDS {
            let jobs = ["-j1", "-j4"][round % 2];
            let to = format!("copy{round}");
            let tree = copy(&dir, &["-r", jobs], ["tree", &to]);
            assert!([0, 1].contains(&tree.code()), "{}", tree.stderr());
            assert!(!at(&to).join("d/secret").is_file() || at(&to).join("d").is_symlink());
            let copied = at(&to).join("f");
            if std::fs::symlink_metadata(&copied).is_ok_and(|f| f.is_file()) {
                assert_ne!(read(&copied), b"precious");
            }
        }
    });
}

/// The top of the tree too: it was a directory at the lookup.
#[test]
fn what_comes_to_the_name_of_the_tree_meanwhile_is_no_other_tree() {
    let dir = places();
    let at = |name: &str| dir.path().join(name);
    if !exchanges(&dir) {
        return;
    }
    file(&dir, "outside/secret", b"secret");
    symlink(at("outside"), at("evil")).unwrap();
    let change = |dir: &Path| other_directory(&dir.join("tree"), &dir.join("evil"));
    while_changing(dir.path(), change, || {
        for round in 0..4 * ROUNDS {
            let to = format!("copy{round}");
            let tree = copy(&dir, &["-r"], ["tree", &to]);
            assert!([0, 1].contains(&tree.code()), "{}", tree.stderr());
            assert!(at(&to).is_symlink() || !at(&to).join("secret").exists());
        }
    });
}

/// A non-blocking open that would have to wait does not always mean a lease.
#[test]
fn what_can_never_be_opened_is_not_waited_for() {
    if !can_mount() {
        return;
    }
    let dir = places();
    let at = |name: &str| dir.path().join(name);
    let busy = testkit::fuse::Served {
        open: libc::EAGAIN,
        ..testkit::fuse::Served::default()
    };
    let mounted = testkit::fuse::with_file(busy, |busy| {
        file(&dir, "tree/d/file", b"contents");
        for (from, to, side) in [
            (busy, &*at("into"), "source"),
            (&*at("tree/d/."), busy.parent().unwrap(), "sink"),
        ] {
            for jobs in ["-j1", "-j4"] {
                let run = run(cordboard().args(["copy", "-r", jobs]).args([from, to]));
                run.fails(1, &["(EAGAIN) opening the", side]);
            }
        }
    });
    if !mounted {
        testkit::skip::here("no FUSE here");
    }
}

/// fcntl(2); `libc` does not have it.
const F_SETSIG: libc::c_int = 10;

/// A lease of this process on a file: opens by other processes wait until it is
/// released.
struct Lease(OwnedFd);

impl Lease {
    fn take(path: &Path, flags: OFlags, kind: libc::c_int) -> Lease {
        let fd = rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).unwrap();
        // A signal reports a waiting open, and would end the process.
        // SAFETY: F_SETSIG takes a number, and SIGURG is ignored.
        let told = unsafe { libc::fcntl(fd.as_raw_fd(), F_SETSIG, libc::SIGURG) };
        assert_eq!(told, 0);
        // EAGAIN: the file is open elsewhere. A child that another test starts
        // has this process's descriptors until its execve(2).
        until("no other open descriptor", || {
            // SAFETY: F_SETLEASE takes a number.
            let taken = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETLEASE, kind) };
            let error = std::io::Error::last_os_error();
            assert!(
                taken == 0 || error.raw_os_error() == Some(libc::EAGAIN),
                "{error}"
            );
            (taken == 0).then_some(())
        });
        Lease(fd)
    }

    /// Whether another process waits for it.
    fn is_wanted(&self, kind: libc::c_int) -> bool {
        // SAFETY: F_GETLEASE takes nothing.
        let now = unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_GETLEASE) };
        now != kind
    }
}

#[test]
fn a_lease_is_waited_for() {
    for jobs in ["-j1", "-j4"] {
        let dir = places();
        let at = |name: &str| dir.path().join(name);
        file(&dir, "into/f", b"old");
        let leases = [
            Lease::take(&at("tree/d/f"), OFlags::RDWR, libc::F_WRLCK),
            Lease::take(&at("into/f"), OFlags::RDONLY, libc::F_RDLCK),
        ];
        let kinds = [libc::F_WRLCK, libc::F_RDLCK];
        let child = cordboard()
            .args(["copy", "-r", jobs])
            .args([at("tree/."), at("into")])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .start();
        let mut held: Vec<_> = leases.into_iter().zip(kinds).collect();
        while !held.is_empty() {
            until("an open", || {
                let before = held.len();
                held.retain(|(lease, kind)| !lease.is_wanted(*kind));
                (held.len() < before).then_some(())
            });
        }
        end(child).ok();
        assert_eq!(read(at("into/f")), b"contents");
        assert_eq!(read(at("into/d/f")), b"below");
    }
}
