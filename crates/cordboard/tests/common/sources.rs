//! Byte streams to take from, and pairs of connected descriptors.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use super::bytes::file_with;

/// Kinds of byte streams to take from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    File,
    Pipe,
    Unix,
    Tcp,
}

pub const SOURCES: [From; 4] = [From::File, From::Pipe, From::Unix, From::Tcp];

/// A source that gives `data` and then ends.
pub struct Source {
    pub fd: OwnedFd,
    feeder: Option<JoinHandle<()>>,
}

impl Source {
    pub fn new(kind: From, data: &[u8]) -> Source {
        let (fd, feed): (OwnedFd, OwnedFd) = match kind {
            From::File => {
                return Source {
                    fd: file_with(data).into(),
                    feeder: None,
                };
            }
            From::Pipe => {
                let (reader, writer) = std::io::pipe().unwrap();
                (reader.into(), writer.into())
            }
            From::Unix => {
                let (a, b) = UnixStream::pair().unwrap();
                (a.into(), b.into())
            }
            From::Tcp => {
                let (a, b) = tcp_pair();
                (a.into(), b.into())
            }
        };
        let data = data.to_vec();
        let feeder = std::thread::spawn(move || {
            // Fails if the test closes its end first.
            let _ = File::from(feed).write_all(&data);
        });
        Source {
            fd,
            feeder: Some(feeder),
        }
    }

    /// Reads the rest of the source.
    pub fn rest(self) -> Vec<u8> {
        let mut rest = Vec::new();
        let mut file = File::from(self.fd);
        file.read_to_end(&mut rest).unwrap();
        if let Some(feeder) = self.feeder {
            feeder.join().unwrap();
        }
        rest
    }
}

pub fn tcp_pair() -> (std::net::TcpStream, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let a = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (a, listener.accept().unwrap().0)
}

/// Opens a pseudoterminal: (master, slave).
pub fn pty() -> (OwnedFd, OwnedFd) {
    use rustix::fs::{Mode, OFlags};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let tty = rustix::fs::open(&name, flags, Mode::empty()).unwrap();
    (master, tty)
}

/// Puts a terminal into raw mode: it passes bytes on unchanged.
pub fn raw(tty: &OwnedFd) {
    let mut termios = rustix::termios::tcgetattr(tty).unwrap();
    termios.make_raw();
    rustix::termios::tcsetattr(tty, rustix::termios::OptionalActions::Now, &termios).unwrap();
}
