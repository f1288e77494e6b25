//! A host that closes the descriptors of an engine (`close_range(2)`) at the worst
//! moments: during a start, and while all threads sleep.

mod again;
mod replaced;

use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use crate::common::{self, any, others_asleep, watchdog};
use cordboard::{Control, Ended, Engine, Errno, Refusal, Transfer};

/// A transfer from an empty pipe to a pipe, whose descriptors stay open.
fn silent() -> Transfer<'static> {
    let (source, feed) = std::io::pipe().unwrap();
    let (end, sink) = std::io::pipe().unwrap();
    std::mem::forget((feed, end));
    Transfer::owning(source.into(), sink.into(), any()).unwrap()
}

/// Returns the threads of this name.
fn threads(name: &str) -> Vec<libc::pid_t> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let tasks = tasks.map(|task| task.unwrap().file_name().into_string().unwrap());
    let named = |task: &String| {
        let comm = std::fs::read_to_string(format!("/proc/self/task/{task}/comm"));
        comm.is_ok_and(|comm| comm.trim() == name)
    };
    let tasks = tasks.filter(named).map(|task| task.parse().unwrap());
    tasks.collect()
}

/// Waits until an engine's thread has its name, and returns the thread.
fn reactor() -> libc::pid_t {
    loop {
        match threads("cordboard")[..] {
            [one] => return one,
            // A new thread has the name of its creator at first.
            _ => std::thread::yield_now(),
        }
    }
}

/// The host closes the engine's descriptors at each system call of a start. The start
/// is refused, or the transfer ends.
#[test]
fn an_engine_that_is_closed_during_a_start() {
    let _dog = watchdog("an_engine_that_is_closed_during_a_start");
    if !common::alone!() {
        return;
    }
    const CALLS: &[libc::c_long] = &[
        libc::SYS_kcmp,
        libc::SYS_fstat,
        libc::SYS_newfstatat,
        libc::SYS_write,
    ];
    let mut moments = 0;
    loop {
        let before = numbers();
        let engine = Engine::new(Default::default()).unwrap();
        let own: Vec<i32> = numbers()
            .into_iter()
            .filter(|n| !before.contains(n))
            .collect();
        let running = engine.start(silent()).unwrap();
        running.cancel();
        assert_eq!(running.wait().report.ended, Ended::Cancelled);
        others_asleep();
        let (mut calls, mut started) = (0, None);
        let transfer = silent();
        let count = testkit::midst::at_each(
            CALLS,
            || started = Some(engine.start(transfer)),
            || {
                if calls == moments {
                    // SAFETY: takes an integer. The engine must tolerate the closed
                    // number.
                    own.iter()
                        .for_each(|n| assert_eq!(unsafe { libc::close(*n) }, 0));
                }
                calls += 1;
            },
        );
        let Some(count) = count else {
            return testkit::skip::here("no seccomp_unotify(2) here");
        };
        let started = started.unwrap();
        if count <= moments {
            started.unwrap().cancel();
            break;
        }
        match started {
            Ok(running) => assert_eq!(running.wait().report.errno, Some(Errno::EBADF)),
            Err(failure) => {
                let errno = Errno::EBADF;
                assert_eq!(failure.refusal, Some(Refusal::NoEngine { errno }));
            }
        }
        std::mem::forget(engine);
        moments += 1;
    }
    assert!(moments >= 2, "{moments}");
}

/// The host closes the descriptor of a handle. A transfer that waits sleeps between its checks of
/// the handle, and finds that it is cancelled.
#[test]
fn a_handle_that_is_closed_keeps_no_processor_busy() {
    let _dog = watchdog("a_handle_that_is_closed_keeps_no_processor_busy");
    if !common::alone!() {
        return;
    }
    let before = numbers();
    let control = Control::new().unwrap();
    let own = numbers().into_iter().filter(|n| !before.contains(n));
    let own: Vec<i32> = own.collect();
    let (sender, thread) = std::sync::mpsc::channel();
    let (source, mut feed) = std::io::pipe().unwrap();
    let (_end, sink) = std::io::pipe().unwrap();
    let transfer = Transfer::owning(source.into(), sink.into(), any()).unwrap();
    let running = std::thread::spawn({
        let control = control.clone();
        move || {
            let this = rustix::thread::gettid().as_raw_nonzero().get();
            sender.send(this).unwrap();
            transfer.control(&control).run().report
        }
    });
    let thread = thread.recv().unwrap();
    others_asleep();
    for number in own {
        // SAFETY: takes an integer. The transfer must tolerate the closed number.
        assert_eq!(unsafe { libc::close(number) }, 0);
    }
    // The wait in progress refers to the file, and the next one to the number.
    feed.write_all(b"x").unwrap();
    // A wait that returns at once, again and again, is no voluntary switch.
    let task = format!("/proc/self/task/{thread}");
    let switches = || testkit::locked::switches(task.as_ref()).unwrap();
    let first = switches();
    while switches() < first + 5 {
        std::thread::yield_now();
    }
    control.cancel();
    assert_eq!(running.join().unwrap().ended, Ended::Cancelled);
    std::mem::forget(control);
}

/// The host closes everything after the engine's thread was woken and before it runs.
#[test]
fn an_engine_that_is_closed_right_after_a_start() {
    let _dog = watchdog("an_engine_that_is_closed_right_after_a_start");
    if !common::alone!() {
        return;
    }
    use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
    let set = |thread, policy| {
        // SAFETY: all zeros are a value of it.
        let none: libc::sched_param = unsafe { std::mem::zeroed() };
        // SAFETY: reads the parameters.
        match unsafe { libc::sched_setscheduler(thread, policy, &raw const none) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    let schedule = |thread, policy| {
        let Err(error) = set(thread, policy) else {
            return;
        };
        // On a busy machine the thread may have run and ended.
        let ended = error.raw_os_error() == Some(libc::ESRCH) && policy == libc::SCHED_OTHER;
        assert!(ended, "{error}");
    };
    let both = [libc::SCHED_IDLE, libc::SCHED_OTHER];
    let can = || both.iter().try_for_each(|policy| set(0, *policy));
    if let Err(error) = testkit::refuse::apart(can) {
        // The way back needs CAP_SYS_NICE or RLIMIT_NICE.
        return testkit::skip::here(format!("no thread may leave SCHED_IDLE: {error}"));
    }
    for _ in 0..5 {
        assert!(testkit::child::in_a_child(|| {
            let mut one = CpuSet::new();
            one.set(sched_getcpu());
            sched_setaffinity(None, &one).unwrap();
            let first = silent().start().unwrap();
            first.cancel();
            assert_eq!(first.wait().report.ended, Ended::Cancelled);
            let ours = [reactor()];
            others_asleep();
            // The thread runs only when no other thread is runnable.
            ours.iter()
                .for_each(|thread| schedule(*thread, libc::SCHED_IDLE));
            let running = silent().start().unwrap();
            testkit::child::close_from(3);
            ours.iter()
                .for_each(|thread| schedule(*thread, libc::SCHED_OTHER));
            running.wait().report.errno == Some(Errno::EBADF)
        }));
    }
}

/// A call that detects the closed descriptors.
enum FoundBy {
    Wait,
    Cancel,
    Look,
}

/// A wait, a cancel and a status call each detect that the host has closed
/// everything. The engine's sleeping thread is not woken.
#[test]
fn who_waits_finds_out_that_the_engine_is_closed() {
    let _dog = watchdog("who_waits_finds_out_that_the_engine_is_closed");
    if !common::alone!() {
        return;
    }
    for way in [FoundBy::Wait, FoundBy::Cancel, FoundBy::Look] {
        // This process holds the other ends, so they do not hang up.
        let (source, mut feed) = std::io::pipe().unwrap();
        let (mut end, sink) = std::io::pipe().unwrap();
        assert!(testkit::child::in_a_child(|| {
            let running = cordboard::start(&source, &sink, any()).unwrap();
            feed.write_all(b"one").unwrap();
            end.read_exact(&mut [0; 3]).unwrap();
            let ours = [reactor()];
            others_asleep();
            // Closing the last copy of a pipe's end may wake a thread that polls it.
            let _keeps = testkit::child::Heir::fork();
            testkit::child::close_from(3);
            match way {
                FoundBy::Wait => {}
                FoundBy::Cancel => running.cancel(),
                FoundBy::Look => {
                    while !running.status().ended {
                        std::thread::yield_now();
                    }
                }
            }
            running.wait_for_end();
            // The first engine's thread still sleeps.
            assert!(threads("cordboard").contains(&ours[0]));
            let report = running.try_wait().unwrap().report;
            assert_eq!((report.errno, report.written), (Some(Errno::EBADF), 3));
            // The next transfer has a new engine.
            let next = silent().start().unwrap();
            next.cancel();
            next.wait().report.ended == Ended::Cancelled
        }));
    }
}

/// A shutdown after the close ends the engine's transfers without its thread.
#[test]
fn an_engine_that_is_closed_is_shut_down() {
    let _dog = watchdog("an_engine_that_is_closed_is_shut_down");
    if !common::alone!() {
        return;
    }
    // This process keeps the other ends: they do not hang up.
    let (source, mut feed) = std::io::pipe().unwrap();
    let (mut end, sink) = std::io::pipe().unwrap();
    assert!(testkit::child::in_a_child(|| {
        let engine = Engine::new(Default::default()).unwrap();
        let transfer = Transfer::owning(source.into(), sink.into(), any()).unwrap();
        let running = engine.start(transfer).unwrap();
        feed.write_all(b"one").unwrap();
        end.read_exact(&mut [0; 3]).unwrap();
        let ours = [reactor()];
        others_asleep();
        let _keeps = testkit::child::Heir::fork();
        testkit::child::close_from(3);
        engine.shutdown();
        assert!(threads("cordboard").contains(&ours[0]), "it sleeps on");
        let report = running.try_wait().unwrap().report;
        (report.errno, report.written) == (Some(Errno::EBADF), 3)
    }));
}

/// The host's event counters, under the former numbers of an engine, a handle and a
/// control, are neither read, nor written, nor closed.
#[test]
fn what_was_opened_since_is_left_alone() {
    let _dog = watchdog("what_was_opened_since_is_left_alone");
    let name = "what_was_opened_since_is_left_alone";
    if testkit::needs::missing(name, &[testkit::needs::Need::Eventfd]) {
        return;
    }
    if !common::alone!() {
        return;
    }
    use rustix::event::{EventfdFlags, eventfd};
    /// The source of a transfer.
    fn source(counter: bool) -> (OwnedFd, Option<UnixStream>) {
        if counter {
            return (eventfd(0, EventfdFlags::CLOEXEC).unwrap(), None);
        }
        let (source, feed) = UnixStream::pair().unwrap();
        (source.into(), Some(feed))
    }
    for counter in [false, true] {
        // This process keeps the other ends: they do not hang up.
        let (source, _feed) = source(counter);
        let (_end, sink) = std::io::pipe().unwrap();
        assert!(testkit::child::in_a_child(|| {
            let running = cordboard::start(&source, &sink, any()).unwrap();
            others_asleep();
            let told = running.fd().unwrap().as_raw_fd();
            let (control, woken) = (Control::new().unwrap(), Control::new().unwrap());
            testkit::child::close_from(3);
            let mut own = Vec::new();
            while own
                .last()
                .is_none_or(|fd: &OwnedFd| fd.as_raw_fd() < told + 20)
            {
                let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
                own.push(eventfd(7, flags).unwrap());
            }
            assert_eq!(own[0].as_raw_fd(), 3);
            woken.wake();
            control.cancel();
            running.cancel();
            running.wait_for_end();
            assert_eq!(running.fd().err(), Some(Errno::EBADF));
            let errno = running.try_wait().unwrap().report.errno;
            drop((running, control, woken));
            let is_untouched = |fd: &OwnedFd| {
                let mut count = [0; 8];
                let read = rustix::io::read(fd.as_fd(), &mut count);
                (read, u64::from_ne_bytes(count)) == (Ok(8), 7)
            };
            let touched: Vec<_> = own.iter().filter(|fd| !is_untouched(fd)).collect();
            assert!(touched.is_empty(), "{touched:?}");
            errno == Some(Errno::EBADF)
        }));
    }
}

/// A transfer opens a terminal a second time, with `O_NONBLOCK`. The host then reuses
/// that number too.
#[test]
fn what_was_opened_in_the_place_of_a_terminal_is_left_alone() {
    let _dog = watchdog("what_was_opened_in_the_place_of_a_terminal_is_left_alone");
    if !common::alone!() {
        return;
    }
    use std::fs::File;
    let (terminal, _master) = testkit::obstacle::terminal().unwrap();
    let (_end, sink) = std::io::pipe().unwrap();
    assert!(testkit::child::in_a_child(|| {
        let running = cordboard::start(&terminal, &sink, any()).unwrap();
        others_asleep();
        let last = numbers().into_iter().max().unwrap();
        testkit::child::close_from(3);
        let one = |_| File::open("/dev/null").unwrap();
        let own: Vec<File> = (3..=last).map(one).collect();
        running.cancel();
        let errno = running.wait().report.errno;
        let open = numbers();
        let gone: Vec<i32> = own
            .into_iter()
            .map(std::os::fd::IntoRawFd::into_raw_fd)
            .filter(|number| !open.contains(number))
            .collect();
        assert!(gone.is_empty(), "{gone:?}");
        errno == Some(Errno::EBADF)
    }));
}

/// Returns the numbers of the open descriptors.
fn numbers() -> Vec<i32> {
    let open = |number: &i32| {
        // SAFETY: takes any number, and changes nothing.
        unsafe { libc::fcntl(*number, libc::F_GETFD) >= 0 }
    };
    (0..200).filter(open).collect()
}
