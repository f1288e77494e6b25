//! Commands that use a data connection.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cordboard::{Errno, Side, Stage};
use rustix::event::PollFlags;
use rustix::net::sockopt;

use super::ascii::{FromNetwork, ToNetwork};
use super::asked::{Asked, so_far};
use super::budget::Share;
use super::carry::{Carried, carry};
use super::data::{self, Mode, NoConnection};
use super::lines::Lines;
use super::listing::{self, Kind};
use super::log;
use super::mover::Truncate;
use super::progress::{self, Client, Progress};
use super::root::Running;
use super::server::Server;
use super::session::{Next, Session, Step};
use super::tls::{self, Direction, Pump, Replaced};
use super::waiting::{self, Waited};
use crate::signals::Interrupted;
use crate::{endpoint, sys, units};

/// The reply to STAT before the data connection is made.
const UNCONNECTED: &str = "Waiting for the data connection";

/// The purpose of a data connection.
pub(super) struct Job<'a> {
    pub(super) verb: &'static str,
    pub(super) path: &'a [u8],
    pub(super) direction: Direction,
    /// Line ends are converted.
    pub(super) converts: bool,
    /// The content of the file is replaced.
    pub(super) replaces: bool,
    pub(super) upload: Option<Running>,
}

impl Session {
    pub(super) fn list(&mut self, argument: &[u8], kind: Kind) -> Step {
        self.rest = 0;
        // A listing may take long.
        if let Some(step) = self.refuses_data() {
            return step;
        }
        let root = &self.server.root;
        let path = match kind {
            Kind::Long | Kind::Names => listing::without_options(root, &self.here, argument),
            Kind::Machine => Ok(argument),
        };
        let path = match path {
            Ok(path) => path,
            Err(error) => return self.failed(argument, &error),
        };
        let writes = self.user.as_ref().is_some_and(|user| user.writes);
        let share = Share::none_of(&self.server.listings, self.client);
        let listing = listing::listing((root, share), &self.here, path, kind, writes);
        let (text, _share) = match listing {
            Ok(text) => text,
            Err(error) => {
                let about = root.listed_metadata(&self.here.join(path));
                let is_file = about.is_ok_and(|about| !about.is_dir());
                return match kind {
                    // RFC 3659, 7.2.1.
                    Kind::Machine if is_file => self.failed_with(501, path, &error),
                    _ => self.failed(path, &error),
                };
            }
        };
        let file = match in_memory(&text) {
            Ok(file) => file,
            // It says nothing about the directory: 550 would mean that it does not exist.
            Err(error) => return self.failed_with(451, path, &error),
        };
        drop(text);
        let verb = match kind {
            Kind::Long => "LIST",
            Kind::Names => "NLST",
            Kind::Machine => "MLSD",
        };
        let job = Job {
            verb,
            path,
            direction: Direction::ToClient,
            converts: false,
            replaces: false,
            upload: None,
        };
        match self.data()? {
            Ok(socket) => self.transfer(&job, file, socket),
            Err(step) => step,
        }
    }

    pub(super) fn encryption(&self) -> Option<Arc<rustls::ServerConfig>> {
        self.server.tls.clone().filter(|_| self.private)
    }

    /// Replies with the reason why no data connection can be made.
    fn refuses_data(&mut self) -> Option<Step> {
        if self.server.require_tls && !self.private {
            self.mode = Mode::Unset;
            return Some(self.say(521, "Send PROT P first"));
        }
        match self.mode {
            Mode::Unset => Some(self.say(425, "Send PASV, EPSV, PORT or EPRT first")),
            Mode::Passive(_) | Mode::Active(_) => None,
        }
    }

    /// Makes the data connection, or replies with the reason for its failure.
    pub(super) fn data(&mut self) -> io::Result<Result<TcpStream, Step>> {
        if let Some(step) = self.refuses_data() {
            return Ok(Err(step));
        }
        let mode = std::mem::take(&mut self.mode);
        let server = Arc::clone(&self.server);
        let until = Instant::now() + data::PATIENCE.min(server.idle);
        let mut asked = Asked::default();
        let mut wait = |fd: BorrowedFd<'_>, events| {
            let control = (&mut self.lines, &mut asked, UNCONNECTED);
            let ending = Some(server.ending.as_fd());
            waiting::wait(ending, control, Some((fd, events)), until)
        };
        let done = data::connect(mode, (self.local, self.client), &mut wait);
        asked.finish(&mut self.lines, UNCONNECTED);
        let why = match done {
            Ok(socket) => return Ok(Ok(socket)),
            Err(NoConnection::Failed(error)) => error.to_string(),
            Err(NoConnection::Waited(Waited::Aborted)) => {
                self.say(425, "Aborted before the data connection was made")?;
                return Ok(Err(self.say(226, "Aborted")));
            }
            Err(NoConnection::Waited(Waited::Closed)) => return Ok(Err(Ok(Next::Quit))),
            Err(NoConnection::Waited(Waited::Ending)) => "The server is shutting down".to_owned(),
            Err(NoConnection::Waited(_)) => "No data connection was made in time".to_owned(),
        };
        Ok(Err(self.say(425, &why)))
    }

    pub(super) fn retrieve(&mut self, path: &[u8]) -> Step {
        let offset = std::mem::take(&mut self.rest);
        let read = || self.server.root.read(&self.here.join(path), offset);
        let file = match self.is_name_of_file(path).and_then(|()| read()) {
            Ok(file) => file,
            Err(error) => return self.failed(path, &error),
        };
        let job = Job {
            verb: "RETR",
            path,
            direction: Direction::ToClient,
            converts: self.ascii,
            replaces: false,
            upload: None,
        };
        match self.data()? {
            Ok(socket) => self.transfer(&job, file, socket),
            Err(step) => step,
        }
    }

    /// Moves the bytes of a file over a data connection, and replies.
    pub(super) fn transfer(&mut self, job: &Job<'_>, file: File, socket: TcpStream) -> Step {
        let shown = self.here.join(job.path).shown();
        let through = match (job.converts, self.encryption().is_some()) {
            (true, true) => ", ASCII and TLS through user space",
            (true, false) => ", ASCII through user space",
            (false, true) => ", TLS through user space",
            (false, false) => "",
        };
        let mut text = match job.verb {
            // RFC 1123, 4.1.2.9.
            "STOU" => [b"FILE: ", job.path].concat(),
            _ => shown.clone(),
        };
        if job.verb != "STOU" {
            text.extend_from_slice(through.as_bytes());
        }
        // A normal close would mean the end of the file. Until all bytes are moved, each close
        // is a reset, even that by the end of the process (`tcp_close()`, net/ipv4/tcp.c).
        if let Err(errno) = sockopt::set_socket_linger(&socket, Some(Duration::ZERO)) {
            self.remove_new(job);
            return self.failed(job.path, &errno.into());
        }
        if let Err(error) = self.lines.reply(150, &text) {
            self.remove_new(job);
            return Err(error);
        }
        let start = Instant::now();
        let mut carried = self.carry(job, file, &socket);
        let elapsed = start.elapsed();
        let complete = matches!(&carried, Ok(carried) if carried.complete);
        if let Ok(carried) = &mut carried
            && complete
        {
            if let Some(upload) = &job.upload {
                upload.complete();
            }
            let _ = sockopt::set_socket_linger(&socket, None);
            let _ = socket.shutdown(Shutdown::Write);
            if job.direction == Direction::ToClient {
                self.deliver(socket.as_fd(), carried);
            }
        }
        drop(socket);
        // A connection that fails before the first byte, such as during the TLS handshake,
        // leaves no new file.
        if !complete && carried.as_ref().map_or(0, |carried| carried.written) == 0 {
            self.remove_new(job);
        }
        let (code, text) = answer(&carried, elapsed, through);
        let carried = carried.unwrap_or_default();
        let by = carried
            .path
            .map_or_else(|| "-".to_owned(), |path| path.to_string());
        self.log(&format!(
            "{} {} {} {:.3} s by {by}{through}: {}",
            job.verb,
            log::field(&String::from_utf8_lossy(&shown)),
            units::number_of(carried.written, "byte"),
            elapsed.as_secs_f64(),
            if complete { "complete" } else { &text }
        ));
        if carried.aborted {
            self.say(code, &text)?;
            // ABOR may arrive after the end of the transfer.
            let text = if complete {
                "No transfer is running"
            } else {
                "Aborted"
            };
            return self.say(226, text);
        }
        self.say(code, &text)
    }

    /// Waits until a client that has sent bytes, although it receives a file, has acknowledged
    /// the file. Its bytes are discarded: a close with unread bytes, or bytes that arrive after
    /// the close, would cause a reset (`tcp_close()`, net/ipv4/tcp.c), which destroys the rest of
    /// the file. ABOR and the end of the control connection end the wait.
    fn deliver(&mut self, socket: BorrowedFd<'_>, carried: &mut Carried) {
        if !matches!(rustix::io::ioctl_fionread(socket), Ok(1..)) {
            return;
        }
        let status = so_far(carried.written);
        let mut asked = Asked::after(carried.aborted);
        let look = |time: Duration, says_more: bool| {
            let start = Instant::now();
            if (self.server.deadline.get()).is_some_and(|deadline| start >= *deadline) {
                return Err(Interrupted);
            }
            // A socket whose both directions have ended is always ready.
            let awaited = says_more.then_some((socket, PollFlags::IN));
            let control = (&mut self.lines, &mut asked, &status[..]);
            match waiting::wait(None, control, awaited, start + time) {
                Waited::Ready | Waited::TimedOut => return Ok(Ok(start.elapsed())),
                Waited::Aborted => carried.aborted = true,
                Waited::Closed | Waited::Ending => {}
            }
            Err(Interrupted)
        };
        // The reply is the same: the server has moved all bytes.
        let _ = endpoint::until_acknowledged(socket, true, self.server.idle, look);
        asked.finish(&mut self.lines, &status);
    }

    fn carry(&mut self, job: &Job<'_>, file: File, socket: &TcpStream) -> io::Result<Carried> {
        let stage = job.converts.then(|| match job.direction {
            Direction::ToClient => Stage::transforming(ToNetwork::default()),
            Direction::FromClient => Stage::transforming(FromNetwork::default()),
        });
        let shown = self.here.join(job.path).shown();
        let (shown, client) = (String::from_utf8_lossy(&shown), self.client);
        let label = match job.direction {
            Direction::ToClient => format!("{shown} -> {client}"),
            Direction::FromClient => format!("{client} -> {shown}"),
        };
        let replaced = job.replaces.then(|| file.try_clone()).transpose()?;
        let file = OwnedFd::from(file);
        let ends = |file: OwnedFd, network: OwnedFd| match job.direction {
            Direction::ToClient => (file, network),
            Direction::FromClient => (network, file),
        };
        let server = Arc::clone(&self.server);
        let run = |lines: &mut Lines, network, received, truncate| {
            let client = Client {
                socket: socket.as_fd(),
                received,
            };
            let ends = ends(file, network);
            let mut carried = carry(&server, lines, &client, ends, stage, label, truncate);
            // The data connection of a client that aborts, or is killed, may end like that of one
            // that has sent the whole file.
            if job.direction == Direction::FromClient {
                carried.complete &= !carried.given_up;
            }
            carried
        };
        let Some(config) = self.encryption() else {
            // Pages are spliced only to a non-blocking socket: a call on a blocking one
            // could not be cancelled.
            socket.set_nonblocking(true)?;
            let network = OwnedFd::from(socket.try_clone()?);
            let truncate = replaced.map_or(Ok(None), truncating)?;
            return Ok(run(&mut self.lines, network, None, truncate));
        };
        // A client that rejects the certificate must not lose its file either.
        let (replaced, truncate) = replaced.map(Replaced::new).unzip();
        let (pump, ours, network) =
            Pump::start(&config, socket.try_clone()?, job.direction, replaced)?;
        let received = Some(pump.received());
        let mut carried = run(&mut self.lines, network, received, truncate);
        // ABOR may have arrived just when the last bytes were moved into the pair.
        if job.direction == Direction::ToClient {
            carried.complete &= !carried.aborted;
        }
        let status = so_far(carried.written);
        let mut asked = Asked::after(carried.aborted);
        let (waited, done) = pump.finish(ours, carried.complete, |fd| {
            let control = (&mut self.lines, &mut asked, &status[..]);
            last_bytes(&server, control, fd, socket.as_fd())
        });
        asked.finish(&mut self.lines, &status);
        carried.aborted |= waited == Waited::Aborted;
        carried.idle |= waited == Waited::TimedOut;
        if let Err(error) = done {
            carried.complete = false;
            if carried.errno.is_none() && !tls::is_ended_here(&error) {
                carried.failed = Some(match job.direction {
                    Direction::ToClient => Side::Sink,
                    Direction::FromClient => Side::Source,
                });
                let errno = rustix::io::Errno::from_io_error(&error);
                // No errno: the connection ended without the end of TLS.
                carried.errno = Some(errno.map_or(Errno::ECONNRESET, Errno::from));
            }
        }
        Ok(carried)
    }
}

/// Waits until `fd` hangs up, which means that all bytes are sent. `client` is the data
/// connection. The wait ends as a transfer does: it times out if no byte is acknowledged for
/// the idle time, and the last bytes, too, may be sent within the time of grace.
fn last_bytes(
    server: &Server,
    (lines, asked, status): (&mut Lines, &mut Asked, &str),
    fd: BorrowedFd<'_>,
    client: BorrowedFd<'_>,
) -> Waited {
    let mut progress = Progress::since(Instant::now());
    loop {
        let now = Instant::now();
        progress.update((0, sys::unsent(client)), now);
        let left = server.idle.saturating_sub(progress.idle(now));
        let deadline = server.deadline.get().copied();
        if left.is_zero() {
            return Waited::TimedOut;
        }
        if deadline.is_some_and(|deadline| now >= deadline) {
            return Waited::Ending;
        }
        let until = deadline
            .into_iter()
            .chain([now + left.min(progress::interval(server.idle))])
            .min();
        let ending = deadline.is_none().then(|| server.ending.as_fd());
        let none = PollFlags::empty();
        let control = (&mut *lines, &mut *asked, status);
        match waiting::wait(ending, control, Some((fd, none)), until.unwrap_or(now)) {
            // The loop checks which time is over.
            Waited::TimedOut | Waited::Ending => {}
            other => return other,
        }
    }
}

/// Returns what truncates a file once its transfer runs. Truncates a file that looks empty at once,
/// which loses nothing: the upload of a new file does not wait for the start. The size may be an
/// older one of a file server.
fn truncating(file: File) -> io::Result<Option<Truncate<'static>>> {
    match file.metadata()?.len() {
        0 => file.set_len(0).map(|()| None),
        _ => Ok(Some(Box::new(move || file.set_len(0)))),
    }
}

/// Returns a file in memory with this content, so that a listing is sent like any other
/// file.
fn in_memory(text: &[u8]) -> io::Result<File> {
    let mut file = File::from(cordboard::memory_file(c"listing")?);
    file.write_all(text)?;
    file.rewind()?;
    Ok(file)
}

/// The reply to a transfer.
fn answer(carried: &io::Result<Carried>, elapsed: Duration, through: &str) -> (u16, String) {
    let carried = match carried {
        Ok(carried) => carried,
        Err(error) => return (451, error.to_string()),
    };
    let written = units::number_of(carried.written, "byte");
    if carried.complete {
        let seconds = elapsed.as_secs_f64();
        return (226, format!("{written} in {seconds:.3} s{through}"));
    }
    if carried.aborted {
        return (426, format!("Aborted after {written}"));
    }
    if carried.idle {
        return (426, format!("Idle timeout after {written}"));
    }
    let text = match carried.errno {
        Some(errno) => format!("{errno}, after {written}"),
        None => format!("The transfer ended after {written}"),
    };
    let code = match carried.errno {
        Some(Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG) => 452,
        Some(Errno::EPIPE | Errno::ECONNRESET | Errno::ETIMEDOUT) | None => 426,
        Some(_) => 451,
    };
    (code, text)
}
