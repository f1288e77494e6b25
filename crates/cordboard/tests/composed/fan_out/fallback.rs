//! Refused calls: the bytes go through a buffer.

use std::os::fd::OwnedFd;

use cordboard::fan_out::Carry;
use cordboard::request::Why;
use cordboard::{DataPath, Errno, Request, Switches};

use super::readers::{audit, fan, joined, pipes, read_all, request};
use crate::common::{MIB, content, file_with, pattern, watchdog};

#[test]
fn a_buffer_is_used_where_tee_or_splice_is_refused() {
    let _dog = watchdog("a_buffer_is_used_where_tee_or_splice_is_refused");
    let data = pattern(2 * MIB + 7);
    for calls in [
        &[libc::SYS_tee][..],
        &[libc::SYS_splice],
        &[libc::SYS_tee, libc::SYS_splice],
    ] {
        for errno in [libc::ENOSYS, libc::EPERM] {
            let source = file_with(&data);
            let (readers, mut sinks) = pipes(2);
            let file = file_with(b"");
            sinks.insert(1, OwnedFd::from(file.try_clone().unwrap()));
            let readers = read_all(readers);
            let outcome = testkit::refuse::apart(|| {
                testkit::refuse::refuse(calls, errno);
                fan(&source, &sinks).run().unwrap()
            });
            drop(sinks);
            assert!(outcome.is_complete(), "{calls:?} {errno}: {outcome:?}");
            assert!(joined(readers).iter().all(|got| *got == data), "{calls:?}");
            assert!(content(&file) == data, "{calls:?}");
            let sinks = audit(outcome);
            let why = Why::from(Errno::from_raw(errno));
            if calls.contains(&libc::SYS_tee) {
                for (sink, _) in &sinks[..2] {
                    assert_eq!(sink.carried, [Carry::Write]);
                }
                // The block is in a buffer before the second sink gets it.
                assert_eq!(sinks[0].0.declined, Some((Carry::Tee, why)));
            } else {
                // The last sink takes pages by splice(2), which is refused. If the user's pipes
                // leave no room for a block in those before, the block is in a buffer already.
                let is_written = |sink: usize| sinks[sink].0.carried.contains(&Carry::Write);
                if ![0, 1].into_iter().any(is_written) {
                    assert_eq!(sinks[2].0.declined, Some((Carry::Splice, why)));
                }
                assert!(sinks[2].0.carried.contains(&Carry::Write));
            }
        }
    }
}

#[test]
fn a_request_without_splice_passes_no_pages() {
    let _dog = watchdog("a_request_without_splice_passes_no_pages");
    let data = pattern(MIB + 7);
    let source = file_with(&data);
    let (readers, writers) = pipes(2);
    let readers = read_all(readers);
    let without = Request {
        switches: Some(Switches::only(&[DataPath::ReadWrite])),
        ..Request::default()
    };
    let outcome = request(&source, &writers, without).run().unwrap();
    drop(writers);
    assert_eq!(outcome.source.path, [DataPath::ReadWrite]);
    assert!(joined(readers).iter().all(|got| *got == data));
    for (sink, _) in audit(outcome) {
        assert_eq!(sink.carried, [Carry::Write]);
        let turned_off = (Carry::Splice, Why::from("turned off"));
        assert_eq!(sink.declined, Some(turned_off));
    }
}
