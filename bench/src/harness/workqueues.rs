//! The kernel's own workers (loop devices, writeback, file systems), kept on
//! one core: so that what they do for a copy is done where it shows, as on a
//! machine that has one core.

use std::fs;

use anyhow::{Context, Result};

/// Where unbound workqueues may run. Since Linux 3.19.
const MASK: &str = "/sys/devices/virtual/workqueue/cpumask";

/// Until this is dropped.
#[derive(Debug)]
pub struct Confined {
    before: String,
}

impl Confined {
    /// From now on they run on `core` only.
    ///
    /// # Errors
    ///
    /// Why that is not possible here: not root, most often.
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

/// One core as the kernel reads it: groups of 32, the highest ones first.
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
