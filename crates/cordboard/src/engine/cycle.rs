//! The cycle of a reactor thread: messages, a turn of each queued transfer, a sleep.
//!
//! The state of the thread is in its [`Takeover`] while the thread sleeps on
//! descriptors, and during each step that may block. A watchdog can take the state
//! from there and run the cycle on another thread. `crates/model` runs this file and
//! tries the interleavings.

use std::time::Duration;

use super::inbox::Inbox;
use super::sync::Errno;
use super::takeover::Takeover;

/// The capacity for messages that an idle thread keeps.
const KEPT: usize = 256;

/// The operations of one reactor. All its threads share it.
pub(crate) trait Cycle {
    /// The state, which one thread owns at a time.
    type State;
    type Message;
    /// The buffer for events.
    type Events;
    /// The events of one call.
    type Ready<'a>;

    fn inbox(&self) -> &Inbox<Self::Message>;

    fn takeover(&self) -> &Takeover<Self::State>;

    /// Returns whether the engine has shut down.
    fn is_done(&self) -> bool;

    fn handle_message(&self, state: &mut Self::State, message: Self::Message);

    /// Runs after the messages of each round and before its turns.
    fn prepare(&self, state: &mut Self::State);

    /// Returns the number of queued transfers.
    fn queued(&self, state: &Self::State) -> usize;

    /// Takes one step of the transfer that is first in the queue. `None`: another
    /// thread has taken over.
    fn turn(&self, state: Self::State) -> Option<Self::State>;

    /// Returns whether the state has no descriptors or timers to wait for.
    fn waits_for_messages_only(&self, state: &Self::State) -> bool;

    /// Returns the timeout of the next sleep; `None`: no limit.
    fn longest_sleep(&self, state: &Self::State) -> Option<Duration>;

    /// Fails if this thread can no longer use its descriptors.
    fn check(&self) -> Result<(), Errno>;

    /// As [`Cycle::check`], but does not rely on an earlier check.
    fn check_now(&self) -> Result<(), Errno>;

    /// Waits for events.
    fn fetch<'a>(
        &self,
        events: &'a mut Self::Events,
        timeout: Option<Duration>,
    ) -> Result<Self::Ready<'a>, Errno>;

    fn handle_events(&self, state: &mut Self::State, ready: Self::Ready<'_>) -> Result<(), Errno>;

    /// Ends all transfers, after waiting has become impossible.
    fn fail_all(&self, state: Self::State, errno: Errno);
}

/// Runs until the engine has shut down, or another thread has taken over.
pub(crate) fn run<C: Cycle>(cycle: &C, mut state: C::State, events: &mut C::Events) {
    let mut messages = Vec::new();
    while !cycle.is_done() {
        let no_messages = read_messages(cycle, &mut state, &mut messages);
        cycle.prepare(&mut state);
        // Transfers that this round queues wait for the next one.
        for _ in 0..cycle.queued(&state) {
            match cycle.turn(state) {
                Some(back) => state = back,
                None => return,
            }
        }
        // Read again before a sleep: that is no system call.
        let no_messages = no_messages
            || cycle.queued(&state) == 0 && read_messages(cycle, &mut state, &mut messages);
        let timeout = match no_messages && cycle.queued(&state) == 0 {
            true => cycle.longest_sleep(&state),
            false => Some(Duration::ZERO),
        };
        match wait(cycle, state, timeout, events) {
            Some((back, Ok(()))) => state = back,
            Some((back, Err(errno))) => return cycle.fail_all(back, errno),
            None => return,
        }
    }
}

/// Handles all messages. Returns true if there were none.
fn read_messages<C: Cycle>(
    cycle: &C,
    state: &mut C::State,
    messages: &mut Vec<C::Message>,
) -> bool {
    cycle.inbox().take(messages);
    let none = messages.is_empty();
    for message in messages.drain(..) {
        cycle.handle_message(state, message);
    }
    // A burst of messages leaves no memory behind.
    messages.shrink_to(KEPT);
    none
}

/// Waits for messages, and for descriptors if the state has any. `None`: another
/// thread has taken over.
///
/// # Errors
///
/// Those of [`Cycle::check`] and [`Cycle::fetch`]; every later call fails as well.
pub(crate) fn wait<C: Cycle>(
    cycle: &C,
    mut state: C::State,
    timeout: Option<Duration>,
    events: &mut C::Events,
) -> Option<(C::State, Result<(), Errno>)> {
    // A busy thread never sleeps, and could fetch events of the host's epoll
    // instance.
    if let Err(errno) = cycle.check() {
        return Some((state, Err(errno)));
    }
    let ready = if timeout == Some(Duration::ZERO) {
        cycle.fetch(events, timeout)
    } else if cycle.waits_for_messages_only(&state) {
        // A condition variable, not a descriptor: the host cannot close it.
        let result = match cycle.inbox().wait(timeout) {
            true => cycle.check_now(),
            false => cycle.check(),
        };
        return Some((state, result));
    } else {
        let takeover = cycle.takeover();
        let (back, ready) = takeover.sleep(state, move || cycle.fetch(events, timeout))?;
        state = back;
        ready
    };
    let result = ready.and_then(|ready| cycle.handle_events(&mut state, ready));
    Some((state, result))
}
