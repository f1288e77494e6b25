//! The descriptors of one control descriptor that this process holds for its caller.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::net::sockopt::socket_linger;
use rustix::net::{Shutdown, shutdown};

use super::registry::Registry;
use super::stranded::Rest;
use crate::sys::{Stamp, WithEnd};
use crate::threads;
use crate::transfer::Control;

/// The descriptors of one control descriptor. When they are dropped, also by a panic, the
/// caller reads its end.
pub(super) struct Held {
    pub(super) registry: Arc<Registry>,
    /// The process that made them.
    home: Stamp,
    pub(super) socket: OwnedFd,
    /// The source and the sink.
    pub(super) ends: [OwnedFd; 2],
    pub(super) control: Control,
    /// Bytes that the sink gets first, which may be in a descriptor.
    pub(super) rest: Rest,
}

impl Held {
    pub(super) fn new(
        registry: &Arc<Registry>,
        socket: OwnedFd,
        ends: [OwnedFd; 2],
        control: Control,
    ) -> WithEnd<Held> {
        let held = Held {
            registry: Arc::clone(registry),
            home: Stamp::here(),
            socket,
            ends,
            control,
            rest: Rest::default(),
        };
        WithEnd::new(held, Held::end)
    }

    /// Closes the descriptors. The host may close them meanwhile, and open other files under
    /// their numbers, so there is a check before each close. The sink comes last: the host
    /// that waits for its end may then close everything, and no close is left.
    ///
    /// The source and the sink are closed on another thread if that may wait: the close of a
    /// connection for its peer (`SO_LINGER`), that of a pipe for its lock, that of a file for
    /// its server.
    fn end(self) {
        let Held {
            registry,
            home,
            socket,
            ends,
            control,
            rest,
        } = self;
        if !registry.has_descriptors() {
            // The wakeup descriptor of the control also stays open: the host may close it
            // just after a check of its identity.
            return std::mem::forget((socket, ends, control, rest));
        }
        drop(control);
        // A child of `fork(2)` may have a copy of the socket, and its parent still uses it.
        if home.is_here() {
            let _ = shutdown(&socket, Shutdown::Both);
        }
        registry.close(socket);
        // The pool may begin late, and a peer may wait for the end of a connection.
        let at_once = |fd: &OwnedFd| socket_linger(fd).is_ok_and(|time| time.is_none());
        let (now, later): (Vec<_>, Vec<_>) = ends.into_iter().partition(at_once);
        now.into_iter().for_each(|fd| registry.close(fd));
        threads::call(move || {
            let later = rest.into_descriptors().chain(later);
            later.for_each(|fd| registry.close(fd));
        });
    }
}
