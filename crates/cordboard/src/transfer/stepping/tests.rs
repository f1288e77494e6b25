use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use super::*;
use crate::path::{Flow, Step, Verdict};
use crate::report::Stranded;
use crate::request::{DataPath, Request};
use crate::stage::Inspect;
use crate::{Stage as CallersStage, Transfer};
use testkit::child;

/// Waits at its drop for the lock, as the threads of a direct copy have one.
struct Locked(Arc<Mutex<()>>);

impl Step for Locked {
    fn step(&mut self, _: &mut Flow<'_>) -> Verdict {
        Verdict::Blocked(Side::Source)
    }

    fn drop_without_close(self: Box<Self>) {}
}

impl Inspect for Locked {
    fn name(&self) -> &'static str {
        "locked"
    }

    fn inspect(&mut self, _: &[u8]) {}
}

impl Drop for Locked {
    fn drop(&mut self) {
        drop(self.0.lock());
    }
}

/// Another thread of the parent holds a lock of the path, or of a stage, at the moment of the
/// fork. The child does not have that thread.
#[test]
fn a_drop_in_a_child_waits_for_no_thread_of_the_parent() {
    let (source, _feed) = std::io::pipe().unwrap();
    let (_end, sink) = std::io::pipe().unwrap();
    let lock = Arc::<Mutex<()>>::default();
    let locked = || Locked(Arc::clone(&lock));
    let new = || Transfer::new(source.as_fd(), sink.as_fd(), Request::default()).unwrap();
    let with_path = || {
        let mut transfer = new();
        transfer.current = Some((DataPath::ReadWrite, Box::new(locked())));
        transfer.stepping().unwrap()
    };
    let with_stage = || {
        let transfer = new().stage(CallersStage::inspecting(locked())).unwrap();
        transfer.stepping().unwrap()
    };
    // In its first step, and while it is settled.
    let settles = || {
        let mut stepping = with_stage();
        stepping.cancel();
        assert!(stepping.step().is_none());
        assert!(matches!(stepping.stage, Stage::Settles(_)));
        stepping
    };
    for mut stepping in [with_path(), with_stage(), settles()].map(Some) {
        let take = || lock.lock();
        child::while_held(take, || {
            assert!(child::in_a_child(|| {
                child::ends_soon();
                drop(stepping.take());
                true
            }));
        });
    }
}

/// Counts the drops that close no descriptor.
struct Counted(Arc<AtomicU32>);

impl Step for Counted {
    fn step(&mut self, _: &mut Flow<'_>) -> Verdict {
        Verdict::Blocked(Side::Source)
    }

    fn drop_without_close(self: Box<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The numbers refer to other files in such a thread. What is not a descriptor is released.
#[test]
fn a_drop_in_a_thread_with_other_descriptors_releases_the_rest() {
    let name = "a_drop_in_a_thread_with_other_descriptors_releases_the_rest";
    let (source, _feed) = std::io::pipe().unwrap();
    let (_end, sink) = std::io::pipe().unwrap();
    let drops = Arc::<AtomicU32>::default();
    let new = || {
        let (from, to) = (source.as_fd(), sink.as_fd());
        let mut transfer = Transfer::duplicating(from, to, Request::default()).unwrap();
        transfer.current = Some((DataPath::ReadWrite, Box::new(Counted(Arc::clone(&drops)))));
        transfer.stepping().unwrap()
    };
    let (runs, mut settles, mut closes) = (new(), new(), new());
    settles.cancel();
    assert!(settles.step().is_none());
    assert!(matches!(settles.stage, Stage::Settles(_)));
    let (pipe, _) = std::io::pipe().unwrap();
    let number = pipe.as_raw_fd();
    let outcome = Outcome {
        report: Report::nothing(None, None),
        stranded: Some(Stranded::Pipe(pipe.into())),
    };
    closes.stage = Stage::Closes(Box::new(outcome), Closed::default());
    let origin = Origin::here();
    let elsewhere = std::thread::spawn(move || {
        child::own_descriptors();
        if origin.has_descriptors() {
            testkit::skip::report(name, "no kcmp(2) here");
            return None;
        }
        drop((runs, settles, closes));
        Some(crate::sys::at(number).is_some())
    });
    if let Some(is_open) = elsewhere.join().unwrap() {
        assert_eq!((is_open, drops.load(Ordering::Relaxed)), (true, 2));
    }
}

/// A child of `fork(2)` may have copies of the descriptors.
#[test]
fn a_drop_leaves_no_descriptor_registered() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let (source, mut feed) = std::io::pipe().unwrap();
    let (_end, sink) = std::io::pipe().unwrap();
    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), Request::default());
    let mut stepping = transfer.unwrap().stepping().unwrap();
    let copy = stepping.as_fd().try_clone_to_owned().unwrap();
    let is_readable = || {
        let mut fds = [PollFd::new(&copy, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).unwrap() > 0
    };
    while stepping.is_due() {
        assert!(stepping.step().is_none());
    }
    assert!(!is_readable());
    std::io::Write::write_all(&mut feed, b"a").unwrap();
    assert!(is_readable());
    drop(stepping);
    assert!(!is_readable());
}

/// Runs `body` on a thread whose first syncs return `EINTR`, as many as the first number says. The
/// second one counts the syncs. Returns false if system calls cannot be intercepted.
fn with_interrupted_syncs(body: impl FnOnce(&AtomicU32, &AtomicU32) + Send) -> bool {
    let (interruptions, syncs) = (AtomicU32::new(0), AtomicU32::new(0));
    let thread = || body(&interruptions, &syncs);
    let intercepted = testkit::midst::refusing(&[libc::SYS_fsync], thread, |_| {
        syncs.fetch_add(1, Ordering::SeqCst);
        let left = interruptions.load(Ordering::SeqCst);
        interruptions.store(left.saturating_sub(1), Ordering::SeqCst);
        (left > 0).then_some(libc::EINTR)
    });
    if intercepted.is_none() {
        testkit::skip::here("no seccomp_unotify(2) here");
    }
    intercepted.is_some()
}

/// A transfer of an empty file that is synced.
fn synced<'a>(source: &'a std::fs::File, sink: &'a std::fs::File) -> Stepping<'a> {
    let request = Request {
        sync: true,
        switches: Some(crate::Switches::all()),
        ..Request::default()
    };
    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
    transfer.stepping().unwrap()
}

/// After any number of steps: before the sync, or after a sync that was interrupted.
#[test]
fn a_drop_does_not_sync() {
    let (source, sink) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    with_interrupted_syncs(|interruptions, syncs| {
        let has_ended = (0..100).any(|steps| {
            interruptions.store(3, Ordering::SeqCst);
            let mut stepping = synced(&source, &sink);
            let outcome = (0..steps).find_map(|_| stepping.step());
            let before = syncs.load(Ordering::SeqCst);
            drop(stepping);
            let during = syncs.load(Ordering::SeqCst) - before;
            assert_eq!(during, 0, "after {steps} steps");
            outcome.is_some_and(|outcome| {
                assert_eq!(outcome.report.ended, Ended::Eof);
                assert_eq!(interruptions.load(Ordering::SeqCst), 0);
                true
            })
        });
        assert!(has_ended);
    });
}

#[test]
fn a_sync_that_is_interrupted_can_be_cancelled() {
    let (source, sink) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    with_interrupted_syncs(|interruptions, syncs| {
        interruptions.store(100, Ordering::SeqCst);
        let mut stepping = synced(&source, &sink);
        while syncs.load(Ordering::SeqCst) == 0 {
            assert!(stepping.step().is_none());
        }
        stepping.cancel();
        let outcome = stepping.step().expect("the sync is repeated");
        assert_eq!(outcome.report.ended, Ended::Cancelled);
        assert_eq!(syncs.load(Ordering::SeqCst), 2);
    });
}

/// A blocking socket is used only after it was found ready, and an entry in its error queue makes
/// its events edge-triggered. A step leaves bytes that no further edge announces.
#[test]
fn bytes_that_an_earlier_edge_has_announced_are_an_event() {
    use rustix::event::{PollFd, PollFlags, poll};
    if !testkit::needs::Need::Splice.is_met() {
        return testkit::skip::here("no splice(2) here");
    }
    const SIZE: usize = 2 << 20;
    let (source, mut peer) = testkit::stalled::silent(testkit::stalled::Trouble::Timestamps);
    let sink = std::fs::File::options().write(true).open("/dev/null");
    let sink = sink.unwrap();
    let request = Request {
        size: crate::Size::Bytes(SIZE as u64),
        block: std::num::NonZeroUsize::new(4096),
        switches: Some(crate::Switches::only(&[DataPath::Splice])),
        ..Request::default()
    };
    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
    let mut stepping = transfer.stepping().unwrap();
    let writer = std::thread::spawn(move || {
        std::io::Write::write_all(&mut peer, &vec![7; SIZE]).unwrap();
        peer
    });
    let patience = rustix::event::Timespec::try_from(testkit::watchdog::patience()).unwrap();
    let outcome = loop {
        let mut fds = [PollFd::new(&stepping, PollFlags::IN)];
        assert_eq!(poll(&mut fds, Some(&patience)), Ok(1));
        if let Some(outcome) = stepping.step() {
            break outcome;
        }
    };
    assert_eq!(outcome.report.written, SIZE as u64);
    drop(writer.join().unwrap());
}

/// Without `poll(2)` and `select(2)`, the edges of the epoll instance are all there is.
#[test]
fn edges_suffice_if_polling_is_refused() {
    use rustix::event::epoll;
    let (source, mut peer) = testkit::stalled::silent(testkit::stalled::Trouble::Timestamps);
    let (_reader, sink) = std::io::pipe().unwrap();
    source.set_nonblocking(true).unwrap();
    rustix::io::ioctl_fionbio(&sink, true).unwrap();
    let report = testkit::refuse::apart(|| {
        for calls in [
            testkit::refuse::PPOLL,
            testkit::refuse::POLL,
            testkit::refuse::SELECT,
        ] {
            testkit::refuse::refuse(calls, libc::EPERM);
        }
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), Request::default()).unwrap();
        let mut stepping = transfer.stepping().unwrap();
        let events = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let data = epoll::EventData::new_u64(0);
        epoll::add(&events, &stepping, data, epoll::EventFlags::IN).unwrap();
        let mut steps = 0;
        loop {
            if let Some(outcome) = stepping.step() {
                break outcome.report;
            }
            steps += 1;
            if steps == 5 {
                std::io::Write::write_all(&mut peer, b"please").unwrap();
            } else if steps == 10 {
                rustix::net::shutdown(&peer, rustix::net::Shutdown::Write).unwrap();
            }
            if steps > 10 {
                let mut room = [const { std::mem::MaybeUninit::uninit() }; 1];
                epoll::wait(&events, &mut room, None).unwrap();
            }
            assert!(steps < 10_000, "it ends neither way");
        }
    });
    assert_eq!(
        (report.ended, report.written),
        (Ended::Eof, 6),
        "{report:?}"
    );
}
