//! The reader of the sink closes early: every byte is accounted for.

use super::{SOURCES, Switches, some_switches};
use cordboard::{Ended, Errno, Request, Side, Size, Stranded, Transfer};
use proptest::prelude::*;
use std::fs::File;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use testkit::{Source, SourceKind, Spec, watchdog};

#[derive(Debug, Clone, Copy)]
enum Line {
    Pipe,
    Unix,
    Tcp,
}

/// (the end to write to, the end to read from).
fn line(kind: Line) -> (OwnedFd, OwnedFd) {
    match kind {
        Line::Pipe => {
            let (read, write) = rustix::pipe::pipe().unwrap();
            (write, read)
        }
        Line::Unix => {
            let (a, b) = UnixStream::pair().unwrap();
            (a.into(), b.into())
        }
        Line::Tcp => {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (near.into(), listener.accept().unwrap().0.into())
        }
    }
}

/// Reads `most` bytes, or to the end, then hangs up.
fn read_some(far: OwnedFd, most: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A reset counts as an end here.
    let _ = File::from(far).take(most).read_to_end(&mut bytes);
    bytes
}

fn unpack(stranded: Option<Stranded>) -> Vec<u8> {
    match stranded {
        None => Vec::new(),
        Some(Stranded::Buffer(bytes)) => bytes,
        Some(Stranded::Datagrams(datagrams)) => datagrams.concat(),
        Some(Stranded::Pipe(pipe)) => read_some(pipe, u64::MAX),
        Some(other) => panic!("handed back in a new way: {other:?}"),
    }
}

fn run(
    from: SourceKind,
    to: Line,
    total: u64,
    taken: u64,
    switches: Switches,
) -> Result<(), TestCaseError> {
    let _watched = watchdog::watch(format!(
        "{from:?} -> {to:?}, {total}, {taken}, {switches:?}"
    ));
    let source = Source::make(from, &Spec::verify(total)).unwrap();
    let (sink, far) = line(to);
    let reader = std::thread::spawn(move || read_some(far, taken));
    let request = Request {
        size: Size::Eof,
        switches: Some(switches),
        ..Request::default()
    };
    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request);
    let outcome = transfer
        .map_err(|e| TestCaseError::fail(e.to_string()))?
        .run();
    let report = outcome.report;
    drop(sink);
    let came = reader.join().unwrap();
    let handed_back = unpack(outcome.stranded);

    prop_assert_eq!(
        report.read,
        report.written + report.stranded,
        "{:?}",
        report
    );
    prop_assert_eq!(report.stranded, handed_back.len() as u64, "{:?}", report);
    prop_assert!(came.len() as u64 <= report.written, "{:?}", report);
    prop_assert_eq!(source.expect.check(&came), Ok(()));
    let next = source.expect.check_at(report.written, &handed_back);
    prop_assert_eq!(next, Ok(()), "handed back: {:?}", report);
    if from.is_seekable() {
        prop_assert_eq!(report.stranded, 0, "{:?}", report);
        let at = rustix::fs::tell(&source.fd).unwrap();
        prop_assert_eq!(at, report.read, "{:?}", report);
    }
    if report.ended == Ended::Error {
        let gone = [Errno::EPIPE, Errno::ECONNRESET];
        prop_assert_eq!(report.failed, Some(Side::Sink), "{:?}", report);
        prop_assert!(
            report.errno.is_some_and(|e| gone.contains(&e)),
            "{:?}",
            report
        );
    } else {
        prop_assert_eq!(report.written, total, "{:?}", report);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_reader_that_leaves_costs_no_byte(
        from in prop::sample::select(SOURCES.to_vec()),
        to in prop::sample::select(vec![Line::Pipe, Line::Unix, Line::Tcp]),
        total in 0..1_500_000u64,
        taken in 0..600_000u64,
        switches in some_switches(),
    ) {
        run(from, to, total, taken, switches)?;
    }
}
