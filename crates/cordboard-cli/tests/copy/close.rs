//! Errors that only `close(2)` reports: of NFS, CIFS and FUSE, if the server
//! has no space.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::*;
use testkit::fuse::{Served, with_file};
use testkit::needs::Need;

#[test]
fn what_only_close_tells_is_told() {
    if !can_mount() {
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
            let run = crate::common::end(command.start());
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
    // The same with space.
    with_file(Served::default(), |at| {
        call(["copy".as_ref(), source.as_os_str(), at.as_os_str()]).ok();
        let out = File::options().write(true).open(at).unwrap();
        let child = cordboard().arg("cat").arg(&source).stdout(out).start();
        crate::common::end(child).ok();
        run(cordboard().arg("splice").arg(&source).arg(at)).ok();
    });
}

/// Some file systems report the error to the first close only, which is that of a duplicate
/// if another thread moves the bytes.
#[test]
fn what_only_the_first_close_tells_is_told() {
    if !can_mount() {
        return;
    }
    let dir = dir();
    let source = file(&dir, "source", &bytes(100_000));
    let large = ["file", "another"].map(|name| file(&dir, name, &bytes(5 << 20)));
    let served = Served {
        inside: true,
        ..Served::full()
    };
    let by = |run: &dyn Fn(&Path) -> crate::common::Run| {
        with_file(served, |at| {
            run(at).fails(1, &["No space left on device (ENOSPC)"]);
        })
    };
    let mounted = by(&|at| call(["copy".as_ref(), source.as_os_str(), at.as_os_str()]));
    if !mounted {
        testkit::skip::here("no FUSE here");
        return;
    }
    let splice = |words: &[&str], at: &Path, more: &[&str]| {
        let mut command = cordboard();
        command.arg("splice").args(words).arg(&source).arg(at);
        run(command.args(more))
    };
    by(&|at| splice(&[], at, &["/dev/null"]));
    by(&|at| splice(&["--buffer", "1M"], at, &[]));
    // The command has a duplicate of its own, or reads the file back by another descriptor.
    let held = tempfile::tempfile().unwrap();
    for (stream, args) in [
        (false, &["--append", "--verify"][..]),
        (true, &["--verify"]),
    ] {
        held.set_len(0).unwrap();
        let served = Served {
            shows: Some(&held),
            stream,
            ..Served::full()
        };
        with_file(served, |at| {
            let copy = run(cordboard().arg("copy").args(args).arg(&source).arg(at));
            copy.fails(1, &["No space left on device (ENOSPC)"]);
            assert_eq!(held.metadata().unwrap().len(), 100_000, "{args:?}");
        });
    }
    // Both on an engine. The sink of one of them is a symlink to the file.
    by(&|at| {
        let mut command = cordboard();
        command.args(["copy", "--jobs", "2"]).args(&large);
        let into = dir.path().join("into");
        std::fs::create_dir(&into).unwrap();
        std::os::unix::fs::symlink(at, into.join("file")).unwrap();
        run(command.arg(&into))
    });
}

/// The descriptor is closed then, and it is unknown what the server had not
/// taken; what is on the disk is complete.
#[test]
fn an_interrupted_close_is_a_failure_of_what_is_not_on_the_disk() {
    if !can_mount() {
        return;
    }
    let dir = dir();
    let source = file(&dir, "source", &bytes(100_000));
    let interrupted = Served {
        close: libc::EINTR,
        ..Served::default()
    };
    let mounted = with_file(interrupted, |at| {
        let by = |args: &[&str]| {
            let mut command = cordboard();
            command.args(args).arg(&source);
            match args[0] {
                "cat" => command.stdout(File::options().write(true).open(at).unwrap()),
                _ => command.arg(at),
            };
            command.stderr(std::process::Stdio::piped());
            crate::common::end(command.start())
        };
        for args in [
            &["copy", "--json"][..],
            &["copy", "-p", "--json"],
            &["splice", "--json"],
            &["cat", "--json"],
        ] {
            let run = by(args);
            run.fails(1, &["Interrupted system call (EINTR) closing the sink"]);
            let json = run.json();
            assert_eq!(json["written"], 100_000, "{args:?} {json}");
            assert_eq!(json["ended"], "error", "{args:?} {json}");
            assert_eq!(json["failed"], "sink", "{args:?} {json}");
        }
        for args in [&["copy", "--sync"][..], &["splice", "--sync"]] {
            by(args).ok();
        }
    });
    if !mounted {
        testkit::skip::here("no FUSE here");
    }
}

/// A file system that answers `fsync(2)` with `EINTR`, as one in user space
/// does if a signal has arrived: the call is repeated.
#[test]
fn an_interrupted_sync_is_repeated() {
    if !can_mount() {
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

/// The same for the size, the owner, the mode and the times.
#[test]
fn an_interrupted_change_of_attributes_is_repeated() {
    if !can_mount() {
        return;
    }
    let dir = dir();
    let source = file(&dir, "source", &bytes(100_000));
    let interrupted = Served {
        claims: 7,
        change: libc::EINTR,
        ..Served::default()
    };
    let mounted = with_file(interrupted, |at| {
        run(cordboard().args(["copy", "-p"]).arg(&source).arg(at)).ok();
        run(cordboard().arg("splice").arg(&source).arg(at)).ok();
    });
    if !mounted {
        testkit::skip::here("no FUSE here");
    }
}

/// A file system whose calls take longer than the interval of the timer that
/// draws progress, and end with `EINTR` at its signal.
#[test]
fn progress_does_not_interrupt_a_call_again_and_again() {
    if !can_mount() {
        return;
    }
    let dir = dir();
    let source = file(&dir, "source", &bytes(3000));
    let slow = Served {
        slow: true,
        ..Served::default()
    };
    let mounted = with_file(slow, |at| {
        let mut copy = cordboard();
        copy.args(["copy", "-p", "--progress", "always"]);
        run(copy.arg(&source).arg(at)).ok();
    });
    if !mounted {
        testkit::skip::here("no FUSE here");
    }
}

/// A file system that answers each open with `EINTR`: a signal to stop ends the
/// command.
#[test]
fn a_signal_ends_an_open_that_is_interrupted_all_the_time() {
    if !can_mount() {
        return;
    }
    let dir = dir();
    let interrupted = Served {
        claims: 7,
        open: libc::EINTR,
        ..Served::default()
    };
    let mounted = with_file(interrupted, |at| {
        for more in [&[][..], &["-r"]] {
            let mut copy = cordboard();
            copy.arg("copy")
                .args(more)
                .arg(at)
                .arg(dir.path().join("d"));
            let child = copy.stderr(std::process::Stdio::piped()).start();
            until("its handlers", || handles(child.id(), 15).then_some(()));
            signal(child.id(), rustix::process::Signal::TERM);
            assert_eq!(end(child).code(), 143);
        }
    });
    if !mounted {
        testkit::skip::here("no FUSE here");
    }
}

/// The same for each write, and each `fsync(2)`.
#[test]
fn a_signal_ends_a_call_that_is_interrupted_all_the_time() {
    if !can_mount() {
        return;
    }
    let dir = dir();
    let splices = Need::Splice.unmet().map(testkit::skip::here).is_none();
    // By one thread, and by one of the engine.
    for length in [100_000, 5 << 20] {
        let source = file(&dir, "source", &bytes(length));
        for (fails, args) in [
            (libc::EINTR, &["copy"][..]),
            (libc::EINTR, &["copy", "-r"]),
            (libc::EINTR, &["splice"]),
            (libc::EINTR, &["splice", "--route", "splice"]),
            (0, &["copy", "--sync"]),
            (0, &["copy", "--sync", "-p"]),
            (0, &["splice", "--sync"]),
        ] {
            if args.ends_with(&["--route", "splice"]) && !splices {
                continue;
            }
            let failed = AtomicU32::new(0);
            let interrupted = Served {
                fails: (0, fails),
                sync: libc::EINTR,
                never_syncs: true,
                failed: Some(&failed),
                ..Served::default()
            };
            let mounted = with_file(interrupted, |at| {
                let mut copy = cordboard();
                let copy = copy
                    .args(args)
                    .args(["--json".as_ref(), source.as_path(), at]);
                let child = copy.stderr(std::process::Stdio::piped()).start();
                until("calls in vain", || {
                    (failed.load(Ordering::Relaxed) > 100).then_some(())
                });
                signal(child.id(), rustix::process::Signal::TERM);
                let run = end(child);
                assert_eq!(run.code(), 143, "{args:?} {length}");
                let written = if fails == 0 { length } else { 0 };
                let json = run.json();
                assert_eq!(json["written"], written, "{args:?} {json}");
            });
            if !mounted {
                testkit::skip::here("no FUSE here");
                return;
            }
        }
    }
}

/// A file server that answers each read and write with `EAGAIN`, though the
/// call may wait: there is nothing to wait for.
#[test]
fn a_file_that_is_never_ready_is_a_failure() {
    if !can_mount() {
        return;
    }
    let dir = dir();
    let data = bytes(8 << 20);
    // By one thread, and by one of the engine.
    for length in [100_000, data.len()] {
        let never = Served {
            holds: &data,
            claims: length as u64,
            fails: (0, libc::EAGAIN),
            ..Served::default()
        };
        let tree = dir.path().join(length.to_string());
        std::fs::create_dir(&tree).unwrap();
        std::fs::write(tree.join("file"), &data[..length]).unwrap();
        let plain = tree.join("file");
        let other = file(&dir, "other", b"other");
        let mounted = with_file(never, |at| {
            let above = at.parent().unwrap();
            let to = |name: &str| dir.path().join(format!("{name}-{length}"));
            let verified = ["--verify", "-r"];
            let made = to("several");
            std::fs::create_dir(&made).unwrap();
            let inside = tree.join(".");
            for (side, args, from, to) in [
                ("source", &[][..], vec![at], to("one")),
                ("source", &[], vec![at, &other], made),
                ("source", &["-r"], vec![above], to("tree")),
                ("source", &verified, vec![above], to("verified")),
                ("sink", &[], vec![&plain], at.to_owned()),
                ("sink", &[], vec![&other, &plain], above.to_owned()),
                ("sink", &["-r"], vec![&inside], above.to_owned()),
                ("sink", &verified, vec![&inside], above.to_owned()),
            ] {
                let mut copy = cordboard();
                copy.args(["copy", "--json"]).args(args).args(&from);
                let run = run(copy.arg(&to));
                let json = run.json();
                // Linux 7.3 fills pages this way.
                let errno = match side == "source" && json["errno"] == "EIO" {
                    false => "EAGAIN",
                    true => "EIO",
                };
                run.fails(1, &[&format!("({errno}) at the "), side]);
                let what = format!("{args:?} {from:?} {to:?}: {json}");
                assert_eq!(json["ended"], "error", "{what}");
                assert_eq!(json["failed"], side, "{what}");
                assert_eq!(json["errno"], errno, "{what}");
                // The contents of the other file.
                let others = from.len() as u64 - 1;
                assert_eq!(json["written"], 5 * others, "{what}");
            }
        });
        if !mounted {
            testkit::skip::here("no FUSE here");
            return;
        }
    }
}
