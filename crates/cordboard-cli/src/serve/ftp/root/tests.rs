//! Unit tests of the served directory.

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
    })
    .unwrap();
    names.sort();
    assert_eq!(names, ["etc", "fifo", "inside", "link", "none", "out"]);
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
    assert!(lock(&root.uploads).is_empty());
    assert!(root.write(&place("new"), Upload::From(u64::MAX)).is_err());
    assert!(!path("new").exists(), "the offset is too large");
}
