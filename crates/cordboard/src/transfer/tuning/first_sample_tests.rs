//! Tests of what a transfer measures first. The times and the processor times are injected, and the
//! bytes are only counted.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use testkit::needs::{Need, missing};

use super::tests::request;
use super::ways::FEW_WAKE_UPS;
use super::window_tests::At;
use crate::request::{DataPath, Request, Switches};
use crate::transfer::Transfer;

const MIB: u64 = 1 << 20;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Returns whether a transfer of steps of 1 MiB, each of which takes these times in turn, measures
/// read/write at once.
fn leaves_first(times: &[Duration], of_step: Duration) -> bool {
    let source = testkit::file::file_with(b"abc");
    let (sink, _peer) = UnixStream::pair().unwrap();
    // A path that pages take does not block.
    sink.set_nonblocking(true).unwrap();
    // No other test stores a search for these paths from a file.
    let paths = Switches::only(&[DataPath::Splice, DataPath::ReadWrite]);
    let request = Request {
        switches: Some(paths),
        ..request()
    };
    let mut transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
    transfer.flow.mode.share_thread();
    assert!(transfer.current_path().is_ok_and(|path| path.is_some()));
    assert_eq!(transfer.path(), DataPath::Splice);
    let mut now = Duration::from_secs(1000);
    for step in 0..8 {
        assert!(transfer.tuning.is_none());
        now += times[step % times.len()];
        if let Some(first) = &mut transfer.first_sample {
            first.of_steps += of_step;
        }
        transfer.flow.took(MIB);
        transfer.flow.gave(MIB);
        transfer.tune(&mut At(now));
    }
    let tuning = transfer.tuning.as_ref().unwrap();
    let by_copies = tuning.ways.arm(DataPath::ReadWrite, FEW_WAKE_UPS);
    let leaves = Some(tuning.controller.current()) == by_copies;
    assert!(leaves || tuning.controller.current() == tuning.controller.best());
    assert!(transfer.drains() && transfer.first_sample.is_none());
    leaves
}

#[test]
fn a_path_that_spends_its_time_on_wake_ups_is_left_at_once() {
    let name = "a_path_that_spends_its_time_on_wake_ups_is_left_at_once";
    if missing(name, &[Need::Splice]) {
        return;
    }
    let much = Duration::from_micros(700);
    let little = Duration::from_micros(300);
    assert!(leaves_first(&[millis(1)], much));
    assert!(!leaves_first(&[millis(1)], little));
    // The wait of 21 ms is that of an idle peer, and too few bytes follow.
    assert!(leaves_first(&[millis(20)], much));
    assert!(!leaves_first(
        &[millis(1), millis(1), millis(1), millis(21)],
        much
    ));
}
