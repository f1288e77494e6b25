//! What is left of a transfer that has ended: its account, and the bytes that
//! were read and not written, to be read back.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem::MaybeUninit;

use cordboard::{Errno, Outcome, Report, Stranded};

use crate::guard::Problem;
use crate::kept::Kept;

/// A transfer that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) report: Report,
    remains: Remains,
}

impl Finished {
    pub(crate) fn new(report: Report, stranded: Option<Stranded>) -> Finished {
        Finished {
            remains: Remains::new(stranded, report.stranded),
            report,
        }
    }

    /// The next of what was stranded; `ENODATA` after the last.
    pub(crate) fn stranded(&mut self, room: &mut [MaybeUninit<u8>]) -> Result<usize, Problem> {
        self.remains.read(room)
    }

    /// The report as the command's JSON line has it.
    pub(crate) fn json(&self) -> Result<String, Problem> {
        serde_json::to_string(&self.report)
            .map_err(|error| Problem::new(Errno::EINVAL, error.to_string()))
    }
}

impl From<Outcome> for Finished {
    fn from(outcome: Outcome) -> Finished {
        Finished::new(outcome.report, outcome.stranded)
    }
}

#[derive(Debug)]
enum Remains {
    Nothing,
    /// With the number of bytes that are left in it. Its end is not to be
    /// waited for: a child of `fork(2)` may have its write end.
    Pipe(Kept, u64),
    Bytes(VecDeque<u8>),
    Datagrams(VecDeque<Vec<u8>>),
}

impl Remains {
    fn new(stranded: Option<Stranded>, bytes: u64) -> Remains {
        match stranded {
            Some(Stranded::Pipe(pipe)) => Remains::Pipe(Kept::new(pipe), bytes),
            Some(Stranded::Buffer(bytes)) => Remains::Bytes(bytes.into()),
            Some(Stranded::Datagrams(datagrams)) => Remains::Datagrams(datagrams.into()),
            _ => Remains::Nothing,
        }
    }

    fn read(&mut self, room: &mut [MaybeUninit<u8>]) -> Result<usize, Problem> {
        let read = match self {
            Remains::Nothing => None,
            Remains::Pipe(_, 0) => None,
            Remains::Pipe(..) if room.is_empty() => Some(0),
            Remains::Pipe(pipe, left) => match pipe.fd() {
                // The host has closed it, with what was in it.
                None => None,
                Some(pipe) => {
                    let most = usize::try_from(*left).map_or(room.len(), |n| n.min(room.len()));
                    let room = &mut room[..most];
                    let read = rustix::io::retry_on_intr(|| {
                        rustix::io::read(pipe, &mut *room).map(|(read, _)| read.len())
                    });
                    let read = match read {
                        // A child has read some of them.
                        Ok(0) | Err(rustix::io::Errno::AGAIN) => None,
                        read => Some(read.map_err(Errno::from)?),
                    };
                    *left = read.map_or(0, |n| *left - n as u64);
                    read
                }
            },
            Remains::Bytes(bytes) if bytes.is_empty() => None,
            Remains::Bytes(bytes) => {
                let length = bytes.len().min(room.len());
                fill(room, bytes.drain(..length));
                Some(length)
            }
            Remains::Datagrams(datagrams) => match datagrams.front() {
                None => None,
                Some(first) if first.len() > room.len() => {
                    return Err(Problem::new(
                        Errno::EMSGSIZE,
                        format!("the next datagram has {} bytes", first.len()),
                    ));
                }
                Some(_) => datagrams.pop_front().map(|first| {
                    let length = first.len();
                    fill(room, first);
                    length
                }),
            },
        };
        read.ok_or_else(|| Problem::new(Errno::ENODATA, "nothing more was stranded"))
    }
}

fn fill(room: &mut [MaybeUninit<u8>], bytes: impl IntoIterator<Item = u8>) {
    for (to, from) in room.iter_mut().zip(bytes) {
        to.write(from);
    }
}

thread_local! {
    static LAST: RefCell<Option<Finished>> = const { RefCell::new(None) };
}

/// Keeps what this thread waited for: `CORD_LAST`.
pub(crate) fn keep(finished: Finished) {
    // A thread whose locals are gone already asks for nothing more.
    let _ = LAST.try_with(|last| last.replace(Some(finished)));
}

/// What this thread last waited for.
///
/// # Errors
///
/// `EBADF` where it has not waited for any.
pub(crate) fn with_last<T>(
    f: impl FnOnce(&mut Finished) -> Result<T, Problem>,
) -> Result<T, Problem> {
    LAST.try_with(|last| match &mut *last.borrow_mut() {
        Some(finished) => f(finished),
        None => Err(none()),
    })
    .unwrap_or(Err(Errno::EBADF.into()))
}

/// Lets it go, with what was stranded.
///
/// # Errors
///
/// As [`with_last`].
pub(crate) fn close_last() -> Result<(), Problem> {
    let last = LAST.try_with(RefCell::take).unwrap_or_default();
    last.map(drop).ok_or_else(none)
}

fn none() -> Problem {
    Problem::new(
        Errno::EBADF,
        "CORD_LAST: this thread has run no transfer, or has closed it",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;

    fn read(finished: &mut Finished, most: usize) -> Result<Vec<u8>, Errno> {
        let mut room = vec![MaybeUninit::new(0); most];
        let length = finished.stranded(&mut room).map_err(|p| p.errno)?;
        // SAFETY: initialised above.
        #[allow(unsafe_code)]
        let bytes = room[..length].iter().map(|b| unsafe { b.assume_init() });
        Ok(bytes.collect())
    }

    fn finished(stranded: Stranded) -> Finished {
        let mut report = Report::default();
        report.stranded = 3;
        Finished::new(report, Some(stranded))
    }

    #[test]
    fn every_kind_of_remains_is_read_to_its_end() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        rustix::io::write(&writer, b"abc").unwrap();
        drop(writer);
        for mut stream in [
            finished(Stranded::Pipe(reader)),
            finished(Stranded::Buffer(b"abc".to_vec())),
        ] {
            assert_eq!(read(&mut stream, 2).as_deref(), Ok(&b"ab"[..]));
            assert_eq!(read(&mut stream, 0).as_deref(), Ok(&b""[..]));
            assert_eq!(read(&mut stream, 2).as_deref(), Ok(&b"c"[..]));
            assert_eq!(read(&mut stream, 2), Err(Errno::ENODATA));
        }
        let three = vec![b"abc".to_vec(), Vec::new(), b"d".to_vec()];
        let mut datagrams = finished(Stranded::Datagrams(three));
        assert_eq!(
            read(&mut datagrams, 2),
            Err(Errno::EMSGSIZE),
            "it stays whole"
        );
        for expected in [&b"abc"[..], b"", b"d"] {
            assert_eq!(read(&mut datagrams, 8).as_deref(), Ok(expected));
        }
        assert_eq!(read(&mut datagrams, 8), Err(Errno::ENODATA));
    }

    /// As where a child of `fork(2)` has it: no end follows, and none is waited
    /// for. What a child has read is gone.
    #[test]
    fn what_is_kept_in_a_pipe_ends_while_somebody_can_write() {
        for (may_wait, stolen) in [(false, 0), (false, 1), (true, 0)] {
            let (reader, writer) = rustix::pipe::pipe().unwrap();
            rustix::io::ioctl_fionbio(&reader, !may_wait).unwrap();
            rustix::io::write(&writer, b"abc").unwrap();
            rustix::io::read(&reader, &mut vec![0; stolen]).unwrap();
            let mut kept = finished(Stranded::Pipe(reader));
            assert_eq!(read(&mut kept, 9).map(|b| b.len()), Ok(3 - stolen));
            for _ in 0..2 {
                assert_eq!(read(&mut kept, 9), Err(Errno::ENODATA));
            }
            drop(writer);
        }
    }

    /// The host closes all descriptors while bytes are kept in a pipe, and has
    /// its own file under that number: it is neither read nor closed.
    #[test]
    fn what_the_host_has_closed_is_left_alone() {
        use std::os::fd::{AsFd, AsRawFd};
        for reads in [false, true] {
            assert!(testkit::child::in_a_child(|| {
                let (reader, writer) = rustix::pipe::pipe().unwrap();
                rustix::io::write(&writer, b"abc").unwrap();
                drop(writer);
                let own = tempfile::tempfile().unwrap();
                rustix::io::write(&own, b"own").unwrap();
                rustix::fs::seek(&own, rustix::fs::SeekFrom::Start(0)).unwrap();
                let number = sys::lend(reader.as_raw_fd()).unwrap();
                let mut kept = finished(Stranded::Pipe(reader));
                testkit::child::replace(number, own.as_fd());
                if reads {
                    assert_eq!(read(&mut kept, 2), Err(Errno::ENODATA));
                }
                drop(kept);
                rustix::fs::tell(number) == Ok(0)
            }));
        }
    }

    #[test]
    fn a_thread_that_ran_nothing_has_no_last() {
        let other = std::thread::spawn(|| with_last(|_| Ok(())).map_err(|p| p.errno));
        assert_eq!(other.join().unwrap(), Err(Errno::EBADF));
    }
}
