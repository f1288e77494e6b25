//! A host that has closed standard input, output and error.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use cordboard::DataPath::{self, Direct, ReadWrite, Splice};
use cordboard::{Control, Observer, Progress, Request, Transfer, start};
use testkit::needs::Need;

use crate::common::{self, content, only, pattern, watchdog};

const FIRST: [RawFd; 3] = [0, 1, 2];

/// Returns which of the first three numbers are open, and their files.
fn taken() -> Vec<(RawFd, String)> {
    let what = |number: RawFd| std::fs::read_link(format!("/proc/self/fd/{number}"));
    let open = FIRST.iter().filter_map(|n| Some((*n, what(*n).ok()?)));
    let own = |what: &str| what.contains("/proc/");
    let all = open.map(|(n, what)| (n, what.display().to_string()));
    all.filter(|(_, what)| !own(what)).collect()
}

/// Runs `work` without the three descriptors, and restores them for the test's
/// own output.
fn without_the_first(work: impl FnOnce()) {
    let kept = FIRST.map(|n| {
        // SAFETY: takes integers, and makes a number of its own.
        let kept = unsafe { libc::fcntl(n, libc::F_DUPFD_CLOEXEC, 100) };
        assert!(kept >= 100);
        // SAFETY: made above.
        unsafe { OwnedFd::from_raw_fd(kept) }
    });
    for n in FIRST {
        // SAFETY: takes an integer; no other thread prints meanwhile.
        unsafe { libc::close(n) };
    }
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    for (n, kept) in FIRST.into_iter().zip(&kept) {
        // SAFETY: takes integers.
        unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(kept), n) };
    }
    if let Err(panic) = done {
        std::panic::resume_unwind(panic);
    }
}

/// Duplicates a descriptor to a number above the first three.
fn high(fd: impl AsFd) -> OwnedFd {
    rustix::io::fcntl_dupfd_cloexec(fd.as_fd(), 40).unwrap()
}

struct Sees(Vec<(RawFd, String)>);

impl Observer for Sees {
    fn progress(&mut self, _: &Progress) {
        self.0.extend(taken());
    }
}

/// Runs a transfer on this thread, and returns which of the numbers were open by
/// then.
fn seen(source: &OwnedFd, sink: &OwnedFd, request: Request) -> (Vec<DataPath>, Sees) {
    let mut sees = Sees(Vec::new());
    let report = Transfer::new(source.as_fd(), sink.as_fd(), request)
        .unwrap()
        .observe(&mut sees)
        .run()
        .report;
    (report.path, sees)
}

#[test]
fn nothing_of_the_librarys_has_the_first_three_numbers() {
    let _dog = watchdog("nothing_of_the_librarys_has_the_first_three_numbers");
    let needs = [Need::Splice];
    if testkit::needs::missing(
        "nothing_of_the_librarys_has_the_first_three_numbers",
        &needs,
    ) || !common::alone!()
    {
        return;
    }
    let here = || tempfile::tempfile_in(".").unwrap();
    let data = pattern(1 << 20);
    let (source, feed) = UnixStream::pair().unwrap();
    let mut feed = UnixStream::from(high(feed));
    let source = high(source);
    let (local, mut end) = UnixStream::pair().unwrap();
    end.write_all(&data[..100_000]).unwrap();
    drop(end);
    let local = high(local);
    let [plain, big, copy] = [here(), here(), here()].map(high);
    (&File::from(big.try_clone().unwrap()))
        .write_all(&data)
        .unwrap();
    rustix::fs::seek(&big, rustix::fs::SeekFrom::Start(0)).unwrap();
    let sink = high(here());
    let mut found: Vec<(&str, Vec<(RawFd, String)>)> = Vec::new();
    let mut paths = Vec::new();
    without_the_first(|| {
        // A private pipe of this thread.
        let (path, sees) = seen(&local, &plain, only(&[Splice]));
        paths.push(path);
        found.push(("a private pipe", sees.0));
        found.push(("an idle pipe", taken()));
        // A ring, or threads, and files that are opened again.
        let direct = Request {
            direct: cordboard::Direct::Always,
            ..only(&[Direct, ReadWrite])
        };
        let (path, sees) = seen(&big, &copy, direct);
        paths.push(path);
        found.push(("direct", sees.0));
        let control = Control::new();
        found.push(("a control", taken()));
        drop(control);
        // An engine.
        let running = start(&source, &sink, only(&[Splice, ReadWrite])).unwrap();
        found.push(("an engine", taken()));
        feed.write_all(b"before ").unwrap();
        while running.status().written < 7 {
            std::thread::yield_now();
        }
        found.push(("a transfer", taken()));
        let told = running.fd().map(drop);
        found.push(("its descriptor", taken()));
        // The host opens its own files under these numbers.
        let null = [0; 3].map(|_| File::options().read(true).write(true).open("/dev/null"));
        feed.write_all(b"after").unwrap();
        drop(feed);
        let report = running.wait().report;
        drop(null);
        paths.push(vec![]);
        assert!(told.is_ok() && report.written == 12, "{report:?}");
    });
    assert_eq!(paths[0], [Splice]);
    assert!(paths[1].contains(&Direct), "{paths:?}");
    for (what, taken) in found {
        assert_eq!(taken, [], "{what}");
    }
    assert_eq!(content(&sink.into()), b"before after");
    assert!(content(&copy.into()) == data);
}
