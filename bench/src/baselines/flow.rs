//! Not a baseline: the library's direct path, with fixed or adaptive flow
//! control.

use std::fs::File;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use anyhow::{Result, ensure};
use cordboard::{DataPath, Direct, Observer, Progress, Request, Transfer, Watermarks};

use crate::harness::figures::print;

/// The rate after the first bytes.
pub const RATE: &str = "GB/s after start";

/// The block size and the watermarks.
#[derive(Debug, Clone, Copy)]
pub struct Fixed {
    /// The block size in bytes.
    pub block: NonZeroUsize,
    /// Pending reads, pending writes, and reads started per finished write.
    pub marks: Watermarks,
}

/// Copies a file. The rate does not include the first `start` bytes, during
/// which adaptive flow control finds its setting.
pub fn run(from: &str, to: &str, start: u64, fixed: Option<Fixed>) -> Result<()> {
    let (source, sink) = (File::open(from)?, File::create(to)?);
    let request = Request {
        sync: true,
        direct: Direct::Always,
        block: fixed.map(|f| f.block),
        watermarks: fixed.map(|f| f.marks),
        ..Request::default()
    };
    let passed = Arc::new(OnceLock::new());
    let observer = Passed {
        start,
        at: Arc::clone(&passed),
    };
    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request)?;
    let report = transfer.observe(observer).run().into_result()?;
    let paths = &report.path;
    ensure!(
        paths.contains(&DataPath::Direct),
        "not the direct path: {paths:?}"
    );
    if let Some((when, written)) = passed.get() {
        let rest = (report.written - written) as f64;
        print(RATE, rest / 1e9 / when.elapsed().as_secs_f64());
    }
    Ok(())
}

/// Records when `start` bytes were written, and the number of bytes then.
struct Passed {
    start: u64,
    at: Arc<OnceLock<(Instant, u64)>>,
}

impl Observer for Passed {
    fn progress(&mut self, progress: &Progress) {
        if progress.written >= self.start {
            self.at.get_or_init(|| (Instant::now(), progress.written));
        }
    }
}
