//! What the thread of the control descriptors shares with the others, and the descriptors
//! that it holds for each.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::net::sockopt::{socket_domain, socket_linger};
use rustix::net::{AddressFamily, RecvFlags, Shutdown, shutdown};

use super::stranded::Rest;
use crate::endpoint::Kind;
use crate::errno::Errno;
use crate::map::Map;
use crate::report::Failure;
use crate::request::Environment;
use crate::sys::{
    Identity, Lock, ServedBy, Stamp, WakeFd, WithEnd, accept_no_descriptors, close, identity, recv,
    recv_with_descriptors,
};
use crate::threads;
use crate::transfer::Control;

/// What a new control descriptor needs. The socket is dropped first: the host that waits for
/// the end of the sink may then close everything, and no close is left.
pub(super) struct New {
    pub(super) id: u64,
    pub(super) socket: WithEnd<Socket>,
    pub(super) held: WithEnd<Held>,
    pub(super) kind: Option<Kind>,
    /// A query of the source or the sink may wait for a server.
    pub(super) may_wait: bool,
    pub(super) link: Option<NewLink>,
}

/// What a new link needs.
pub(super) struct NewLink {
    pub(super) target: u64,
    /// The socket that the target gets.
    pub(super) socket: WithEnd<Socket>,
    /// A copy of the descriptor of the target. The target would otherwise end before it has the
    /// socket, if its owner closes the descriptor.
    pub(super) held_open: OwnedFd,
}

/// The service's end of a socket pair. When it is dropped, also by a panic, the process that
/// has the other one reads its end.
pub(super) struct Socket {
    registry: Arc<Registry>,
    /// The process that made it.
    home: Stamp,
    fd: OwnedFd,
    /// A peer may pass descriptors, whose close may wait.
    takes_descriptors: bool,
}

impl Socket {
    pub(super) fn new(registry: &Arc<Registry>, fd: OwnedFd) -> WithEnd<Socket> {
        let socket = Socket {
            registry: Arc::clone(registry),
            home: Stamp::here(),
            takes_descriptors: accept_no_descriptors(fd.as_fd()).is_err(),
            fd,
        };
        WithEnd::new(socket, Socket::end)
    }

    /// Returns whether this process has made it.
    pub(super) fn is_at_home(&self) -> bool {
        self.home.is_here()
    }

    /// Receives bytes without a wait. Descriptors that a peer has passed are closed on another
    /// thread: the close of a pipe may wait for its lock, that of a connection for its peer.
    ///
    /// # Errors
    ///
    /// `EPERM`: the peer has passed descriptors. The caller receives no more, so one peer uses up
    /// the numbers of one message at most (253, `SCM_MAX_FD`).
    pub(super) fn receive(&self, into: &mut [u8]) -> Result<usize, Errno> {
        let flags = RecvFlags::DONTWAIT;
        if self.takes_descriptors {
            match recv_with_descriptors(self.fd.as_fd(), into, flags) {
                Ok((bytes, passed)) => {
                    if passed.is_empty() {
                        return Ok(bytes);
                    }
                    let registry = Arc::clone(&self.registry);
                    threads::call(move || passed.into_iter().for_each(|fd| registry.close(fd)));
                    return Err(Errno::EPERM);
                }
                Err(errno) if errno.is_refusal_or_invalid() => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(recv(self.fd.as_fd(), into, flags)?)
    }

    /// Closes it, unless the host has closed the descriptors. A child of `fork(2)` may have a
    /// copy, and its parent still uses it.
    fn end(self) {
        if self.home.is_here() && self.registry.has_descriptors() {
            let _ = shutdown(&self.fd, Shutdown::Both);
        }
        let Socket { registry, fd, .. } = self;
        match self.takes_descriptors {
            // Unread messages may have some.
            true => threads::call(move || registry.close(fd)),
            false => registry.close(fd),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The source and the sink of one control descriptor, and what its transfers share.
pub(super) struct Held {
    pub(super) registry: Arc<Registry>,
    /// The source and the sink.
    pub(super) ends: [OwnedFd; 2],
    /// Which of them are files, directories or block devices.
    files: [bool; 2],
    pub(super) control: Control,
    /// As the caller of [`Cue::new`](super::Cue::new) has read it.
    pub(super) environment: Environment,
    /// Bytes that the sink gets first, which may be in a descriptor.
    pub(super) rest: Rest,
    /// Connections that end once the files are closed.
    last: Vec<WithEnd<Socket>>,
}

impl Held {
    pub(super) fn new(
        registry: &Arc<Registry>,
        ends: [OwnedFd; 2],
        files: [bool; 2],
        control: Control,
        environment: Environment,
    ) -> WithEnd<Held> {
        let held = Held {
            registry: Arc::clone(registry),
            ends,
            files,
            control,
            environment,
            rest: Rest::default(),
            last: Vec::new(),
        };
        WithEnd::new(held, Held::end)
    }

    /// Returns whether the source or the sink is a file. A process that reads the end of the
    /// records may remove, execute or unmount it, so it is closed before.
    pub(super) fn has_files(&self) -> bool {
        self.files.contains(&true)
    }

    /// Lets these connections end once the files are closed.
    pub(super) fn end_last(&mut self, connections: impl Iterator<Item = WithEnd<Socket>>) {
        self.last.extend(connections);
    }

    /// Closes the descriptors. The host may close them meanwhile, and open other files under
    /// their numbers, so there is a check before each close.
    ///
    /// A file is closed before the connections end, and most other descriptors after that. The
    /// source and the sink are closed on another thread if that may wait: the close of a
    /// connection for its peer (`SO_LINGER`), that of a pipe for its lock, that of a file for
    /// its server. A UNIX socket may hold descriptors that its peer has passed.
    fn end(self) {
        let Held {
            registry,
            ends,
            files,
            control,
            rest,
            last,
            ..
        } = self;
        if !registry.has_descriptors() {
            // The wakeup descriptor of the control also stays open: the host may close it
            // just after a check of its identity.
            return std::mem::forget((ends, control, rest, last));
        }
        drop(control);
        // The pool may begin late, and a peer may wait for the end of a connection.
        let at_once = |fd: &OwnedFd| {
            socket_linger(fd).is_ok_and(|time| time.is_none())
                && socket_domain(fd).is_ok_and(|domain| domain != AddressFamily::UNIX)
        };
        let (now, later): (Vec<_>, Vec<_>) =
            (ends.into_iter().zip(files)).partition(|(fd, is_file)| !is_file && at_once(fd));
        now.into_iter().for_each(|(fd, _)| registry.close(fd));
        let (files, later): (Vec<_>, Vec<_>) = later.into_iter().partition(|(_, is_file)| *is_file);
        threads::call(move || {
            files.into_iter().for_each(|(fd, _)| registry.close(fd));
            drop(last);
            let later = later.into_iter().map(|(fd, _)| fd);
            (rest.into_descriptors().chain(later)).for_each(|fd| registry.close(fd));
        });
    }
}

/// A message to the thread.
pub(super) enum Message {
    /// Serve another control descriptor.
    New(Box<New>),
    /// The transfer of this control descriptor was started, refused, or cancelled before.
    Started(u64, Box<Result<(), Failure>>),
    /// The transfer of this control descriptor has ended.
    Ended(u64),
    /// The records of this link are returned, or its source has failed.
    Answered(u64),
    /// Makes the thread panic, as a bug in it would.
    #[cfg(test)]
    Panic,
}

/// Shared by all threads of the process.
pub(super) struct Registry {
    wake: WakeFd,
    inbox: Lock<Vec<Message>>,
    /// The sockets that callers have, by the files behind them.
    known: Lock<Map<Identity, u64>>,
    next: AtomicU64,
    /// The thread that serves the control descriptors.
    pub(super) served_by: ServedBy,
    /// The thread has ended: the host has closed its descriptors, a filter refuses its wait,
    /// or it has panicked. Set while `inbox` is locked.
    is_dead: AtomicBool,
    /// The host has closed the descriptors of the thread.
    has_lost_descriptors: AtomicBool,
}

impl Registry {
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`, or the errno of a seccomp filter, as
    /// [`WakeFd::distinct`].
    pub(super) fn new() -> Result<Registry, Errno> {
        Ok(Registry {
            wake: WakeFd::distinct()?,
            inbox: Lock::default(),
            known: Lock::default(),
            next: AtomicU64::new(1),
            served_by: ServedBy::new(),
            is_dead: AtomicBool::new(false),
            has_lost_descriptors: AtomicBool::new(false),
        })
    }

    pub(super) fn wake(&self) -> &WakeFd {
        &self.wake
    }

    pub(super) fn next_id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a message to the thread.
    pub(super) fn send(&self, message: Message) {
        let mut unread = Some(message);
        if let Some(mut inbox) = self.inbox.lock()
            && !self.is_dead.load(Ordering::Acquire)
        {
            inbox.extend(unread.take());
        }
        match unread {
            Some(unread) => self.discard(unread),
            None => drop(self.wake.signal()),
        }
    }

    pub(super) fn take(&self) -> Vec<Message> {
        let inbox = self.inbox.lock();
        inbox.map_or_else(Vec::new, |mut inbox| std::mem::take(&mut *inbox))
    }

    /// Stores the socket of the caller.
    pub(super) fn insert(&self, socket: impl AsFd, id: u64) {
        if let (Some(file), Some(mut known)) = (identity(socket), self.known.lock()) {
            known.insert(file, id);
        }
    }

    pub(super) fn remove(&self, id: u64) {
        if let Some(mut known) = self.known.lock() {
            known.retain(|_, other| *other != id);
        }
    }

    /// Returns the control descriptor that this is.
    pub(super) fn find(&self, fd: impl AsFd) -> Option<u64> {
        let file = identity(fd)?;
        self.known.lock()?.get(&file).copied()
    }

    pub(super) fn is_usable(&self) -> bool {
        !self.is_dead.load(Ordering::Acquire) && self.has_descriptors()
    }

    /// Returns whether the host has not closed the descriptors of the thread. Otherwise none
    /// may be closed, because their numbers may refer to other files.
    pub(super) fn has_descriptors(&self) -> bool {
        !self.has_lost_descriptors.load(Ordering::Acquire) && self.wake.is_still_open()
    }

    /// The host has closed one of the descriptors of the thread, and may close the others.
    pub(super) fn lose_descriptors(&self) {
        self.has_lost_descriptors.store(true, Ordering::Release);
    }

    /// Closes a descriptor, unless the host has closed the descriptors.
    pub(super) fn close(&self, fd: OwnedFd) {
        match self.has_descriptors() {
            true => close(fd),
            false => std::mem::forget(fd),
        }
    }

    /// Ends the service, and returns the messages that were not read.
    pub(super) fn end(&self) -> Vec<Message> {
        let inbox = self.inbox.lock();
        self.is_dead.store(true, Ordering::Release);
        inbox.map_or_else(Vec::new, |mut inbox| std::mem::take(&mut *inbox))
    }

    /// Ends the thread, which has no control descriptors.
    pub(super) fn retire(&self) {
        self.end().into_iter().for_each(|one| self.discard(one));
        let _ = self.wake.signal();
    }

    /// Drops a message that will not be read: the caller of a new control descriptor reads
    /// its end. Closes nothing if the host has closed the descriptors.
    pub(super) fn discard(&self, unread: Message) {
        match self.has_descriptors() {
            true => drop(unread),
            false => std::mem::forget(unread),
        }
    }
}
