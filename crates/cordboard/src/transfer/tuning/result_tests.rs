//! Tests of what a transfer that measures reports, and stores for later ones, and of when direct I/O
//! measures.

use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use testkit::file::file_with;
use testkit::needs::{Need, missing};

use super::tests::request;
use super::ways::{PIECES, Ways};
use crate::report::Chosen;
use crate::request::{DataPath, Request, Switches, Tune};
use crate::transfer::Transfer;

/// Transfers from another file system do not begin with what was found.
#[test]
fn a_result_is_of_the_file_system_of_the_source() {
    let (sink, _peer) = UnixStream::pair().unwrap();
    let (pipe, _feed) = std::io::pipe().unwrap();
    let file = file_with(b"abc");
    let device_of = |source: &dyn AsFd| {
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request()).unwrap();
        transfer.key().device
    };
    let device = rustix::fs::fstat(&file).unwrap().st_dev;
    assert_eq!(device_of(&file), Some(device));
    assert_eq!(device_of(&pipe), None);
}

/// A request that chooses the path or the block also fixes the blocks of direct I/O.
#[test]
fn direct_io_is_not_measured_if_the_request_leaves_no_choice() {
    let (source, sink) = (file_with(b"abc"), file_with(b""));
    let adapts = |request: Request| {
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
        (transfer.flow.options.tunes, transfer.route.choices.len())
    };
    let (is_adapted, paths) = adapts(request());
    assert_eq!(is_adapted, paths > 1);
    let one_path = Request {
        switches: Some(Switches::only(&[DataPath::ReadWrite])),
        ..request()
    };
    assert_eq!(adapts(one_path), (false, 1));
    let block = Request {
        block: NonZeroUsize::new(1 << 20),
        ..request()
    };
    assert_eq!(adapts(block), (false, paths));
    let off = Request {
        tune: Some(Tune::Off),
        ..request()
    };
    assert_eq!(adapts(off), (false, paths));
}

/// Returns a request whose paths, from a file to a socket, are those of no other test of this
/// process.
fn without_splice() -> Request {
    Request {
        switches: Some(Switches::all().without(DataPath::Splice)),
        ..request()
    }
}

/// Its path stays, and smaller calls are faster than the first ones: the report has their size, and
/// the bytes that were moved until they were found. Without a measurement it has neither.
#[test]
fn the_report_has_the_best_size_of_the_only_path() {
    if missing(
        "the_report_has_the_best_size_of_the_only_path",
        &[Need::Sendfile],
    ) {
        return;
    }
    const STEP: u64 = 32 << 20;
    const FASTEST: usize = 3;
    let file = file_with(&[7; 1 << 20]);
    let (sink, _peer) = UnixStream::pair().unwrap();
    sink.set_nonblocking(true).unwrap();
    for steps in [1, 4000] {
        let mut transfer = Transfer::new(file.as_fd(), sink.as_fd(), without_splice()).unwrap();
        assert!(transfer.current_path().is_ok_and(|path| path.is_some()));
        let path = transfer.path();
        let mut now = Duration::from_secs(1000);
        let mut tuning = Box::new(transfer.start_tuning(now).unwrap());
        tuning.ends_at = u64::MAX;
        // No other path is entered, and nothing is stored for other transfers.
        tuning.ways.refuse(DataPath::ReadWrite);
        transfer.tuning = Some(tuning);
        for _ in 0..steps {
            transfer.change_way();
            let arm = transfer.tuning.as_ref().unwrap().controller.current();
            now += Duration::from_millis(10 + 3 * Ways::piece(arm).abs_diff(FASTEST) as u64);
            let before = transfer.flow.read();
            transfer.flow.took(STEP);
            transfer.flow.gave(STEP);
            transfer.used.note(path, before, transfer.flow.read());
            transfer.measure(now);
        }
        let (read, used) = (transfer.flow.read(), transfer.by_path());
        let [one] = &used[..] else {
            panic!("{used:?}");
        };
        assert_eq!((one.path, one.bytes, one.depth), (path, read, None));
        if steps == 1 {
            let nothing = (Chosen::First, None, None);
            assert_eq!((one.chosen, one.piece, one.after), nothing);
        } else {
            let fastest = PIECES[FASTEST];
            assert_eq!((one.chosen, one.piece), (Chosen::Best, Some(fastest)));
            assert!(
                one.after
                    .is_some_and(|after| (1..read / 2).contains(&after))
            );
        }
    }
}

/// It has not been measured: the path before it has declined.
#[test]
fn a_path_after_one_that_has_declined_is_the_next() {
    if missing(
        "a_path_after_one_that_has_declined_is_the_next",
        &[Need::Sendfile],
    ) {
        return;
    }
    let file = file_with(b"abc");
    let (sink, _peer) = UnixStream::pair().unwrap();
    sink.set_nonblocking(true).unwrap();
    let mut transfer = Transfer::new(file.as_fd(), sink.as_fd(), without_splice()).unwrap();
    assert!(transfer.current_path().is_ok_and(|path| path.is_some()));
    let first = transfer.path();
    transfer.used.note(first, 0, 1);
    let tuning = transfer.start_tuning(Duration::from_secs(1000));
    transfer.tuning = tuning.map(Box::new);
    assert!(transfer.tuning.is_some());
    transfer.current = None;
    assert!(transfer.current_path().is_ok_and(|path| path.is_some()));
    let next = transfer.path();
    transfer.used.note(next, 1, 3);
    let chosen: Vec<_> = (transfer.used.take(3).iter())
        .map(|one| (one.path, one.chosen))
        .collect();
    assert_eq!(chosen, [(first, Chosen::First), (next, Chosen::Next)]);
}
