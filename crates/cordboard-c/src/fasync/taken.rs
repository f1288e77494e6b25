//! FASYNC, off for the length of a transfer.
//!
//! It belongs to the open description, which several transfers may share: it
//! goes with the first and comes back with the last, or not, if the program
//! has taken it off meanwhile (with `cord_set_flags`).

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cordboard::{Errno, Side};

use super::description::Description;
use super::marks;
use crate::sys::{self, Owned, Owner};
use crate::table::lock;

/// A flag that is off for the time.
pub(crate) struct Taken {
    description: Arc<Description>,
    users: usize,
    put_back: bool,
}

/// How many there are, or more (in a child): a splice that has nothing to do
/// with this looks at one word of memory.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn find(taken: &[Taken], fd: BorrowedFd<'_>) -> Option<usize> {
    taken.iter().position(|t| t.description.is(fd))
}

/// Whether the flag, which is off for a transfer, shall come back; `None`: it is
/// off for none.
pub(super) fn comes_back(fd: BorrowedFd<'_>) -> Option<bool> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    let taken = lock(|table| &table.taken);
    find(&taken, fd).map(|at| taken[at].put_back)
}

/// Sets the other flags, and whether this one shall come back; `None`: it is off
/// for no transfer. Under the lock, since a transfer's end sets the flags too.
pub(super) fn set_flags(fd: BorrowedFd<'_>, flags: libc::c_int) -> Option<Result<(), Errno>> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    let mut taken = lock(|table| &table.taken);
    let at = find(&taken, fd)?;
    let done = sys::set_flags(fd, flags & !libc::O_ASYNC);
    if done.is_ok() {
        taken[at].put_back = flags & libc::O_ASYNC != 0;
    }
    Some(done)
}

/// One of the two descriptors, which has FASYNC.
pub(super) struct Asking {
    description: Arc<Description>,
    pub(super) number: RawFd,
    pub(super) which: Side,
    /// What was said of its owner at the start.
    owned: Owned,
}

impl Asking {
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.description.fd()
    }

    /// Who is told by now.
    pub(super) fn owner(&self) -> Option<Owner> {
        sys::owner(self.fd()?).ok().and_then(Owned::by)
    }

    /// There was an owner, and there is none any more: the program that set it
    /// wanted another process to be signalled. Or that is unknown by now.
    pub(super) fn has_lost_its_owner(&self) -> bool {
        let Some(fd) = self.fd() else {
            return true;
        };
        let now = sys::owner(fd);
        now.is_ok_and(|now| now.by().is_none() && now != self.owned)
    }
}

/// An asynchronous splice: one or both sides have asked for it. The flags come
/// back when it is dropped.
#[derive(Default)]
pub(crate) struct Asked {
    sides: Vec<Asking>,
}

impl Asked {
    /// Takes the flag off this side.
    pub(super) fn take(
        &mut self,
        fd: BorrowedFd<'_>,
        flags: libc::c_int,
        which: Side,
    ) -> Result<(), Errno> {
        let owned = sys::owner(fd)?;
        let mut taken = lock(|table| &table.taken);
        let description = match find(&taken, fd) {
            Some(at) => {
                taken[at].users += 1;
                Arc::clone(&taken[at].description)
            }
            None => {
                let description = Arc::new(Description::keep(fd)?);
                // Where the flag is only a mark, or stays on a file that was
                // opened with it, this changes nothing.
                sys::set_flags(fd, flags & !libc::O_ASYNC)?;
                taken.push(Taken {
                    description: Arc::clone(&description),
                    users: 1,
                    put_back: true,
                });
                COUNT.fetch_add(1, Ordering::AcqRel);
                description
            }
        };
        drop(taken);
        self.sides.push(Asking {
            description,
            number: fd.as_raw_fd(),
            which,
            owned,
        });
        Ok(())
    }

    pub(super) fn sides(&self) -> impl Iterator<Item = &Asking> {
        self.sides.iter()
    }

    /// The source, if it has asked for it.
    pub(super) fn first(&self) -> &Asking {
        // Made with its first side.
        &self.sides[0]
    }

    /// The flags as they were.
    pub(super) fn put_back(self) {
        drop(self);
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        for side in &self.sides {
            release(&side.description);
        }
    }
}

/// One user less. It is found as the very entry that it was taken by: whether
/// two descriptors are one description is not for every kernel to say.
fn release(description: &Arc<Description>) {
    let mut taken = lock(|table| &table.taken);
    let same = |t: &Taken| Arc::ptr_eq(&t.description, description);
    let Some(at) = taken.iter().position(same) else {
        return;
    };
    taken[at].users -= 1;
    if taken[at].users > 0 {
        return;
    }
    let last = taken.swap_remove(at);
    if let Some(fd) = description.by_number() {
        match last.put_back {
            // The kernel tells, in `si_fd`, the number by which the flag was set.
            // What had it before can have it again.
            true => {
                let flags = sys::flags(fd);
                let _ = flags.and_then(|flags| sys::set_flags(fd, flags | libc::O_ASYNC));
            }
            // A file that the kernel does not keep it for is still marked.
            false => {
                let _ = marks::unmark(fd);
            }
        }
    }
    // Last: whoever finds none taken finds the flag where it was.
    COUNT.fetch_sub(1, Ordering::AcqRel);
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, PipeWriter};
    use std::os::fd::AsFd;

    use super::*;
    use testkit::child;

    /// A pipe whose reader asks, and whose flag is off.
    fn asks() -> (super::super::Asked, PipeReader, PipeWriter) {
        let (reader, writer) = std::io::pipe().unwrap();
        let flags = sys::flags(reader.as_fd()).unwrap();
        sys::set_flags(reader.as_fd(), flags | libc::O_ASYNC).unwrap();
        let asked = super::super::asked(reader.as_fd(), writer.as_fd());
        (asked.unwrap().expect("the source asks"), reader, writer)
    }

    /// The host closes all descriptors while the flag is off, and has its own
    /// under their numbers: they keep their flags and stay open, and nobody is
    /// told on their behalf.
    #[test]
    fn what_the_host_has_closed_is_left_alone() {
        assert!(child::in_a_child(|| {
            let (asked, reader, _writer) = asks();
            let kept = asked.first().fd().unwrap();
            let off = sys::flags(kept).unwrap();
            let (other, _feed) = std::io::pipe().unwrap();
            let number = sys::lend(kept.as_raw_fd()).unwrap();
            child::replace(number, other.as_fd());
            child::replace(reader.as_fd(), other.as_fd());
            let nobody = asked.first().fd().is_none()
                && asked.first().owner().is_none()
                && asked.first().has_lost_its_owner();
            asked.put_back();
            let after = sys::flags(number);
            nobody && off & libc::O_ASYNC == 0 && after.is_ok_and(|f| f & libc::O_ASYNC == 0)
        }));
    }

    /// The same, and the host has that very file again under the number: a
    /// duplicate of what it had kept.
    #[test]
    fn what_the_host_has_again_stays_open() {
        assert!(child::in_a_child(|| {
            let (asked, reader, writer) = asks();
            let number = asked.first().fd().unwrap().as_raw_fd();
            let here = child::inode(number);
            // Where the close does not reach.
            child::copy_to(reader.as_raw_fd(), 0, false);
            std::mem::forget((reader, writer));
            child::close_from(3);
            child::copy_to(0, number, true);
            let nobody = asked.first().fd().is_none();
            asked.put_back();
            nobody && child::inode(number) == here
        }));
    }

    /// A transfer ends while the program sets other flags: they stay, and so does
    /// this one.
    #[test]
    fn flags_that_are_set_at_an_end_are_kept_with_this_one() {
        for held in 0.. {
            let (reader, writer) = std::io::pipe().unwrap();
            let flags = sys::flags(reader.as_fd()).unwrap() | libc::O_ASYNC;
            sys::set_flags(reader.as_fd(), flags).unwrap();
            let asked = super::super::asked(reader.as_fd(), writer.as_fd());
            let asked = asked.unwrap().expect("the source asks");
            let wanted = flags | libc::O_NONBLOCK;
            let sets = || super::super::set_flags(reader.as_fd(), wanted).unwrap();
            let (mut calls, mut ending) = (0, None);
            let mut ends = Some(move || asked.put_back());
            let made = testkit::midst::at_each(&[testkit::refuse::FCNTL], sets, || {
                if calls == held
                    && let Some(ends) = ends.take()
                {
                    ending = Some(until_it_ends_or_waits(ends));
                }
                calls += 1;
            });
            let Some(made) = made else {
                return testkit::skip::here("no seccomp_unotify(2) here");
            };
            match (ends, ending) {
                (Some(ends), _) => ends(),
                (None, ending) => ending.into_iter().for_each(|ends| ends.join().unwrap()),
            }
            assert_eq!(sys::flags(reader.as_fd()), Ok(wanted), "at call {held}");
            if held >= made {
                return assert!(made > 0, "no call was held");
            }
        }
    }

    /// Until it has ended, or sleeps for a lock.
    fn until_it_ends_or_waits(what: impl FnOnce() + Send + 'static) -> std::thread::JoinHandle<()> {
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid()).unwrap();
            what();
        });
        let call = format!("/proc/self/task/{}/syscall", told.recv().unwrap());
        // As it is waited for.
        let sleep = libc::SYS_clock_nanosleep.to_string();
        let waits = || {
            let call = std::fs::read_to_string(&call).unwrap_or_default();
            call.split(' ').next() == Some(&sleep)
        };
        while !thread.is_finished() && !waits() {
            std::thread::yield_now();
        }
        thread
    }
}
