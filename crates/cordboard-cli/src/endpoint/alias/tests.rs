use std::fs::File;
use std::os::fd::AsFd;
use std::time::{SystemTime, UNIX_EPOCH};

use testkit::needs::{Need, missing};
use testkit::refuse::FTRUNCATE;

use super::*;

fn old() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_000_000_000)
}

#[test]
fn a_source_that_was_emptied_with_the_sink_is_told_of() {
    let file = tempfile::tempfile().unwrap();
    let emptied = |before: &Stat| check_not_emptied(file.as_fd(), &"from", before, &"to");
    let empty = fstat(&file).unwrap();
    file.set_len(5).unwrap();
    let before = fstat(&file).unwrap();
    assert!(emptied(&before).is_ok() && emptied(&empty).is_ok());
    file.set_len(0).unwrap();
    let problem = emptied(&before).unwrap_err();
    assert_eq!(problem.errno, Some(Errno::ENODATA));
    assert!(
        problem
            .text
            .contains("its contents were lost when to was emptied")
    );
    assert!(emptied(&empty).is_ok());
}

/// Bytes that another process appends meanwhile would be truncated with the byte
/// of the probe.
#[test]
fn a_sink_that_keeps_its_contents_gets_no_other_length() {
    let Some(files) = alike_files() else {
        return;
    };
    let looked = |file: &File| fstat(file).unwrap();
    let [from, to] = [&files[0], &files[1]].map(looked);
    for (keeps, owner, calls) in [(true, true, 0), (true, false, 0), (false, true, 2)] {
        let mut found = None;
        let ask = || {
            if !owner {
                testkit::refuse::refuse(&[libc::SYS_utimensat], libc::EPERM);
            }
            let [source, sink] = [(files[0].as_fd(), &from), (files[1].as_fd(), &to)];
            found = match keeps {
                true => Some(is_kept_alias(source, sink)),
                false => is_alias(source, sink, (&"from", &"to")).ok(),
            };
        };
        let Some(made) = testkit::midst::at_each(&[FTRUNCATE], ask, || {}) else {
            return testkit::skip::here("no seccomp_unotify(2) here");
        };
        assert_eq!((found, made), (Some(None), calls));
        let now = looked(&files[1]);
        assert_eq!((now.st_size, now.st_mtime), (5, 1_000_000_000));
    }
}

/// Two files of two file systems that are alike, until they are changed.
fn alike_files() -> Option<[File; 2]> {
    let Ok(memory) = tempfile::tempfile_in("/dev/shm") else {
        testkit::skip::here("no file can be made in /dev/shm");
        return None;
    };
    let files = [tempfile::tempfile().unwrap(), memory];
    for file in &files {
        file.set_len(5).unwrap();
        file.set_modified(old()).unwrap();
    }
    let [from, to] = [&files[0], &files[1]].map(|file| fstat(file).unwrap().st_dev);
    if from == to {
        testkit::skip::here("there is one file system only");
        return None;
    }
    Some(files)
}

fn ask(files: &[File; 2], keeps: bool) -> Option<SinkState> {
    let [from, to] = [&files[0], &files[1]].map(|file| fstat(file).unwrap());
    let (source, sink) = ((files[0].as_fd(), &from), (files[1].as_fd(), &to));
    match keeps {
        true => is_kept_alias(source, sink),
        false => is_alias(source, sink, (&"from", &"to")).unwrap(),
    }
}

/// Two commands at once: the source of each is the sink of the other.
#[test]
fn another_command_that_asks_at_the_same_time_makes_no_alias() {
    let name = "another_command_that_asks_at_the_same_time_makes_no_alias";
    if missing(name, &[Need::Statx]) {
        return;
    }
    let Some(files) = alike_files() else {
        return;
    };
    for (keeps, asks) in [(true, 3), (false, 5)] {
        let mut found = None;
        let mut changes = 0;
        let meanwhile = || {
            let [source, sink] = [&files[0], &files[1]].map(|file| fstat(file).unwrap());
            // The other command's probe of its sink.
            let (length, second) = match (sink.st_size, sink.st_mtime) {
                (5, 1_000_000_000) => (5, 0),
                (5, _) => (5, EARLIER),
                _ => (6, 0),
            };
            changes += usize::from(length != 5 || second != 0);
            if source.st_size != length {
                files[0].set_len(length as u64).unwrap();
            }
            let second = Duration::from_secs(second as u64);
            files[0].set_modified(old() - second).unwrap();
        };
        let body = || found = Some(ask(&files, keeps));
        let Some(_) = testkit::midst::at_each(&[libc::SYS_statx], body, meanwhile) else {
            return testkit::skip::here("no seccomp_unotify(2) here");
        };
        assert_eq!(found, Some(None), "keeps: {keeps}");
        assert!(changes >= asks, "{changes} looks of one that was changed");
        let now = fstat(&files[1]).unwrap();
        assert_eq!((now.st_size, now.st_mtime), (5, 1_000_000_000));
    }
}

/// The same by the present time, of a file of another user.
#[test]
fn another_command_that_sets_the_present_time_makes_no_alias() {
    let Some(files) = alike_files() else {
        return;
    };
    let mut found = None;
    let errno = |count| match count {
        // The earlier time.
        0 => Some(libc::EPERM),
        1 => {
            files[0].set_modified(SystemTime::now()).unwrap();
            None
        }
        _ => None,
    };
    let body = || found = Some(ask(&files, true));
    let Some(_) = testkit::midst::refusing(&[libc::SYS_utimensat], body, errno) else {
        return testkit::skip::here("no seccomp_unotify(2) here");
    };
    assert_eq!(found, Some(None));
}

/// `-p` copies the temporary time of the source.
#[test]
fn a_time_that_is_handed_on_makes_no_alias() {
    let Some(files) = alike_files() else {
        return;
    };
    let mut found = None;
    let mut looks = 0;
    let meanwhile = || {
        looks += 1;
        // Both before the probe, and the sink; now the source.
        if looks == 4 {
            let now = files[1].metadata().unwrap().modified().unwrap();
            assert_ne!(now, old());
            files[0].set_modified(now).unwrap();
        }
    };
    let body = || found = Some(ask(&files, true));
    let Some(_) = testkit::midst::at_each(&[libc::SYS_statx], body, meanwhile) else {
        return testkit::skip::here("no seccomp_unotify(2) here");
    };
    assert_eq!(found, Some(None));
    assert_eq!(fstat(&files[1]).unwrap().st_mtime, 1_000_000_000);
}

/// The probe restores what it has changed, and no time that another process has
/// set.
#[test]
fn no_time_of_another_process_is_replaced() {
    if missing("no_time_of_another_process_is_replaced", &[Need::Statx]) {
        return;
    }
    let Some(files) = alike_files() else {
        return;
    };
    let other = old() + Duration::from_secs(77);
    let mut looks = 0;
    let meanwhile = || {
        looks += 1;
        // Both before the probe; then the sink, the source, and the sink again.
        if looks == 6 {
            files[1].set_modified(other).unwrap();
        }
    };
    let body = || assert_eq!(ask(&files, true), None);
    let Some(_) = testkit::midst::at_each(&[libc::SYS_statx], body, meanwhile) else {
        return testkit::skip::here("no seccomp_unotify(2) here");
    };
    assert_eq!(fstat(&files[1]).unwrap().st_mtime, 1_000_000_077);
}
