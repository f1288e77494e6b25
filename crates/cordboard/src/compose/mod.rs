//! Shared by the compositions of transfers (fan-in, fan-out, buffer): private channels
//! between transfers, a transfer that its composition steps, and waits for several
//! descriptors.

mod channel;
mod content;
mod drain;
mod edge;
mod intake;
mod wait;

pub(crate) use channel::{Channel, enlarge, messages_stay};
pub(crate) use content::{bytes_of, content, length_of, read_exactly, receive, stranded};
pub(crate) use drain::{Drain, RETRY, Wake, excuse_reader};
pub(crate) use intake::{Halt, Intake, longest, refusal};
#[cfg(test)]
pub(crate) use wait::Refuses;
pub(crate) use wait::{Poll, Waiter};
