//! The flags of `copy`.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::builder::TypedValueParser;
use clap::{Args, ValueHint};

use super::{Common, Range, Writing};
use crate::units;

/// `cordboard copy`.
#[derive(Debug, Args)]
pub struct Copy {
    /// Files to copy, or a device to read to its end; with -r also directories
    #[arg(value_name = "SRC", num_args = 1.., required = true, value_hint = ValueHint::AnyPath)]
    #[arg(value_parser = any_path())]
    sources: Vec<PathBuf>,
    /// The target file, or an existing directory for the files. Use ./NAME or
    /// file:NAME for a new file whose name is that of another endpoint, such as
    /// tcp:HOST:PORT. If DST belongs to another user and may be SRC in a second
    /// file system, its modification time is set to the present, even if DST is
    /// then refused as the same file
    #[arg(value_name = "DST", required = true, value_hint = ValueHint::AnyPath)]
    #[arg(value_parser = any_path())]
    sink: Option<PathBuf>,
    /// Copy directories and their contents. Symlinks are copied as symlinks,
    /// and nothing is written through a symlink below DST. A FIFO, socket or
    /// device is an error, and the rest is copied
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,
    /// Preserve mode, times, owner, access control lists and all extended
    /// attributes. As with cp -p, it is a failure if the mode, the times or a
    /// list cannot be set, or if there is no space for an extended attribute.
    /// An owner, a group or an extended attribute that the process may not set
    /// is counted as "unkept" in the JSON report, and is not a failure. A
    /// warning reports such an extended attribute, and an owner that root may
    /// not set. As with cp -p, no warning reports any other owner or a group that
    /// was not kept, or the set-id and sticky bits that were dropped with it. A
    /// directory keeps its sticky bit. An existing DST that more users may access
    /// than SRC is restricted to its owner first, and stays so if the copy fails.
    /// The attributes of a device or a FIFO are not changed
    #[arg(short, long)]
    pub preserve: bool,
    /// Read back what was written, from the device if possible, and compare it.
    /// A difference is a failure, and the first byte that differs is reported.
    /// With --zstd or --unzstd, and for a source that can be read only once,
    /// the hash of what was written is compared, and both hashes are reported.
    /// DST must be a regular file: a block device is refused. Bytes that other
    /// processes append meanwhile (--append) are not compared
    #[arg(long)]
    pub verify: bool,
    /// Maximum number of files at once, up to 64; 1: one after the other. The
    /// default is the number of processors, but at least 2 and at most 4. Fewer
    /// are copied at once if descriptors or address space are limited
    #[arg(short, long, value_name = "N", value_parser = units::jobs)]
    #[arg(allow_hyphen_values = true)]
    pub jobs: Option<NonZeroUsize>,
    /// Shared flags.
    #[command(flatten)]
    pub range: Range,
    /// Shared flags.
    #[command(flatten)]
    pub writing: Writing,
    /// Shared flags.
    #[command(flatten)]
    pub common: Common,
}

/// A parser of paths that may be empty, unlike that of clap.
fn any_path() -> impl TypedValueParser<Value = PathBuf> {
    clap::builder::OsStringValueParser::new().map(PathBuf::from)
}

impl Copy {
    /// Returns SRC and DST.
    pub fn operands(&self) -> (&[PathBuf], &Path) {
        match (&self.sink, self.sources.split_last()) {
            (Some(sink), _) => (&self.sources, sink),
            (None, Some((sink, sources))) => (sources, sink),
            (None, None) => unreachable!("they are required"),
        }
    }
}
