//! `cordboard serve ftp`: an FTP server (RFC 959, 2228, 2389, 2428, 3659, 4217).

mod ascii;
mod asked;
mod budget;
mod carry;
mod command;
mod data;
mod errors;
mod extent;
mod failures;
mod files;
mod head;
mod lines;
mod listed;
mod listing;
mod lock;
mod log;
mod login;
mod mover;
mod passwords;
mod pattern;
mod prepare;
mod progress;
mod random;
mod root;
mod server;
mod session;
mod store;
mod time;
mod tls;
mod transfer;
mod users;
mod waiting;

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags};

use crate::flags::Ftp;
use crate::output::errno_of;
use crate::polling::{is_of_one_connection, poll_or_rest};
use crate::problem::Problem;
use crate::registry::{Directory, Places};
use crate::{print, request, signals, socket_calls, sys, units};
use server::{Clients, Server};

/// The time that cancelled transfers have to end.
const LAST: Duration = Duration::from_secs(5);
/// The time until a connection is accepted again that lacked a descriptor. A session has to
/// end first, or another process, if the system has no descriptor.
const SOON: Duration = Duration::from_millis(100);

/// Runs the server, and returns its exit status.
pub fn run(flags: &Ftp) -> u8 {
    let done = match &flags.hash_password {
        Some(name) => hash_password(name),
        None => serve(flags),
    };
    match done {
        Ok(()) => 0,
        Err(problem) => print::failed(&problem),
    }
}

fn hash_password(name: &str) -> Result<(), Problem> {
    if name.is_empty() || name.contains([':', '\n', '#']) {
        return Err(Problem::usage(
            name,
            "a name is not empty, and contains no ':', '#' or line feed",
        ));
    }
    if users::is_anonymous(name) {
        return Err(Problem::usage(
            name,
            "this name belongs to anonymous clients, and cannot have a password",
        ));
    }
    let mut password = Vec::new();
    std::io::stdin()
        .read_to_end(&mut password)
        .map_err(|error| {
            let errno = errno_of(&error);
            Problem::unsided(
                "standard input",
                errno,
                format!("{errno} reading the password"),
            )
        })?;
    if password.last() == Some(&b'\n') {
        password.pop();
        // A file of another system has such ends of lines.
        if password.last() == Some(&b'\r') {
            password.pop();
        }
    }
    if password.contains(&b'\n') {
        return Err(Problem::usage(name, "the password contains a line feed")
            .help("a client sends the password in one line"));
    }
    if password.is_empty() {
        return Err(Problem::usage(name, "the password is empty")
            .help("the password is read from standard input"));
    }
    let hash = passwords::hash(&password).map_err(|error| Problem::usage(name, error))?;
    print::print(format!("{name}:{hash}\n").as_bytes())
}

fn serve(flags: &Ftp) -> Result<(), Problem> {
    let shown = flags.listen.to_string();
    if !flags.listen.ip().is_loopback() && !flags.public {
        let text = "other machines can reach this address";
        return Err(Problem::usage(shown, text).help(
            "to allow this, add --public; FTP without TLS (--tls-cert, --tls-key) is unencrypted",
        ));
    }
    request::check_environment()?;
    let failed = |operand: &Path, error: &std::io::Error, doing: &str| {
        let errno = errno_of(error);
        Problem::unsided(operand.to_string_lossy(), errno, format!("{errno} {doing}"))
    };
    let root_path = flags.root.as_deref().unwrap_or(Path::new("."));
    let root =
        root::Root::open(root_path).map_err(|e| failed(root_path, &e, "opening the root"))?;
    let users = users::Users::read(flags.users.as_deref(), !flags.no_anonymous)
        .map_err(|text| Problem::usage("--users", text))?;
    let log = log::Log::open(flags.log.as_deref()).map_err(|error| {
        failed(
            flags.log.as_deref().unwrap_or(Path::new("")),
            &error,
            "opening the log",
        )
    })?;
    let tls = match (&flags.tls_cert, &flags.tls_key) {
        (Some(cert), Some(key)) => {
            let config = tls::config(cert, key);
            Some(config.map_err(|(option, text)| Problem::usage(option, text))?)
        }
        _ => None,
    };
    let listener = TcpListener::bind(flags.listen)
        .map_err(|error| failed(Path::new(&shown), &error, "listening"))?;
    let address = listener
        .local_addr()
        .map_err(|error| failed(Path::new(&shown), &error, "listening"))?;
    // Before a thread is started.
    prepare::descriptors(&listener, flags.clients);
    // The main thread has no progress to print. Its timer would run until a request is taken.
    sys::ignore(libc::SIGUSR1);
    signals::install(Vec::new());
    sys::ignore(libc::SIGPIPE);
    let (ending, hang_up) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|errno| failed(Path::new(&shown), &errno.into(), "creating a pipe"))?;
    let list = Places::of_user().directory();
    if let Err(problem) = &list {
        log.line(&format!("`cordboard top` shows no transfers: {problem}"));
    }
    let server = Arc::new(Server {
        root,
        users,
        log,
        tls,
        require_tls: flags.require_tls,
        rate: flags.rate.unwrap_or(0),
        idle: flags.idle,
        passive_ports: flags.passive_ports,
        ports: budget::Budget::new(data::number_of(flags.passive_ports)),
        list: list.ok(),
        list_fails: AtomicBool::new(false),
        listings: budget::Budget::new(budget::LISTINGS),
        ending,
        deadline: OnceLock::new(),
        clients: Arc::new(Clients::new(flags.clients, flags.clients_per_address)),
    });
    let list = server.list.as_ref().map(Directory::path);
    let confined = lock::confine(root_path, list);
    prepare::threads();
    server
        .log
        .line(&format!("listening at {address}, {confined}"));
    accept(&server, &listener);
    drop(listener);
    end(&server, hang_up, flags.grace);
    Ok(())
}

/// Accepts clients until a signal arrives.
fn accept(server: &Arc<Server>, listener: &TcpListener) {
    // Another process may take the connection between poll and accept.
    let _ = listener.set_nonblocking(true);
    let mut is_short = false;
    while signals::stop().is_none() {
        let mut fds = [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)];
        // The handler of a signal to stop interrupts the call again and again, until the
        // loop sees the signal.
        if poll_or_rest(&mut fds, None) == Err(Errno::INTR) {
            continue;
        }
        match next_of(listener) {
            Ok((socket, peer)) => {
                is_short = false;
                admit(server, socket, peer);
            }
            // Of this connection only.
            Err(errno) if is_of_one_connection(errno) => {}
            Err(errno) => {
                // Logged once, because the next attempt follows soon.
                if !std::mem::replace(&mut is_short, true) {
                    let error = std::io::Error::from(errno);
                    let text = format!("no client can be accepted: {error}");
                    server.log.line(&text);
                }
                rest_until(Instant::now() + SOON);
            }
        }
    }
}

/// Accepts a connection, and returns it with the address of its peer.
fn next_of(listener: &TcpListener) -> Result<(TcpStream, SocketAddr), Errno> {
    let (socket, peer) = socket_calls::accept(listener, SocketFlags::CLOEXEC)?;
    let peer = peer.ok_or(Errno::CONNABORTED)?;
    Ok((socket.into(), peer.try_into()?))
}

/// Sleeps until this time, or until a signal to stop arrives. The sessions are not waited
/// for: there may be none, and the loop would spin.
fn rest_until(until: Instant) {
    while signals::stop().is_none() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        // A signal interrupts the call.
        let _ = poll_or_rest(&mut [], Some(left));
    }
}

/// Starts the session of a client, unless there are too many.
fn admit(server: &Arc<Server>, socket: TcpStream, peer: SocketAddr) {
    let _ = socket.set_nonblocking(false);
    let address = peer.ip().to_canonical();
    let Some(seat) = server.clients.enter(address) else {
        return refuse(&socket, "Too many clients");
    };
    let shared = Arc::clone(server);
    let copy = socket.try_clone();
    let body = move || {
        let _seat = seat;
        let server = Arc::clone(&shared);
        if let Err(error) = session::serve(server, socket, peer) {
            shared.log.line(&format!("{address} -: {error}"));
        }
    };
    let thread = std::thread::Builder::new().name("cordboard-ftp".to_owned());
    // Only the main thread handles signals.
    let started = sys::without_signals(|| thread.stack_size(512 << 10).spawn(body));
    if let (Err(error), Ok(socket)) = (started, copy) {
        let text = format!("{address} -: cannot create a thread: {error}");
        server.log.line(&text);
        refuse(&socket, "No thread can be created");
    }
}

fn refuse(socket: &TcpStream, why: &str) {
    let _ = socket.set_write_timeout(Some(Duration::from_secs(1)));
    let text = format!("421 {why}\r\n");
    let _ = socket_calls::send(socket, text.as_bytes(), SendFlags::NOSIGNAL);
}

/// Ends the sessions. Running transfers may complete within the time of grace.
fn end(server: &Server, hang_up: OwnedFd, grace: Duration) {
    let deadline = Instant::now() + grace;
    let _ = server.deadline.set(deadline);
    drop(hang_up);
    server.users.close();
    let left = server.clients.wait_for_all(deadline + LAST);
    server.log.line(&match left {
        0 => "ended".to_owned(),
        left => {
            let clients = units::number_of(left as u64, "client");
            format!("ended, with {clients} connected")
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The server rests also without sessions, whose ends it could await.
    #[test]
    fn a_server_without_descriptors_rests() {
        let soon = Instant::now() + SOON;
        rest_until(soon);
        assert!(Instant::now() >= soon);
    }
}
