//! The flags, from which help, man pages and completions are generated.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use cordboard::DataPath;

use crate::units;

mod buffer;
mod copy;
mod fan_out;
mod label;
mod serve;
mod splice;
mod steering;
pub mod texts;
mod top;
mod words;

pub use buffer::Buffering;
pub use copy::Copy;
pub use fan_out::{Failing, FanIn, Slow, Turns};
pub use label::Label;
pub use serve::{Ftp, Protocol, Serve};
pub use splice::Splice;
pub use steering::{Blocks, CueAction, CueFlags, LimitAction, Pacing};
pub use top::TopFlags;
pub use words::{ProgressMode, When};

use texts::{ENDPOINTS, EXAMPLES, MOVING};
use words::Word;

/// Moves bytes unchanged between any two endpoints, by the fastest path that
/// this kernel has for the pair, and reports exactly what was moved.
#[derive(Debug, Parser)]
#[command(name = "cordboard", version, propagate_version = true)]
// Of an option that is given twice, the last one counts, as with other commands: aliases and
// scripts have options of their own.
#[command(args_override_self = true)]
#[command(after_help = EXAMPLES.text)]
#[command(after_long_help = texts::help(&[&[EXAMPLES, ENDPOINTS], &MOVING]))]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Move bytes between endpoints
    #[command(after_help = texts::help(&[&[ENDPOINTS], &MOVING]))]
    Splice(Splice),
    /// Copy files, several into a directory, and directory trees
    #[command(after_help = texts::help(&[&MOVING]))]
    Copy(Copy),
    /// Write files to standard output, one after the other
    ///
    /// With --size, at most this many bytes are read from all files together.
    /// The files after that are still opened: one that cannot be opened is an
    /// error. Their hashes, or their zstd frames, are those of no bytes.
    #[command(after_help = texts::help(&[&MOVING]))]
    Cat(Cat),
    /// Play audio, and video one frame at a time
    ///
    /// The player of the 1992 paper: the audio is spliced while the video is
    /// shown, each frame when it is due. The report states how late the frames
    /// were.
    #[command(after_help = texts::help(&[&texts::OF_PLAY, &[ENDPOINTS], &MOVING]))]
    Play(Play),
    /// Steer a command that was started with --control
    ///
    /// Prints the status of that command after the action has taken effect. A
    /// cancellation takes effect later: the command then ends as after SIGTERM.
    #[command(after_help = texts::help(&[&texts::OF_CUE]))]
    Cue(CueFlags),
    /// Show running transfers live, and steer them by keys
    ///
    /// Shows the commands of this user that were started with --control, and the
    /// transfers of `serve ftp`: rate, a graph of the last rates, path, share done,
    /// schedule. If standard input or standard output is no terminal, one table is
    /// printed.
    #[command(after_help = texts::help(&[&texts::OF_TOP]))]
    Top(TopFlags),
    /// Serve files over the network
    Serve(Serve),
    /// Print which paths would be tried, and why, without moving a byte
    ///
    /// Nothing is created, connected to or waited for. For a new DST, a file without
    /// a name is opened in its directory, if the file system has such files. Devices
    /// are not opened, because that may have an effect: they are described by what is
    /// known without opening. Memory devices such as /dev/null are opened.
    #[command(after_help = ENDPOINTS.text)]
    Explain(Explain),
    /// Print completions for a shell
    #[command(hide = true)]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the man pages into a directory, or print one
    #[command(hide = true)]
    Man {
        /// An existing directory for all pages, or a command whose page is
        /// printed
        what: Option<OsString>,
    },
}

/// `cordboard cat`.
#[derive(Debug, Args)]
pub struct Cat {
    /// Files; none, or -, is standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files: Vec<OsString>,
    /// Shared flags.
    #[command(flatten)]
    pub range: Range,
    /// End without an error when no bytes have moved for this time. When a file
    /// has been silent for this time, bytes that were read have the same time
    /// again to go to standard output. It is an error if standard output does
    /// not take them, if it takes no more although the file has more bytes, or
    /// if a frame is incomplete (--unzstd). Waiting for the other end of a FIFO
    /// does not count
    #[arg(long, value_name = "SECONDS", value_parser = units::seconds)]
    #[arg(allow_hyphen_values = true)]
    pub idle: Option<Duration>,
    /// Shared flags.
    #[command(flatten)]
    pub common: Common,
}

/// `cordboard play`.
#[derive(Debug, Args)]
pub struct Play {
    /// The source of the audio
    #[arg(value_name = "AUDIO", value_hint = ValueHint::AnyPath)]
    pub audio: OsString,
    /// The source of the video: frames of equal size, one after the other
    #[arg(value_name = "VIDEO", value_hint = ValueHint::AnyPath)]
    pub video: OsString,
    /// The sink of the audio
    #[arg(long, value_name = "EP", value_hint = ValueHint::AnyPath)]
    pub audio_to: OsString,
    /// The sink of the video
    #[arg(long, value_name = "EP", value_hint = ValueHint::AnyPath)]
    pub video_to: OsString,
    /// Size of a frame (K, M, G: 1024; kB, MB, GB: 1000)
    #[arg(long, value_name = "BYTES", value_parser = units::frame)]
    #[arg(allow_hyphen_values = true)]
    pub frame: u64,
    /// Frames per second, for example 25, 29.97 or 30000/1001
    #[arg(long, value_name = "N", value_parser = units::frames)]
    #[arg(allow_hyphen_values = true)]
    pub fps: f64,
    /// Multiple of the normal speed: 2 is fast forward, 0.5 slow motion
    #[arg(long, value_name = "X", default_value = "1", value_parser = units::speed)]
    #[arg(allow_hyphen_values = true)]
    pub speed: f64,
    /// Omit frames whose display time is over before they begin
    #[arg(long)]
    pub drop: bool,
    /// Write a list of the whole frames that were shown to this file (CSV,
    /// milliseconds): when each was due, when it was begun, when its sink had
    /// all of it, and how late that was. A short last frame is neither listed
    /// nor counted
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub lateness: Option<OsString>,
    /// Shared flags.
    #[command(flatten)]
    pub paths: Paths,
    /// Show progress; auto: on a terminal; lines: a line each second, for logs
    #[arg(long, value_name = "HOW", value_enum, default_value_t = ProgressMode::Auto)]
    pub progress: ProgressMode,
    /// Print the reports as one line of JSON on standard error at the end
    #[arg(long)]
    pub json: bool,
}

/// `cordboard explain`.
#[derive(Debug, Args)]
pub struct Explain {
    /// The source of the bytes
    #[arg(value_name = "SRC", value_hint = ValueHint::AnyPath)]
    pub source: OsString,
    /// The sink of the bytes
    #[arg(value_name = "DST", value_hint = ValueHint::AnyPath)]
    pub sink: OsString,
    /// Shared flags.
    #[command(flatten)]
    pub range: Range,
    /// Shared flags.
    #[command(flatten)]
    pub writing: Writing,
    /// Shared flags.
    #[command(flatten)]
    pub paths: Paths,
    /// Print one line of JSON instead
    #[arg(long)]
    pub json: bool,
}

/// The part of the source.
#[derive(Debug, Clone, Default, Args)]
pub struct Range {
    /// Read at most this many bytes of the source (K, M, G: 1024; kB, MB, GB:
    /// 1000). copy needs a single source, without -r
    #[arg(long, value_name = "N", value_parser = units::size)]
    #[arg(allow_hyphen_values = true)]
    pub size: Option<u64>,
    /// Start at this byte of the source, not at the position of its descriptor.
    /// Needs a single source; not with copy -r
    #[arg(long, value_name = "N", value_parser = units::size)]
    #[arg(allow_hyphen_values = true)]
    pub offset: Option<u64>,
}

/// How the sink is written.
#[derive(Debug, Clone, Args)]
pub struct Writing {
    /// Write the data to the disk before reporting success (fsync). A large
    /// file may be copied by direct I/O, past the page cache: if the power fails,
    /// or the command is killed by any signal but a first SIGINT, SIGTERM, SIGHUP
    /// or SIGALRM (by SIGKILL, SIGQUIT or a second signal), the file can have its
    /// full length and up to 4 GiB of zeros at its end. To prevent that, copy to a new name
    /// and rename it after success, or add --without direct
    #[arg(long)]
    pub sync: bool,
    /// Holes in the sink. auto: those of the source, or none with --buffer,
    /// --fan-in or several sinks; always: in place of zeros too; never: none,
    /// every byte is written
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = When::Auto)]
    pub sparse: When,
    /// Append to a file instead of replacing its contents. Block devices cannot
    /// be appended to. Every byte is written: excludes --sparse always
    #[arg(long)]
    pub append: bool,
    /// Write at this byte of the sink, not at the position of its descriptor or
    /// at its start. A file is not truncated: the bytes before and behind the
    /// range that is written stay. An offset behind its end leaves a hole.
    /// Needs a single sink that is a file or a block device, and excludes
    /// --append. copy needs a single source, without -r
    #[arg(long, value_name = "N", value_parser = units::size)]
    #[arg(allow_hyphen_values = true)]
    pub sink_offset: Option<u64>,
}

/// The paths, and the size of their steps.
#[derive(Debug, Clone, Default, Args)]
pub struct Paths {
    /// Maximum bytes of one step; for datagrams, the size of each
    #[arg(long, value_name = "N", value_parser = units::block)]
    #[arg(allow_hyphen_values = true)]
    pub block: Option<NonZeroUsize>,
    /// Use only these paths
    #[arg(long, value_name = "PATH", value_delimiter = ',', value_parser = Word)]
    pub route: Vec<DataPath>,
    /// Do not use these paths
    #[arg(long, value_name = "PATH", value_delimiter = ',')]
    #[arg(value_parser = Word, hide_possible_values = true)]
    pub without: Vec<DataPath>,
    /// Take a snapshot: later writes to the source, or to a file that feeds it,
    /// do not show in the sink
    #[arg(long)]
    pub stable: bool,
}

/// Processing of the bytes. They then pass through user space, and no in-kernel
/// path is used.
#[derive(Debug, Clone, Default, Args)]
pub struct Stages {
    /// Print a hash of the contents on standard error, in the format of the
    /// usual sum tools. It is the hash of the bytes that are moved: with --size
    /// or --offset, of that part of the source; with --unzstd, of the
    /// decompressed bytes. In these cases the sum tools report a mismatch for the
    /// named file. May be given several times. Every byte is read: there is no
    /// clone. The hash of a source that is not a file is printed at the end of
    /// the command, but not after a signal to stop: the same signal may have
    /// ended the process that writes the source. splice: excludes --buffer,
    /// --fan-in and several sinks
    #[arg(long, value_name = "HASH", value_enum)]
    pub hash: Vec<Hash>,
    /// Compress with zstd at this level, -7 to 22: 1 is fast, 3 the default, 19
    /// strong. Excludes --unzstd; splice: also --buffer, --fan-in and several
    /// sinks
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "3", value_parser = clap::value_parser!(i32).range(-7..=22))]
    pub zstd: Option<i32>,
    /// Decompress zstd data; --size then counts compressed bytes. Excludes --zstd;
    /// splice: also --buffer, --fan-in and several sinks
    #[arg(long)]
    pub unzstd: bool,
}

/// The hash functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Hash {
    /// 32 bits, as computed by gzip and crc32(1).
    Crc32,
    /// 64 bits, the fastest, as computed by xxhsum -H3. The line has its prefix XXH3_.
    Xxh3,
    /// 256 bits, cryptographic, as computed by b3sum(1).
    Blake3,
}

/// The flags of every command that moves bytes.
#[derive(Debug, Clone, Args)]
pub struct Common {
    /// Shared flags.
    #[command(flatten)]
    pub paths: Paths,
    /// Shared flags.
    #[command(flatten)]
    pub stages: Stages,
    /// Shared flags.
    #[command(flatten)]
    pub pacing: Pacing,
    /// Let cordboard cue PATH steer this command while it runs
    ///
    /// PATH is the file of a UNIX socket, which the command creates and removes, or
    /// the abstract name @NAME. Only the same user and root can connect. cordboard top
    /// shows the command. The operands determine the transfers: commands of the
    /// protocol that start or select them (write, offsets, block, limits of bytes,
    /// range and time) are refused with EOPNOTSUPP.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub control: Option<OsString>,
    /// Show progress; auto: on a terminal; lines: a line each second, for logs
    ///
    /// One line on standard error, which is drawn again each tenth of a second: the
    /// bytes, the share of all, the files, the rate, the time that has elapsed and that
    /// is left, the path. What does not fit into the width is omitted. Of several sinks
    /// it shows the slowest that is attached. Several files are counted meanwhile: a
    /// number with + is a lower bound. auto draws only if standard error is a
    /// terminal that is neither the source nor the sink, and TERM is not "dumb"; cat also
    /// needs a file or a device as standard output. always also draws into other files
    /// and pipes, in 79 columns, with a carriage return before each line. Nothing is drawn
    /// on a terminal while another job is in its foreground, or while another program
    /// reads its keys or has switched its echo off (a pager, a password prompt). lines
    /// prints the same line each second instead, with a line feed behind
    /// it and without control characters, and the totals as the last line: for logs. A
    /// system call that moves nothing for long delays the lines, by a minute at most.
    #[arg(long, value_name = "HOW", value_enum, default_value_t = ProgressMode::Auto)]
    pub progress: ProgressMode,
    /// Print the report as one line of JSON on standard error at the end; for
    /// several files, the totals
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
impl Common {
    /// The flags of a command with these stages that shows nothing.
    pub fn silent(stages: Stages) -> Common {
        Common {
            paths: Paths::default(),
            stages,
            pacing: Pacing::default(),
            control: None,
            progress: ProgressMode::Never,
            json: false,
        }
    }
}
