//! The thread that serves all control descriptors of the process.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::registry::{Message, Registry};
use super::stream::Stream;
use crate::errno::Errno;
use crate::map::Map;
use crate::sys::{self, PerProcess, beyond};
use crate::threads;
use crate::transfer;

/// The number of events that are fetched at a time.
const EVENTS: usize = 64;
/// The event of the wakeup; control descriptors have numbers from 1.
const WAKE: u64 = 0;
/// The longest sleep while there are control descriptors: the host may have closed the
/// descriptors of this thread, and nothing else would wake it then.
const LONGEST: Duration = Duration::from_secs(60);

static REGISTRY: PerProcess<Arc<Registry>> = PerProcess::new();

/// Returns the registry of the process, if its thread runs.
pub(super) fn existing() -> Option<&'static Arc<Registry>> {
    let none = |_: Option<&Arc<Registry>>| Err(());
    (REGISTRY.get_usable(|registry| registry.is_usable(), none)).ok()
}

/// Returns the registry of the process, whose thread runs. Starts it if necessary.
///
/// # Errors
///
/// `EMFILE`, `ENFILE`, `ENOMEM`, `EAGAIN`: no descriptors, memory or thread are
/// available; or the errno of a seccomp filter.
pub(super) fn registry() -> Result<&'static Arc<Registry>, Errno> {
    REGISTRY.get_usable(
        |registry| registry.is_usable(),
        |_| {
            let registry = Arc::new(Registry::new()?);
            let service = Service::new(&registry)?;
            threads::start(c"cordboard-cue", threads::NO_OWNER, move || service.run())?;
            Ok(registry)
        },
    )
}

struct Service {
    registry: Arc<Registry>,
    epoll: OwnedFd,
    streams: Map<u64, Stream>,
}

/// Ends the registry when the thread ends, also by a panic: the next control descriptor
/// starts a new thread.
struct Ends(Arc<Registry>);

impl Drop for Ends {
    fn drop(&mut self) {
        let unread = self.0.end();
        unread.into_iter().for_each(|unread| self.0.discard(unread));
    }
}

impl Service {
    fn new(registry: &Arc<Registry>) -> Result<Service, Errno> {
        let epoll = beyond(epoll::create(CreateFlags::CLOEXEC)?)?;
        let wake = EventData::new_u64(WAKE);
        epoll::add(&epoll, registry.wake(), wake, EventFlags::IN)?;
        // A filter may refuse this call alone: reported here, before the thread starts.
        let mut event = [MaybeUninit::uninit()];
        transfer::fetch(epoll.as_fd(), &mut event, Some(Duration::ZERO))?;
        Ok(Service {
            registry: Arc::clone(registry),
            epoll,
            streams: Map::default(),
        })
    }

    fn run(mut self) {
        self.registry.served_by.begin();
        // Dropped before the streams: a caller that sees its descriptor closed may make
        // another one at once.
        let _ends = Ends(Arc::clone(&self.registry));
        let mut events = [const { MaybeUninit::uninit() }; EVENTS];
        loop {
            let timeout = self.timeout(sys::monotonic());
            let fetched = transfer::fetch(self.epoll.as_fd(), &mut events, timeout);
            // A number may refer to another file by now.
            if !self.registry.wake().is_still_open() {
                return self.forget();
            }
            let ready: Vec<(u64, EventFlags)> = match fetched {
                Ok(events) => events.iter().map(|e| (e.data.u64(), e.flags)).collect(),
                Err(Errno::EINTR) => Vec::new(),
                Err(_) => return self.forget(),
            };
            for (id, flags) in ready {
                match id {
                    WAKE => drop(self.registry.wake().clear()),
                    id => self.handle_event(id, flags),
                }
            }
            for message in self.registry.take() {
                self.handle_message(message);
            }
            self.handle_timers();
        }
    }

    fn timeout(&self, now: Duration) -> Option<Duration> {
        let timers = self.streams.values().filter_map(|stream| stream.timer(now));
        let next = timers.min().map(|at| at.saturating_sub(now));
        let check = (!self.streams.is_empty()).then_some(LONGEST);
        next.into_iter().chain(check).min()
    }

    fn handle_message(&mut self, message: Message) {
        match message {
            Message::New(new) => {
                let id = new.id;
                let stream = Stream::new(*new, &self.registry);
                // Without room for another watch (`EPOLL` limits of the user) its
                // caller sees it closed.
                let data = EventData::new_u64(id);
                if epoll::add(&self.epoll, stream.socket(), data, EventFlags::IN).is_ok() {
                    self.streams.insert(id, stream);
                } else {
                    self.registry.remove(id);
                    stream.close();
                }
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
                    stream.ended();
                }
                self.advance(id);
            }
            #[cfg(test)]
            Message::Panic => std::panic::resume_unwind(Box::new(())),
        }
    }

    fn handle_event(&mut self, id: u64, flags: EventFlags) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if flags.intersects(EventFlags::HUP | EventFlags::ERR) && !stream.is_hung_up() {
            stream.hang_up();
            // It would be reported again and again.
            let _ = epoll::delete(&self.epoll, stream.socket());
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
        stream.advance(sys::monotonic);
        if stream.is_hung_up() {
            return;
        }
        let (reads, writes) = stream.interest();
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, reads);
        flags.set(EventFlags::OUT, writes);
        let _ = epoll::modify(&self.epoll, stream.socket(), EventData::new_u64(id), flags);
    }

    fn end_those_that_are_over(&mut self) {
        let idle = |id: u64| {
            let target = self.streams.get(&id);
            target.is_none_or(Stream::has_nothing_to_do)
        };
        let over: Vec<u64> = (self.streams.values())
            .filter(|stream| stream.is_done() && stream.is_over(stream.target().is_none_or(idle)))
            .map(|stream| stream.id)
            .collect();
        for id in over {
            // Since the last check, a transfer may have been started, which takes long.
            if !self.registry.wake().is_still_open() {
                return;
            }
            self.registry.remove(id);
            if let Some(stream) = self.streams.remove(&id) {
                stream.close();
            }
        }
    }

    /// Ends without closing a descriptor.
    fn forget(self) {
        self.registry.end().into_iter().for_each(std::mem::forget);
        std::mem::forget(self.epoll);
        self.streams.into_values().for_each(Stream::forget);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cue::{Command, Cue, Record};

    /// The control descriptors that it serves are closed. The next one starts a new thread.
    #[test]
    fn a_panic_of_the_thread_does_not_end_control_descriptors_for_good() {
        let fine = testkit::child::in_a_child(|| {
            testkit::child::ends_soon();
            let (source, sink) = std::io::pipe().unwrap();
            let mut served = Cue::new(&source, &sink).unwrap();
            served.send(Command::Status).unwrap();
            assert!(matches!(served.receive(), Ok(Some(Record::Status(_)))));
            let first = registry().unwrap();
            first.send(Message::Panic);
            assert_eq!(served.receive(), Ok(None));
            assert!(!first.is_usable());
            let mut next = Cue::new(&source, &sink).unwrap();
            next.send(Command::Status).unwrap();
            matches!(next.receive(), Ok(Some(Record::Status(_))))
        });
        assert!(fine);
    }

    #[test]
    fn what_an_ended_thread_has_not_read_is_closed() {
        let (source, sink) = std::io::pipe().unwrap();
        let registry = Arc::new(Registry::new().unwrap());
        let make = || {
            let cue = Cue::of(&registry, source.as_fd(), sink.as_fd()).unwrap();
            rustix::io::ioctl_fionbio(&cue, true).unwrap();
            cue
        };
        let mut before = make();
        drop(Ends(Arc::clone(&registry)));
        assert_eq!(before.receive(), Ok(None));
        assert_eq!(make().receive(), Ok(None));
    }
}
