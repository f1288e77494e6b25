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
mod top;
mod words;

pub use buffer::Buffering;
pub use copy::Copy;
pub use fan_out::{Failing, FanIn, Slow, Turns};
pub use label::Label;
pub use serve::{Ftp, Protocol, Serve};
pub use splice::Splice;
pub use steering::{CueAction, CueFlags, LimitAction, Pacing};
pub use top::TopFlags;
pub use words::{ProgressMode, When};

use words::Word;

const ENDPOINTS: &str = "\
An endpoint is one of:
  PATH, file:PATH             a file, FIFO or device; a new file is created
  -                           standard input, or standard output
  fd:N                        a descriptor that the shell opened
  tcp:HOST:PORT               a connection to a server; [ADDRESS]:PORT for IPv6
  tcp-listen:HOST:PORT        one accepted connection; port 0: any free port
  udp:HOST:PORT               datagrams to and from one peer
  udp-listen:HOST:PORT        datagrams received here
  unix:PATH                   a connection to a UNIX socket; @NAME: abstract
  unix-listen:PATH            one accepted connection
  unix-dgram:PATH             UNIX datagrams
  unix-seqpacket:PATH         UNIX sequenced packets
  unix-seqpacket-listen:PATH  one accepted connection of sequenced packets

The name of an existing file always means that file, except for -. The file of
a UNIX socket is replaced if no socket of this machine is bound to it any more,
and is an error (EADDRINUSE) if one is. A sink udp-listen: sends to the sender
of the first datagram that arrives, which is discarded.";

const EXIT: &str = "\
Exit status: 0 success, 1 failure, 2 wrong usage, 128 + the number of the signal
that ended the command (130 SIGINT, 143 SIGTERM), 141 the reader of standard
output has closed it (SIGPIPE ends the command). After the report, a signal of
the terminal (Ctrl-C, a hangup) ends the command by its default action: a shell
shows the same status, and ends a loop.
SIGINT, SIGTERM, SIGHUP and SIGALRM end the command, which prints its report.
SIGUSR1 prints a line of progress. Signals that are ignored at the start stay
ignored. After a signal that arrives before the report is made, the exit status
is never 0, even if all bytes were moved. A second signal ends the command at
once, without the report. After a signal, the command waits at most a second if
the report is not read. The first signal does not end a call that waits for a
file server that does not respond (NFS, FUSE); the second does.
A number of bytes may have a unit: K, M, G, T (powers of 1024) or kB, MB, GB, TB
(powers of 1000), as in 1.5G.
CORDBOARD_ROUTE and CORDBOARD_WITHOUT have the meaning of --route and --without.
CORDBOARD_TUNE=off keeps long transfers with sockets to their first path.
CORDBOARD_TUNE=processor prefers the path that takes the least processor time.
CORDBOARD_ENGINE=epoll makes background transfers do without io_uring(7).
CORDBOARD_ENGINE=io_uring makes them require it.";

const STEERING: &str = "\
Exit status: 0 success, also if the answer is that the command has ended, 1
failure: no command has the socket open, the action was refused, there was no
answer within ten seconds, or another error, 2 wrong usage, 141 the reader of
standard output has closed it (SIGPIPE ends the command).
A rate may have a unit: K, M, G, T (powers of 1024) or kB, MB, GB, TB (powers of
1000), as in 1.5M or 10MB/s.";

const SERVING: &str = "\
Exit status: 0 after the first SIGTERM, SIGINT, SIGHUP or SIGALRM, 1 failure, 2
wrong usage, 128 + the number of the second signal, which ends the server.
CORDBOARD_ROUTE and CORDBOARD_WITHOUT are lists of data paths: all transfers use
only, or do not use, these paths. CORDBOARD_TUNE and CORDBOARD_ENGINE have the
same meaning as for `cordboard splice`.";

const EXAMPLES: &str = "\
Examples:
  cordboard copy big.img /mnt/backup/        one file, by the fastest path available
  cordboard copy -rp src/ dst                a tree, with times, owners, attributes
  cordboard splice tcp-listen:[::]:9000 in.tar --progress always
  tar c dir | cordboard splice - tcp:host:9000 --json
  cordboard splice tcp-listen:[::]:9000 in.tar tcp:host:9000 --on-slow detach
  cordboard splice a.fifo b.fifo all.log --fan-in line
  cordboard splice - tcp:host:9000 --buffer 1G --buffer-file /var/tmp --rate 10M
  cordboard cat part1 part2 > whole
  cordboard explain big.img tcp:host:9000    which paths would be tried, and why
  cordboard play film.pcm film.yuv --frame 3110400 --fps 30000/1001 \\
      --audio-to audio.fifo --video-to video.fifo";

const PLAYING: &str = "\
Both start at the same time. The audio goes as fast as its sink takes it: the
speed applies to the video only. The command ends when both have ended, or when
one of them fails. A late frame is still shown, whole and in order, and the next
ones follow as fast as the sink takes them until the delay is made up. --drop
omits frames whose display time is over before they begin. A short last frame is
passed on.
AUDIO, VIDEO, the two sinks and the list are opened in that order. A sink that
is a FIFO without a reader, or that listens, does not delay the opening of the
other sinks. A file is read from its current position, and not rewound at the
end.
Keys, if standard input is a terminal: Space pauses the video and resumes it,
[ and ] change the speed by a tenth, { and } by half and double, Backspace
resets the speed, q quits. The audio is not paused: its sink has its own clock.
The modes of the terminal are restored while the command is stopped (Ctrl-Z),
and at its end, also by a signal (Ctrl-\\).";

const KEYS: &str = "\
Keys: j and k or the arrows select a transfer, p pauses it, r resumes it, Space
does either. + and - raise and lower its rate (1, 2, 5, 10 and so on), = or R
types in a rate, 0 removes rate and schedule, a selects the schedule of --auto
background, c cancels it after a confirmation. ? shows the keys, Ctrl-L draws
the screen again, q quits.
Running commands are listed in the directory cordboard of $XDG_RUNTIME_DIR or of
/run/user/UID, if that belongs to the user, or else in /tmp/cordboard-UID. top
reads all three. If CORDBOARD_RUNTIME_DIR is set, the only directory is cordboard
in $CORDBOARD_RUNTIME_DIR.";

/// Moves bytes unchanged between any two endpoints, by the fastest path that
/// this kernel has for the pair, and reports exactly what was moved.
#[derive(Debug, Parser)]
#[command(name = "cordboard", version, propagate_version = true)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{ENDPOINTS}\n\n{EXIT}"))]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Move bytes between endpoints
    #[command(after_help = format!("{ENDPOINTS}\n\n{EXIT}"))]
    Splice(Splice),
    /// Copy files, several into a directory, and directory trees
    #[command(after_help = EXIT)]
    Copy(Copy),
    /// Write files to standard output, one after the other
    ///
    /// With --size, at most this many bytes are read from all files together.
    /// The files after that are still opened: one that cannot be opened is an
    /// error. Their hashes, or their zstd frames, are those of no bytes.
    #[command(after_help = EXIT)]
    Cat(Cat),
    /// Play audio, and video one frame at a time
    ///
    /// The player of the 1992 paper: the audio is spliced while the video is
    /// shown, each frame when it is due. The report states how late the frames
    /// were.
    #[command(after_help = format!("{PLAYING}\n\n{ENDPOINTS}\n\n{EXIT}"))]
    Play(Play),
    /// Steer a command that was started with --control
    ///
    /// Prints the status of that command after the action has taken effect. A
    /// cancellation takes effect later: the command then ends as after SIGTERM.
    #[command(after_help = STEERING)]
    Cue(CueFlags),
    /// Show running transfers live, and steer them by keys
    ///
    /// Shows the commands of this user that were started with --control, and the
    /// transfers of `serve ftp`: rate, a graph of the last rates, path, share done,
    /// schedule. If standard input or standard output is no terminal, one table is
    /// printed.
    #[command(after_help = KEYS)]
    Top(TopFlags),
    /// Serve files over the network
    Serve(Serve),
    /// Print which paths would be tried, and why, without moving a byte
    ///
    /// Nothing is created, connected to or waited for. For a new DST, a file without
    /// a name is opened in its directory, if the file system has such files. Devices
    /// are not opened, because that may have an effect: they are described by what is
    /// known without opening. Memory devices such as /dev/null are opened.
    #[command(after_help = ENDPOINTS)]
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
    /// not take them, or if a frame is incomplete (--unzstd). Waiting for the
    /// other end of a FIFO does not count
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
