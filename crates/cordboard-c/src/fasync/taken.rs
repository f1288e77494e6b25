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
use crate::sys::{self, Owned, Owner};
use crate::table::{lock, table};

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

/// Whether the flag is off for a transfer, and shall come back.
pub(super) fn is_taken(fd: BorrowedFd<'_>) -> bool {
    if COUNT.load(Ordering::Acquire) == 0 {
        return false;
    }
    let taken = lock(&table().taken);
    find(&taken, fd).is_some_and(|at| taken[at].put_back)
}

/// Says whether it shall come back, if it is off for a transfer.
pub(super) fn want_back(fd: BorrowedFd<'_>, wanted: bool) -> bool {
    if COUNT.load(Ordering::Acquire) == 0 {
        return false;
    }
    let mut taken = lock(&table().taken);
    match find(&taken, fd) {
        Some(at) => {
            taken[at].put_back = wanted;
            true
        }
        None => false,
    }
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
        let mut taken = lock(&table().taken);
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
    let mut taken = lock(&table().taken);
    let same = |t: &Taken| Arc::ptr_eq(&t.description, description);
    let Some(at) = taken.iter().position(same) else {
        return;
    };
    taken[at].users -= 1;
    if taken[at].users > 0 {
        return;
    }
    let last = taken.swap_remove(at);
    if last.put_back
        && let Some(fd) = description.by_number()
        && let Ok(flags) = sys::flags(fd)
    {
        // The kernel tells, in `si_fd`, the number by which the flag was set.
        // What had it before can have it again.
        let _ = sys::set_flags(fd, flags | libc::O_ASYNC);
    }
    // Last: whoever finds none taken finds the flag where it was.
    COUNT.fetch_sub(1, Ordering::AcqRel);
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use testkit::child;

    /// The host closes all descriptors while the flag is off, and has its own
    /// under their numbers: they keep their flags and stay open, and nobody is
    /// told on their behalf.
    #[test]
    fn what_the_host_has_closed_is_left_alone() {
        assert!(child::in_a_child(|| {
            let (reader, writer) = std::io::pipe().unwrap();
            let flags = sys::flags(reader.as_fd()).unwrap();
            sys::set_flags(reader.as_fd(), flags | libc::O_ASYNC).unwrap();
            let asked = super::super::asked(reader.as_fd(), writer.as_fd());
            let asked = asked.unwrap().expect("the source asks");
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
}
