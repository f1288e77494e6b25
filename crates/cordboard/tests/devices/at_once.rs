//! Files whose `poll(2)` reports something other than bytes to read.

use std::fs::File;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;

use cordboard::{Control, Ended, Request, Transfer};

use crate::common::{any_and_each, content_of, run, watchdog};

/// A POSIX message queue without messages, which is a file too.
fn queue() -> Option<OwnedFd> {
    let name = std::ffi::CString::new(format!("cordboard.{}", std::process::id())).unwrap();
    let flags = libc::O_RDONLY | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
    let attributes = std::ptr::null::<libc::mq_attr>();
    // SAFETY: the name outlives the call, and the queue's attributes are the default.
    let made = unsafe { libc::syscall(libc::SYS_mq_open, name.as_ptr(), flags, 0o600, attributes) };
    // SAFETY: takes a name. What is open stays.
    unsafe { libc::syscall(libc::SYS_mq_unlink, name.as_ptr()) };
    let number = i32::try_from(made).ok().filter(|number| *number >= 0)?;
    // SAFETY: made above, and nothing else owns it.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

/// All bytes are read at once, without a wait: a queue polls readable when it has
/// messages, and the list of input devices when it has changed.
#[test]
fn a_file_that_polls_for_something_else_is_read_at_once() {
    let name = "a_file_that_polls_for_something_else_is_read_at_once";
    let _dog = watchdog(name);
    let devices = File::open("/proc/bus/input/devices");
    for (what, source) in [
        ("message queues", queue()),
        ("input devices", devices.ok().map(OwnedFd::from)),
    ] {
        let Some(source) = source else {
            testkit::skip::report(name, &format!("no {what} here"));
            continue;
        };
        let mut text = vec![0; 1 << 16];
        let length = rustix::io::pread(&source, &mut text, 0).unwrap();
        text.truncate(length);
        for request in any_and_each(&[cordboard::DataPath::ReadWrite]) {
            for how in 0..4 {
                rustix::fs::seek(&source, rustix::fs::SeekFrom::Start(0)).unwrap();
                let (end, sink) = std::io::pipe().unwrap();
                let request = Request {
                    // The shortest limit: the transfer needs no wait.
                    idle: (how == 1).then_some(Duration::from_nanos(1)),
                    ..request.clone()
                };
                let transfer = Transfer::owning(source.try_clone().unwrap(), sink.into(), request);
                let transfer = transfer.unwrap();
                let report = match how {
                    2 => transfer.control(&Control::new().unwrap()).run().report,
                    3 => transfer.start().unwrap().wait().report,
                    _ => transfer.run().report,
                };
                let what = format!("{what}, {how}: {report:?}");
                assert_eq!(
                    (report.ended, report.written),
                    (Ended::Eof, length as u64),
                    "{what}"
                );
                assert_eq!(content_of(end), text, "{what}");
            }
        }
    }
}

/// `poll(2)` never reports it writable. Each write is a line of the kernel's log.
#[test]
fn the_log_of_the_kernel_takes_records_on_an_engine() {
    let _dog = watchdog("the_log_of_the_kernel_takes_records_on_an_engine");
    let Ok(sink) = std::fs::File::options().write(true).open("/dev/kmsg") else {
        return testkit::skip::here("/dev/kmsg needs root");
    };
    let line = b"cordboard: a test of /dev/kmsg\n";
    for idle in [None, Some(Duration::from_secs(60))] {
        let (source, mut feed) = std::io::pipe().unwrap();
        std::io::Write::write_all(&mut feed, line).unwrap();
        drop(feed);
        let request = Request {
            idle,
            ..Request::default()
        };
        let outcome = match idle {
            None => cordboard::start(&source, &sink, request).unwrap().wait(),
            Some(_) => run(&source, &sink, request),
        };
        let report = &outcome.report;
        assert_eq!(report.ended, Ended::Eof, "{report:?}");
        assert_eq!(report.path, [cordboard::DataPath::ReadWrite]);
        assert_eq!(report.written, line.len() as u64, "{report:?}");
    }
}
