//! The control socket, and the thread that serves it.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cordboard::{Control, Report};
use rustix::event::{PollFd, PollFlags};
use rustix::process::umask;

use super::clients::Clients;
use super::live::Live;
use crate::bounded_write::GRACE;
use crate::endpoint::{self, SocketFile};
use crate::files::SocketId;
use crate::flags::Label;
use crate::output::{one_line, print_line};
use crate::polling::poll_or_rest;
use crate::problem::Problem;
use crate::registry::{Entry, Places, Registered};
use crate::sys;

/// The time after which a connection is tried again that lacked a descriptor.
const RETRY: Duration = Duration::from_millis(100);

/// The control socket of the command. Dropping it removes its file.
pub struct Steering {
    live: Arc<Live>,
    clients: Arc<Mutex<Clients>>,
    /// Removed before the socket is.
    _entry: Option<Registered>,
    file: Option<SocketFile>,
}

impl Steering {
    /// Listens at this path, or with `@NAME` at this abstract name. Only the same user and
    /// root may connect. `cordboard top` finds the socket by its entry. `block`: the length of
    /// a block of the transfers.
    pub fn begin(
        path: &OsStr,
        (control, block): (&'static Control, u64),
        label: &Label,
    ) -> Result<Steering, Problem> {
        // The file of the socket gets mode 0600.
        let before = umask(rustix::fs::Mode::from_raw_mode(0o177));
        let bound = endpoint::control_socket(Path::new(path));
        umask(before);
        let (listener, file) = bound?;
        let live = Arc::new(Live::new(control, block));
        let clients = Arc::<Mutex<Clients>>::default();
        let mut steering = Steering {
            live: Arc::clone(&live),
            clients: Arc::clone(&clients),
            _entry: None,
            file,
        };
        let serve = move || while serve(&listener, &clients, &live).is_ok() {};
        // Only the main thread handles signals.
        let started = sys::without_signals(|| {
            let thread = std::thread::Builder::new().name("cordboard-steer".to_owned());
            thread.stack_size(128 << 10).spawn(serve)
        });
        match started {
            Ok(_) => {
                steering._entry = list(path, label);
                Ok(steering)
            }
            Err(error) => {
                let errno = crate::output::errno_of(&error);
                let text = format!("{errno} starting the thread of the control socket");
                Err(Problem::unsided(path.to_string_lossy(), errno, text))
            }
        }
    }

    /// Returns the file of the socket; `None` if its name is abstract.
    pub fn socket(&self) -> Option<SocketId> {
        self.file.as_ref().map(SocketFile::id)
    }

    /// Returns the progress, which the thread that moves bytes stores.
    pub fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// Reports the end of the command to all clients.
    pub fn end(&self, report: &Report) {
        if let Ok(mut clients) = self.clients.lock() {
            let (last, done) = self.live.end(report);
            clients.end(last, done);
            clients.flush(GRACE);
        }
    }
}

/// Adds the command to the list of `cordboard top`. An error does not end the command.
fn list(path: &OsStr, label: &Label) -> Option<Registered> {
    let socket = match path.as_bytes() {
        [b'@', ..] => Ok(path.to_owned()),
        _ => std::path::absolute(path).map(PathBuf::into_os_string),
    };
    let socket = socket.map_err(|error| {
        let errno = crate::output::errno_of(&error);
        let text = format!("{errno} looking up the current directory");
        Problem::unsided(path.to_string_lossy(), errno, text)
    });
    let added = socket.and_then(|socket| {
        let entry = Entry::new(label.command, label.text.clone(), socket);
        Places::of_user().register(&entry)
    });
    match added {
        Ok(entry) => {
            entry.remove_at_exit();
            Some(entry)
        }
        Err(problem) => {
            let why = problem.message();
            let line = format!("cordboard: warning: `cordboard top` shows no entry: {why}");
            print_line(one_line(&line));
            None
        }
    }
}

/// Waits for the next event, and handles it.
fn serve(
    listener: &OwnedFd,
    clients: &Mutex<Clients>,
    live: &Live,
) -> Result<(), rustix::io::Errno> {
    let poisoned = |_| rustix::io::Errno::CANCELED;
    let ((sockets, due), can_accept) = {
        let mut clients = clients.lock().map_err(poisoned)?;
        (clients.interest(), clients.can_accept())
    };
    let events = match can_accept {
        true => PollFlags::IN,
        false => PollFlags::empty(),
    };
    let mut fds = vec![PollFd::from_borrowed_fd(listener.as_fd(), events)];
    let each = sockets.iter();
    fds.extend(each.map(|(socket, flags)| PollFd::from_borrowed_fd(socket.as_fd(), *flags)));
    let left = due.map(|due| due.saturating_duration_since(Instant::now()));
    let retry = (!can_accept).then_some(RETRY);
    let polled = poll_or_rest(&mut fds, left.into_iter().chain(retry).min());
    // Without poll(2), all of them are tried. The listener is non-blocking.
    let connects = polled.is_err() || !fds[0].revents().is_empty();
    let mut clients = clients.lock().map_err(poisoned)?;
    clients.advance(live);
    if connects {
        clients.accept(listener);
    }
    Ok(())
}
