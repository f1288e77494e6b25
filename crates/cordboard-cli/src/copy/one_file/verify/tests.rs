use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;

use cordboard::Control;

use super::*;
use crate::copy::one_file::appended::AppendedRanges;
use crate::copy::one_file::finish::NoObserver;
use crate::copy::one_file::mode::OpenMode;
use crate::copy::outcome::Outcome;

fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn difference(a: &[u8], b: &[u8], length: u64) -> Option<Difference> {
    let files = [a, b].map(file);
    let sides = [(files[0].as_fd(), 0), (files[1].as_fd(), 0)];
    first_difference(sides, length, &mut |_| {}).unwrap()
}

#[test]
fn the_first_byte_that_differs_and_both_of_it() {
    let mut all = vec![7u8; PIECE + 5000];
    let same = all.clone();
    assert_eq!(difference(&same, &all, all.len() as u64), None);
    for at in [0, 4095, PIECE - 1, PIECE, PIECE + 4999] {
        all[at] = 0x41;
        let found = difference(&same, &all, all.len() as u64).unwrap();
        assert_eq!(
            found.to_string(),
            format!("differs from the source at byte {at}: expected 0x07, found 0x41")
        );
        assert_eq!(
            difference(&same, &all, at as u64),
            None,
            "beyond the length"
        );
        all[at] = 7;
    }
}

#[test]
fn one_that_ends_early() {
    let found = difference(b"abcdef", b"abc", 6).unwrap().to_string();
    assert!(found.ends_with("at byte 3: expected 0x64, found the end"));
    let found = difference(b"abc", b"abcdef", 6).unwrap().to_string();
    assert!(found.ends_with("at byte 3: expected the end, found 0x64"));
    assert!(
        difference(b"abc", b"abc", 6).is_some(),
        "fewer bytes than expected"
    );
}

/// If all bytes are the same, any range of them compares equal.
#[test]
fn one_of_another_length() {
    let dir = tempfile::tempdir().unwrap();
    let [source, sink] = ["s", "d"].map(|name| dir.path().join(name));
    std::fs::write(&source, [0; 5000]).unwrap();
    let control = Box::leak(Box::new(Control::new().unwrap()));
    for append in [false, true] {
        std::fs::write(&sink, [0; 7]).unwrap();
        let mut job = Job {
            append,
            ..Job::plain(control)
        };
        job.staging.verify = true;
        let places = (&Place::top(&source), &Place::top(&sink));
        let outcome = &mut Outcome::default();
        let mut opened = job
            .open(places, true, OpenMode::Exclusive, outcome)
            .unwrap();
        let (report, done) = job.copy_bytes(&mut opened, places, &mut NoObserver);
        done.unwrap();
        let check = || job.verified(&opened, places, report.as_ref().unwrap(), &mut NoObserver);
        check().unwrap();
        let whole = sink.metadata().unwrap().len();
        assert_eq!(whole, if append { 5007 } else { 5000 });
        // Other processes may append too.
        let longer = (!append).then_some(whole + 1);
        for length in longer.into_iter().chain([whole - 1]) {
            let file = File::options().write(true).open(&sink).unwrap();
            file.set_len(length).unwrap();
            let says = format!("holds {length} bytes instead of {whole}");
            assert!(check().unwrap_err().text.contains(&says));
        }
    }
}

/// Each write goes to the end of the file at that time.
#[test]
fn what_is_appended_among_bytes_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let [source, sink] = ["s", "d"].map(|name| dir.path().join(name));
    let contents: Vec<u8> = (0..1_000_000u32).map(|n| (n % 251) as u8).collect();
    std::fs::write(&source, &contents).unwrap();
    for known in [true, false] {
        std::fs::write(&sink, b"before").unwrap();
        let mut job = Job {
            append: true,
            ..Job::plain(Box::leak(Box::new(Control::new().unwrap())))
        };
        job.staging.verify = true;
        let places = (&Place::top(&source), &Place::top(&sink));
        let outcome = &mut Outcome::default();
        let mut opened = job
            .open(places, true, OpenMode::Exclusive, outcome)
            .unwrap();
        if !known {
            opened.appended = None;
        }
        let mut others = File::options().append(true).open(&sink).unwrap();
        let mut moved = None;
        let writes = testkit::midst::at_each(
            &[libc::SYS_write],
            || moved = Some(job.copy_bytes(&mut opened, places, &mut NoObserver)),
            || others.write_all(b"others").unwrap(),
        );
        let Some(writes) = writes else {
            return testkit::skip::here("no seccomp_unotify(2) here");
        };
        let (report, done) = moved.unwrap();
        done.unwrap();
        let mut report = report.unwrap();
        AppendedRanges::hide(&mut report);
        others.write_all(b"and behind").unwrap();
        assert!(writes > 1, "one write: nothing can come between");
        let check = || job.verified(&opened, places, &report, &mut NoObserver);
        assert_eq!(check().is_ok(), known);
        let whole = 6 + 6 * writes as u64 + 1_000_000;
        assert_eq!(sink.metadata().unwrap().len(), whole + 10);
        if known {
            // First a byte of the other process, then one of its own.
            let file = File::options().write(true).open(&sink).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, b"x", 8).unwrap();
            check().unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, b"\xff", whole - 1).unwrap();
            let says = "differs from the source at byte 999999: expected 0x0f, found 0xff";
            let text = check().unwrap_err().text;
            assert!(text.contains(says), "{text}");
        }
    }
}

/// The sink is only read back: the source is not the cause.
#[test]
fn a_sink_that_cannot_be_read_is_told_of_as_the_sink() {
    let dir = tempfile::tempdir().unwrap();
    let [source, sink] = ["s", "d"].map(|name| dir.path().join(name));
    std::fs::write(&source, b"abc").unwrap();
    std::fs::write(&sink, b"abc").unwrap();
    let job = Job::plain(Box::leak(Box::new(Control::new().unwrap())));
    let [from, to] = [&source, &sink].map(|path| Place::top(path));
    let file = |path| File::options().read(true).open(path).unwrap();
    let deaf = |path| File::options().write(true).open(path).unwrap();
    for (side, source, back) in [
        (Side::Source, deaf(&source), file(&sink)),
        (Side::Sink, file(&source), deaf(&sink)),
    ] {
        let here = [Range { start: 0, end: 3 }];
        let failed = job.difference(
            (source.as_fd(), &from),
            (back.as_fd(), &to),
            &here,
            &mut |_| {},
        );
        assert_eq!(failed.unwrap_err().side, Some(side));
    }
}

#[test]
fn each_side_has_an_offset_of_its_own() {
    let files = [&b"__abc"[..], b"-abc", b"-aXc"].map(file);
    let sides =
        |sink: &File| first_difference([(files[0].as_fd(), 2), (sink.as_fd(), 1)], 3, &mut |_| {});
    assert_eq!(sides(&files[1]), Ok(None));
    let found = sides(&files[2]).unwrap().unwrap();
    assert_eq!((found.at, found.found), (1, Some(b'X')));
}

/// The range is compared, whatever is before and behind it.
#[test]
fn a_range_of_a_longer_file() {
    let dir = tempfile::tempdir().unwrap();
    let [source, sink] = ["s", "d"].map(|name| dir.path().join(name));
    std::fs::write(&source, [7; 1000]).unwrap();
    std::fs::write(&sink, [0; 5000]).unwrap();
    let mut job = Job::plain(Box::leak(Box::new(Control::new().unwrap())));
    job.staging.verify = true;
    job.request.sink_offset = Some(2000);
    let places = (&Place::top(&source), &Place::top(&sink));
    let opened = job.open(places, true, OpenMode::Exclusive, &mut Outcome::default());
    let mut opened = opened.unwrap();
    let (report, done) = job.copy_bytes(&mut opened, places, &mut NoObserver);
    done.unwrap();
    let check = || job.verified(&opened, places, report.as_ref().unwrap(), &mut NoObserver);
    let file = File::options().write(true).open(&sink).unwrap();
    let put = |at| std::os::unix::fs::FileExt::write_all_at(&file, b"x", at).unwrap();
    check().unwrap();
    // Other processes write other ranges.
    [1999, 3000, 6000].into_iter().for_each(put);
    check().unwrap();
    for (at, says) in [(2999, "at byte 999"), (2000, "at byte 0")] {
        put(at);
        let text = check().unwrap_err().text;
        assert!(text.contains(says), "{text}");
    }
    file.set_len(4999).unwrap();
    let text = check().unwrap_err().text;
    assert!(text.contains("holds 4999 bytes instead of 5000"), "{text}");
}

/// Records what it is told.
#[derive(Default)]
struct Seen(Vec<u64>);

impl cordboard::Observer for Seen {
    fn progress(&mut self, _: &cordboard::Progress) {}
}

impl CopyObserver for Seen {
    fn read_back(&mut self, bytes: u64) {
        self.0.push(bytes);
    }
}

/// With the hash of what was written, and by a comparison of both files.
#[test]
fn what_is_read_back_is_progress() {
    let dir = tempfile::tempdir().unwrap();
    let [source, sink] = ["s", "d"].map(|name| dir.path().join(name));
    let length = 2 * PIECE + 5000;
    std::fs::write(&source, vec![7; length]).unwrap();
    for path in [
        cordboard::DataPath::ReadWrite,
        cordboard::DataPath::CopyFileRange,
    ] {
        let mut job = Job::plain(Box::leak(Box::new(Control::new().unwrap())));
        job.request.switches = Some(cordboard::Switches::only(&[
            path,
            cordboard::DataPath::ReadWrite,
        ]));
        job.staging.verify = true;
        let places = (&Place::top(&source), &Place::top(&sink));
        let outcome = &mut Outcome::default();
        let mut opened = (job.open(places, true, OpenMode::Exclusive, outcome)).unwrap();
        let (report, done) = job.copy_bytes(&mut opened, places, &mut NoObserver);
        done.unwrap();
        let mut seen = Seen::default();
        let report = report.unwrap();
        job.verified(&opened, places, &report, &mut seen).unwrap();
        let pieces = [PIECE, 2 * PIECE, length].map(|bytes| bytes as u64);
        assert_eq!(seen.0, pieces, "{path}");
    }
}
