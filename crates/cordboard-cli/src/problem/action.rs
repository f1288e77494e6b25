//! What the command was doing when an error occurred.

use std::fmt;
use std::os::fd::AsFd;

use cordboard::endpoint::{Facts, Filesystem};
use cordboard::{Endpoint, Kind};
use rustix::fs::FileType;

/// What the command was doing when an error occurred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Opening a path.
    Open,
    /// Creating a symlink.
    Symlink,
    /// Connecting to a peer.
    Connect,
    /// Waiting for peers at a local address.
    Listen,
    /// Truncating a file to no bytes.
    Truncate,
    /// Moving bytes.
    Transfer,
    /// Moving bytes through a socket.
    TransferSocket,
    /// Moving bytes of a block device.
    TransferBlockDevice,
    /// Moving bytes of a terminal or another character device.
    TransferCharDevice,
    /// Moving bytes of a file of procfs.
    TransferProcFile,
    /// Moving records of a descriptor such as an eventfd.
    TransferRecords,
    /// Listing a directory.
    List,
    /// Waiting until the data is on the disk.
    Sync,
    /// Reading back what was written.
    ReadBack,
}

impl Action {
    /// Moving bytes of this descriptor. A descriptor for which `fstat(2)` fails is
    /// not a socket, but may be a file whose server has ended.
    pub fn transfer(fd: impl AsFd) -> Action {
        let fd = fd.as_fd();
        let kind = cordboard::fstat(fd).map(|stat| FileType::from_raw_mode(stat.st_mode));
        match kind {
            Ok(FileType::Socket) => Action::TransferSocket,
            Ok(FileType::BlockDevice) => Action::TransferBlockDevice,
            Ok(FileType::CharacterDevice) => Action::TransferCharDevice,
            _ => Endpoint::probe(fd).map_or(Action::Transfer, |found| by_facts(found.facts())),
        }
    }
}

fn by_facts(facts: &Facts) -> Action {
    match facts.kind {
        Kind::Pseudo if facts.filesystem.and_then(Filesystem::name) == Some("proc") => {
            Action::TransferProcFile
        }
        Kind::Eventfd | Kind::Timerfd | Kind::Signalfd | Kind::Inotify => Action::TransferRecords,
        _ => Action::Transfer,
    }
}

/// Formats the words between the errno and the side of a message.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Action::Open => "opening",
            Action::Symlink => "creating the symlink at",
            Action::Connect => "connecting to",
            Action::Listen => "listening as",
            Action::Truncate => "truncating",
            Action::Transfer
            | Action::TransferSocket
            | Action::TransferBlockDevice
            | Action::TransferCharDevice
            | Action::TransferProcFile
            | Action::TransferRecords => "at",
            Action::List => "listing",
            Action::Sync => "syncing",
            Action::ReadBack => "reading back",
        })
    }
}
