//! The thread of the control descriptors: its start, its end and its descriptors.

use std::os::fd::AsRawFd;

use super::*;
use crate::cue::{Command, Cue, Record};

/// The number of threads that serve control descriptors.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let name = |task: std::fs::DirEntry| std::fs::read(task.path().join("comm")).ok();
    let is_it = |name: &Vec<u8>| name == b"cordboard-cue\n";
    tasks.filter_map(name).filter(is_it).count()
}

/// Several threads may make the first control descriptors at once.
#[test]
fn a_second_thread_that_is_not_needed_ends() {
    let fine = testkit::child::in_a_child(|| {
        testkit::child::ends_soon();
        let (source, sink) = std::io::pipe().unwrap();
        let mut served = Cue::new(&source, &sink).unwrap();
        let second = Serving::start().unwrap();
        while threads() < 2 {
            std::thread::yield_now();
        }
        drop(second);
        while threads() > 1 {
            std::thread::yield_now();
        }
        served.send(Command::Status).unwrap();
        matches!(served.receive(), Ok(Some(Record::Status(_))))
    });
    assert!(fine);
}

/// The control descriptors that it serves are closed. The next one starts a new thread.
#[test]
fn a_panic_of_the_thread_does_not_end_control_descriptors_for_good() {
    let fine = testkit::child::in_a_child(|| {
        testkit::child::ends_soon();
        let (source, sink) = std::io::pipe().unwrap();
        let mut served = Cue::new(&source, &sink).unwrap();
        served.send(Command::Status).unwrap();
        assert!(matches!(served.receive(), Ok(Some(Record::Status(_)))));
        let first = registry().unwrap();
        first.send(Message::Panic);
        assert_eq!(served.receive(), Ok(None));
        assert!(!first.is_usable());
        let mut next = Cue::new(&source, &sink).unwrap();
        next.send(Command::Status).unwrap();
        matches!(next.receive(), Ok(Some(Record::Status(_))))
    });
    assert!(fine);
}

/// The host may close the descriptors while there is no control descriptor.
#[test]
fn a_thread_without_control_descriptors_checks_its_own() {
    let service = Service::new(&Arc::new(Registry::new().unwrap())).unwrap();
    assert_eq!(service.timeout(sys::monotonic()), LONGEST);
}

#[test]
fn what_an_ended_thread_has_not_read_is_closed() {
    let registry = Arc::new(Registry::new().unwrap());
    let mut before = nonblocking(&registry);
    drop(Service::new(&registry).unwrap());
    assert_eq!(before.receive(), Ok(None));
    assert_eq!(nonblocking(&registry).receive(), Ok(None));
}

/// Makes a control descriptor that does not block.
fn nonblocking(registry: &Arc<Registry>) -> Cue {
    let (source, sink) = std::io::pipe().unwrap();
    let cue = Cue::of(registry, source.as_fd(), sink.as_fd()).unwrap();
    rustix::io::ioctl_fionbio(&cue, true).unwrap();
    cue
}

/// Also returns a copy of the descriptor of the service, as a child of `fork(2)` has it.
fn inherited(registry: &Arc<Registry>) -> (Cue, OwnedFd) {
    let cue = nonblocking(registry);
    let mut unread = registry.take();
    let Some(Message::New(new)) = unread.last() else {
        panic!("no message");
    };
    let copy = new.socket.as_fd().try_clone_to_owned().unwrap();
    (unread.drain(..)).for_each(|message| registry.send(message));
    (cue, copy)
}

/// The service panics between two control descriptors: it serves the first one, and has
/// taken the second one.
fn panic_between(registry: &Arc<Registry>) -> [(Cue, OwnedFd); 2] {
    let service = Service::new(registry).unwrap();
    let first = inherited(registry);
    registry.send(Message::Panic);
    let second = inherited(registry);
    let run = std::panic::AssertUnwindSafe(|| service.run());
    std::panic::catch_unwind(run).unwrap_err();
    [first, second]
}

#[test]
fn a_copy_of_a_child_hides_no_end_after_a_panic() {
    let registry = Arc::new(Registry::new().unwrap());
    for (mut cue, _copy) in panic_between(&registry) {
        assert_eq!(cue.receive(), Ok(None));
    }
}

#[test]
fn a_copy_of_a_child_hides_no_end_of_what_is_unread() {
    let registry = Arc::new(Registry::new().unwrap());
    let (mut cue, _copy) = inherited(&registry);
    drop(Service::new(&registry).unwrap());
    assert_eq!(cue.receive(), Ok(None));
}

/// A child that drops what it has inherited does not end it for its parent.
#[test]
fn a_child_ends_no_control_descriptor_of_its_parent() {
    let registry = Arc::new(Registry::new().unwrap());
    let (mut cue, _copy) = inherited(&registry);
    assert!(testkit::child::in_a_child(|| {
        let inherited = registry.take().into_iter();
        inherited.for_each(|one| registry.discard(one));
        true
    }));
    assert_eq!(cue.receive(), Err(Errno::EAGAIN));
}

/// A filter that the host installs later refuses the wait.
#[test]
fn callers_read_their_end_if_the_wait_is_refused() {
    let registry = Arc::new(Registry::new().unwrap());
    let (mut cue, _copy) = inherited(&registry);
    testkit::refuse::apart(|| {
        let service = Service::new(&registry).unwrap();
        let calls = [
            libc::SYS_epoll_pwait,
            libc::SYS_epoll_pwait2,
            #[cfg(any(target_arch = "x86_64", target_arch = "x86", target_arch = "arm"))]
            libc::SYS_epoll_wait,
        ];
        testkit::refuse::refuse(&calls, libc::EPERM);
        service.run();
    });
    assert_eq!(cue.receive(), Ok(None));
}

/// A filter that the host installs later refuses to read what wakes the thread.
#[test]
fn a_wakeup_that_cannot_be_cleared_is_no_event_again() {
    testkit::refuse::apart(|| {
        let registry = Arc::new(Registry::new().unwrap());
        let service = Service::new(&registry).unwrap();
        testkit::refuse::refuse(&[libc::SYS_read, libc::SYS_readv], libc::EPERM);
        let until_quiet = || {
            let epoll = service.epoll.0.try_clone().unwrap();
            let is_event = |_: &usize| {
                let mut event = [MaybeUninit::uninit()];
                let fetched = transfer::fetch(epoll.as_fd(), &mut event, Some(Duration::ZERO));
                !fetched.unwrap().is_empty()
            };
            let events = (0..9).take_while(is_event);
            events.inspect(|_| service.clear_wake()).count()
        };
        // The second event is that of the change.
        assert!(registry.wake().signal());
        assert!((1..=2).contains(&until_quiet()));
        assert!(registry.wake().signal());
        assert_eq!(until_quiet(), 1);
    });
}

/// The limit of the user (`/proc/sys/fs/epoll/max_user_watches`) is reached.
#[test]
fn a_connection_without_room_in_epoll_is_polled() {
    testkit::refuse::apart(|| {
        let registry = Arc::new(Registry::new().unwrap());
        let mut service = Service::new(&registry).unwrap();
        testkit::refuse::refuse(&[libc::SYS_epoll_ctl], libc::ENOSPC);
        let mut cue = nonblocking(&registry);
        for message in registry.take() {
            service.handle_message(message);
        }
        cue.send(Command::Status).unwrap();
        let record = loop {
            match cue.receive() {
                Err(Errno::EAGAIN) => service.handle_timers(),
                done => break done,
            }
            assert!(service.timeout(sys::monotonic()) < LONGEST);
        };
        assert!(matches!(record, Ok(Some(Record::Status(_)))));
        drop(cue);
        while !service.streams.is_empty() {
            service.handle_timers();
        }
    });
}

/// The host has its own files under all numbers when the thread panics.
#[test]
fn a_panic_closes_no_file_of_the_host() {
    assert!(testkit::child::in_a_child(|| {
        let registry = Arc::new(Registry::new().unwrap());
        let mut service = Service::new(&registry).unwrap();
        let _cue = nonblocking(&registry);
        for message in registry.take() {
            service.handle_message(message);
        }
        let file = tempfile::tempfile().unwrap();
        let numbers: Vec<i32> = {
            let stream = service.streams.values().next().unwrap();
            let own = [service.epoll.0.as_fd(), stream.ports()[0].socket()];
            (stream.held.ends.iter().map(AsFd::as_fd).chain(own))
                .chain(registry.wake().numbers())
                .inspect(|number| testkit::child::replace(*number, file.as_fd()))
                .map(|number| number.as_raw_fd())
                .collect()
        };
        let panics = std::panic::AssertUnwindSafe(move || {
            let _service = service;
            std::panic::resume_unwind(Box::new(()));
        });
        std::panic::catch_unwind(panics).unwrap_err();
        let its_own = |fd| sys::identity(fd) == sys::identity(&file);
        numbers
            .into_iter()
            .all(|number| sys::at(number).is_some_and(its_own))
    }));
}

/// The host closes the descriptors of the thread, and has not come to the wakeup yet.
#[test]
fn a_host_that_is_about_to_close_everything_is_recognized() {
    assert!(testkit::child::in_a_child(|| {
        let registry = Arc::new(Registry::new().unwrap());
        let service = Service::new(&registry).unwrap();
        let cue = nonblocking(&registry);
        let file = tempfile::tempfile().unwrap();
        testkit::child::replace(service.epoll.0.as_fd(), file.as_fd());
        service.run();
        let is_left = cue.send(Command::Status).is_ok();
        is_left && !registry.is_usable() && registry.wake().is_still_open()
    }));
}

/// The lock of a pipe is held, so the close of its last reader waits.
#[test]
fn a_close_that_waits_hides_no_end_after_a_panic() {
    let name = "a_close_that_waits_hides_no_end_after_a_panic";
    let _dog = testkit::watchdog::watch(name);
    if testkit::needs::missing(name, &[testkit::needs::Need::Splice]) {
        return;
    }
    let (reader, writer) = std::io::pipe().unwrap();
    let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
    let own = std::fs::File::open(path).unwrap();
    let registry = Arc::new(Registry::new().unwrap());
    let mut cue = Cue::of(&registry, own.as_fd(), own.as_fd()).unwrap();
    drop(own);
    let locked = testkit::locked::Locked::of(reader, writer);
    for (mut other, _copy) in panic_between(&registry) {
        assert_eq!(other.receive(), Ok(None));
    }
    assert_eq!(cue.receive(), Ok(None));
    locked.release();
}
