//! What this kernel and this process can do at all.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::request::DataPath;
use crate::sys::{self, Known};

/// What this kernel and this process can do at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Capabilities {
    /// `copy_file_range(2)` that can be trusted: Linux 5.3 or later.
    pub copy_file_range: bool,
    /// A private pipe can be had.
    pub private_pipe: bool,
}

/// Paths whose call answered `ENOSYS`: that cannot change while the process
/// lives. No other errno is remembered beyond its pair.
static MISSING: AtomicU32 = AtomicU32::new(0);

/// Remembers that there is no such call.
pub(crate) fn forget_for_ever(path: DataPath) {
    MISSING.fetch_or(path.bit(), Ordering::Relaxed);
}

impl Capabilities {
    /// Nothing but reading and writing.
    pub const fn none() -> Capabilities {
        Capabilities {
            copy_file_range: false,
            private_pipe: false,
        }
    }

    /// Those of this kernel, as known so far.
    pub fn current() -> Capabilities {
        static TRUSTED: Known = Known::not_yet();
        let trusted = TRUSTED.get(|| {
            let version = sys::release().and_then(|text| release(&text));
            usize::from(version.is_none_or(|version| version >= (5, 3)))
        });
        let missing = MISSING.load(Ordering::Relaxed);
        Capabilities {
            copy_file_range: trusted == 1 && missing & DataPath::CopyFileRange.bit() == 0,
            private_pipe: true,
        }
    }
}

/// The first two numbers of a kernel release.
fn release(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases() {
        assert_eq!(release("6.18.44-fc"), Some((6, 18)));
        assert_eq!(release("5.3-rc1"), Some((5, 3)));
        assert!(release("4.19.0") < Some((5, 3)));
        assert_eq!(release("custom"), None);
    }
}
