//! The thread that serves all control descriptors of the process.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::registry::{Message, Registry, Socket};
use super::stream::{Port, Stream};
use crate::errno::Errno;
use crate::map::Map;
use crate::sys::{self, PerProcess, Thread, WithEnd, beyond};
use crate::threads;
use crate::transfer;

/// The number of events that are fetched at a time.
const EVENTS: usize = 64;
/// The event of the wakeup; control descriptors have numbers from 1.
const WAKE: u64 = 0;
/// The event of a connection has the number of its control descriptor, and from this bit on its
/// own one, which is lower than the number of links at a time.
const PORT: u32 = 40;
/// In place of the number of a connection: the source of a link.
const SOURCE: u32 = (1 << (u64::BITS - PORT)) - 1;

/// Returns the event of a connection.
fn event(id: u64, port: u32) -> EventData {
    EventData::new_u64(id | u64::from(port) << PORT)
}

/// Returns the control descriptor and the connection of an event.
fn connection(event: u64) -> (u64, u32) {
    (event & ((1 << PORT) - 1), (event >> PORT) as u32)
}

/// The longest sleep: the host may have closed the descriptors of this thread, and nothing
/// else would wake it then. A thread without control descriptors would never end.
const LONGEST: Duration = Duration::from_secs(60);

/// Adds a connection to the epoll instance, which may have no room for it: `ENOSPC`, the limit of
/// the user (`/proc/sys/fs/epoll/max_user_watches`), or `ENOMEM`.
fn watch(epoll: &OwnedFd, id: u64, port: &mut Port) {
    let data = event(id, port.number);
    port.is_unwatched = epoll::add(epoll, port.socket(), data, EventFlags::IN).is_err();
}

/// Tries again to add a connection to the epoll instance. Otherwise finds out whether its peer has
/// gone, which no read shows without room for commands.
fn poll(epoll: &OwnedFd, id: u64, port: &mut Port) {
    watch(epoll, id, port);
    if !port.is_unwatched {
        return;
    }
    let shown = sys::poll_now(port.socket(), PollFlags::RDHUP);
    let shows = |flags| shown.is_ok_and(|shown| shown.shows(flags) == Some(true));
    if shows(PollFlags::RDHUP) {
        port.leave();
    }
    if shows(PollFlags::HUP | PollFlags::ERR) {
        port.hang_up();
    }
}

static SERVING: PerProcess<Serving> = PerProcess::new();

/// A registry whose thread runs.
struct Serving(Arc<Registry>);

impl Serving {
    fn start() -> Result<Serving, Errno> {
        let registry = Arc::new(Registry::new()?);
        let service = Service::new(&registry)?;
        threads::start(c"cordboard-cue", threads::NO_OWNER, move || service.run())?;
        Ok(Serving(registry))
    }

    fn is_usable(&self) -> bool {
        self.0.is_usable()
    }
}

impl Drop for Serving {
    /// Another thread has started one at the same time, which is kept.
    fn drop(&mut self) {
        self.0.retire();
    }
}

/// Returns the registry of the process, if its thread runs.
pub(super) fn existing() -> Option<&'static Arc<Registry>> {
    let none = |_: Option<&Serving>| Err(());
    let serving = SERVING.get_usable(Serving::is_usable, none);
    serving.ok().map(|serving| &serving.0)
}

/// Returns the registry of the process, whose thread runs. Starts it if necessary, with the
/// first thread's descriptor table: one with another table would refuse all other threads.
///
/// # Errors
///
/// * `EBADF`: the calling thread has its own descriptor table.
/// * `EMFILE`, `ENFILE`, `ENOMEM`, `EAGAIN`: no descriptor, memory or thread is available.
/// * The errno of a seccomp filter.
pub(super) fn registry() -> Result<&'static Arc<Registry>, Errno> {
    let serving = SERVING.get_usable(Serving::is_usable, |_| {
        match Thread::first().shares_descriptors() {
            Some(false) => Err(Errno::EBADF),
            _ => Serving::start(),
        }
    })?;
    Ok(&serving.0)
}

/// Dropped when the thread ends, also by a panic: each caller reads its end.
struct Service {
    registry: Arc<Registry>,
    epoll: WithEnd<(OwnedFd, Arc<Registry>)>,
    streams: Map<u64, Stream>,
}

impl Drop for Service {
    /// Ends the registry: the next control descriptor starts a new thread. The streams are
    /// dropped later: a caller that reads its end may make another descriptor at once.
    fn drop(&mut self) {
        let registry = &self.registry;
        let unread = registry.end();
        unread.into_iter().for_each(|one| registry.discard(one));
    }
}

impl Service {
    fn new(registry: &Arc<Registry>) -> Result<Service, Errno> {
        let epoll = beyond(epoll::create(CreateFlags::CLOEXEC)?)?;
        let wake = EventData::new_u64(WAKE);
        epoll::add(&epoll, registry.wake(), wake, registry.wake().events())?;
        // A filter may refuse this call alone: reported here, before the thread starts.
        let mut event = [MaybeUninit::uninit()];
        transfer::fetch(epoll.as_fd(), &mut event, Some(Duration::ZERO))?;
        Ok(Service {
            registry: Arc::clone(registry),
            epoll: WithEnd::new((epoll, Arc::clone(registry)), |(epoll, registry)| {
                registry.close(epoll);
            }),
            streams: Map::default(),
        })
    }

    fn run(mut self) {
        self.registry.served_by.begin();
        let mut events = [const { MaybeUninit::uninit() }; EVENTS];
        loop {
            let timeout = Some(self.timeout(sys::monotonic()));
            let fetched = transfer::fetch(self.epoll.0.as_fd(), &mut events, timeout);
            // A number may refer to another file by now.
            if !self.registry.is_usable() {
                return;
            }
            let ready: Vec<(u64, EventFlags)> = match fetched {
                Ok(events) => events.iter().map(|e| (e.data.u64(), e.flags)).collect(),
                Err(Errno::EINTR) => Vec::new(),
                // The host has closed its number, or has another file there:
                // epoll_wait(2).
                Err(Errno::EBADF | Errno::EINVAL) => return self.registry.lose_descriptors(),
                // A filter refuses the call.
                Err(_) => return,
            };
            for (id, flags) in ready {
                match id {
                    WAKE => self.clear_wake(),
                    event => self.handle_event(connection(event), flags),
                }
            }
            for message in self.registry.take() {
                self.handle_message(message);
            }
            self.handle_timers();
        }
    }

    /// Clears the wakeup. If a filter refuses that, the wakeup stays readable, and an event each
    /// time would keep the thread busy.
    fn clear_wake(&self) {
        let data = EventData::new_u64(WAKE);
        self.registry.wake().clear_in(&self.epoll.0, data);
    }

    fn timeout(&self, now: Duration) -> Duration {
        let timers = self.streams.values().filter_map(|stream| stream.timer(now));
        let next = timers.min().map(|at| at.saturating_sub(now));
        next.unwrap_or(LONGEST).min(LONGEST)
    }

    fn handle_message(&mut self, message: Message) {
        match message {
            Message::New(new) => {
                let id = new.id;
                let (mut stream, link) = Stream::new(*new);
                if let Some(link) = link {
                    self.attach(link.target, id, link.socket);
                    self.registry.close(link.held_open);
                }
                for port in stream.ports_mut() {
                    watch(&self.epoll.0, id, port);
                }
                self.streams.insert(id, stream);
                self.advance(id);
            }
            Message::Started(id, result) => {
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.started(*result);
                }
                self.advance(id);
            }
            Message::Ended(id) => {
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.ended(sys::monotonic());
                }
                self.advance(id);
            }
            Message::Answered(id) => {
                let target = self.streams.get_mut(&id).and_then(|stream| {
                    stream.answered();
                    stream.target()
                });
                // They have no reader any more.
                self.tell_target(target, id, Port::discard_records);
            }
            #[cfg(test)]
            Message::Panic => std::panic::resume_unwind(Box::new(())),
        }
    }

    /// Adds the connection of a link to its target. If the target has ended, the link finds the
    /// connection closed.
    fn attach(&mut self, target: u64, link: u64, socket: WithEnd<Socket>) {
        let Some(stream) = self.streams.get_mut(&target) else {
            return;
        };
        let number = stream.next_port();
        stream.attach(number, link, socket);
        if let Some(port) = stream.port_mut(number) {
            watch(&self.epoll.0, target, port);
        }
        self.advance(target);
    }

    /// Changes the connection of a link to its target.
    fn tell_target(&mut self, target: Option<u64>, link: u64, change: impl FnOnce(&mut Port)) {
        let port = target.and_then(|id| self.streams.get_mut(&id)?.port_of(link));
        if let (Some(port), Some(target)) = (port, target) {
            change(port);
            self.advance(target);
        }
    }

    /// The peer of a link has closed its end, or sends no more commands.
    fn source_ended(&mut self, id: u64, flags: EventFlags) {
        // The error queue of a socket that is connected (EPOLLERR alone).
        if !flags.intersects(EventFlags::HUP | EventFlags::RDHUP) {
            return;
        }
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        let target = stream.target();
        self.stop_watching_source(stream);
        let is_closed = flags.contains(EventFlags::HUP);
        self.tell_target(target, id, |port| {
            port.leave();
            if is_closed {
                port.discard_records();
            }
        });
    }

    fn stop_watching_source(&self, stream: &Stream) {
        if stream.target().is_some() {
            let _ = epoll::delete(&self.epoll.0, stream.held.ends[0].as_fd());
        }
    }

    fn handle_event(&mut self, (id, port): (u64, u32), flags: EventFlags) {
        if port == SOURCE {
            return self.source_ended(id, flags);
        }
        let port = (self.streams.get_mut(&id)).and_then(|stream| stream.port_mut(port));
        if let Some(port) = port {
            if flags.contains(EventFlags::RDHUP) {
                port.leave();
            }
            if flags.intersects(EventFlags::HUP | EventFlags::ERR) && !port.is_hung_up() {
                port.hang_up();
                // It would be reported again and again.
                let _ = epoll::delete(&self.epoll.0, port.socket());
            }
        }
        self.advance(id);
    }

    fn handle_timers(&mut self) {
        let now = sys::monotonic();
        let due = |stream: &Stream| stream.timer(now).is_some_and(|at| at <= now);
        let due: Vec<u64> = (self.streams.iter())
            .filter(|(_, stream)| due(stream))
            .map(|(id, _)| *id)
            .collect();
        due.into_iter().for_each(|id| self.advance(id));
        self.end_those_that_are_over();
    }

    fn advance(&mut self, id: u64) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        for port in stream.ports_mut() {
            if port.is_unwatched && !port.is_hung_up() {
                poll(&self.epoll.0, id, port);
            }
        }
        stream.advance(sys::monotonic);
        // The transfer of the commands does not poll its source while the target accepts none.
        // EPERM: a file, which has no other end.
        if let Some(source) = stream.source_to_watch() {
            let flags = EventFlags::RDHUP | EventFlags::ET;
            let _ = epoll::add(&self.epoll.0, source, event(id, SOURCE), flags);
        }
        // A child of `fork(2)` may have a copy, which would be reported again and again.
        for ended in stream.take_ended() {
            let _ = epoll::delete(&self.epoll.0, ended.socket());
        }
        let is_watched = |port: &&Port| !port.is_unwatched && !port.is_hung_up();
        for port in stream.ports().iter().filter(is_watched) {
            let (reads, writes) = port.interest();
            let mut flags = EventFlags::empty();
            flags.set(EventFlags::IN, reads);
            flags.set(EventFlags::OUT, writes);
            flags.set(EventFlags::RDHUP, port.awaits_leave());
            let data = event(id, port.number);
            let _ = epoll::modify(&self.epoll.0, port.socket(), data, flags);
        }
    }

    fn end_those_that_are_over(&mut self) {
        let over: Vec<u64> = (self.streams.values_mut())
            .filter_map(|stream| stream.is_over().then_some(stream.id))
            .collect();
        for id in over {
            // Since the last check, a transfer may have been started, which takes long.
            if !self.registry.has_descriptors() {
                return;
            }
            self.registry.remove(id);
            let Some(stream) = self.streams.remove(&id) else {
                continue;
            };
            self.stop_watching_source(&stream);
            for port in stream.ports() {
                let _ = epoll::delete(&self.epoll.0, port.socket());
            }
        }
    }
}

#[cfg(test)]
mod tests;
