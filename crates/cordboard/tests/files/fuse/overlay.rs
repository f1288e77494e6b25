//! Files of FUSE below an overlay, which hides their file system.

use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::*;

/// An overlay over a directory. Unmounted when dropped.
pub struct Overlay {
    dir: tempfile::TempDir,
}

impl Overlay {
    pub fn over(lower: &Path) -> Option<Overlay> {
        Overlay::with(lower, "")
    }

    /// With further options, which begin with a comma.
    pub fn with(lower: &Path, options: &str) -> Option<Overlay> {
        // An overlay writes to no other overlay.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let overlay = Overlay { dir: dir.unwrap() };
        let [upper, work, merged] = ["upper", "work", "merged"].map(|name| {
            let name = overlay.dir.path().join(name);
            std::fs::create_dir(&name).unwrap();
            name
        });
        let [lower, upper, work] = [lower, &upper, &work].map(|path| path.to_str().unwrap());
        let options = format!("lowerdir={lower},upperdir={upper},workdir={work}{options}");
        let options = std::ffi::CString::new(options).unwrap();
        let none = MountFlags::empty();
        match mount(
            "overlay",
            &merged,
            "overlay",
            none,
            Some(options.as_c_str()),
        ) {
            Ok(()) => Some(overlay),
            Err(errno) => {
                testkit::skip::here(format!("no overlay here: {errno}"));
                None
            }
        }
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join("merged").join(name)
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let _ = unmount(self.at(""), UnmountFlags::DETACH);
    }
}

/// The server has its file read past the page cache, and each reply is short. Paths that use
/// pages would read zeros for the rest of a page, and a ring would count more than was moved.
#[test]
fn a_file_below_an_overlay_is_read_as_its_server_has_it() {
    let _dog = watchdog("a_file_below_an_overlay_is_read_as_its_server_has_it");
    if !common::is_root() {
        return testkit::skip::here("mounting needs root");
    }
    let data = noise(300_003);
    let served = Served {
        holds: &data,
        claims: data.len() as u64,
        inside: true,
        direct: true,
        writeback: true,
        short: 3001,
        ..Served::default()
    };
    let mounted = with_file(served, |at| {
        let Some(overlay) = Overlay::over(at.parent().unwrap()) else {
            return;
        };
        let file = || File::open(overlay.at("file")).unwrap().into();
        for kind in SOURCES {
            for (request, engine, staged) in ways(&[CopyFileRange, Sendfile, Splice, ReadWrite]) {
                let (sink, reader) = sink(kind);
                let what = format!("to {kind:?}, {request:?}, {engine}");
                let report = moved(file(), sink, request, engine, staged);
                let what = format!("{what}: {report:?}");
                assert_eq!(report.ended, Ended::Eof, "{what}");
                assert_eq!(report.written, data.len() as u64, "{what}");
                assert!(reader.all() == data, "{what}");
                assert_eq!(report.path, [ReadWrite], "{what}");
            }
        }
        for engine in [false, true] {
            let here = tempfile::tempfile_in(".").unwrap();
            let request = Request {
                direct: cordboard::Direct::Always,
                ..only(&[Direct, ReadWrite])
            };
            let sink = here.try_clone().unwrap().into();
            let report = moved(file(), sink, request, engine, false);
            assert_eq!(report.written, data.len() as u64, "{report:?}");
            assert!(content(&here) == data, "{report:?}");
        }
    });
    if !mounted {
        testkit::skip::here("no FUSE here");
    }
}

/// Whether `statx(2)` reports that the file can have the attribute *nodump*.
fn knows_nodump(file: &File) -> bool {
    use rustix::fs::{AtFlags, StatxAttributes, StatxFlags, statx};
    let stat = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::empty());
    stat.is_ok_and(|stat| stat.stx_attributes_mask.contains(StatxAttributes::NODUMP))
}

/// Its attributes show that it is local. The request for its extents, which may wait for a
/// writer, is not made.
#[test]
fn a_local_file_below_an_overlay_is_probed_without_its_extents() {
    let _dog = watchdog("a_local_file_below_an_overlay_is_probed_without_its_extents");
    if !common::is_root() {
        return testkit::skip::here("mounting needs root");
    }
    let lower = tempfile::tempdir().unwrap();
    std::fs::write(lower.path().join("file"), noise(5)).unwrap();
    let Some(overlay) = Overlay::over(lower.path()) else {
        return;
    };
    let file = File::open(overlay.at("file")).unwrap();
    if !knows_nodump(&file) {
        return testkit::skip::here("the attribute nodump is not known below the overlay");
    }
    let mut may_be_served = None;
    let probe = || {
        let endpoint = cordboard::Endpoint::probe(file.as_fd()).unwrap();
        may_be_served = Some(endpoint.facts().may_be_served);
    };
    let Some(requests) = testkit::midst::at_each(&[libc::SYS_ioctl], probe, || ()) else {
        return testkit::skip::here("calls of another thread cannot be held");
    };
    assert_eq!((requests, may_be_served), (0, Some(false)));
}

/// The search for data is enough, as on the file system below.
#[test]
fn a_true_hole_below_an_overlay_is_not_read() {
    let _dog = watchdog("a_true_hole_below_an_overlay_is_not_read");
    if !common::is_root() {
        return testkit::skip::here("mounting needs root");
    }
    if std::fs::exists("/sys/module/zfs").unwrap()
        || !std::fs::exists("/sys/module/kernel").unwrap()
    {
        return testkit::skip::here("OpenZFS may be loaded, which may report false holes");
    }
    let lower = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let lower = lower.unwrap();
    // In memory there is no extent map.
    const HOLE: u64 = 1 << 20;
    let below = File::create(lower.path().join("file")).unwrap();
    below.set_len(HOLE + 5).unwrap();
    below.write_all_at(b"bytes", HOLE).unwrap();
    let Some(overlay) = Overlay::with(lower.path(), ",metacopy=off") else {
        return;
    };
    let file = File::open(overlay.at("file")).unwrap();
    if !knows_nodump(&file) {
        return testkit::skip::here("the attribute nodump is not known below the overlay");
    }
    let sink = tempfile::tempfile().unwrap();
    let mut report = None;
    let copy = || report = Some(run(&file, &sink, only(&[ReadWrite])).report);
    // Holes are read at their offset, and other bytes at the position.
    let calls = [libc::SYS_pread64];
    let Some(reads) = testkit::midst::at_each(&calls, copy, || ()) else {
        return testkit::skip::here("calls of another thread cannot be held");
    };
    let report = report.unwrap();
    assert_eq!((report.written, reads), (HOLE + 5, 0), "{report:?}");
    let copied = content(&sink);
    assert!(copied.len() as u64 == HOLE + 5 && copied.ends_with(b"\0bytes"));
}
