//! What all files of one command have in common.

#[cfg(test)]
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use cordboard::{Control, Request};

use super::directories::Spares;
use super::overwrite::{Sources, Written};
use super::place::Place;
use crate::files::SocketId;
use crate::stages::Staging;

/// What all files of one command have in common.
#[derive(Debug)]
pub struct Job {
    pub request: Request,
    /// The last operand.
    pub destination: PathBuf,
    pub recursive: bool,
    pub preserve: bool,
    pub append: bool,
    pub sync: bool,
    pub control: &'static Control,
    /// The stages of each transfer.
    pub staging: Staging,
    /// The request was found to be acceptable.
    pub checked: AtomicBool,
    /// No more files are started: see [`abort`](super::abort).
    pub aborted: AtomicBool,
    /// Bytes of the sinks that were read back and compared (`--verify`).
    pub read_back: AtomicU64,
    /// What was made so far.
    pub written: Written,
    /// The operands.
    pub sources: Sources,
    /// The control socket of this command, which is omitted.
    pub own_socket: Option<SocketId>,
    /// Directories that are closed if no descriptor is left.
    pub spares: Arc<Spares>,
    /// What a test does at these moments of a file.
    #[cfg(test)]
    pub fault: Option<fn(Moment, &Path)>,
}

impl Job {
    /// Whether it is the control socket of this command, which the command has made.
    pub fn is_own_socket(&self, place: &Place<'_>) -> bool {
        let own = self.own_socket;
        own.is_some_and(|own| place.stat().is_ok_and(|stat| own.is(&stat)))
    }
}

/// When a [fault](Job::fault) occurs.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    Opening,
    Settling,
}

#[cfg(test)]
impl Job {
    /// A job without options.
    pub fn plain(control: &'static Control) -> Job {
        Job {
            request: Request {
                sparse: cordboard::Sparse::Never,
                ..Request::default()
            },
            destination: PathBuf::new(),
            recursive: false,
            preserve: false,
            append: false,
            sync: false,
            control,
            staging: Staging::default(),
            checked: AtomicBool::new(false),
            aborted: AtomicBool::new(false),
            read_back: AtomicU64::new(0),
            written: Written::default(),
            sources: Sources::default(),
            own_socket: None,
            spares: Arc::default(),
            fault: None,
        }
    }
}
