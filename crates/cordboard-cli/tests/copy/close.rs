//! Errors that only `close(2)` tells: of NFS, CIFS and FUSE, where the server
//! may have no room.

use std::fs::File;

use crate::common::{bytes, call, cordboard, dir, file, root, run};
use testkit::fuse::{Served, with_file};

#[test]
fn what_only_close_tells_is_told() {
    if !root("mounting") {
        return;
    }
    let dir = dir();
    let source = file(&dir, "source", &bytes(100_000));
    let full = Served {
        close: libc::ENOSPC,
        ..Served::default()
    };
    let mounted = with_file(full, |at| {
        let by = |verb: &str, args: &[&str]| {
            let mut command = cordboard();
            command.args([verb, "--json"]).args(args).arg(&source);
            match verb {
                "cat" => command.stdout(File::options().write(true).open(at).unwrap()),
                _ => command.arg(at),
            };
            command.stderr(std::process::Stdio::piped());
            let run = crate::common::end(command.spawn().unwrap());
            run.fails(1, &["No space left on device (ENOSPC) at the sink"]);
            let json = run.json();
            assert_eq!(json["ended"], "error", "{verb} {json}");
            assert_eq!(json["failed"], "sink", "{verb} {json}");
            assert_eq!(json["errno"], "ENOSPC", "{verb} {json}");
        };
        by("copy", &[]);
        by("copy", &["--sync"]);
        by("splice", &[]);
        by("cat", &[]);
    });
    if !mounted {
        testkit::skip::here("no FUSE here");
        return;
    }
    // The same where there is room.
    with_file(Served::default(), |at| {
        call(["copy".as_ref(), source.as_os_str(), at.as_os_str()]).ok();
        let out = File::options().write(true).open(at).unwrap();
        let child = cordboard().arg("cat").arg(&source).stdout(out).spawn();
        crate::common::end(child.unwrap()).ok();
        run(cordboard().arg("splice").arg(&source).arg(at)).ok();
    });
}

/// A file system that answers `fsync(2)` with `EINTR`, as one in user space does
/// where a signal came: nothing is wrong, and it is asked again.
#[test]
fn an_interrupted_sync_is_repeated() {
    if !root("mounting") {
        return;
    }
    let dir = dir();
    let source = file(&dir, "source", &bytes(100_000));
    let interrupted = Served {
        sync: libc::EINTR,
        ..Served::default()
    };
    let mounted = with_file(interrupted, |at| {
        for args in [&["--sync"][..], &["--sync", "--preserve"]] {
            run(cordboard().arg("copy").args(args).arg(&source).arg(at)).ok();
        }
    });
    if !mounted {
        testkit::skip::here("no FUSE here");
    }
}
