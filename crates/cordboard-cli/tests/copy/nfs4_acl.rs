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
