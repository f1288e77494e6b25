//! What this kernel and this process support, whatever the pair.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::request::DataPath;
use crate::sys::{self, Known};

/// What this kernel and this process support, whatever the pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Capabilities {
    /// `copy_file_range(2)` is reliable: Linux 5.3 or later.
    pub copy_file_range: bool,
    /// A private pipe is available.
    pub private_pipe: bool,
}

/// Paths whose call returned `ENOSYS`, which does not change while the process
/// lives. Any other errno is remembered for its pair only.
static MISSING: AtomicU32 = AtomicU32::new(0);

/// Records that the system call of this path does not exist.
pub(crate) fn forget_for_ever(path: DataPath) {
    MISSING.fetch_or(path.bit(), Ordering::Relaxed);
}

impl Capabilities {
    /// Returns no capabilities beyond `read(2)` and `write(2)`.
    pub const fn none() -> Capabilities {
        Capabilities {
            copy_file_range: false,
            private_pipe: false,
        }
    }

    /// Returns the capabilities of this kernel, as far as they are known.
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

/// Parses the first two numbers of a kernel release.
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
