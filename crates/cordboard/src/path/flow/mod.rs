//! The state that a step works on: both ends, the allowance, the counts.

mod account;
mod allowance;
pub(crate) mod cursor;
mod end;
pub(crate) mod enlarged_pipes;
#[expect(clippy::module_inception, reason = "the structure of that name")]
mod flow;
mod mode;
mod ready;
mod source_end;
mod wanted;

pub(crate) use allowance::{Allowance, SHORT_BURSTS};
pub(crate) use end::End;
pub(crate) use flow::{Flow, Joins};
pub(crate) use mode::Mode;
pub(crate) use ready::Ready;
