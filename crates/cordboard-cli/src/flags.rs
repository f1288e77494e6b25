//! The one table of flags: help, man pages and completions are made from it.

use std::ffi::{OsStr, OsString};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use cordboard::{DataPath, Sparse};

use crate::units;

const ENDPOINTS: &str = "\
An endpoint is one of:
  PATH, file:PATH             a file, FIFO or device; a new file is created
  -                           standard input, or standard output
  fd:N                        a descriptor that the shell opened
  tcp:HOST:PORT               a connection to a server; [ADDRESS]:PORT for IPv6
  tcp-listen:HOST:PORT        one connection that is accepted; port 0: any
  udp:HOST:PORT               datagrams to and from one peer
  udp-listen:HOST:PORT        datagrams that arrive here
  unix:PATH                   a connection to a UNIX socket; @NAME: abstract
  unix-listen:PATH            one connection that is accepted there
  unix-dgram:PATH             UNIX datagrams
  unix-seqpacket:PATH         UNIX sequenced packets
  unix-seqpacket-listen:PATH  the same, accepted there

The name of an existing file always means that file; - is the exception. A
socket's file that no socket is bound to any more is replaced; one that is in
use is an error (EADDRINUSE).";

const EXIT: &str = "\
Exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted (128 + signal),
141 standard output was closed by its reader (the command dies of SIGPIPE).
SIGINT, SIGTERM, SIGHUP and SIGALRM end with the report of what was moved;
SIGUSR1 prints a line of progress. One that was ignored before stays ignored.
A signal that arrives before that report is made means no success, whatever was
moved; a second signal ends the command at once, without the report. After a
signal, a reader of the report that takes nothing for a second is not waited for.
The first signal does not end a call that waits for a file server that does not
answer (NFS, FUSE); the second does.
CORDBOARD_ROUTE and CORDBOARD_WITHOUT do as --route and --without.";

const EXAMPLES: &str = "\
Examples:
  cordboard copy big.img /mnt/backup/        one file, by the fastest way there is
  cordboard copy -rp src/ dst                a tree, with times, owners, attributes
  cordboard splice tcp-listen:[::]:9000 in.tar --progress always
  tar c dir | cordboard splice - tcp:host:9000 --json
  cordboard cat part1 part2 > whole
  cordboard explain big.img tcp:host:9000    which paths it would try, and why
  cordboard play film.pcm film.yuv --frame 3110400 --fps 30000/1001 \\
      --audio-to audio.fifo --video-to video.fifo";

const PLAYING: &str = "\
Both begin at once. The audio goes as fast as its sink takes it, at any speed;
the end comes when both have ended, or when one of them fails. A frame that
comes late is still shown, whole and in order, and the next ones follow as fast
as the sink takes them until time is made up for; --drop leaves out those whose
time is over before they begin. A last frame that is short is passed on.
AUDIO, VIDEO, the two sinks and the list are opened in that order; a file is
read from where it stands, and not rewound at the end.
If standard input is a terminal: Space holds the video, and lets it go on, [ and
] slower and faster by a tenth, { and } by half and double, Backspace the plain
speed, q the end. The audio is not held: its sink has its own time. The terminal
is given back while the command is stopped (Ctrl-Z), and at its end, also by a
signal (Ctrl-\\).";

/// Moves bytes unchanged from anything to anything, by the fastest way this
/// kernel has for the pair, and accounts for each of them.
#[derive(Debug, Parser)]
#[command(name = "cordboard", version, propagate_version = true)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{ENDPOINTS}\n\n{EXIT}"))]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Move bytes from any endpoint to any endpoint
    #[command(after_help = format!("{ENDPOINTS}\n\n{EXIT}"))]
    Splice(Splice),
    /// Copy files, many into a directory, and trees
    #[command(after_help = EXIT)]
    Copy(Copy),
    /// Write files to standard output, one after the other
    ///
    /// With --size, at most so many bytes are read of all files together. Those
    /// for which none is left are opened too, and one that cannot be opened is
    /// an error; their hash, or their zstd frame, is that of no bytes.
    #[command(after_help = EXIT)]
    Cat(Cat),
    /// Play audio, and with it video a frame at a time
    ///
    /// The player of the 1992 paper: the audio is spliced while the video is
    /// shown, each frame when it is due. It tells how late each was there.
    #[command(after_help = format!("{PLAYING}\n\n{ENDPOINTS}\n\n{EXIT}"))]
    Play(Play),
    /// Say which paths would be tried, and why, without moving a byte
    ///
    /// Nothing is made, connected to or waited for. A device is not opened
    /// either, which may do something to it: it is described by what can be
    /// seen from outside. Only those of memory, such as /dev/null, are.
    #[command(after_help = ENDPOINTS)]
    Explain(Explain),
    /// Print completions for a shell
    #[command(hide = true)]
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    /// Write the man pages into a directory, or print one
    #[command(hide = true)]
    Man {
        /// An existing directory for all pages, or a command whose page to print
        what: Option<OsString>,
    },
}

/// `cordboard splice`.
#[derive(Debug, Args)]
pub struct Splice {
    /// Where the bytes come from
    #[arg(value_name = "SRC", value_hint = ValueHint::AnyPath)]
    pub source: OsString,
    /// Where they go
    #[arg(value_name = "DST", value_hint = ValueHint::AnyPath)]
    pub sink: OsString,
    /// Shared flags.
    #[command(flatten)]
    pub range: Range,
    /// Shared flags.
    #[command(flatten)]
    pub writing: Writing,
    /// End, without an error, when nothing has moved for this long, or, at the
    /// end, the peer of DST (tcp: or tcp-listen:) has acknowledged nothing; the
    /// peer of a connection that was handed over (- or fd:N) is not waited for,
    /// with or without this option. If SRC falls silent, bytes that
    /// were read have the same time again to go to DST; it is an error if DST
    /// does not take them, or if a frame is incomplete (--unzstd). The wait for
    /// a connection, or for a FIFO's other end, does not count
    #[arg(long, value_name = "SECONDS", value_parser = units::seconds)]
    pub idle: Option<Duration>,
    /// Shared flags.
    #[command(flatten)]
    pub common: Common,
}

/// `cordboard copy`.
#[derive(Debug, Args)]
pub struct Copy {
    /// Files to copy, or a device to read to its end; with -r also directories
    #[arg(value_name = "SRC", num_args = 1.., required = true, value_hint = ValueHint::AnyPath)]
    #[arg(value_parser = any_path())]
    sources: Vec<PathBuf>,
    /// The file, or the directory, to copy them to; ./NAME or file:NAME for a
    /// new file whose name is that of another endpoint, such as tcp:HOST:PORT.
    /// A file of another user that may be SRC itself, shown by two file systems,
    /// gets the present time, also where it is refused as that
    #[arg(value_name = "DST", required = true, value_hint = ValueHint::AnyPath)]
    #[arg(value_parser = any_path())]
    sink: Option<PathBuf>,
    /// Copy directories and their contents; symlinks are copied as symlinks,
    /// and nothing is written through a symlink below DST. FIFOs, sockets and
    /// devices are a failure each
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,
    /// Keep mode, times, owner, access control lists and all extended
    /// attributes. As with cp -p, it is a failure if the mode, the times or a
    /// list cannot be set, or if there is no room for an extended attribute. An
    /// owner, a group or an extended attribute that may not be set is counted
    /// as "unkept" in the JSON line, and not a failure; an extended attribute
    /// is also reported, but as with cp -p not an owner or group, nor the set-id
    /// and sticky bits, which are dropped without them
    #[arg(short, long)]
    pub preserve: bool,
    /// Read back what was written, from the device where it can be, and
    /// compare; a difference is a failure, and the first byte that differs is
    /// named. With --zstd or --unzstd, and of a source that can be read once, the
    /// hash of what was written is compared, and both hashes are given. Of regular files only: a block
    /// device as DST is refused. What other processes append meanwhile
    /// (--append) is not compared
    #[arg(long)]
    pub verify: bool,
    /// Files under way at once, at most; 1: one after the other
    #[arg(short, long, value_name = "N", value_parser = units::jobs)]
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

/// The parser of a path that may be empty, unlike clap's own.
fn any_path() -> impl TypedValueParser<Value = PathBuf> {
    clap::builder::OsStringValueParser::new().map(PathBuf::from)
}

impl Copy {
    /// SRC and DST.
    pub fn operands(&self) -> (&[PathBuf], &Path) {
        match (&self.sink, self.sources.split_last()) {
            (Some(sink), _) => (&self.sources, sink),
            (None, Some((sink, sources))) => (sources, sink),
            (None, None) => unreachable!("they are required"),
        }
    }
}

/// `cordboard cat`.
#[derive(Debug, Args)]
pub struct Cat {
    /// Files; none, or -: standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files: Vec<OsString>,
    /// Shared flags.
    #[command(flatten)]
    pub range: Range,
    /// End, without an error, when nothing has moved for this long. If a file
    /// falls silent, bytes that were read have the same time again to go to
    /// standard output; it is an error if it does not take them, or if a frame
    /// is incomplete (--unzstd). The wait for a FIFO's other end does not count
    #[arg(long, value_name = "SECONDS", value_parser = units::seconds)]
    pub idle: Option<Duration>,
    /// Shared flags.
    #[command(flatten)]
    pub common: Common,
}

/// `cordboard play`.
#[derive(Debug, Args)]
pub struct Play {
    /// Where the audio comes from
    #[arg(value_name = "AUDIO", value_hint = ValueHint::AnyPath)]
    pub audio: OsString,
    /// Where the video comes from: frames of equal size, one after the other
    #[arg(value_name = "VIDEO", value_hint = ValueHint::AnyPath)]
    pub video: OsString,
    /// Where the audio goes
    #[arg(long, value_name = "EP", value_hint = ValueHint::AnyPath)]
    pub audio_to: OsString,
    /// Where the video goes
    #[arg(long, value_name = "EP", value_hint = ValueHint::AnyPath)]
    pub video_to: OsString,
    /// Bytes of a frame (K, M, G: 1024; kB, MB, GB: 1000)
    #[arg(long, value_name = "BYTES", value_parser = units::frame)]
    pub frame: u64,
    /// Frames a second, such as 25, 29.97 or 30000/1001
    #[arg(long, value_name = "N", value_parser = units::frames)]
    pub fps: f64,
    /// Show them so many times as fast: 2 is fast forward, 0.5 slow motion
    #[arg(long, value_name = "X", default_value = "1", value_parser = units::speed)]
    pub speed: f64,
    /// Leave out frames whose time is over before they begin
    #[arg(long)]
    pub drop: bool,
    /// List each whole frame that was shown in this file (CSV, milliseconds):
    /// when it was due, when it was begun, when its sink had all of it, and how
    /// late that was. A short last frame is neither listed nor counted
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub lateness: Option<OsString>,
    /// Shared flags.
    #[command(flatten)]
    pub paths: Paths,
    /// Draw progress: auto does so on a terminal
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = When::Auto)]
    pub progress: When,
    /// Print the accounts as one line of JSON on standard error at the end
    #[arg(long)]
    pub json: bool,
}

/// `cordboard explain`.
#[derive(Debug, Args)]
pub struct Explain {
    /// Where the bytes would come from
    #[arg(value_name = "SRC", value_hint = ValueHint::AnyPath)]
    pub source: OsString,
    /// Where they would go
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

/// Which part of the source.
#[derive(Debug, Clone, Default, Args)]
pub struct Range {
    /// Take at most this many bytes of the source (K, M, G: 1024; kB, MB, GB: 1000)
    #[arg(long, value_name = "N", value_parser = units::size)]
    pub size: Option<u64>,
    /// Begin at this byte of the source, whatever its descriptor's position is.
    /// It takes one source
    #[arg(long, value_name = "N", value_parser = units::size)]
    pub offset: Option<u64>,
}

/// How the sink is written.
#[derive(Debug, Clone, Args)]
pub struct Writing {
    /// Have it on the disk before reporting success (fsync). A large file
    /// may be copied past the page cache (direct): if that is killed by
    /// SIGKILL, or the power fails, it can have its full length and up to 4 GiB
    /// of zeros at its end. Copy to a new name and rename it after success, or
    /// add --without direct
    #[arg(long)]
    pub sync: bool,
    /// Holes: keep the source's, make them of zeros too, or write every byte
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = When::Auto)]
    pub sparse: When,
    /// Add to the end of a file instead of replacing its contents; block
    /// devices have no such end. Every byte is written: not with --sparse
    /// always
    #[arg(long)]
    pub append: bool,
}

/// Which paths, and in which steps.
#[derive(Debug, Clone, Default, Args)]
pub struct Paths {
    /// Bytes moved by one step at most; for datagrams, the size of each
    #[arg(long, value_name = "N", value_parser = units::block)]
    pub block: Option<NonZeroUsize>,
    /// Use only these paths: clone, direct, copy_file_range, sendfile,
    /// splice, datagram, read/write
    #[arg(long, value_name = "PATH", value_delimiter = ',')]
    #[arg(value_parser = Word, hide_possible_values = true)]
    pub route: Vec<DataPath>,
    /// Do not use these paths
    #[arg(long, value_name = "PATH", value_delimiter = ',')]
    #[arg(value_parser = Word, hide_possible_values = true)]
    pub without: Vec<DataPath>,
    /// A snapshot: later writes to the source, or to a file that feeds it,
    /// cannot show in the sink
    #[arg(long)]
    pub stable: bool,
}

/// What is done to the bytes on their way: they then pass through user space,
/// and no path of the kernel's is taken.
#[derive(Debug, Clone, Default, Args)]
pub struct Stages {
    /// Print a hash of the contents on standard error, as the usual sum tools
    /// do; may be given several times. Every byte is read for it: no clone. That
    /// of anything but a file is printed at the end of the command, and not once
    /// a signal to stop has come: it may have ended who writes there, too
    #[arg(long, value_name = "HASH", value_enum)]
    pub hash: Vec<Hash>,
    /// Compress to zstd, at this level: 1 is fast, 3 the default, 19 dense
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "3", value_parser = clap::value_parser!(i32).range(-7..=22))]
    pub zstd: Option<i32>,
    /// Decompress zstd data; --size then counts packed bytes
    #[arg(long)]
    pub unzstd: bool,
}

/// What the contents can be hashed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Hash {
    /// Of 32 bits, as of gzip and crc32(1).
    Crc32,
    /// Of 64 bits, the fastest, as of xxhsum -H3.
    Xxh3,
    /// Of 256 bits, safe against adversaries, as of b3sum(1).
    Blake3,
}

/// What every command that moves bytes has.
#[derive(Debug, Clone, Args)]
pub struct Common {
    /// Shared flags.
    #[command(flatten)]
    pub paths: Paths,
    /// Shared flags.
    #[command(flatten)]
    pub stages: Stages,
    /// Draw progress: auto does so on a terminal
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = When::Auto)]
    pub progress: When,
    /// Print the report as one line of JSON on standard error at the end; of
    /// several files, their sums
    #[arg(long)]
    pub json: bool,
}

/// `auto`, `always`, `never`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// Where it suits.
    Auto,
    /// In any case.
    Always,
    /// In no case.
    Never,
}

impl From<When> for Sparse {
    fn from(when: When) -> Sparse {
        match when {
            When::Auto => Sparse::Auto,
            When::Always => Sparse::Always,
            When::Never => Sparse::Never,
        }
    }
}

/// The parser of a path's name, which also tells completions of all names.
#[derive(Clone)]
struct Word;

impl TypedValueParser for Word {
    type Value = DataPath;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        word: &OsStr,
    ) -> Result<DataPath, clap::Error> {
        path.parse_ref(command, arg, word)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let names = DataPath::ALL.iter().map(|path| path.name());
        Some(Box::new(names.map(PossibleValue::new)))
    }
}

fn path(word: &str) -> Result<DataPath, String> {
    match word {
        "sockmap" => Err(format!("the path {word} is planned, and not built yet")),
        word => word
            .parse()
            .map_err(|bad: cordboard::request::BadSwitch| bad.to_string()),
    }
}
