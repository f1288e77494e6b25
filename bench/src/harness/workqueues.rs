//! Restricts the kernel's workers (loop devices, writeback, file systems) to
//! one core: their work for a copy then takes time from the test program, as on
//! a machine with one core.

use std::fs;

use anyhow::{Context, Result};

/// The cores on which unbound workqueues may run. Since Linux 3.19.
const MASK: &str = "/sys/devices/virtual/workqueue/cpumask";

/// The restriction, removed when this is dropped.
#[derive(Debug)]
pub struct Confined {
    before: String,
}

impl Confined {
    /// Restricts the workers to `core`.
    ///
    /// # Errors
    ///
    /// The reason why that is not possible here, usually that the user is not
    /// root.
    pub fn to(core: usize) -> Result<Confined> {
        let before = fs::read_to_string(MASK).context(MASK)?;
        fs::write(MASK, mask(core)).context(MASK)?;
        Ok(Confined {
            before: before.trim().to_owned(),
        })
    }
}

impl Drop for Confined {
    fn drop(&mut self) {
        let _ = fs::write(MASK, &self.before);
    }
}

/// The mask of one core in the format of the kernel: groups of 32 bits, the
/// highest first.
fn mask(core: usize) -> String {
    let highest = 1u32 << (core % 32);
    let rest = ",00000000".repeat(core / 32);
    format!("{highest:x}{rest}")
}

#[cfg(test)]
mod tests {
    use super::mask;

    #[test]
    fn masks_as_the_kernel_reads_them() {
        assert_eq!(mask(0), "1");
        assert_eq!(mask(5), "20");
        assert_eq!(mask(33), "2,00000000");
        assert_eq!(mask(64), "1,00000000,00000000");
    }
}
