//! Unit tests of the served directory.

use std::os::unix::fs::{MetadataExt, symlink};
use std::sync::mpsc;
use std::thread;

use super::entries::{is_removed, leads_nowhere};
use super::*;

#[test]
fn places_stay_below_the_root() {
    let root = Place::default();
    let shown = |place: &Place| String::from_utf8(place.shown()).unwrap();
    assert_eq!(shown(&root.join(b"../../etc/passwd")), "/etc/passwd");
    assert_eq!(shown(&root.join(b"a//b/./c/..")), "/a/b");
    assert_eq!(shown(&root.join(b"a").join(b"/b")), "/b");
    assert_eq!(shown(&root.join(b"a/b").join(b"..")), "/a");
    assert_eq!(shown(&root.join(b"..")), "/");
    assert!(root.join(b"a/..").is_root());
}

#[test]
fn nothing_outside_is_reached() {
    let folder = tempfile::tempdir().unwrap();
    let served = folder.path().join("served");
    std::fs::create_dir(&served).unwrap();
    std::fs::write(folder.path().join("secret"), b"secret").unwrap();
    std::os::unix::fs::symlink("../secret", served.join("out")).unwrap();
    std::os::unix::fs::symlink("/etc", served.join("etc")).unwrap();
    std::os::unix::fs::symlink("inside", served.join("link")).unwrap();
    std::fs::write(served.join("inside"), b"inside").unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        served.join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    let root = Root::open(&served).unwrap();
    let place = |path: &str| Place::default().join(path.as_bytes());
    for path in ["out", "etc/passwd", "fifo", "none", "."] {
        assert!(root.read(&place(path), 0).is_err(), "{path}");
        assert!(
            root.write(&place(path), Upload::From(0)).is_err() || path == "none",
            "{path}"
        );
    }
    let _socket = std::os::unix::net::UnixListener::bind(served.join("socket")).unwrap();
    for path in ["fifo", "socket"] {
        let refused = [
            root.read(&place(path), 0).err(),
            root.write(&place(path), Upload::Replace).err(),
        ];
        for error in refused.map(Option::unwrap) {
            assert_eq!(error.to_string(), "not a regular file", "{path}");
        }
    }
    std::fs::remove_file(served.join("socket")).unwrap();
    assert!(root.read(&place("link"), 0).is_ok());
    assert!(root.read(&place("inside"), 7).is_err(), "past its end");
    let error = root.write(&place("inside"), Upload::From(u64::MAX));
    assert!(
        error
            .err()
            .unwrap()
            .to_string()
            .contains("offset is too large")
    );
    assert!(root.rename(&place("inside"), &place("etc/x")).is_err());
    assert!(root.remove_directory(&place("/")).is_err());
    root.make_directory(&place("d")).unwrap();
    std::os::unix::fs::symlink("d", served.join("same")).unwrap();
    for to in ["d/x", "same/x"] {
        let error = root.rename(&place("d"), &place(to)).unwrap_err();
        assert!(error.to_string().contains("moved into itself"), "{error}");
    }
    std::fs::remove_file(served.join("same")).unwrap();
    root.remove_directory(&place("d")).unwrap();
    assert_eq!(
        std::fs::read(folder.path().join("secret")).unwrap(),
        b"secret"
    );
    let mut names = Vec::new();
    root.list(&place("/"), |name, _| {
        names.push(String::from_utf8(name.to_vec()).unwrap());
        Ok(())
    })
    .unwrap();
    names.sort();
    assert_eq!(names, ["etc", "fifo", "inside", "link", "none", "out"]);
}

/// Without /proc, a file is opened by its name.
#[test]
fn a_file_is_opened_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::open(folder.path()).unwrap();
    let place = |name: &str| Place::default().join(name.as_bytes());
    std::fs::write(folder.path().join("f"), b"f").unwrap();
    std::os::unix::fs::symlink("f", folder.path().join("link")).unwrap();
    std::fs::create_dir(folder.path().join("d")).unwrap();
    let of = OFlags::RWMODE | OFlags::APPEND | OFlags::NONBLOCK;
    let flags = |file: File| rustix::fs::fcntl_getfl(file).unwrap() & of;
    for access in [Access::Read, Access::Write, Access::Append] {
        for name in ["f", "link"] {
            let by_name = root.open_by_name(&place(name), &access.options());
            let by_link = root.open_regular(&place(name), access);
            assert_eq!(flags(by_name.unwrap()), access.flags() & of);
            assert_eq!(flags(by_link.unwrap()), access.flags() & of);
        }
        assert!(
            root.open_by_name(&place("d"), &access.options()).is_err(),
            "{access:?}"
        );
    }
}

/// Only a missing file is left out, and only a symlink that leads nowhere is listed as such.
#[test]
fn other_errors_are_errors_of_the_listing() {
    let escape = || io::Error::new(io::ErrorKind::PermissionDenied, "it led outside");
    for (error, nowhere, removed) in [
        (Errno::NOENT.into(), true, true),
        (Errno::STALE.into(), false, true),
        (Errno::NOTDIR.into(), true, false),
        (Errno::LOOP.into(), true, false),
        (Errno::ACCESS.into(), true, false),
        (Errno::NAMETOOLONG.into(), true, false),
        (Errno::INVAL.into(), true, false),
        (escape(), true, false),
        (Errno::PERM.into(), false, false),
        (Errno::IO.into(), false, false),
        (Errno::MFILE.into(), false, false),
        (io::Error::other("no errno"), false, false),
    ] {
        assert_eq!(leads_nowhere(&error), nowhere, "{error:?}");
        assert_eq!(is_removed(&error), removed, "{error:?}");
    }
}

/// tmpfs stores each time. The conversion of this one to another type overflows.
#[test]
fn a_time_of_the_remotest_past_is_listed() {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let folder = folder.unwrap();
    let path = folder.path().join("f");
    std::fs::write(&path, b"123").unwrap();
    std::os::unix::fs::symlink("f", folder.path().join("link")).unwrap();
    let time = Timespec {
        tv_sec: i64::MIN,
        tv_nsec: 0,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    let set = rustix::fs::utimensat(rustix::fs::CWD, &path, &times, AtFlags::empty());
    let stored = rustix::fs::stat(&path).unwrap().st_mtime;
    if set.is_err() || stored != i64::MIN {
        return testkit::skip::here("the file system does not store this time");
    }
    let root = Root::open(folder.path()).unwrap();
    let mut all = Vec::new();
    root.list(&Place::default(), |name, about| {
        all.push((name.to_vec(), about.length, about.modified));
        Ok(())
    })
    .unwrap();
    all.sort();
    let expected = (3, (i64::MIN, 0));
    let names = [b"f".to_vec(), b"link".to_vec()];
    assert_eq!(all, names.map(|name| (name, expected.0, expected.1)));
    let place = Place::default().join(b"f");
    for about in [root.metadata(&place), root.own_metadata(&place)] {
        assert_eq!(about.unwrap().modified, expected.1);
    }
    assert!(root.set_modified(&place, 1).is_ok());
}

/// Both ways to set the times of a descriptor without a permission.
#[test]
fn times_are_set_by_descriptor_and_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f");
    std::fs::write(&path, b"").unwrap();
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
    let file = rustix::fs::open(&path, flags, rustix::fs::Mode::empty()).unwrap();
    for (seconds, set) in [(1, set_times as fn(_, &_) -> _), (2, set_times_by_name)] {
        let time = Timespec {
            tv_sec: seconds,
            tv_nsec: 0,
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        set(file.as_fd(), &times).unwrap();
        assert_eq!(path.metadata().unwrap().mtime(), seconds);
    }
}

#[test]
fn only_an_empty_file_that_was_created_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::open(folder.path()).unwrap();
    let path = |name: &str| folder.path().join(name);
    let place = |name: &str| Place::default().join(name.as_bytes());
    let upload = |name| root.write(&place(name), Upload::Replace).unwrap();
    std::fs::write(path("old"), b"").unwrap();
    assert!(!upload("old").upload.is_new);
    std::os::unix::fs::symlink("target", path("link")).unwrap();
    assert!(!upload("link").upload.is_new);
    assert!(path("target").exists());
    let (new, other) = (upload("new").upload, upload("new").upload);
    root.remove_new(&place("new"), &other);
    root.remove_new(&place("new"), &new);
    assert!(path("new").exists(), "two uploads");
    drop(other);
    std::fs::write(path("new"), b"bytes of another process").unwrap();
    root.remove_new(&place("new"), &new);
    assert!(path("new").exists());
    root.remove_new(&place("old"), &new);
    assert!(path("old").exists(), "another file");
    std::fs::write(path("new"), b"").unwrap();
    root.remove_new(&place("new"), &new);
    assert!(!path("new").exists());
    drop(new);
    assert_eq!(root.uploads.running(), Some(0));
    assert!(root.write(&place("new"), Upload::From(u64::MAX)).is_err());
    assert!(!path("new").exists(), "the offset is too large");
}

/// Two clients store a file of the same name. It is empty, and one upload is complete.
#[test]
fn the_empty_file_of_a_complete_upload_is_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::open(folder.path()).unwrap();
    let place = Place::default().join(b"f");
    let upload = || root.write(&place, Upload::Replace).unwrap().upload;
    let failed = upload();
    upload().complete();
    drop(upload());
    root.remove_new(&place, &failed);
    assert!(folder.path().join("f").exists());
    drop(failed);
    // The next upload is another one.
    std::fs::remove_file(folder.path().join("f")).unwrap();
    let failed = upload();
    drop(upload());
    root.remove_new(&place, &failed);
    assert!(!folder.path().join("f").exists());
}

/// Another process replaces the directory between the two look-ups of the name.
#[test]
fn a_file_of_another_directory_is_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let root = Root::open(folder.path()).unwrap();
    for name in ["d", "other"] {
        std::fs::create_dir(path(name)).unwrap();
    }
    let place = Place::default().join(b"d/f");
    let failed = root.write(&place, Upload::Replace).unwrap();
    std::fs::write(path("other/f"), b"").unwrap();
    let opened = root.dir.open_dir("d").unwrap();
    std::fs::rename(path("d"), path("moved")).unwrap();
    symlink("other", path("d")).unwrap();
    root.remove_new(&place, &failed.upload);
    assert!(path("other/f").exists(), "another file");
    remove_empty(&opened, OsStr::new("f"), failed.upload.id);
    assert!(path("other/f").exists() && !path("moved/f").exists());
}

/// The file by which `open_or_create` opens an upload.
fn opened_by(root: &Root, place: &Place) -> io::Result<(File, bool)> {
    root.open_or_create(place, Access::Write)
}

fn leads_to(path: &Path, file: &File) -> bool {
    let id = |about: std::fs::Metadata| (about.dev(), about.ino());
    path.metadata()
        .is_ok_and(|about| id(about) == id(file.metadata().unwrap()))
}

#[test]
fn a_call_that_hangs_stops_no_other_upload() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::open(folder.path()).unwrap();
    let place = |name: &str| Place::default().join(name.as_bytes());
    let upload = |name| root.write(&place(name), Upload::Replace).unwrap().upload;
    // Other uploads begin, fail and end while a file is opened.
    let opened = root.begin(&place("slow"), || {
        assert_eq!(root.uploads.running(), Some(0), "the lock is held");
        let other = upload("other");
        root.remove_new(&place("other"), &other);
        drop(other);
        opened_by(&root, &place("slow"))
    });
    assert!(leads_to(&folder.path().join("slow"), &opened.unwrap().file));
    // The same while a file of another device is removed.
    let device = folder.path().metadata().unwrap().dev();
    let hung = root.uploads.begin((device + 1, 1), true);
    let removal = hung.begin_removal();
    assert!(removal.is_some());
    assert_eq!(root.uploads.running(), Some(1), "the lock is held");
    let other = upload("other");
    root.remove_new(&place("other"), &other);
    drop(other);
    assert!(!folder.path().join("other").exists());
}

#[test]
fn a_file_that_is_removed_between_its_opening_and_its_upload_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::open(folder.path()).unwrap();
    let place = Place::default().join(b"f");
    let write = || root.write(&place, Upload::Replace).unwrap().upload;
    let mut failed = Some(write());
    let mut opens = 0;
    let opened = root.begin(&place, || {
        opens += 1;
        let opened = opened_by(&root, &place);
        if let Some(failed) = failed.take() {
            root.remove_new(&place, &failed);
            assert!(!folder.path().join("f").exists());
        }
        opened
    });
    let opened = opened.unwrap();
    assert!(leads_to(&folder.path().join("f"), &opened.file));
    assert!(opened.upload.is_new);
    assert_eq!(opens, 2);
    root.remove_new(&place, &opened.upload);
    drop(opened);

    let mut opens = 0;
    let failed = root.begin(&place, || {
        opens += 1;
        let failed = write();
        let opened = opened_by(&root, &place);
        root.remove_new(&place, &failed);
        opened
    });
    let error = failed.err().unwrap();
    assert!(error.to_string().contains("removed"), "{error}");
    assert_eq!(opens, TRIES);
    assert_eq!(root.uploads.running(), Some(0));
}

/// A second upload opens the file, or another file of the same name, after the failed upload
/// has decided to remove it.
#[test]
fn an_upload_that_opens_its_file_during_the_removal_keeps_it() {
    for deletes in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let (path, place) = (folder.path().join("f"), Place::default().join(b"f"));
        let failed = root.write(&place, Upload::Replace).unwrap();
        let removal = failed.upload.begin_removal().unwrap();
        if deletes {
            std::fs::remove_file(&path).unwrap();
        }
        let (opens, has_opened) = mpsc::channel();
        let opened = thread::scope(|scope| {
            let second = scope.spawn(|| {
                root.begin(&place, || {
                    let opened = opened_by(&root, &place);
                    opens.send(()).unwrap();
                    opened
                })
            });
            has_opened.recv().unwrap();
            while root.uploads.running() != Some(2) {
                thread::yield_now();
            }
            match deletes {
                false => root.remove_empty(&place, failed.upload.id),
                // It has looked up the name before the deletion.
                true => root.remove_file(&place).unwrap(),
            }
            drop(removal);
            second.join().unwrap().unwrap()
        });
        assert!(leads_to(&path, &opened.file), "deletes: {deletes}");
        assert!(opened.upload.is_new);
        assert_eq!(has_opened.try_iter().count(), 1);
        // The first upload no longer removes the file of the second.
        root.remove_new(&place, &failed.upload);
        assert!(path.exists());
    }
}

/// As the mount of a FUSE server of another user, which not even root may access.
#[test]
fn an_entry_that_may_not_be_accessed_is_a_special_file() {
    let base = tempfile::tempdir().unwrap();
    std::fs::write(base.path().join("f"), b"bytes").unwrap();
    let root = Root::open(base.path()).unwrap();
    let mut all = Vec::new();
    testkit::refuse::apart(|| {
        let nofollow = libc::AT_SYMLINK_NOFOLLOW as u32;
        testkit::refuse::refuse_where(libc::SYS_newfstatat, 3, nofollow, libc::EACCES);
        let top = Place::default();
        root.list(&top, |name, about| {
            all.push((name.to_owned(), about.is_file(), about.length));
            Ok(())
        })
        .unwrap();
    });
    assert_eq!(all, [(b"f".to_vec(), false, 0)]);
}
