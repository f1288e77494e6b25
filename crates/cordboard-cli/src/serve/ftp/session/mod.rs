//! One client: the state of its control connection, and its commands.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::net::sockopt;

use super::budget::Share;
use super::command::{self, Bad, Command, Epsv};
use super::data::{self, Mode, Passive};
use super::errors;
use super::lines::{Line, Lines};
use super::listing::Kind;
use super::log;
use super::root::Place;
use super::server::Server;
use super::users::User;
use crate::polling::poll_or_rest;

/// The longest wait for a client that does not read its replies.
const UNREAD: Duration = Duration::from_secs(30);

/// The time that a client has to log in. It also limits the commands that need no login.
const LOGIN: Duration = Duration::from_secs(60);

/// What the session does after a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Continue,
    Quit,
}

pub(super) type Step = io::Result<Next>;

/// The state of a session.
pub(super) struct Session {
    pub(super) server: Arc<Server>,
    pub(super) lines: Lines,
    /// The address of the client, for the log and for comparisons.
    pub(super) client: IpAddr,
    /// The addresses of the control connection.
    peer: SocketAddr,
    pub(super) local: SocketAddr,
    pub(super) name: Option<String>,
    pub(super) user: Option<User>,
    /// When the connection was accepted, or when the last login ended.
    since: Instant,
    pub(super) failures: u32,
    pub(super) here: Place,
    pub(super) ascii: bool,
    /// The offset of the next transfer. Other commands may come before the transfer: if
    /// they discarded the offset, an upload would replace the file that it continues.
    pub(super) rest: u64,
    rename: Option<Place>,
    pub(super) mode: Mode,
    /// EPSV ALL was sent: PASV, PORT and EPRT are refused.
    epsv_only: bool,
    /// PROT P: data connections are encrypted.
    pub(super) private: bool,
}

/// Serves a client until the session ends, and logs the error that ends it.
///
/// # Errors
///
/// The connection has failed before the session.
pub(super) fn serve(server: Arc<Server>, socket: TcpStream, peer: SocketAddr) -> io::Result<()> {
    let local = socket.local_addr()?;
    socket.set_write_timeout(Some(UNREAD))?;
    socket.set_nodelay(true)?;
    // Clients send urgent data before ABOR.
    let _ = sockopt::set_socket_oobinline(&socket, true);
    let lines = Lines::new(socket);
    let mut session = Session::new(server, lines, (local, peer), Instant::now());
    let greeted = session.say(220, "cordboard FTP server");
    if let Err(error) = greeted.and_then(|_| session.run()) {
        session.log(&match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                "the connection ended without the end of TLS".to_owned()
            }
            _ => error.to_string(),
        });
    }
    session.lines.close();
    Ok(())
}

/// Returns the time at which a session ends that receives no further line, and the reason.
/// `out_since`: no user is logged in since this time.
fn ends_at(now: Instant, idle: Duration, out_since: Option<Instant>) -> (Instant, &'static str) {
    let idle = (now + idle, "Idle timeout");
    let login = out_since.map(|since| (since + LOGIN, "Login timeout"));
    login.filter(|login| login.0 < idle.0).unwrap_or(idle)
}

/// Returns the number of a network protocol (RFC 2428).
fn protocol(address: IpAddr) -> u32 {
    match address.to_canonical() {
        IpAddr::V4(_) => 1,
        IpAddr::V6(_) => 2,
    }
}

impl Session {
    fn new(
        server: Arc<Server>,
        lines: Lines,
        (local, peer): (SocketAddr, SocketAddr),
        since: Instant,
    ) -> Session {
        Session {
            server,
            lines,
            client: peer.ip().to_canonical(),
            peer,
            local,
            name: None,
            user: None,
            since,
            failures: 0,
            here: Place::default(),
            ascii: true,
            rest: 0,
            rename: None,
            mode: Mode::Unset,
            epsv_only: false,
            private: false,
        }
    }

    /// Ends the login. The time for the next one begins only if there was one.
    pub(super) fn log_out(&mut self, now: Instant) {
        if self.user.take().is_some() {
            self.since = now;
        }
    }

    fn run(&mut self) -> io::Result<()> {
        loop {
            let Some(line) = self.line()? else {
                return Ok(());
            };
            let next = match line {
                Line::TooLong => {
                    self.rename = None;
                    self.say(500, "The line is too long")
                }
                Line::Text(line) => self.execute(&line),
            };
            if next? == Next::Quit {
                return Ok(());
            }
        }
    }

    pub(super) fn say(&mut self, code: u16, text: &str) -> Step {
        self.lines.reply(code, text.as_bytes())?;
        Ok(Next::Continue)
    }

    /// Returns the next line. `None`: the client has closed the connection or is idle, or
    /// the server is shutting down.
    fn line(&mut self) -> io::Result<Option<Line>> {
        let now = Instant::now();
        let out_since = self.user.is_none().then_some(self.since);
        let (until, why) = ends_at(now, self.server.idle, out_since);
        // Also if a line has arrived: a client could send one after the other.
        if until <= now {
            return self.expire(why);
        }
        loop {
            // Also if lines have arrived: each one could begin another transfer.
            if self.server.is_ending() {
                self.say(421, "The server is shutting down")?;
                return Ok(None);
            }
            if let Some(line) = self.lines.next() {
                return Ok(Some(line));
            }
            let now = Instant::now();
            if until <= now {
                return self.expire(why);
            }
            self.mode.expire(now);
            let first = self.mode.expires().map_or(until, |at| at.min(until));
            let left = first.saturating_duration_since(now);
            let Some(fd) = self.lines.fd() else {
                return Ok(None);
            };
            let mut fds = [
                PollFd::from_borrowed_fd(fd, PollFlags::IN),
                PollFd::from_borrowed_fd(self.server.ending.as_fd(), PollFlags::IN),
            ];
            let done = poll_or_rest(&mut fds, Some(left));
            let readable = done.is_ok() && !fds[0].revents().is_empty();
            if readable && !self.lines.fill()? {
                return Ok(None);
            }
        }
    }

    fn expire(&mut self, why: &str) -> io::Result<Option<Line>> {
        self.say(421, why)?;
        Ok(None)
    }

    fn execute(&mut self, line: &[u8]) -> Step {
        // RNTO follows RNFR directly (RFC 959, 4.1.3), also if the line between them is invalid.
        let rename = self.rename.take();
        let command = match command::parse(line) {
            Ok(command) => command,
            Err(Bad::Unknown) => return self.say(500, "Unknown command"),
            Err(Bad::Argument) => return self.say(501, "Invalid argument"),
            Err(Bad::Unsupported) => return self.say(504, "Unsupported argument"),
            Err(Bad::Protocol) => return self.say(522, "Use protocol (1,2)"),
        };
        if let Some(step) = self.without_login(&command) {
            return step;
        }
        if self.user.is_none() {
            return self.say(530, "Log in with USER and PASS first");
        }
        match command {
            Command::Rest(1..) if self.ascii => self.say(504, "REST needs TYPE I"),
            Command::Rest(offset) => {
                self.rest = offset;
                self.say(350, &format!("The next transfer begins at byte {offset}"))
            }
            Command::RenameFrom(path) => self.rename_from(&path),
            Command::RenameTo(path) => self.rename_to(rename, &path),
            Command::Pasv => self.pasv(),
            Command::Epsv(epsv) => self.epsv(epsv),
            Command::Port(to) => self.port(to),
            Command::ExtendedPort(to) => self.extended_port(to),
            Command::List(path) => self.list(&path, Kind::Long),
            Command::Names(path) => self.list(&path, Kind::Names),
            Command::MachineList(path) => self.list(&path, Kind::Machine),
            Command::Retrieve(path) => self.retrieve(&path),
            Command::Store(path) => self.store(&path),
            Command::Append(path) => self.append(&path),
            Command::StoreUnique => self.store_unique(),
            other => self.of_files(other),
        }
    }

    /// Carries out commands that need no login. `None`: the command needs one.
    fn without_login(&mut self, command: &Command) -> Option<Step> {
        Some(match command {
            Command::User(name) => self.user(name),
            Command::Pass(password) => self.pass(password),
            Command::Auth(how) => self.auth(how),
            Command::Pbsz if self.lines.is_encrypted() => self.say(200, "PBSZ=0"),
            Command::Pbsz => self.say(503, "Send AUTH TLS first"),
            Command::Prot(level) => self.prot(*level),
            Command::Quit => self.say(221, "Goodbye").map(|_| Next::Quit),
            Command::Noop => self.say(200, "OK"),
            Command::Syst => self.say(215, "UNIX Type: L8"),
            Command::Feat => self.feat(),
            Command::Help => self.help(),
            Command::Opts(what) if what.starts_with(b"UTF8") => {
                self.say(200, "File names are sent as they are stored")
            }
            Command::Opts(what) if what.starts_with(b"MLST") => {
                self.say(200, "MLST OPTS type;size;modify;perm;unique;")
            }
            Command::Opts(_) => self.say(501, "Unknown option"),
            Command::Abort => self.say(226, "No transfer is running"),
            Command::Type { ascii } => {
                self.ascii = *ascii;
                if self.ascii {
                    self.rest = 0;
                }
                self.say(
                    200,
                    match ascii {
                        true => "ASCII: line ends are converted, and bytes pass through user space",
                        false => "Binary",
                    },
                )
            }
            Command::Structure(b'F') => self.say(200, "Files"),
            Command::Mode(b'S') => self.say(200, "Stream"),
            Command::Structure(_) | Command::Mode(_) => self.say(504, "Not supported"),
            Command::Allo => self.say(202, "No space needs to be reserved"),
            Command::Account => self.say(202, "No account is needed"),
            Command::Unimplemented => self.say(502, "Not implemented"),
            _ => return None,
        })
    }

    fn feat(&mut self) -> Step {
        let mut all = vec![
            "EPRT",
            "EPSV",
            "MDTM",
            "MFMT",
            "MLST type*;size*;modify*;perm*;unique*;",
        ];
        all.extend(["REST STREAM", "SIZE", "TVFS", "UTF8"]);
        if self.server.tls.is_some() {
            all.extend(["AUTH TLS", "PBSZ", "PROT"]);
        }
        let lines = all.into_iter().map(str::as_bytes);
        self.lines.reply_lines(211, "Features", lines, "End")?;
        Ok(Next::Continue)
    }

    fn help(&mut self) -> Step {
        let lines = [
            "USER PASS ACCT AUTH PBSZ PROT QUIT NOOP SYST FEAT HELP STAT OPTS TYPE STRU MODE ALLO",
            "PWD CWD CDUP PASV EPSV PORT EPRT REST ABOR LIST NLST MLSD MLST SIZE MDTM MFMT",
            "RETR STOR STOU APPE RNFR RNTO DELE MKD RMD",
        ];
        let lines = lines.map(str::as_bytes);
        self.lines.reply_lines(214, "Commands", lines, "End")?;
        Ok(Next::Continue)
    }

    fn pasv(&mut self) -> Step {
        if self.epsv_only {
            return self.say(503, "EPSV ALL was sent");
        }
        let IpAddr::V4(address) = self.local.ip().to_canonical() else {
            return self.say(425, "The connection uses IPv6: send EPSV");
        };
        match self.listen() {
            Ok(port) => {
                let [a, b, c, d] = address.octets();
                let [high, low] = port.to_be_bytes();
                self.say(
                    227,
                    &format!("Entering Passive Mode ({a},{b},{c},{d},{high},{low})"),
                )
            }
            Err(error) => self.say(425, &error.to_string()),
        }
    }

    fn epsv(&mut self, epsv: Epsv) -> Step {
        let ours = protocol(self.local.ip());
        match epsv {
            Epsv::All => {
                self.epsv_only = true;
                return self.say(200, "Only EPSV is accepted from now on");
            }
            Epsv::Protocol(protocol) if protocol != ours => {
                return self.say(522, &format!("Use protocol ({ours})"));
            }
            Epsv::Any | Epsv::Protocol(_) => {}
        }
        match self.listen() {
            Ok(port) => self.say(229, &format!("Entering Extended Passive Mode (|||{port}|)")),
            Err(error) => self.say(425, &error.to_string()),
        }
    }

    fn listen(&mut self) -> io::Result<u16> {
        self.mode = Mode::Unset;
        let share = Share::none_of(&self.server.ports, self.client);
        let ports = self.server.passive_ports;
        let passive = Passive::begin(self.local, ports, share, Instant::now())?;
        let port = passive.port()?;
        self.mode = Mode::Passive(passive);
        Ok(port)
    }

    fn extended_port(&mut self, to: SocketAddr) -> Step {
        let ours = protocol(self.local.ip());
        match protocol(to.ip()) == ours {
            true => self.port(to),
            false => self.say(522, &format!("Use protocol ({ours})")),
        }
    }

    fn port(&mut self, to: SocketAddr) -> Step {
        if self.epsv_only {
            return self.say(503, "EPSV ALL was sent");
        }
        let Some(to) = data::destination(to, self.peer) else {
            let text = "The address must be that of the client, and the port at least 1024";
            return self.say(501, text);
        };
        self.mode = Mode::Active(to);
        self.say(200, "Address accepted")
    }

    fn rename_from(&mut self, path: &[u8]) -> Step {
        if let Some(step) = self.refuses_to_write() {
            return step;
        }
        let place = self.here.join(path);
        let about = match self.is_name_of_file(path) {
            // A directory has such a name, too.
            Err(error) if error.kind() != io::ErrorKind::IsADirectory => Err(error),
            _ => self.server.root.own_metadata(&place),
        };
        match about {
            Ok(_) => {
                self.rename = Some(place);
                self.say(350, "Send RNTO next")
            }
            Err(error) => self.failed(path, &error),
        }
    }

    fn rename_to(&mut self, from: Option<Place>, path: &[u8]) -> Step {
        if let Some(step) = self.refuses_to_write() {
            return step;
        }
        let Some(from) = from else {
            return self.say(503, "Send RNFR first");
        };
        let to = self.here.join(path);
        let done = self.server.root.rename(&from, &to);
        let shown = String::from_utf8_lossy(&from.shown()).into_owned();
        let verb = format!("RNFR {} RNTO", log::field(&shown));
        self.done(&verb, path, (250, b"Done"), done)
    }

    /// Refuses a command that writes, unless the client may write.
    pub(super) fn refuses_to_write(&mut self) -> Option<Step> {
        match self.user.as_ref().is_some_and(|user| user.writes) {
            true => None,
            false => Some(self.say(550, "Read-only")),
        }
    }

    /// Replies with the error of an operation on a path.
    pub(super) fn failed(&mut self, path: &[u8], error: &io::Error) -> Step {
        self.failed_with(errors::code(error), path, error)
    }

    pub(super) fn failed_with(&mut self, code: u16, path: &[u8], error: &io::Error) -> Step {
        let why = match error.kind() {
            io::ErrorKind::NotFound => "no such file or directory".to_owned(),
            io::ErrorKind::InvalidInput => "the file system does not allow this name".to_owned(),
            _ if error.raw_os_error() == Some(libc::ERANGE) => {
                "the file system cannot store this time".to_owned()
            }
            _ => error.to_string(),
        };
        let mut text = path.to_vec();
        text.extend_from_slice(format!(": {why}").as_bytes());
        self.lines.reply(code, &text)?;
        Ok(Next::Continue)
    }

    /// Replies with the result of a change, and logs it. `reply` is the one of success.
    pub(super) fn done(
        &mut self,
        verb: &str,
        path: &[u8],
        (code, reply): (u16, &[u8]),
        result: io::Result<()>,
    ) -> Step {
        let place = self.here.join(path);
        let shown = String::from_utf8_lossy(&place.shown()).into_owned();
        let text = match &result {
            Ok(()) => "done".to_owned(),
            Err(error) => error.to_string(),
        };
        self.log(&format!("{verb} {}: {text}", log::field(&shown)));
        match result {
            Ok(()) => {
                self.lines.reply(code, reply)?;
                Ok(Next::Continue)
            }
            Err(error) => self.failed(path, &error),
        }
    }

    pub(super) fn log(&self, text: &str) {
        let name = self.user.as_ref().map_or("-", |user| &user.name);
        let name = log::field(name);
        self.server
            .log
            .line(&format!("{} {name} {text}", self.client));
    }
}

#[cfg(test)]
mod tests;
