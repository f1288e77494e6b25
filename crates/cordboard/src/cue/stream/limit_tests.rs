//! Limits of bytes, and transfers that wait.

use std::io::Write as _;
use std::os::fd::AsFd;
use std::time::Duration;

use testkit::file::file_with;

use super::left_tests::{end_until, is_idle};
use super::tests::{command, serve};
use crate::cue::Cue;
use crate::cue::protocol::{Command, Done, Limit, Record};
use crate::errno::Errno;
use crate::report::Ended;

fn limit(bytes: u64) -> Command {
    Command::Limit(Limit::Bytes(bytes))
}

/// Returns the ends of the transfers so far.
fn ends(cue: &mut Cue) -> Vec<Done> {
    rustix::io::ioctl_fionbio(&*cue, true).unwrap();
    let mut ends = Vec::new();
    while let Ok(Some(record)) = cue.receive() {
        if let Record::Done(done) = record {
            ends.push(done);
        }
    }
    ends
}

/// The first one reads less than the limit permits.
#[test]
fn each_transfer_to_the_end_gets_the_bytes_that_those_before_it_leave() {
    let (source, sink) = (file_with(&[7; 400]), file_with(b""));
    let (mut cue, mut stream) = serve(source.as_fd(), sink.as_fd());
    let copy = [Command::SourceOffset(0), Command::WriteToEnd];
    let all = [&[limit(1000)][..], &copy, &copy, &copy, &copy].concat();
    command(&cue, &mut stream, &all);
    end_until(&mut stream, Duration::ZERO, |stream| {
        is_idle(stream) && stream.queue.is_empty()
    });
    let ends = ends(&mut cue);
    let ends: Vec<_> = ends.iter().map(|d| (d.ended, d.errno, d.read)).collect();
    let forbidden = (Ended::Error, Some(Errno::EPERM), 0);
    let (whole, part) = ((Ended::Eof, None, 400), (Ended::Size, None, 200));
    assert_eq!(ends, [whole, whole, part, forbidden]);
}

/// It is cancelled, and has not ended when the limit is set.
#[test]
fn a_transfer_that_fits_behind_a_cancelled_one_starts() {
    let (source, mut feed) = std::io::pipe().unwrap();
    let sink = file_with(b"");
    let (mut cue, mut stream) = serve(source.as_fd(), sink.as_fd());
    command(&cue, &mut stream, &[Command::Write(1000)]);
    let next = [Command::Cancel, Command::Write(500), limit(1000)];
    command(&cue, &mut stream, &next);
    end_until(&mut stream, Duration::ZERO, |stream| {
        stream.queue.is_empty()
    });
    feed.write_all(&[7; 500]).unwrap();
    end_until(&mut stream, Duration::ZERO, is_idle);
    let ends = ends(&mut cue);
    let ends: Vec<_> = ends.iter().map(|d| (d.ended, d.errno, d.read)).collect();
    assert_eq!(
        ends,
        [(Ended::Cancelled, None, 0), (Ended::Size, None, 500)]
    );
}
