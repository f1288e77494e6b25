//! All transfers that are shown, and the connections to them. The caller passes the time.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use cordboard::Errno;
use cordboard::cue::Command;

use super::peer::{Event, Peer};
use super::row::{Id, Row};
use crate::cue::name_of;
use crate::problem::Problem;
use crate::registry::{Directory, Entry, Opened, Places};

/// The maximum number of connections.
const MOST: usize = 500;
/// The time for which a transfer is shown after its end.
const AFTER: Duration = Duration::from_secs(3);

/// The transfers.
pub struct Fleet {
    places: Option<Places>,
    members: Vec<Member>,
    next: Id,
    left_out: Option<LeftOut>,
}

/// Why commands may not be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeftOut {
    /// No descriptor is available for their connections.
    Descriptors(Errno),
    /// There are more than the maximum number of connections.
    Most,
    /// A directory cannot be used. Commands have no entries in it, unless it was changed since.
    Directory(String),
}

impl std::fmt::Display for LeftOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LeftOut::Descriptors(errno) => write!(f, "some commands are not shown: {errno}"),
            LeftOut::Most => write!(f, "only {MOST} commands are shown"),
            LeftOut::Directory(problem) => write!(f, "{problem}"),
        }
    }
}

/// An entry, with its name and its directory.
type Found<'a> = (&'a Directory, OsString, Entry);

struct Member {
    /// The name of its entry. `None`: the user has named the socket.
    entry: Option<OsString>,
    peer: Option<Peer>,
    row: Row,
    ended: Option<Duration>,
}

impl Fleet {
    /// Creates the list of the commands in these directories.
    pub fn of(places: Places) -> Fleet {
        Fleet {
            places: Some(places),
            members: Vec::new(),
            next: 1,
            left_out: None,
        }
    }

    /// Creates the list of these control sockets.
    pub fn named(peers: Vec<(String, Peer)>) -> Fleet {
        let mut fleet = Fleet {
            places: None,
            members: Vec::new(),
            next: 1,
            left_out: None,
        };
        for (label, peer) in peers {
            fleet.add(None, label, None, peer);
        }
        fleet
    }

    fn add(&mut self, entry: Option<OsString>, label: String, pid: Option<u32>, peer: Peer) {
        self.members.push(Member {
            entry,
            peer: Some(peer),
            row: Row::new(self.next, label, pid),
            ended: None,
        });
        self.next += 1;
    }

    /// Adds new commands, and removes the entries of processes that have ended. Fails if no
    /// directory can be used.
    pub fn scan(&mut self) -> Result<(), Problem> {
        let Some(places) = &self.places else {
            return Ok(());
        };
        let Opened {
            directories,
            mut problem,
            is_first,
        } = places.open();
        let mut all = Vec::new();
        let mut is_lost = is_first;
        let mut is_any_read = false;
        for directory in &directories {
            match directory.entries() {
                Ok(entries) => {
                    is_any_read = true;
                    all.extend((entries.into_iter()).map(|(name, entry)| (directory, name, entry)))
                }
                Err(unreadable) => {
                    is_lost = true;
                    problem = problem.or(Some(unreadable));
                }
            }
        }
        // A name begins with the time of the start.
        all.sort_by(|a: &Found<'_>, b| a.1.cmp(&b.1));
        self.left_out = None;
        self.add_new(&all);
        let Some(problem) = problem else {
            return Ok(());
        };
        let left_out = match problem.errno {
            Some(errno @ (Errno::EMFILE | Errno::ENFILE)) => LeftOut::Descriptors(errno),
            _ if is_lost && !is_any_read => return Err(problem),
            _ => LeftOut::Directory(format!("{}: {}", problem.operand, problem.text)),
        };
        self.left_out.get_or_insert(left_out);
        Ok(())
    }

    fn add_new(&mut self, all: &[Found<'_>]) {
        for (directory, name, entry) in all {
            let is_known = |member: &Member| member.entry.as_ref() == Some(name);
            if self.members.iter().any(is_known) {
                continue;
            }
            if self.members.len() >= MOST {
                self.left_out = Some(LeftOut::Most);
                break;
            }
            match Peer::connect(&entry.socket) {
                // The process was killed, and another one listens there. Its label would be wrong.
                Ok(peer) if is_of_another(&peer, entry, all) => directory.forget(name, entry),
                Ok(peer) if peer.is_ours() => {
                    let label = label_of(entry);
                    // A process in a PID namespace has written its number there.
                    let pid = peer.process().unwrap_or(entry.pid);
                    self.add(Some(name.clone()), label, Some(pid), peer);
                }
                // The process was killed.
                Err(Errno::ECONNREFUSED | Errno::ENOENT) => directory.remove(name, entry),
                // The others would not be found either.
                Err(errno @ (Errno::EMFILE | Errno::ENFILE)) => {
                    self.left_out = Some(LeftOut::Descriptors(errno));
                    break;
                }
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// Returns why the last scan left out commands, if it did.
    pub fn left_out(&self) -> Option<&LeftOut> {
        self.left_out.as_ref()
    }

    /// Requests the status of all transfers.
    pub fn ask(&mut self) {
        for member in &mut self.members {
            if let Some(peer) = &mut member.peer {
                peer.ask();
                member.row.asked();
            }
        }
    }

    /// Sends a command, and requests the status after it. The row has the effect at once, so
    /// that the next key begins there.
    pub fn send(&mut self, id: Id, command: Command) {
        let mut members = self.members.iter_mut();
        if let Some(member) = members.find(|member| member.row.id == id)
            && let Some(peer) = &mut member.peer
            && let Some(answers) = peer.send(command)
        {
            member.row.sent(command, answers);
        }
    }

    /// Receives the records that have arrived. Returns the last refusal, as a message.
    pub fn receive(&mut self, now: Duration) -> Option<String> {
        let mut message = None;
        for member in &mut self.members {
            let events = member.peer.as_mut().map(Peer::receive);
            for event in events.unwrap_or_default() {
                match event {
                    Event::Status(status) => member.row.update(status),
                    Event::Done(done) => member.row.done(&done),
                    Event::Refused(word, errno) => message = Some(refusal(word, errno)),
                    Event::Closed => {
                        member.row.closed();
                        member.peer = None;
                        member.ended = Some(now);
                    }
                }
            }
        }
        let is_shown = |member: &Member| member.ended.is_none_or(|ended| now < ended + AFTER);
        self.members.retain(is_shown);
        message
    }

    /// Returns the rows, in the order in which they were found.
    pub fn rows(&self) -> Vec<&Row> {
        self.members.iter().map(|member| &member.row).collect()
    }

    /// Returns whether the status of every connected transfer has arrived.
    pub fn is_complete(&self) -> bool {
        let waits = |member: &Member| member.peer.is_some() && member.row.status.is_none();
        !self.members.iter().any(waits)
    }

    /// Returns the descriptors to poll for reading.
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.members
            .iter()
            .filter_map(|member| member.peer.as_ref())
            .map(AsFd::as_fd)
    }
}

fn label_of(entry: &Entry) -> String {
    match entry.command.as_str() {
        "splice" => entry.label.clone(),
        command => format!("{command} {}", entry.label),
    }
}

/// Whether the process that listens is not that of the entry. In another PID namespace, it has
/// another number than in the entry: then only if it has an entry of its own for this socket.
fn is_of_another(peer: &Peer, entry: &Entry, all: &[Found<'_>]) -> bool {
    match peer.process() {
        Some(pid) if pid == entry.pid => false,
        Some(pid) if entry.is_elsewhere() => {
            let is_its_own =
                |(_, _, other): &Found<'_>| other.pid == pid && other.socket == entry.socket;
            all.iter().any(is_its_own)
        }
        Some(_) => true,
        None => entry.is_here(),
    }
}

fn refusal(word: u32, errno: Errno) -> String {
    let name = name_of(word);
    match errno {
        Errno::EPERM => format!("{name} was refused: a limit forbids it (EPERM)"),
        errno => format!("{name} was refused: {errno}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A socket that listens in this directory, and its entry in another.
    fn entry(base: &std::path::Path) -> (std::os::unix::net::UnixListener, Entry) {
        let socket = base.join("s").into_os_string();
        let entry = Entry::new("splice", "a -> b".to_owned(), socket);
        let listener = std::os::unix::net::UnixListener::bind(&entry.socket).unwrap();
        (listener, entry)
    }

    /// The list stays, and says that it is not complete.
    #[test]
    fn a_command_without_a_descriptor_for_its_connection_is_left_out() {
        let base = tempfile::tempdir().unwrap();
        let places = Places::only(base.path());
        let (_listener, entry) = entry(base.path());
        let directory = Directory::at(places.first()).unwrap();
        let _registered = directory.register(&entry).unwrap();
        let mut fleet = Fleet::of(places);
        for call in [libc::SYS_socket, libc::SYS_openat] {
            testkit::refuse::apart(|| {
                testkit::refuse::refuse(&[call], libc::EMFILE);
                fleet.scan().unwrap();
            });
            let left_out = fleet.left_out().unwrap();
            assert_eq!(*left_out, LeftOut::Descriptors(Errno::EMFILE));
            assert!(fleet.rows().is_empty());
        }
        fleet.scan().unwrap();
        assert_eq!((fleet.left_out(), fleet.rows().len()), (None, 1));
    }

    /// The process of the entry was killed. The keys would steer the transfer of another one.
    #[test]
    fn a_process_does_not_get_the_label_of_another_one() {
        let base = tempfile::tempdir().unwrap();
        let directory = Directory::at(Places::only(base.path()).first()).unwrap();
        let (_listener, own) = entry(base.path());
        let shown = |pid, namespace| {
            let label = "of another process".to_owned();
            let entry = Entry {
                pid,
                namespace,
                ..Entry::new("splice", label, own.socket.clone())
            };
            let registered = directory.register(&entry).unwrap();
            let mut fleet = Fleet::of(Places::only(base.path()));
            fleet.scan().unwrap();
            let shown = fleet.rows().len();
            let stays = directory.entries().unwrap().len();
            drop(registered);
            (shown, stays)
        };
        // No process has so large a number. The first one runs.
        let (none, running) = (i32::MAX as u32, 1);
        assert_eq!(shown(none, own.namespace), (0, 0));
        assert_eq!(shown(running, own.namespace), (0, 1));
        assert_eq!(shown(none, None), (0, 1), "an earlier version");
        assert_eq!(shown(none, Some(1)), (1, 1), "another namespace");
        assert_eq!(shown(own.pid, own.namespace), (1, 1));
        assert!(std::path::Path::new(&own.socket).exists());
    }

    /// A job of cron has no runtime directory.
    #[test]
    fn commands_of_all_directories_are_shown() {
        use std::os::unix::fs::PermissionsExt;
        let base = tempfile::tempdir().unwrap();
        let runtime = base.path().join("runtime");
        let (_listener, entry) = entry(base.path());
        let without = Places::among(None, &base.path().join("run"), base.path());
        let last = Directory::at(without.first()).unwrap();
        let registered = last.register(&entry).unwrap();
        std::fs::create_dir(&runtime).unwrap();
        let with = || {
            let runtime = Some(runtime.clone().into());
            Places::among(runtime, &base.path().join("run"), base.path())
        };
        for first_exists in [false, true] {
            let mut fleet = Fleet::of(with());
            fleet.scan().unwrap();
            assert_eq!((fleet.left_out(), fleet.rows().len()), (None, 1));
            assert_eq!(with().first().exists(), first_exists);
            Directory::at(with().first()).unwrap();
        }
        // Another user has created it.
        drop(registered);
        std::fs::set_permissions(last.path(), PermissionsExt::from_mode(0o777)).unwrap();
        let mut fleet = Fleet::of(with());
        fleet.scan().unwrap();
        let left_out = fleet.left_out().unwrap().to_string();
        assert!(
            left_out.ends_with("other users may write to it"),
            "{left_out}"
        );
        assert!(Fleet::of(without).scan().is_err());
    }

    /// An empty list would mean that no command runs.
    #[test]
    fn a_directory_that_cannot_be_read_is_a_failure() {
        let base = tempfile::tempdir().unwrap();
        let places = || Places::only(base.path());
        Directory::at(places().first()).unwrap();
        testkit::refuse::apart(|| {
            testkit::refuse::refuse(&[libc::SYS_getdents64], libc::EIO);
            let problem = Fleet::of(places()).scan().unwrap_err();
            assert_eq!(problem.errno, Some(Errno::EIO), "{problem}");
        });
        Fleet::of(places()).scan().unwrap();
    }

    #[test]
    fn refusals_name_the_command() {
        assert_eq!(
            refusal(0x4301_0007, Errno::EPERM),
            "rate was refused: a limit forbids it (EPERM)"
        );
        assert_eq!(
            refusal(0x4300_000a, Errno::EINVAL),
            "cancel was refused: Invalid argument (EINVAL)"
        );
    }
}
