//! Datagrams larger than the default limits in a process with little memory.

use super::put_long;
use crate::common::datagrams::{BOTH, Sort, all, idle, pair, put};
use crate::common::{self, content, handed_back, only, pattern, run, watchdog};
use cordboard::{DataPath, Errno, Request, Side};

/// A host that locks its mappings in memory (`mlockall(2)`): only the pages that
/// datagrams fill are used, and they are locked too.
#[test]
fn a_host_that_locks_its_memory() {
    let _dog = watchdog("a_host_that_locks_its_memory");
    if !common::alone!() {
        return;
    }
    // SAFETY: takes an integer; what is mapped from now on is locked.
    let locks = || unsafe { libc::mlockall(libc::MCL_FUTURE) == 0 };
    // RLIMIT_MEMLOCK binds a process without CAP_IPC_LOCK.
    let can = || locks() && Vec::<u8>::new().try_reserve_exact(64 << 20).is_ok();
    if !testkit::child::in_a_child(can) {
        return testkit::skip::here("mlockall(2) of so much is refused");
    }
    // KiB.
    let memory = |name: &str| -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    for path in BOTH {
        for joins in [false, true] {
            let ((a, source), (sink, b)) = (pair(Sort::Unix), pair(Sort::Unix));
            let file = tempfile::tempfile().unwrap();
            put(&a, b"hello");
            let request = Request {
                idle: idle(),
                ..only(&[path])
            };
            assert!(locks());
            let before = memory("VmHWM");
            let report = match joins {
                true => run(&source, &file, request).report,
                false => run(&source, &sink, request).report,
            };
            let more = memory("VmHWM") - before;
            // SAFETY: takes nothing.
            unsafe { libc::munlockall() };
            let what = format!("{more} KiB by {path}: {report:?}");
            assert_eq!((report.errno, report.written), (None, 5), "{what}");
            match joins {
                true => assert_eq!(content(&file), b"hello", "{what}"),
                false => assert_eq!(all(&b), [b"hello"], "{what}"),
            }
            // The slots of a batch would be 4 MiB. Other pages are code that is read
            // in.
            assert!(more < 2048, "{what}");
        }
    }
}

/// The address space is too small for a datagram: its rest is lost, which is
/// reported, and its start is handed back.
#[test]
fn one_that_was_cut_is_handed_back() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let _dog = watchdog("one_that_was_cut_is_handed_back");
    if !common::alone!() {
        return;
    }
    for path in BOTH {
        let ((a, source), (sink, b)) = (pair(Sort::Unix), pair(Sort::Unix));
        let data = pattern((1 << 20) + 4096 * 3);
        if !put_long(&a, &data) {
            return;
        }
        put(&a, b"next");
        let pages = common::settled_pages();
        let before = getrlimit(Resource::As);
        let mut less = before;
        // Enough for ordinary datagrams.
        let more = if path == DataPath::Datagram {
            32 << 20
        } else {
            3 << 20
        };
        less.current = Some(pages * rustix::param::page_size() as u64 + more);
        setrlimit(Resource::As, less).unwrap();
        let outcome = run(&source, &sink, only(&[path]));
        setrlimit(Resource::As, before).unwrap();
        let report = outcome.report;
        assert_eq!(
            (report.failed, report.errno, report.truncated),
            (Some(Side::Source), Some(Errno::EMSGSIZE), 1),
            "{path}: {report:?}"
        );
        assert_eq!((report.written, report.read), (0, report.stranded));
        let back = handed_back(outcome.stranded);
        assert_eq!(back.len() as u64, report.stranded, "{path}: {report:?}");
        assert!(report.stranded >= 1 << 16, "{path}: {report:?}");
        let rest = [back, all(&source).concat()].concat();
        assert!(rest.ends_with(b"next"), "{path}");
        assert!(data.starts_with(&rest[..rest.len() - 4]), "{path}");
        assert_eq!(all(&b).len(), 0, "{path}");
    }
}
