//! What the session shows while transfers run.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;

use cordboard::{DataPath, fstat};
use rustix::fs::FileType;
use rustix::stdio::stdout;

use super::{CAT, Session};
use crate::files::{SocketId, kind};
use crate::flags::ProgressMode;
use crate::progress::{Operands, Style, Watch};
use crate::steering::Steering;

/// Returns how a command of this verb shows progress. By itself `cat` draws nothing if another
/// program reads its output, which may use the same terminal.
pub(super) fn style(mode: ProgressMode, verb: &str) -> Style {
    match mode {
        ProgressMode::Auto if verb == CAT && !is_end(stdout()) => Style::Nothing,
        mode => Style::of(mode),
    }
}

/// Returns whether the bytes stay there: in a file or a device.
fn is_end(sink: BorrowedFd<'_>) -> bool {
    use FileType::{BlockDevice, CharacterDevice, RegularFile};
    let stays = |file| matches!(file, RegularFile | BlockDevice | CharacterDevice);
    fstat(sink).is_ok_and(|stat| stays(kind(&stat)))
}

impl Session {
    /// Several transfers begin that run elsewhere.
    pub fn begin_several(&mut self) {
        self.watch.begin(None);
    }

    /// Counts these operands while their transfers run, if the numbers may be shown.
    pub fn count_operands(&mut self, paths: Vec<PathBuf>, recursive: bool, most: Option<u64>) {
        self.watch.count(Operands {
            paths,
            recursive,
            most,
            // Stages change the number of bytes written.
            bytes: !self.staging.stages.transform(),
            own_socket: self.own_socket(),
        });
    }

    /// The file of the control socket.
    pub fn own_socket(&self) -> Option<SocketId> {
        self.steering.as_ref().and_then(Steering::socket)
    }

    /// Sets the number of files that have ended, for progress.
    pub fn files_ended(&mut self, done: u64) {
        self.watch.files_ended(done);
    }

    /// Shows their progress: the bytes written in all, the path, and the number
    /// of transfers under way.
    pub fn show(&mut self, written: u64, path: Option<DataPath>, under_way: usize) {
        let latest = || self.account.total.path.last().copied();
        let path = path.or_else(latest).unwrap_or(DataPath::ReadWrite);
        self.watch.show(written, path, under_way);
    }

    /// Whether a line of progress was requested, or the next drawing is due.
    pub fn is_progress_due(&mut self) -> bool {
        self.watch.is_due()
    }

    /// Shows the latest progress again, while no bytes are written.
    pub fn show_again(&mut self) {
        self.watch.show_again();
    }

    /// Sets the number of bytes of the sinks that were read back and compared.
    pub fn set_read_back(&mut self, bytes: u64) {
        self.watch.set_read_back(bytes);
    }

    /// Returns how often the progress of transfers that run elsewhere is shown again, on the
    /// screen or to another process that may ask for it (`--control`) at any time.
    pub fn status_interval(&self) -> Option<Duration> {
        self.watch.status_interval()
    }

    /// Begins to show the progress of a transfer that reports to the observer which
    /// is returned. `on_screen`: a source or the sink is the terminal.
    pub fn watch(&mut self, on_screen: bool, total: Option<u64>) -> &mut Watch {
        if self.watch.draws() && !self.requested && on_screen {
            self.watch.mute();
        }
        self.watch.begin(total);
        &mut self.watch
    }
}
