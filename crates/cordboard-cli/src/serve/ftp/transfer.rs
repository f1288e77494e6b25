//! Commands that use a data connection.

use std::fs::File;
use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cordboard::{Errno, Side, Stage};
use rustix::event::{PollFd, PollFlags};
use rustix::net::sockopt;

use super::ascii::{FromNetwork, ToNetwork};
use super::carry::{Carried, carry};
use super::data::{self, NoConnection};
use super::listing::{self, Kind};
use super::root::Upload;
use super::session::{Session, Step};
use super::tls::{Direction, Pump};

/// Names that STOU tries.
const TRIES: u32 = 1000;

impl Session {
    pub(super) fn list(&mut self, path: &[u8], kind: Kind) -> Step {
        let writes = self.user.as_ref().is_some_and(|user| user.writes);
        let text = listing::listing(&self.server.root, &self.here.join(path), kind, writes);
        let text = match text {
            Ok(text) => text,
            Err(error) => return self.failed(path, &error),
        };
        let socket = match self.data()? {
            Ok(socket) => socket,
            Err(step) => return step,
        };
        self.say(150, "Here is the list")?;
        let sent = match self.send_text(socket, &text) {
            Ok(()) => return self.say(226, "Sent"),
            Err(error) => error,
        };
        self.say(426, &sent.to_string())
    }

    /// Sends a short text over a data connection.
    fn send_text(&self, socket: TcpStream, text: &[u8]) -> io::Result<()> {
        socket.set_write_timeout(Some(self.server.idle))?;
        socket.set_read_timeout(Some(self.server.idle))?;
        let Some(config) = self.encryption() else {
            (&socket).write_all(text)?;
            return socket.shutdown(Shutdown::Write);
        };
        let (pump, mut ours) = Pump::start(&config, socket, Direction::ToClient)?;
        let written = ours.write_all(text);
        pump.finish(ours, written.is_ok())
    }

    fn encryption(&self) -> Option<Arc<rustls::ServerConfig>> {
        self.server.tls.clone().filter(|_| self.private)
    }

    /// Makes the data connection; or answers why not.
    fn data(&mut self) -> io::Result<Result<TcpStream, Step>> {
        let mode = std::mem::take(&mut self.mode);
        if self.server.require_tls && !self.private {
            return Ok(Err(self.say(521, "PROT P first")));
        }
        let server = Arc::clone(&self.server);
        let ended = [PollFd::from_borrowed_fd(
            server.ending.as_fd(),
            PollFlags::IN,
        )];
        Ok(match data::connect(mode, self.client, &ended) {
            Ok(socket) => Ok(socket),
            Err(NoConnection::Unset) => Err(self.say(425, "PASV, EPSV, PORT or EPRT first")),
            Err(NoConnection::Failed(error)) => Err(self.say(425, &error.to_string())),
            Err(NoConnection::Ended) => Err(self.say(425, "The server ends")),
        })
    }

    pub(super) fn retrieve(&mut self, path: &[u8], offset: u64) -> Step {
        let file = match self.server.root.read(&self.here.join(path), offset) {
            Ok(file) => file,
            Err(error) => return self.failed(path, &error),
        };
        self.transfer("RETR", path, file, Direction::ToClient)
    }

    pub(super) fn store(&mut self, path: &[u8], upload: Upload) -> Step {
        if let Some(step) = self.refuses_to_write() {
            return step;
        }
        let file = match self.server.root.write(&self.here.join(path), upload) {
            Ok(file) => file,
            Err(error) => return self.failed(path, &error),
        };
        let verb = if upload == Upload::Append {
            "APPE"
        } else {
            "STOR"
        };
        self.transfer(verb, path, file, Direction::FromClient)
    }

    pub(super) fn store_unique(&mut self) -> Step {
        if let Some(step) = self.refuses_to_write() {
            return step;
        }
        for number in 1..=TRIES {
            let name = format!("upload.{number}");
            match self
                .server
                .root
                .write(&self.here.join(name.as_bytes()), Upload::New)
            {
                Ok(file) => {
                    return self.transfer("STOU", name.as_bytes(), file, Direction::FromClient);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return self.failed(name.as_bytes(), &error),
            }
        }
        self.say(450, "No free name was found")
    }

    /// Moves the bytes of a file over a data connection, and answers.
    fn transfer(&mut self, verb: &str, path: &[u8], file: File, direction: Direction) -> Step {
        let socket = match self.data()? {
            Ok(socket) => socket,
            Err(step) => return step,
        };
        let shown = self.here.join(path).shown();
        let mut text = match (verb, self.ascii) {
            ("STOU", _) => b"FILE: ".to_vec(),
            (_, true) => b"ASCII, through user space: ".to_vec(),
            (_, false) => b"Binary: ".to_vec(),
        };
        text.extend_from_slice(match verb {
            "STOU" => path,
            _ => &shown,
        });
        self.lines.reply(150, &text)?;
        let start = Instant::now();
        let carried = self.carry(file, &socket, direction);
        let elapsed = start.elapsed();
        let complete = matches!(&carried, Ok(carried) if carried.complete && !carried.aborted);
        if complete {
            let _ = socket.shutdown(Shutdown::Write);
        } else {
            // A reset: the client must not take this for the end of the file.
            let _ = sockopt::set_socket_linger(&socket, Some(Duration::ZERO));
        }
        drop(socket);
        let (code, text) = answer(&carried, elapsed);
        let carried = carried.unwrap_or_default();
        let by = match (carried.path, self.encryption()) {
            (_, Some(_)) => "TLS, through user space".to_owned(),
            (Some(path), None) => path.to_string(),
            (None, None) => "-".to_owned(),
        };
        self.log(&format!(
            "{verb} {} {} bytes {:.3} s by {by}: {}",
            String::from_utf8_lossy(&shown),
            carried.written,
            elapsed.as_secs_f64(),
            if complete { "complete" } else { &text }
        ));
        if carried.aborted {
            self.say(code, &text)?;
            return self.say(226, "Aborted");
        }
        self.say(code, &text)
    }

    fn carry(
        &mut self,
        file: File,
        socket: &TcpStream,
        direction: Direction,
    ) -> io::Result<Carried> {
        let stage = self.ascii.then(|| match direction {
            Direction::ToClient => Stage::transforming(ToNetwork::default()),
            Direction::FromClient => Stage::transforming(FromNetwork::default()),
        });
        let file = OwnedFd::from(file);
        let ends = |file: OwnedFd, network: OwnedFd| match direction {
            Direction::ToClient => (file, network),
            Direction::FromClient => (network, file),
        };
        let server = Arc::clone(&self.server);
        let Some(config) = self.encryption() else {
            // So that pages are spliced: a call on a blocking socket could not be cancelled.
            socket.set_nonblocking(true)?;
            let network = OwnedFd::from(socket.try_clone()?);
            return Ok(carry(&server, &mut self.lines, ends(file, network), stage));
        };
        let (pump, ours) = Pump::start(&config, socket.try_clone()?, direction)?;
        let network = OwnedFd::from(ours.try_clone()?);
        let mut carried = carry(&server, &mut self.lines, ends(file, network), stage);
        if let Err(error) = pump.finish(ours, carried.complete) {
            let network = match direction {
                Direction::ToClient => Side::Sink,
                Direction::FromClient => Side::Source,
            };
            carried.complete = false;
            if carried.errno.is_none() {
                let errno = rustix::io::Errno::from_io_error(&error);
                (carried.failed, carried.errno) = (
                    Some(network),
                    Some(match errno {
                        Some(errno) => errno.into(),
                        // The end of the connection without the end of TLS.
                        None => Errno::ECONNRESET,
                    }),
                );
            }
        }
        Ok(carried)
    }
}

/// The reply to a transfer.
fn answer(carried: &io::Result<Carried>, elapsed: Duration) -> (u16, String) {
    let carried = match carried {
        Ok(carried) => carried,
        Err(error) => return (451, error.to_string()),
    };
    let written = carried.written;
    if carried.aborted {
        return (426, format!("Aborted after {written} bytes"));
    }
    if carried.complete {
        let seconds = elapsed.as_secs_f64();
        return (226, format!("{written} bytes in {seconds:.3} s"));
    }
    if carried.idle {
        return (
            426,
            format!("Nothing has moved for too long, after {written} bytes"),
        );
    }
    let text = match carried.errno {
        Some(errno) => format!("{errno}, after {written} bytes"),
        None => format!("Ended after {written} bytes"),
    };
    let code = match carried.errno {
        Some(Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG) => 452,
        Some(Errno::EPIPE | Errno::ECONNRESET | Errno::ETIMEDOUT) | None => 426,
        Some(_) => 451,
    };
    (code, text)
}
