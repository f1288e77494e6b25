//! Calls that a filter does not know or forbids (seccomp(2)): those for extended attributes with
//! `-p`, and those by which names are replaced.

use rustix::fs::{XattrFlags, setxattr};
use rustix::io::Errno;
use testkit::refuse::refuse;

use crate::common::*;
use crate::{chmod, mode, past};

const NAME: &str = "user.cord";

/// Both files are intact: as with `cp -p`, the copy is made.
#[test]
fn a_filter_without_attributes_fails_no_copy() {
    let dir = dir();
    let source = file(&dir, "source", b"contents");
    if let Err(errno) = setxattr(&source, NAME, b"board", XattrFlags::empty()) {
        return testkit::skip::here(format!("no attributes of users here: {errno}"));
    }
    chmod(&source, 0o751);
    let all = [
        libc::SYS_flistxattr,
        libc::SYS_fgetxattr,
        libc::SYS_fsetxattr,
        libc::SYS_fremovexattr,
    ];
    let named = "attribute user.cord was not copied: Function not implemented (ENOSYS)";
    let unnamed = "the extended attributes were not copied: \
                   Operation not permitted (EPERM) listing their names";
    for (number, (calls, errno, says)) in [
        (&all[..1], libc::ENOSYS, None),
        (&all[..], libc::ENOSYS, None),
        (&all[1..2], libc::ENOSYS, Some(named)),
        (&all[2..3], libc::ENOSYS, Some(named)),
        (&all[..1], libc::EPERM, Some(unnamed)),
    ]
    .into_iter()
    .enumerate()
    {
        let to = dir.path().join(number.to_string());
        let run = apart(|| {
            refuse(calls, errno);
            run(cordboard()
                .args(["copy", "-p", "--json"])
                .args([&source, &to]))
        });
        let stderr = run.ok().stderr();
        let warnings = stderr.lines().filter(|line| line.contains("warning"));
        assert_eq!(warnings.count(), usize::from(says.is_some()), "{stderr}");
        assert!(says.is_none_or(|says| stderr.contains(says)), "{stderr}");
        assert_eq!(run.json()["unkept"].as_u64(), says.map(|_| 1), "{stderr}");
        assert_eq!((read(&to), mode(&to)), (b"contents".to_vec(), 0o751));
    }
}

/// Another call reports the metadata of the files.
#[cfg(target_pointer_width = "64")]
#[test]
fn a_filter_without_fstat_fails_no_copy() {
    use testkit::refuse::STAT;
    let dir = dir();
    let source = file(&dir, "source", b"contents");
    for errno in [libc::ENOSYS, libc::EPERM, libc::EINVAL] {
        let to = dir.path().join(errno.to_string());
        let done = apart(|| {
            refuse(STAT[0], errno);
            // The loader of shared libraries may need the call.
            let starts = std::process::Command::new("true").output().unwrap();
            let run = || run(cordboard().args(["copy", "-p"]).args([&source, &to]));
            starts.status.success().then(run)
        });
        let Some(run) = done else {
            return testkit::skip::here("no program starts without fstat(2)");
        };
        run.ok();
        assert_eq!(read(&to), b"contents", "{errno}");
    }
}

/// An inherited list is removed without being read. A missing call for that is
/// a failure, since the mode would become the mask of the list.
#[test]
fn a_filter_hides_no_list_of_the_sink() {
    const ACCESS: &str = "system.posix_acl_access";
    let dir = dir();
    let source = file(&dir, "source", b"secret");
    chmod(&source, 0o660);
    let into = dir.path().join("into");
    std::fs::create_dir(&into).unwrap();
    let list = crate::acl::list(0);
    let set = setxattr(
        &into,
        "system.posix_acl_default",
        &list,
        XattrFlags::empty(),
    );
    if let Err(errno) = set {
        return testkit::skip::here(format!("no access control lists here: {errno}"));
    }
    for (call, code) in [(libc::SYS_fgetxattr, 0), (libc::SYS_fremovexattr, 1)] {
        let to = into.join(call.to_string());
        let run = apart(|| {
            refuse(&[call], libc::ENOSYS);
            run(cordboard().args(["copy", "-p"]).args([&source, &to]))
        });
        assert_eq!(run.code(), code, "{}", run.stderr());
        let there = rustix::fs::getxattr(&to, ACCESS, &mut [0u8; 256][..]);
        match code {
            0 => assert_eq!((there, mode(&to)), (Err(Errno::NODATA), 0o660)),
            _ => {
                assert!(there.is_ok());
                assert_eq!(mode(&to) & 0o070, 0, "the mask admits users");
            }
        }
    }
}

/// Lack of space concerns one file: a directory, a symlink and a file get the
/// other attributes, and the following files are copied.
#[test]
fn what_there_is_no_room_for_ends_no_tree() {
    let dir = dir();
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(tree.join("d")).unwrap();
    let link = tree.join("l");
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    let named = [tree.join("d"), file(&dir, "tree/a", b"a"), link.clone()];
    file(&dir, "tree/z", b"z");
    for path in &named {
        let set = rustix::fs::lsetxattr(path, "trusted.cord", b"x", XattrFlags::empty());
        if let Err(errno) = set {
            return testkit::skip::here(format!("no attributes of root here: {errno}"));
        }
    }
    past(&link);
    for errno in [libc::ENOSPC, libc::EDQUOT, libc::E2BIG, libc::ERANGE] {
        let to = dir.path().join(errno.to_string());
        let run = apart(|| {
            refuse(&[libc::SYS_fsetxattr, libc::SYS_setxattr], errno);
            let run_it = ["copy", "-rp", "--json", "--jobs", "1"];
            run(cordboard().args(run_it).args([&tree, &to]))
        });
        let stderr = run.stderr();
        assert_eq!(run.code(), 1, "{stderr}");
        let told = stderr
            .lines()
            .filter(|line| line.contains("setting the attribute trusted.cord"));
        assert_eq!(told.count(), 3, "{stderr}");
        let files = &run.json()["files"];
        assert_eq!(
            (&files["copied"], &files["failed"]),
            (&1.into(), &3.into()),
            "{files}"
        );
        assert_eq!(files["left_out"], false, "{files}");
        assert_eq!(read(to.join("z")), b"z");
        let time = to.join("l").symlink_metadata().unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::mtime(&time), 1);
    }
}

/// The old symlink is removed, and the new one made.
#[test]
fn a_filter_without_renameat2_fails_no_symlink() {
    let dir = dir();
    let at = |name: &str| dir.path().join(name);
    std::os::unix::fs::symlink("new", at("from")).unwrap();
    for errno in [libc::ENOSYS, libc::EPERM, libc::EACCES, libc::EINVAL] {
        let _ = std::fs::remove_file(at("to"));
        std::os::unix::fs::symlink("old", at("to")).unwrap();
        let run = apart(|| {
            refuse(&[libc::SYS_renameat2], errno);
            run(cordboard()
                .args(["copy", "-r"])
                .args([at("from"), at("to")]))
        });
        run.ok();
        assert_eq!(at("to").read_link().unwrap().as_os_str(), "new", "{errno}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "{errno}");
    }
}

/// As on vfat for a user who does not own the mount (`EPERM`), or on a server of FUSE. `cp -r`
/// changes no mode there either.
#[test]
fn without_p_a_mode_that_cannot_be_changed_fails_no_copy() {
    let dir = dir();
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(tree.join("d")).unwrap();
    file(&dir, "tree/d/f", b"contents");
    chmod(&tree.join("d"), 0o555);
    for (number, errno) in [
        libc::EPERM,
        libc::EACCES,
        libc::EROFS,
        libc::ENOSYS,
        libc::EOPNOTSUPP,
        libc::EIO,
    ]
    .into_iter()
    .enumerate()
    {
        let to = dir.path().join(number.to_string());
        let run = apart(|| {
            refuse(&[libc::SYS_fchmod], errno);
            run(cordboard().args(["copy", "-r"]).args([&tree, &to]))
        });
        assert_eq!(read(to.join("d/f")), b"contents");
        // The call was made and refused.
        assert_eq!(mode(&to.join("d")) & 0o700, 0o700);
        match errno {
            libc::EIO => run.fails(1, &["d: ", "(EIO) setting the mode"]),
            _ => run.ok(),
        };
    }
    chmod(&tree.join("d"), 0o755);
}
