//! The outcome of a transfer: its report, and its stranded bytes, which the
//! caller can read.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem::MaybeUninit;

use cordboard::{Errno, Origin, Outcome, Report, Stranded};

use crate::checked_fd::CheckedFd;
use crate::error::Error;

/// A transfer that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) report: Report,
    stranded: StrandedBytes,
}

impl Finished {
    pub(crate) fn new(report: Report, stranded: Option<Stranded>) -> Finished {
        Finished {
            stranded: StrandedBytes::new(stranded, report.stranded),
            report,
        }
    }

    /// Reads the next stranded bytes; `ENODATA` after the last.
    pub(crate) fn stranded(&mut self, buffer: &mut [MaybeUninit<u8>]) -> Result<usize, Error> {
        self.stranded.read(buffer)
    }

    /// Returns the report as the line that `cordboard --json` prints.
    pub(crate) fn json(&self) -> Result<String, Error> {
        serde_json::to_string(&self.report)
            .map_err(|error| Error::new(Errno::EINVAL, error.to_string()))
    }
}

impl From<Outcome> for Finished {
    fn from(outcome: Outcome) -> Finished {
        Finished::new(outcome.report, outcome.stranded)
    }
}

#[derive(Debug)]
enum StrandedBytes {
    Nothing,
    /// The read end, and the number of bytes left in the pipe. Reading stops
    /// after this number and not at the end of file: a child of `fork(2)` may
    /// hold the write end.
    Pipe(CheckedFd, u64),
    Bytes(VecDeque<u8>),
    Datagrams(VecDeque<Vec<u8>>),
}

impl StrandedBytes {
    fn new(stranded: Option<Stranded>, bytes: u64) -> StrandedBytes {
        match stranded {
            Some(Stranded::Pipe(pipe)) => StrandedBytes::Pipe(CheckedFd::of_library(pipe), bytes),
            Some(Stranded::Buffer(bytes)) => StrandedBytes::Bytes(bytes.into()),
            Some(Stranded::Datagrams(datagrams)) => StrandedBytes::Datagrams(datagrams.into()),
            _ => StrandedBytes::Nothing,
        }
    }

    fn read(&mut self, buffer: &mut [MaybeUninit<u8>]) -> Result<usize, Error> {
        let read = match self {
            StrandedBytes::Nothing => None,
            StrandedBytes::Pipe(_, 0) => None,
            StrandedBytes::Pipe(..) if buffer.is_empty() => Some(0),
            StrandedBytes::Pipe(pipe, left) => match pipe.fd() {
                // The program has closed the pipe, and the bytes are lost.
                None => None,
                Some(pipe) => {
                    let most = usize::try_from(*left).map_or(buffer.len(), |n| n.min(buffer.len()));
                    let buffer = &mut buffer[..most];
                    let read = rustix::io::retry_on_intr(|| {
                        rustix::io::read(pipe, &mut *buffer).map(|(read, _)| read.len())
                    });
                    let read = match read {
                        // A child has read some of the bytes.
                        Ok(0) | Err(rustix::io::Errno::AGAIN) => None,
                        read => Some(read.map_err(Errno::from)?),
                    };
                    *left = read.map_or(0, |n| *left - n as u64);
                    read
                }
            },
            StrandedBytes::Bytes(bytes) if bytes.is_empty() => None,
            StrandedBytes::Bytes(bytes) => {
                let length = bytes.len().min(buffer.len());
                fill(buffer, bytes.drain(..length));
                Some(length)
            }
            StrandedBytes::Datagrams(datagrams) => match datagrams.front() {
                None => None,
                Some(first) if first.len() > buffer.len() => {
                    return Err(Error::new(
                        Errno::EMSGSIZE,
                        match first.len() {
                            1 => "the next datagram has 1 byte".to_owned(),
                            length => format!("the next datagram has {length} bytes"),
                        },
                    ));
                }
                Some(_) => datagrams.pop_front().map(|first| {
                    let length = first.len();
                    fill(buffer, first);
                    length
                }),
            },
        };
        read.ok_or_else(|| Error::new(Errno::ENODATA, "no more stranded bytes"))
    }
}

fn fill(buffer: &mut [MaybeUninit<u8>], bytes: impl IntoIterator<Item = u8>) {
    for (to, from) in buffer.iter_mut().zip(bytes) {
        to.write(from);
    }
}

thread_local! {
    /// With the process that has run the transfer.
    static LAST: RefCell<Option<(Origin, Finished)>> = const { RefCell::new(None) };
}

/// Stores the outcome of this thread's last synchronous transfer: `CORD_LAST`.
pub(crate) fn set_last(finished: Finished) {
    // While a thread exits, its thread-local values may be gone.
    let _ = LAST.try_with(|last| {
        let before = take_last(last);
        last.replace(Some((Origin::here(), finished)));
        drop(before);
    });
}

/// Takes the last outcome of this process. A child of `fork(2)` forgets that of its parent, and
/// closes nothing: its descriptors may be those of the parent (`clone(2)`, `CLONE_FILES`).
fn take_last(last: &RefCell<Option<(Origin, Finished)>>) -> Option<Finished> {
    let (origin, finished) = last.take()?;
    match origin.is_this_process() {
        true => Some(finished),
        false => {
            std::mem::forget(finished);
            None
        }
    }
}

/// Gives access to the outcome of this thread's last synchronous transfer.
///
/// # Errors
///
/// `EBADF`: this thread has run none in this process.
pub(crate) fn with_last<T>(f: impl FnOnce(&mut Finished) -> Result<T, Error>) -> Result<T, Error> {
    LAST.try_with(|last| match &mut *last.borrow_mut() {
        Some((origin, finished)) if origin.is_this_process() => f(finished),
        _ => Err(no_last()),
    })
    .unwrap_or(Err(Errno::EBADF.into()))
}

/// Frees the last outcome, with its stranded bytes.
///
/// # Errors
///
/// As [`with_last`].
pub(crate) fn close_last() -> Result<(), Error> {
    let last = LAST.try_with(take_last).unwrap_or_default();
    last.map(drop).ok_or_else(no_last)
}

fn no_last() -> Error {
    Error::new(
        Errno::EBADF,
        "CORD_LAST: this thread has run no transfer, or has closed it",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;

    fn read(finished: &mut Finished, most: usize) -> Result<Vec<u8>, Errno> {
        let mut buffer = vec![MaybeUninit::new(0); most];
        let length = finished.stranded(&mut buffer).map_err(|p| p.errno)?;
        // SAFETY: initialised above.
        #[allow(unsafe_code)]
        let bytes = buffer[..length].iter().map(|b| unsafe { b.assume_init() });
        Ok(bytes.collect())
    }

    fn finished(stranded: Stranded) -> Finished {
        let mut report = Report::default();
        report.stranded = 3;
        Finished::new(report, Some(stranded))
    }

    #[test]
    fn every_kind_of_stranded_bytes_is_read_to_its_end() {
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
            "the datagram stays"
        );
        for expected in [&b"abc"[..], b"", b"d"] {
            assert_eq!(read(&mut datagrams, 8).as_deref(), Ok(expected));
        }
        assert_eq!(read(&mut datagrams, 8), Err(Errno::ENODATA));
    }

    /// As if a child of `fork(2)` held the write end: no end of file follows,
    /// and the read does not wait for one. Bytes that a child has read are
    /// missing.
    #[test]
    fn reading_a_pipe_ends_while_its_write_end_is_open() {
        for (may_wait, stolen) in [(false, 0), (false, 1), (true, 0)] {
            let (reader, writer) = rustix::pipe::pipe().unwrap();
            rustix::io::ioctl_fionbio(&reader, !may_wait).unwrap();
            rustix::io::write(&writer, b"abc").unwrap();
            rustix::io::read(&reader, &mut vec![0; stolen]).unwrap();
            let mut finished = finished(Stranded::Pipe(reader));
            assert_eq!(read(&mut finished, 9).map(|b| b.len()), Ok(3 - stolen));
            for _ in 0..2 {
                assert_eq!(read(&mut finished, 9), Err(Errno::ENODATA));
            }
            drop(writer);
        }
    }

    /// The program closes all descriptors while bytes are kept in a pipe, and
    /// opens its own file under that number: it is neither read nor closed.
    #[test]
    fn a_file_under_the_number_of_the_pipe_is_left_alone() {
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
                let mut finished = finished(Stranded::Pipe(reader));
                testkit::child::replace(number, own.as_fd());
                if reads {
                    assert_eq!(read(&mut finished, 2), Err(Errno::ENODATA));
                }
                drop(finished);
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
