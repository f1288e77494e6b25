//! Opening several endpoints of one side, none of which delays the others.

use std::time::Duration;

use cordboard::Side;
use rustix::event::{PollFd, PollFlags};

use super::listening::{Listening, Shared};
use super::name::Name;
use super::open::{look_up, sink, sink_of_several, source, source_of_several};
use super::opened::{Existing, Opened};
use super::sockets::Operand;
use crate::interruptible::{pause, wait_for_any};
use crate::problem::{Action, Problem};

/// The interval at which FIFOs without a reader are tried again.
const READER_CHECK: Duration = Duration::from_millis(20);

/// A problem, the index of its endpoint, and the endpoints that were opened before.
pub struct Unopened {
    /// The problem.
    pub problem: Problem,
    /// The index of the endpoint that could not be opened.
    pub index: usize,
    /// The endpoints that were opened.
    pub opened: Vec<Opened>,
}

enum State {
    Unopened,
    Listening(Listening),
    Open(Opened),
}

/// Opens the sources.
pub fn sources(
    names: &[Name],
    shown: &[String],
    shared: &mut Shared,
) -> Result<Vec<Opened>, Box<Unopened>> {
    let open = |name: &Name, shown: &str, _| match names.len() {
        1 => source(name, shown).map(Some),
        _ => source_of_several(name, shown).map(Some),
    };
    open_all((names, shown, Side::Source), &open, shared)
}

/// Opens the sinks. A process may open several FIFOs for reading, in any order.
pub fn sinks(
    names: &[Name],
    shown: &[String],
    existing: Existing,
    shared: &mut Shared,
) -> Result<Vec<Opened>, Box<Unopened>> {
    let open = |name: &Name, shown: &str, is_last| match is_last {
        true => sink(name, shown, existing).map(Some),
        false => sink_of_several(name, shown, existing),
    };
    open_all((names, shown, Side::Sink), &open, shared)
}

/// Removes the files that were created, and adds those that stay to a problem.
pub fn leaving(problem: Problem, mut sinks: Vec<Opened>) -> Problem {
    // Another name of a file that was created: a file that is open twice is not removed.
    sinks.retain(Opened::is_new);
    let left = sinks.iter().filter_map(Opened::remove_if_unused);
    left.fold(problem, |problem, left| problem.leaving(Some(left)))
}

/// Looks up all hosts before anything is created. Then binds all sockets that wait for a peer,
/// opens the others, and waits for all that are missing. `open`: its last argument is true for
/// the last one that is missing; `None`: it cannot be opened yet.
fn open_all(
    (names, shown, side): (&[Name], &[String], Side),
    open: Open<'_>,
    shared: &mut Shared,
) -> Result<Vec<Opened>, Box<Unopened>> {
    let mut opening = Opening {
        names,
        shown,
        side,
        states: names.iter().map(|_| State::Unopened).collect(),
    };
    let done = opening.run(open, shared);
    let opened = opening.states.into_iter().filter_map(|state| match state {
        State::Open(opened) => Some(opened),
        _ => None,
    });
    let opened = opened.collect();
    match done {
        Ok(()) => Ok(opened),
        Err((index, problem)) => Err(Box::new(Unopened {
            problem,
            index,
            opened,
        })),
    }
}

struct Opening<'a> {
    names: &'a [Name],
    shown: &'a [String],
    side: Side,
    states: Vec<State>,
}

type Open<'a> = &'a dyn Fn(&Name, &str, bool) -> Result<Option<Opened>, Problem>;

impl<'a> Opening<'a> {
    fn operand(&self, index: usize) -> Operand<'a> {
        Operand {
            shown: &self.shown[index],
            side: self.side,
        }
    }

    fn run(&mut self, open: Open<'_>, shared: &mut Shared) -> Result<(), (usize, Problem)> {
        let all = 0..self.names.len();
        for index in all.clone() {
            let found = look_up(&self.names[index], self.operand(index));
            found.map_err(|problem| (index, problem))?;
        }
        loop {
            for index in all.clone() {
                self.begin(index, shared)
                    .map_err(|problem| (index, problem))?;
            }
            for index in all.clone() {
                self.attempt(index, open, shared)
                    .map_err(|problem| (index, problem))?;
            }
            let open = |state: &State| matches!(state, State::Open(_));
            let Some(missing) = self.states.iter().position(|state| !open(state)) else {
                return Ok(());
            };
            self.wait(missing).map_err(|problem| (missing, problem))?;
        }
    }

    /// Binds a socket that waits for a peer. If an endpoint of the same name waits, it has the
    /// listener until its peer is there.
    fn begin(&mut self, index: usize, shared: &mut Shared) -> Result<(), Problem> {
        let waits = |other: &usize| {
            let listens = matches!(self.states[*other], State::Listening(_));
            listens && self.names[*other].is_same_address(&self.names[index])
        };
        let is_unopened = matches!(self.states[index], State::Unopened);
        if is_unopened && !(0..self.names.len()).any(|other| waits(&other)) {
            let begun = Listening::begin(&self.names[index], self.operand(index), shared)?;
            if let Some(listening) = begun {
                self.states[index] = State::Listening(listening);
            }
        }
        Ok(())
    }

    fn attempt(
        &mut self,
        index: usize,
        open: Open<'_>,
        shared: &mut Shared,
    ) -> Result<(), Problem> {
        let is_last = self.missing() == 1;
        let operand = self.operand(index);
        let name = &self.names[index];
        let state = std::mem::replace(&mut self.states[index], State::Unopened);
        self.states[index] = match state {
            State::Open(opened) => State::Open(opened),
            State::Listening(listening) => match listening.try_accept(name, operand, shared)? {
                Ok(opened) => State::Open(opened),
                Err(listening) => State::Listening(listening),
            },
            // An endpoint of the same name has the listener.
            State::Unopened if Listening::is_one(name, self.side) => State::Unopened,
            State::Unopened => match open(name, operand.shown, is_last)? {
                Some(opened) => State::Open(opened),
                None => State::Unopened,
            },
        };
        Ok(())
    }

    fn missing(&self) -> usize {
        let open = |state: &&State| !matches!(state, State::Open(_));
        self.states.iter().filter(open).count()
    }

    /// Waits until another attempt may succeed. `missing`: the first one that is missing.
    fn wait(&self, missing: usize) -> Result<(), Problem> {
        let listening = self.states.iter().filter_map(|state| match state {
            State::Listening(listening) => Some(PollFd::new(listening, PollFlags::IN)),
            _ => None,
        });
        let mut fds: Vec<PollFd<'_>> = listening.collect();
        let unopened = self.missing() - fds.len();
        // No descriptor reports a reader that opens a FIFO. The last one is waited for by open(2).
        match (fds.len(), unopened) {
            (0, 1) => Ok(()),
            (0, _) => Ok(pause(READER_CHECK)?),
            _ => {
                let time = (unopened > 0).then_some(READER_CHECK);
                wait_for_any(&mut fds, time)?
                    .map_err(|errno| self.operand(missing).problem(errno, Action::Listen))?;
                Ok(())
            }
        }
    }
}
