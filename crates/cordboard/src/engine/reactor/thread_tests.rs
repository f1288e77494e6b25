//! The threads of an engine: their start, their wake-ups and their end.

use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use testkit::locked::{sleeps_in, threads};
use testkit::refuse::{apart, refuse};
use testkit::{child, watchdog};

use super::EventLoop;
use super::run::EVENTS;
use super::turn::open_disk_reactor;
use crate::engine::core::{Core, DISK, Disk};
use crate::engine::cycle::{self, Cycle};
use crate::engine::handle::ReactorHandle;
use crate::engine::job::EngineForJob;
use crate::engine::message::Message;
use crate::engine::stopped::{engine_of, job_of};
use crate::engine::table::Scheduled;
use crate::engine::workers::poll_before_sleep;
use crate::engine::{Engine, Options};
use crate::errno::Errno;
use crate::request::{DataPath, Direct, Request};
use crate::sys;
use crate::transfer::{Control, ThreadKind, Transfer, Wait, WaitFor};

fn engine() -> Engine {
    Engine::new(Options::default()).unwrap()
}

/// A transfer from a silent pipe to a socket, and the other ends.
fn silent() -> (Transfer<'static>, std::io::PipeWriter, UnixStream) {
    let (source, feed) = std::io::pipe().unwrap();
    let (end, sink) = UnixStream::pair().unwrap();
    let transfer = Transfer::owning(source.into(), sink.into(), Request::default()).unwrap();
    (transfer, feed, end)
}

fn until_gone(name: &str) {
    while !threads(name).is_empty() {
        std::thread::yield_now();
    }
}

/// Waits until a thread of this name sleeps without a descriptor.
fn until_idle(name: &str) {
    let idle = |name| {
        threads(name)
            .iter()
            .any(|task| sleeps_in(task, &[libc::SYS_futex]))
    };
    while !idle(name) {
        std::thread::yield_now();
    }
}

/// The last transfer ends while `join` already waits for the thread of direct copies.
#[test]
fn a_late_end_stops_the_thread_of_direct_copies() {
    assert!(child::in_a_child(|| {
        child::ends_soon();
        let core = Arc::new(Core::new(1).unwrap());
        core.job_started();
        open_disk_reactor(&core).unwrap();
        core.stop();
        until_idle("cordboard-disk");
        let joins = Arc::clone(&core);
        let joined = sys::spawn(c"cordboard-test", move || joins.join()).unwrap();
        while core.disk().thread.is_some() {
            std::thread::yield_now();
        }
        core.job_ended(core.next_id());
        joined.join();
        core.is_done()
    }));
}

/// The thread of direct copies has given up: the next copy runs on the main thread, and
/// the one after that has a new thread.
#[test]
fn a_direct_copy_survives_the_thread_of_direct_copies() {
    let name = "a_direct_copy_survives_the_thread_of_direct_copies";
    let _dog = watchdog::watch(name);
    let engine = engine();
    let handle = ReactorHandle::new(DISK, ThreadKind::Disk).unwrap();
    drop(handle.inbox().close());
    *engine.core.disk() = Disk {
        handle: Some(Arc::clone(&handle)),
        thread: Some(sys::spawn(c"cordboard-test", || {}).unwrap()),
    };
    for _ in 0..2 {
        let files = [tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap()];
        files[0].set_len(1 << 20).unwrap();
        let [source, sink] = files.map(Into::into);
        let request = Request {
            direct: Direct::Always,
            ..Request::default()
        };
        let transfer = Transfer::owning(source, sink, request).unwrap();
        let report = engine.start(transfer).unwrap().wait().report;
        assert_eq!((report.errno, report.written), (None, 1 << 20));
        if report.path.first() != Some(&DataPath::Direct) {
            return testkit::skip::report(name, "no direct I/O here");
        }
        let disk = engine.core.disk_reactor();
        assert!(disk.is_none_or(|disk| !Arc::ptr_eq(&disk, &handle)));
    }
    assert!(engine.core.disk_reactor().is_some());
}

/// The limit of threads is reached when the engine begins, and not later.
#[test]
fn a_watchdog_that_cannot_be_started_is_tried_again() {
    let core = Arc::new(Core::new(1).unwrap());
    core.set_thread();
    let event_loop = EventLoop::new(&core, core.main());
    let mut reactor = event_loop.begin().unwrap();
    apart(|| {
        refuse(&[libc::SYS_clone, libc::SYS_clone3], libc::EAGAIN);
        event_loop.start_watchdog(&mut reactor);
    });
    let next = reactor.next_watchdog.unwrap();
    let now = sys::monotonic();
    assert!(next <= now + Duration::from_secs(1));
    reactor.next_watchdog = Some(Duration::MAX);
    event_loop.prepare(&mut reactor);
    assert_eq!(reactor.next_watchdog, Some(Duration::MAX), "not yet");
    reactor.next_watchdog = Some(now);
    event_loop.prepare(&mut reactor);
    assert_eq!(reactor.next_watchdog, None);
    drop(reactor);
    core.stop();
    core.join();
}

/// All threads of an idle engine end after the host has closed their descriptors, once
/// another thread calls the engine.
#[test]
fn idle_threads_end_after_their_descriptors_are_closed() {
    assert!(child::in_a_child(|| {
        child::ends_soon();
        let engine = engine();
        open_disk_reactor(&engine.core).unwrap();
        until_idle("cordboard");
        until_idle("cordboard-disk");
        child::close_from(3);
        let (transfer, feed, end) = silent();
        let failure = engine.start(transfer).unwrap_err();
        for name in ["cordboard", "cordboard-disk", "cordboard-watch"] {
            until_gone(name);
        }
        std::mem::forget((engine, feed, end));
        failure.report.errno == Some(Errno::EBADF)
    }));
}

/// A message to an idle thread comes from a thread with another descriptor table, in
/// which the engine has no descriptors.
#[test]
fn a_thread_with_its_own_descriptors_does_not_end_the_engine() {
    let _dog = watchdog::watch("a_thread_with_its_own_descriptors_does_not_end_the_engine");
    let core = Arc::new(Core::new(1).unwrap());
    apart(|| {
        child::own_descriptors();
        let null = std::fs::File::open("/dev/null").unwrap();
        for number in core.inbox().wake_fd().numbers() {
            child::replace(number, null.as_fd());
        }
        assert!(core.inbox().push(Message::Stop).is_err());
    });
    let event_loop = EventLoop::new(&core, core.main());
    let reactor = event_loop.begin().unwrap();
    let mut events = [const { MaybeUninit::uninit() }; EVENTS];
    let (_, checked) = cycle::wait(&event_loop, reactor, None, &mut events).unwrap();
    assert_eq!(checked, Ok(()));
    assert!(!core.inbox().wait(Some(Duration::ZERO)), "told once");
}

/// A filter that the host installs later refuses to read what wakes the thread.
#[test]
fn a_wakeup_that_cannot_be_cleared_is_no_event_again() {
    apart(|| {
        let core = Core::new(1).unwrap();
        let (poller, wake_fd) = (core.main().poller(), core.inbox().wake_fd());
        refuse(&[libc::SYS_read, libc::SYS_readv], libc::EPERM);
        // At most one more event for each registration.
        let until_quiet = || {
            let mut events = [MaybeUninit::uninit()];
            let mut fetch = || {
                poller
                    .fetch(&mut events, Some(Duration::ZERO))
                    .map(<[_]>::len)
            };
            (0..9)
                .take_while(|_| fetch() == Ok(1))
                .inspect(|_| poller.clear_wake())
                .count()
        };
        assert!(wake_fd.signal());
        assert!((1..=2).contains(&until_quiet()));
        assert!(wake_fd.signal());
        assert_eq!(until_quiet(), 1);
        assert!(poller.is_intact());
        assert!(until_quiet() <= 1);
    });
}

/// The same of the wakeup of a transfer's control.
#[test]
fn a_control_that_cannot_be_cleared_wakes_no_transfer_again() {
    apart(|| {
        let core = Arc::new(Core::new(1).unwrap());
        let engine = engine_of(&core);
        let event_loop = EventLoop::new(&core, core.main());
        let mut reactor = event_loop.begin().unwrap();
        let control = Control::new().unwrap();
        let (transfer, _feed, _end) = silent();
        let mut job = job_of(&engine, transfer.control(&control));
        let wait = Wait {
            target: WaitFor::Side(crate::endpoint::Side::Source),
            timeout: None,
        };
        job.wait = Some(wait);
        reactor.sleep(job, wait);
        refuse(&[libc::SYS_read, libc::SYS_readv], libc::EPERM);
        control.wake();
        let mut events = [const { MaybeUninit::uninit() }; EVENTS];
        let mut turns = 0;
        for _ in 0..20 {
            let waited = cycle::wait(&event_loop, reactor, Some(Duration::ZERO), &mut events);
            reactor = waited.unwrap().0;
            for _ in 0..event_loop.queued(&reactor) {
                reactor = event_loop.turn(reactor).unwrap();
                turns += 1;
            }
        }
        assert!((1..=4).contains(&turns), "{turns}");
    });
}

/// The sink shows an error that persists, and hangs up while no thread waits for it.
#[test]
fn a_hang_up_before_a_pause_is_noticed() {
    let engine = engine_of(&Arc::new(Core::new(1).unwrap()));
    for target in [WaitFor::Resume, WaitFor::Grant] {
        let (transfer, _feed, end) = silent();
        let mut job = job_of(&engine, transfer);
        let wait = Wait {
            target,
            timeout: None,
        };
        assert_eq!(poll_before_sleep(&mut job, &wait), None);
        job.transfer.flow.sink.ready.error_persists = true;
        assert_eq!(poll_before_sleep(&mut job, &wait), None);
        drop(end);
        assert!(poll_before_sleep(&mut job, &wait).unwrap().hang_up);
    }
}

/// A reactor counts the transfers with completions that it has.
#[test]
fn a_reactor_with_a_ring_is_bound_to_its_thread() {
    let name = "a_reactor_with_a_ring_is_bound_to_its_thread";
    let core = Arc::new(Core::new(1).unwrap());
    let engine = engine_of(&core);
    let event_loop = EventLoop::new(&core, core.main());
    let mut reactor = event_loop.begin().unwrap();
    let files = [tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap()];
    files[0].set_len(64 << 20).unwrap();
    let [source, sink] = files.map(Into::into);
    let request = Request {
        direct: Direct::Always,
        ..Request::default()
    };
    let mut job = job_of(&engine, Transfer::owning(source, sink, request).unwrap());
    job.transfer.runs_on = ThreadKind::Disk;
    let id = job.id();
    job.advance();
    if !job.has_completions() {
        return testkit::skip::report(name, "no direct I/O here");
    }
    assert!(!reactor.is_bound());
    reactor.put(job);
    assert!(reactor.is_bound());
    reactor.jobs.schedule(id);
    let job = reactor.dequeue().unwrap();
    assert!(!reactor.is_bound());
    drop(reactor);
    core.settle(job);
}
