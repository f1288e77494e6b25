//! Records that the kernel makes, and files without reads or writes.

use std::fs::File;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use crate::common::{any, content, file_with, meanwhile, position, run, watchdog};
use cordboard::DataPath::{ReadWrite, Splice};
use cordboard::{Control, Ended, Errno, Request, Side, Size, Stranded, Transfer};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::inotify;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
use testkit::needs::{self, Need};

#[test]
fn counters_timers_and_file_events_are_read_whole() {
    let _dog = watchdog("counters_timers_and_file_events_are_read_whole");
    if !needs::missing("counters are read whole", &[Need::Eventfd]) {
        counters_are_read_whole();
    }
    let dir = tempfile::tempdir().unwrap();
    let events = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    let watched = inotify::WatchFlags::CREATE;
    inotify::add_watch(&events, dir.path(), watched).unwrap();
    for name in ["a", "b"] {
        File::create(dir.path().join(name)).unwrap();
    }
    let sink = tempfile::tempfile().unwrap();
    let request = Request {
        idle: Some(Duration::from_millis(1)),
        ..any()
    };
    let report = run(&events, &sink, request).report;
    assert_eq!(
        (report.ended, report.written),
        (Ended::Idle, 64),
        "{report:?}"
    );
}

fn counters_are_read_whole() {
    for block in [None, NonZeroUsize::new(1)] {
        for size in [8, 12] {
            let counter = eventfd(7, EventfdFlags::NONBLOCK).unwrap();
            let sink = tempfile::tempfile().unwrap();
            let request = Request {
                block,
                size: size.into(),
                idle: Some(Duration::from_millis(1)),
                ..any()
            };
            let report = run(&counter, &sink, request).report;
            assert_eq!(content(&sink), 7u64.to_ne_bytes(), "{report:?}");
            assert_eq!((report.written, &report.path[..]), (8, &[ReadWrite][..]));
            assert_ne!(report.ended, Ended::Error, "{report:?}");
            let why = report.declined.iter().find(|d| d.path == Splice).unwrap();
            assert_eq!(why.why.to_string(), "EINVAL");
        }
    }
}

/// A semaphore gives a number per read. Several are read before they are sent, and each
/// stays a message of its own, also of those that the sink has no room for.
#[test]
fn each_number_of_a_counter_is_a_message() {
    let name = "each_number_of_a_counter_is_a_message";
    let _dog = watchdog(name);
    if needs::missing(name, &[Need::Eventfd]) {
        return;
    }
    for sort in [SocketType::DGRAM, SocketType::SEQPACKET] {
        let none = SocketFlags::CLOEXEC;
        let (sink, peer) = socketpair(AddressFamily::UNIX, sort, none, None).unwrap();
        let counter = eventfd(300, EventfdFlags::SEMAPHORE | EventfdFlags::CLOEXEC).unwrap();
        let request = Request {
            idle: Some(Duration::from_millis(1)),
            ..any()
        };
        let outcome = run(&counter, &sink, request);
        let report = outcome.report;
        assert_eq!(report.path, [ReadWrite], "{report:?}");
        let unsent = match outcome.stranded {
            Some(Stranded::Datagrams(all)) => all,
            None => Vec::new(),
            other => panic!("{sort:?}: {other:?}"),
        };
        assert!(unsent.iter().all(|number| *number == 1u64.to_ne_bytes()));
        assert_eq!(report.read - report.written, 8 * unsent.len() as u64);
        assert_ne!(unsent.len(), 1, "read one at a time");
        let mut room = [0; 64];
        for _ in 0..report.written / 8 {
            let (n, _) = recv(&peer, &mut room, RecvFlags::DONTWAIT).unwrap();
            assert_eq!(room[..n], 1u64.to_ne_bytes(), "{sort:?}");
        }
        let more = recv(&peer, &mut room, RecvFlags::DONTWAIT);
        assert_eq!(more.unwrap_err(), rustix::io::Errno::AGAIN);
        for _ in report.read / 8..300 {
            assert_eq!(rustix::io::read(&counter, &mut room), Ok(8));
        }
    }
}

/// An event counter near its maximum polls writable, but accepts only a 1. A cancel
/// or an idle limit must still end the transfer.
#[test]
fn a_counter_without_room_holds_nobody() {
    let _dog = watchdog("a_counter_without_room_holds_nobody");
    if needs::missing("a_counter_without_room_holds_nobody", &[Need::Eventfd]) {
        return;
    }
    let numbers = [1u64, 40, 2];
    let data: Vec<u8> = numbers.iter().flat_map(|n| n.to_ne_bytes()).collect();
    let full = |value: u64| {
        let counter = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&counter, &value.to_ne_bytes()).unwrap();
        counter
    };
    let count = |counter: &OwnedFd| {
        let mut number = [0; 8];
        rustix::io::read(counter, &mut number).unwrap();
        u64::from_ne_bytes(number)
    };
    let counter = full(u64::MAX - 40);
    let source = file_with(&data);
    let request = Request {
        idle: Some(Duration::from_millis(1)),
        ..any()
    };
    let report = run(&source, &counter, request).report;
    assert_eq!(
        (report.ended, report.written, report.read),
        (Ended::Idle, 8, 8),
        "{report:?}"
    );
    assert_eq!(report.path, [ReadWrite]);
    assert_eq!(position(&source), 8, "the rest was given back");
    assert_eq!(count(&counter), u64::MAX - 39);

    // A counter that is read meanwhile accepts all.
    let counter = full(u64::MAX - 40);
    let control = Control::new().unwrap();
    let source = file_with(&data);
    let transfer = Transfer::new(source.as_fd(), counter.as_fd(), any()).unwrap();
    let report = std::thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel();
        let counter = &counter;
        scope.spawn(move || {
            receiver.recv().unwrap();
            count(counter)
        });
        transfer
            .control(&control)
            .observe(meanwhile(move || sender.send(()).unwrap()))
            .run()
            .report
    });
    assert_eq!(
        (report.ended, report.written),
        (Ended::Eof, 24),
        "{report:?}"
    );
    assert_eq!(count(&counter), 42);
}

/// If the size is below one record, the transfer fails with `EINVAL`, as `read(2)`
/// does, and the record stays. Records that fit are moved, and a record that does
/// not fit into the rest stays too.
#[test]
fn a_size_below_a_record_is_an_error() {
    let _dog = watchdog("a_size_below_a_record_is_an_error");
    let dir = tempfile::tempdir().unwrap();
    let counter = || {
        let counter = eventfd(7, EventfdFlags::CLOEXEC).unwrap();
        (counter, 8)
    };
    let events = || {
        let events = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&events, dir.path(), inotify::WatchFlags::CREATE).unwrap();
        File::create(dir.path().join("name")).unwrap();
        std::fs::remove_file(dir.path().join("name")).unwrap();
        (events, 32)
    };
    let timer = || {
        use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags};
        let timer =
            rustix::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).unwrap();
        let once = Itimerspec {
            it_interval: rustix::time::Timespec::default(),
            it_value: rustix::time::Timespec {
                tv_sec: 0,
                tv_nsec: 1,
            },
        };
        rustix::time::timerfd_settime(&timer, TimerfdTimerFlags::empty(), &once).unwrap();
        let expired = &mut [PollFd::new(&timer, PollFlags::IN)];
        assert_eq!(poll(expired, None), Ok(1));
        (timer, 8)
    };
    let mut makes: Vec<&dyn Fn() -> (OwnedFd, u64)> = vec![&events, &timer];
    if !needs::missing("a size below a counter's number", &[Need::Eventfd]) {
        makes.push(&counter);
    }
    for make in makes {
        for (way, staged) in crate::WAYS
            .iter()
            .flat_map(|way| [(way, false), (way, true)])
        {
            let moved = |size: u64| {
                let (source, record) = make();
                let sink = tempfile::tempfile().unwrap();
                let request = Request {
                    size: Size::Bytes(size),
                    ..any()
                };
                let to = OwnedFd::from(sink.try_clone().unwrap());
                let report = crate::by(way, &source, &to, request, staged);
                assert_eq!(report.read, report.written, "{report:?}");
                assert_eq!(content(&sink).len() as u64, report.written);
                let polled = &mut [PollFd::new(&source, PollFlags::IN)];
                poll(polled, Some(&rustix::time::Timespec::default())).unwrap();
                let stays = !polled[0].revents().is_empty();
                assert_eq!(
                    stays,
                    report.written == 0,
                    "{size} {way} {staged}: {report:?}"
                );
                (record, report)
            };
            for size in [1, 4, 7] {
                let (_, report) = moved(size);
                assert_eq!(
                    (report.ended, report.failed, report.errno, report.read),
                    (Ended::Error, Some(Side::Source), Some(Errno::EINVAL), 0),
                    "{size} {way} {staged}"
                );
            }
            let (_, report) = moved(0);
            assert_ne!(report.ended, Ended::Error, "{way} {staged}: {report:?}");
            assert_eq!(report.read, 0, "{way} {staged}");
            let (record, report) = moved(8);
            if record == 8 {
                assert_ne!(report.ended, Ended::Error, "{way} {staged}: {report:?}");
                assert_eq!(report.read, 8, "{way} {staged}");
            }
        }
    }
    // The second record does not fit, and stays.
    let (events, _) = events();
    File::create(dir.path().join("other")).unwrap();
    let sink = tempfile::tempfile().unwrap();
    let request = |size| Request {
        size: Size::Bytes(size),
        ..any()
    };
    let report = run(&events, &sink, request(63)).report;
    assert_eq!((report.ended, report.read), (Ended::Size, 32), "{report:?}");
    let report = run(&events, &sink, request(32)).report;
    assert_eq!((report.ended, report.read), (Ended::Size, 32), "{report:?}");
}

/// Descriptors that are open for reading and writing and support neither: most never
/// poll ready.
#[test]
fn what_has_no_reads_or_no_writes_is_refused() {
    let name = "what_has_no_reads_or_no_writes_is_refused";
    let _dog = watchdog(name);
    let made = |call: libc::c_long, args: [usize; 3]| {
        // SAFETY: each call below is given what its manual page asks for.
        let fd = unsafe { libc::syscall(call, args[0], args[1], args[2]) };
        // SAFETY: a new descriptor of this process.
        (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as i32) })
    };
    let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap();
    let me = std::process::id() as usize;
    let mut parameters = [0u32; 30];
    // BPF_MAP_CREATE of a BPF_MAP_TYPE_RINGBUF of 4096 bytes.
    let ring = [27u32, 0, 0, 4096, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let things = [
        ("epoll", Some(epoll)),
        ("pidfd", made(libc::SYS_pidfd_open, [me, 0, 0])),
        (
            "io_uring",
            made(
                libc::SYS_io_uring_setup,
                [4, parameters.as_mut_ptr() as usize, 0],
            ),
        ),
        ("bpf", made(libc::SYS_bpf, [0, ring.as_ptr() as usize, 72])),
    ];
    let file = file_with(b"bytes");
    let refused = |source: &dyn AsFd, sink: &dyn AsFd, side: Side| {
        let failure = Transfer::new(source.as_fd(), sink.as_fd(), any()).err();
        let failure = failure.expect("not refused");
        let report = &failure.report;
        assert_eq!(
            (report.failed, report.errno),
            (Some(side), Some(Errno::EINVAL)),
            "{failure}"
        );
        assert!(
            failure.to_string().contains("does not support"),
            "{failure}"
        );
    };
    for (what, thing) in &things {
        let Some(thing) = thing else {
            testkit::skip::report(&format!("{name}: {what}"), "not available here");
            continue;
        };
        let mut byte = 0u8;
        // SAFETY: one byte, which is ours.
        let read = unsafe { libc::read(thing.as_raw_fd(), (&raw mut byte).cast(), 1) };
        assert_eq!(read, -1, "{what} can be read");
        refused(thing, &file, Side::Source);
        refused(&file, thing, Side::Sink);
    }
    // These can be read, not written.
    use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).unwrap();
    refused(&file, &timer, Side::Sink);
    assert_eq!(position(&file), 0, "nothing was taken");
    // These can be read or written once they are ready.
    let events = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
    let mut sources = vec![events, timer];
    if !needs::missing("a counter gives as soon as it can", &[Need::Eventfd]) {
        sources.push(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
    }
    for source in &sources {
        assert!(Transfer::new(source.as_fd(), file.as_fd(), any()).is_ok());
    }
    for device in ["/dev/ptmx", "/dev/null", "/dev/fuse", "/dev/net/tun"] {
        if let Ok(device) = File::options().read(true).write(true).open(device) {
            assert!(Transfer::new(device.as_fd(), file.as_fd(), any()).is_ok());
            assert!(Transfer::new(file.as_fd(), device.as_fd(), any()).is_ok());
        }
    }
}

/// A datagram has several numbers, and the counter has room for the first only.
#[test]
fn numbers_of_a_datagram_are_written_one_by_one() {
    let name = "numbers_of_a_datagram_are_written_one_by_one";
    let _dog = watchdog(name);
    if needs::missing(name, &[Need::Eventfd]) {
        return;
    }
    let counter = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    rustix::io::write(&counter, &(u64::MAX - 40).to_ne_bytes()).unwrap();
    let (feed, source) = std::os::unix::net::UnixDatagram::pair().unwrap();
    let data: Vec<u8> = [1u64, 40].iter().flat_map(|n| n.to_ne_bytes()).collect();
    feed.send(&data).unwrap();
    let request = Request {
        idle: Some(Duration::from_millis(1)),
        ..any()
    };
    let outcome = run(&source, &counter, request);
    let report = &outcome.report;
    assert_eq!(
        (report.ended, report.read, report.written, report.stranded),
        (Ended::Idle, 16, 8, 8),
        "{report:?}"
    );
    assert_eq!(report.path, [ReadWrite]);
    let mut number = [0; 8];
    rustix::io::read(&counter, &mut number).unwrap();
    assert_eq!(u64::from_ne_bytes(number), u64::MAX - 39);
}

/// A pseudo-file takes each write for a value of its own.
#[test]
fn each_datagram_is_a_write_to_a_pseudo_file() {
    let _dog = watchdog("each_datagram_is_a_write_to_a_pseudo_file");
    // The name of the thread, which runs the transfer too.
    let thread = std::thread::spawn(|| {
        let open = std::fs::File::options()
            .write(true)
            .read(true)
            .open("/proc/thread-self/comm");
        let Ok(sink) = open else {
            return testkit::skip::report("each_datagram_is_a_write_to_a_pseudo_file", "no procfs");
        };
        let (feed, source) = std::os::unix::net::UnixDatagram::pair().unwrap();
        feed.send(b"one").unwrap();
        feed.send(b"two").unwrap();
        let request = Request {
            size: 6.into(),
            ..any()
        };
        let report = run(&source, &sink, request).report;
        assert_eq!(
            (report.ended, report.written),
            (Ended::Size, 6),
            "{report:?}"
        );
        assert_eq!(report.path, [ReadWrite]);
        let name = std::fs::read("/proc/thread-self/comm").unwrap();
        assert_eq!(String::from_utf8_lossy(&name), "two\n");
    });
    thread.join().unwrap();
}

/// Cancels the transfer once it has read 12 bytes.
struct Cancels(Control);

impl cordboard::Observer for Cancels {
    fn progress(&mut self, progress: &cordboard::Progress) {
        if progress.read == 12 {
            self.0.cancel();
        }
    }
}

/// An eventfd refuses less than a number. The source may continue with the rest of it.
#[test]
fn a_part_of_a_number_goes_back() {
    let name = "a_part_of_a_number_goes_back";
    let _dog = watchdog(name);
    if needs::missing(name, &[Need::Eventfd]) {
        return;
    }
    for ended in [Ended::Idle, Ended::Cancelled] {
        let counter = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let (source, feed) = std::os::unix::net::UnixStream::pair().unwrap();
        let data = [7u64.to_ne_bytes().as_slice(), b"part"].concat();
        assert_eq!(rustix::io::write(&feed, &data), Ok(12));
        let request = Request {
            idle: (ended == Ended::Idle).then_some(Duration::from_millis(1)),
            ..any()
        };
        let transfer = Transfer::new(source.as_fd(), counter.as_fd(), request).unwrap();
        let control = Control::new().unwrap();
        let outcome = match ended {
            Ended::Idle => transfer.run(),
            _ => {
                let observer = Cancels(control.clone());
                transfer.control(&control).observe(observer).run()
            }
        };
        let report = &outcome.report;
        assert_eq!((report.ended, report.errno), (ended, None), "{report:?}");
        assert_eq!((report.read, report.written), (12, 8), "{report:?}");
        match &outcome.stranded {
            Some(Stranded::Buffer(rest)) => assert_eq!(rest, b"part"),
            stranded => panic!("{stranded:?}"),
        }
        let mut number = [0; 8];
        rustix::io::read(&counter, &mut number).unwrap();
        assert_eq!(u64::from_ne_bytes(number), 7);
    }
}
