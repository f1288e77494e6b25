//! FASYNC that is cleared for the duration of a transfer.
//!
//! The flag belongs to the open file description, which several transfers may
//! share: the first one clears it and the last one sets it again, unless the
//! program has cleared it in between (with `cord_set_flags`).

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard};

use cordboard::{Errno, Lock, Origin, PerProcess};

use super::description::{Description, Named};
use super::emulated;
use crate::process::{self, lock};
use crate::sys;

/// A description whose flag is cleared.
struct SuspendedFlag {
    description: Arc<Description>,
    /// The number of transfers that use it.
    users: usize,
    /// Whether the last of them sets the flag again.
    restore: bool,
}

/// The number of entries; in a child it may be larger. If it is 0, no lock
/// needs to be taken.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Locks this process's entries. A child of `fork(2)` has none, and first closes the duplicates
/// that it has inherited.
fn entries() -> MutexGuard<'static, Vec<SuspendedFlag>> {
    static ENTRIES: PerProcess<Lock<Vec<SuspendedFlag>>> = PerProcess::new();
    let make = |parents: Option<&Lock<Vec<SuspendedFlag>>>| {
        // A thread that held the lock at the fork does not exist here.
        if let Some(entries) = parents.and_then(Lock::try_lock) {
            (entries.iter()).for_each(|entry| entry.description.close_inherited());
        }
        Lock::default()
    };
    lock(|| process::value(&ENTRIES, make))
}

/// In a child of `fork(2)`: closes the inherited duplicates of pipes and sockets.
pub(crate) fn close_inherited() {
    drop(entries());
}

fn find(entries: &[SuspendedFlag], named: Named<'_>) -> Option<usize> {
    (entries.iter()).position(|entry| entry.description.is(named))
}

/// Whether FASYNC will be set again; `None` if it is not suspended.
pub(super) fn will_be_restored(fd: BorrowedFd<'_>) -> Option<bool> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    let named = Named::of(fd);
    let entries = entries();
    find(&entries, named).map(|at| entries[at].restore)
}

/// Sets the other flags, and records whether FASYNC will be set again; `None`
/// if FASYNC is not suspended. Holds the lock, because the end of a transfer
/// sets flags too.
pub(super) fn set_flags(fd: BorrowedFd<'_>, flags: libc::c_int) -> Option<Result<(), Errno>> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    let named = Named::of(fd);
    let mut entries = entries();
    let at = find(&entries, named)?;
    let done = sys::set_flags(fd, flags & !libc::O_ASYNC);
    if done.is_ok() {
        entries[at].restore = flags & libc::O_ASYNC != 0;
    }
    Some(done)
}

/// One transfer's use of a description whose flag is cleared. Dropping the last
/// use restores the flag.
pub(super) struct Suspended {
    description: Arc<Description>,
    /// That of the call.
    origin: Origin,
}

impl Suspended {
    /// Clears the flag of a description.
    ///
    /// # Errors
    ///
    /// As [`Description::new`], and those of `FIOASYNC`.
    pub(super) fn new(fd: BorrowedFd<'_>, origin: Origin) -> Result<Suspended, Errno> {
        let named = Named::of(fd);
        if let Some(other) = Suspended::with_others(&mut entries(), named, origin) {
            return Ok(other);
        }
        // Made without the lock, because it queries the file. It is closed without the lock
        // too: the close may flush the file.
        let description = Arc::new(Description::new(fd)?);
        let named = description.named().ok_or(Errno::EBADF)?;
        let mut entries = entries();
        // Another thread may have cleared the flag meanwhile.
        if let Some(other) = Suspended::with_others(&mut entries, named, origin) {
            drop(entries);
            return Ok(other);
        }
        // First: a thread that finds the flag cleared must not find 0 here.
        COUNT.fetch_add(1, Ordering::AcqRel);
        // Changes nothing if the flag is emulated, or if the file was opened
        // with it and the kernel cannot clear it.
        if let Err(errno) = sys::set_async(named.fd, false) {
            COUNT.fetch_sub(1, Ordering::AcqRel);
            drop(entries);
            return Err(errno);
        }
        entries.push(SuspendedFlag {
            description: Arc::clone(&description),
            users: 1,
            restore: true,
        });
        Ok(Suspended {
            description,
            origin,
        })
    }

    /// Adds a transfer to those that use the description; `None` if its flag is not cleared.
    fn with_others(
        entries: &mut [SuspendedFlag],
        named: Named<'_>,
        origin: Origin,
    ) -> Option<Suspended> {
        let at = find(entries, named)?;
        entries[at].users += 1;
        let description = Arc::clone(&entries[at].description);
        Some(Suspended {
            description,
            origin,
        })
    }

    /// Returns the duplicate; `None` if its number refers to another file.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.description.fd()
    }
}

impl Drop for Suspended {
    /// Finds the entry by its address: not every kernel can compare
    /// descriptions.
    fn drop(&mut self) {
        // In a child that a signal handler has forked during the call, the parent restores it.
        let is_here = self.origin.is_this_process();
        let program = self.description.program_fd().filter(|_| is_here);
        let mut emulated = None;
        loop {
            let mut entries = entries();
            let same = |entry: &SuspendedFlag| Arc::ptr_eq(&entry.description, &self.description);
            let Some(at) = entries.iter().position(same) else {
                return;
            };
            let entry = &mut entries[at];
            if entry.users > 1 {
                entry.users -= 1;
                return;
            }
            match (program, entry.restore) {
                // The kernel reports this number as `si_fd`. No error: the
                // description had the flag before.
                (Some(fd), true) => _ = sys::set_async(fd, true),
                // An emulated flag is still set. It is found without the lock: the queries
                // may wait for the server of a file.
                (Some(fd), false) => match &emulated {
                    None => {
                        drop(entries);
                        emulated = Some(emulated::find(fd));
                        continue;
                    }
                    Some(found) => found.iter().for_each(|found| _ = found.clear(fd)),
                },
                (None, _) => {}
            }
            entries.swap_remove(at);
            // Last: a thread that finds 0 here must find the flag restored.
            COUNT.fetch_sub(1, Ordering::AcqRel);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use testkit::fuse::{Served, with_file};
    use testkit::refuse::{FCNTL, STAT};

    use super::*;

    /// Waits until a thread queries a file.
    fn until_it_queries(thread: rustix::thread::Pid) {
        let call = format!("/proc/self/task/{thread}/syscall");
        let queries = STAT.concat().into_iter().map(|call| call.to_string());
        let queries: Vec<String> = queries.collect();
        while let Ok(call) = std::fs::read_to_string(&call)
            && !queries
                .iter()
                .any(|query| call.split(' ').next() == Some(query))
        {
            std::thread::yield_now();
        }
    }

    /// A call on a file whose server does not answer waits for it. The end of another transfer
    /// does not.
    #[test]
    fn a_query_that_waits_for_a_server_holds_no_lock() {
        let silent = AtomicBool::new(false);
        let served = Served {
            mute: Some(&silent),
            ..Served::default()
        };
        let mut ended = false;
        let mounted = with_file(served, |path| {
            let file = File::open(path).unwrap();
            let (reader, _writer) = std::io::pipe().unwrap();
            let other = Suspended::new(reader.as_fd(), Origin::here()).unwrap();
            let ((begins, begun), (ends, end)) = (channel(), channel());
            silent.store(true, Ordering::Relaxed);
            std::thread::scope(|scope| {
                let file = file.as_fd();
                scope.spawn(move || {
                    begins.send(rustix::thread::gettid()).unwrap();
                    will_be_restored(file)
                });
                until_it_queries(begun.recv().unwrap());
                scope.spawn(move || {
                    drop(other);
                    ends.send(())
                });
                // Longer than any load delays it.
                ended = end.recv_timeout(Duration::from_secs(60)).is_ok();
                silent.store(false, Ordering::Relaxed);
            });
        });
        match mounted {
            false => testkit::skip::here("a FUSE file system cannot be mounted here"),
            true => assert!(
                ended,
                "the end of a transfer waited for the server of another file"
            ),
        }
    }

    /// The program sets another flag by a plain `fcntl(2)` meanwhile.
    #[test]
    fn flags_that_the_program_sets_meanwhile_are_kept() {
        for held in 0.. {
            let (reader, _writer) = std::io::pipe().unwrap();
            let flags = || sys::flags(reader.as_fd()).unwrap();
            let set = |flag| sys::set_flags(reader.as_fd(), flags() | flag).unwrap();
            set(libc::O_ASYNC);
            let body = || drop(Suspended::new(reader.as_fd(), Origin::here()).unwrap());
            let mut calls = 0;
            let made = testkit::midst::at_each(&[FCNTL, libc::SYS_ioctl], body, || {
                if calls == held {
                    set(libc::O_NONBLOCK);
                }
                calls += 1;
            });
            let Some(made) = made else {
                return testkit::skip::here("no seccomp_unotify(2) here");
            };
            if held >= made {
                return assert!(made > 0, "no call was held");
            }
            let both = libc::O_NONBLOCK | libc::O_ASYNC;
            assert_eq!(flags() & both, both, "at call {held}");
        }
    }

    /// Another thread of the program closes the descriptor and opens a file under its number.
    #[test]
    fn a_number_that_is_reused_meanwhile_leaves_no_flag_cleared() {
        for held in 0.. {
            let pipe = || {
                let (reader, writer) = std::io::pipe().unwrap();
                let flags = sys::flags(reader.as_fd()).unwrap();
                sys::set_flags(reader.as_fd(), flags | libc::O_ASYNC).unwrap();
                (reader, writer)
            };
            let ((first, _first), (second, _second)) = (pipe(), pipe());
            let used = first.try_clone().unwrap();
            let mut suspended = None;
            let body = || suspended = Some(Suspended::new(used.as_fd(), Origin::here()).unwrap());
            let mut calls = 0;
            let held_calls = [&STAT.concat()[..], &[FCNTL, libc::SYS_ioctl]].concat();
            let made = testkit::midst::at_each(&held_calls, body, || {
                if calls == held {
                    testkit::child::replace(used.as_fd(), second.as_fd());
                }
                calls += 1;
            });
            let Some(made) = made else {
                return testkit::skip::here("no seccomp_unotify(2) here");
            };
            let suspended = suspended.unwrap();
            assert!(suspended.fd().is_some(), "at call {held}");
            drop(suspended);
            for pipe in [first, second] {
                let flags = sys::flags(pipe.as_fd()).unwrap();
                assert_ne!(flags & libc::O_ASYNC, 0, "at call {held}");
            }
            if held >= made {
                return assert!(made > 0, "no call was held");
            }
        }
    }
}
