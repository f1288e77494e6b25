//! `-p` and NFSv4 access control lists, which a change of the mode discards or forbids.

use std::sync::Mutex;

use testkit::fuse::{Permissions, Served, with_file};

use crate::common::*;

/// A file with this mode and this list.
fn with(mode: u32, list: &str) -> Permissions {
    Permissions {
        mode: libc::S_IFREG | mode,
        list: (!list.is_empty()).then(|| list.into()),
        ..Permissions::default()
    }
}

/// Copies a file with `-p` onto another one. Returns the run and the state of the sink. `None`:
/// the test is skipped.
fn copied(source: &Permissions, sink: &Permissions) -> Option<(Run, Permissions)> {
    let [from, to] = [source, sink].map(|known| Mutex::new(known.clone()));
    let served = |holds, permissions| Served {
        holds,
        claims: holds.len() as u64,
        permissions: Some(permissions),
        ..Served::default()
    };
    let mut ended = None;
    with_file(served(&b"secret"[..], &from), |from| {
        with_file(served(&[], &to), |to| {
            ended = Some(call([
                "copy".as_ref(),
                "-p".as_ref(),
                from.as_os_str(),
                to.as_os_str(),
            ]));
        });
    });
    match ended {
        Some(run) => Some((run, to.into_inner().unwrap())),
        None => {
            testkit::skip::here("no FUSE here");
            None
        }
    }
}

#[test]
fn a_list_is_set_after_the_mode() {
    if !can_mount() {
        return;
    }
    let source = with(0o640, "640 and bob");
    for list in ["", "666 and all"] {
        let Some((run, sink)) = copied(&source, &with(0o666, list)) else {
            return;
        };
        assert_eq!(run.ok().stderr(), "");
        assert_eq!((sink.mode, &sink.list), (source.mode, &source.list));
    }
}

/// The mode is the one of the list.
#[test]
fn a_list_that_forbids_a_change_of_the_mode_is_replaced() {
    if !can_mount() {
        return;
    }
    let restricted = Permissions {
        restricted: true,
        ..with(0o666, "666 and all")
    };
    let source = with(0o640, "640 and bob");
    let Some((run, sink)) = copied(&source, &restricted) else {
        return;
    };
    assert_eq!(run.ok().stderr(), "");
    assert_eq!((sink.mode, sink.list), (source.mode, source.list));
    // Without a list of the source, or with another mode than that of its list, the mode stays.
    for source in [with(0o640, ""), with(0o600, "640 and bob")] {
        let (run, _) = copied(&source, &restricted).unwrap();
        run.fails(
            1,
            &["(EPERM) setting the mode", "the contents are complete"],
        );
    }
}

/// The mode alone permits what the list denies.
#[test]
fn a_mode_is_not_given_without_the_list_that_restricts_it() {
    if !can_mount() {
        return;
    }
    let source = with(0o644, "644 and not bob");
    for list in ["", "666 and all"] {
        let Some((run, sink)) = copied(&source, &with(0o644, list)) else {
            return;
        };
        assert_eq!(run.ok().stderr(), "");
        assert_eq!((sink.mode, &sink.list), (source.mode, &source.list));
        let open = |(mode, listed): &(u32, bool)| mode & 0o077 != 0 && !listed;
        assert!(!sink.seen.iter().any(open), "{:?}", sink.seen);
    }
}

#[test]
fn a_refused_list_of_other_users_is_a_failure() {
    if !can_mount() {
        return;
    }
    let failed = "setting the access control list; the contents are complete";
    let sink = |errno, list| Permissions {
        refuses: errno,
        ..with(0o644, list)
    };
    let source = with(0o644, "644 and not bob");
    for errno in [libc::EINVAL, libc::EACCES, libc::EPERM, libc::EIO] {
        let Some((run, sink)) = copied(&source, &sink(errno, "")) else {
            return;
        };
        run.fails(1, &[failed]);
        assert_eq!((sink.mode & 0o7777, sink.list), (0o600, None), "{errno}");
    }
    // The sink has the mode of the source already, and the list forbids its change.
    let other = Permissions {
        restricted: true,
        ..sink(libc::EINVAL, "644 and carol")
    };
    copied(&source, &other).unwrap().0.fails(1, &[failed]);
    // The file system has no lists; or the list, here the number of its entries alone, has no
    // permissions besides the mode.
    for (list, errno) in [
        ("644 and not bob", libc::EOPNOTSUPP),
        ("644.", libc::EOPNOTSUPP),
        ("644.", libc::EINVAL),
    ] {
        let source = with(0o644, list);
        let (run, sink) = copied(&source, &sink(errno, "")).unwrap();
        let lost = "warning: attribute system.nfs4_acl was not copied";
        assert!(run.ok().stderr().contains(lost), "{}", run.stderr());
        assert_eq!((sink.mode, sink.list), (source.mode, None), "{list}");
    }
}

#[test]
fn a_list_that_does_not_set_the_mode_keeps_it_from_no_file() {
    if !can_mount() {
        return;
    }
    let apart = Permissions {
        apart: true,
        ..with(0o640, "")
    };
    let source = with(0o644, "644 and not bob");
    let Some((run, sink)) = copied(&source, &apart) else {
        return;
    };
    assert_eq!(run.ok().stderr(), "");
    assert_eq!((sink.mode, sink.list), (source.mode, source.list));
}

/// The mode does not show the users in a list.
#[test]
fn p_restricts_an_existing_file_if_either_has_a_list() {
    if !can_mount() {
        return;
    }
    for (from, to) in [
        (with(0o600, ""), with(0o600, "600 and bob")),
        (with(0o644, "644 and not bob"), with(0o644, "")),
    ] {
        let Some((run, sink)) = copied(&from, &to) else {
            return;
        };
        run.ok();
        assert_eq!(sink.at_write, Some((0o600, false)));
        assert_eq!((sink.mode, sink.list), (from.mode, from.list));
    }
}
