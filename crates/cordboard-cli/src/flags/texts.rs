//! The texts behind the options of the help, which are sections of the man pages.

/// A text of the help, and a section of a man page.
///
/// A line that begins with two blanks is the term of a list. Two blanks or more, or a line,
/// separate it from its description, whose further lines begin with more blanks. The first line
/// may be the title.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Text {
    /// The title of the section.
    pub title: &'static str,
    /// The text, in 80 columns.
    pub text: &'static str,
    /// The list consists of commands, whose lines stay as they are.
    pub has_commands: bool,
}

/// All texts, in the order in which a page has them.
pub const ALL: [Text; 14] = [
    EXAMPLES,
    PLAYING,
    PLAY_KEYS,
    TOP_KEYS,
    TOP_FILES,
    ENDPOINTS,
    EXIT,
    CUE_EXIT,
    SERVE_EXIT,
    SIGNALS,
    UNITS,
    CUE_UNITS,
    VARIABLES,
    SERVE_VARIABLES,
];

/// The texts of all commands that move bytes once.
pub const MOVING: [Text; 4] = [EXIT, SIGNALS, UNITS, VARIABLES];
/// The first texts of `play`.
pub const OF_PLAY: [Text; 2] = [PLAYING, PLAY_KEYS];
/// The texts of `cue`.
pub const OF_CUE: [Text; 2] = [CUE_EXIT, CUE_UNITS];
/// The texts of `top`.
pub const OF_TOP: [Text; 2] = [TOP_KEYS, TOP_FILES];
/// The texts of `serve`.
pub const OF_SERVE: [Text; 2] = [SERVE_EXIT, SERVE_VARIABLES];

/// Returns these texts as they are in the help.
pub fn help(texts: &[&[Text]]) -> String {
    let texts: Vec<&str> = texts.concat().iter().map(|text| text.text).collect();
    texts.join("\n\n")
}

pub const ENDPOINTS: Text = section(
    "ENDPOINTS",
    "\
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
of the first datagram that arrives, which is discarded.",
);

pub const EXIT: Text = section(
    "EXIT STATUS",
    "\
Exit status:
  0      success
  1      failure
  2      wrong usage
  128+N  signal N has ended the command: 130 SIGINT, 143 SIGTERM
  141    the reader of standard output has closed it (SIGPIPE ends the command)

After a signal that arrives before the report is made, the exit status is never
0, even if all bytes were moved. A signal of the terminal (Ctrl-C, a hangup)
ends the command by its default action, after the report: a shell shows the same
status, and ends a loop.",
);

pub const SIGNALS: Text = section(
    "SIGNALS",
    "\
SIGINT, SIGTERM, SIGHUP and SIGALRM end the command, which prints its report.
SIGUSR1 prints a line of progress. Signals that are ignored at the start stay
ignored. A second signal ends the command at once, without the report. After a
signal, the command waits at most a second if the report is not read. The first
signal does not end a call that waits for a file server that does not respond
(NFS, FUSE); the second does.",
);

pub const UNITS: Text = section(
    "UNITS",
    "\
A number of bytes may have a unit: K, M, G, T (powers of 1024) or kB, MB, GB, TB
(powers of 1000), as in 1.5G.",
);

pub const VARIABLES: Text = section(
    "ENVIRONMENT",
    "\
Environment:
  CORDBOARD_ROUTE, CORDBOARD_WITHOUT
      have the meaning of --route and --without
  CORDBOARD_TUNE=off
      keeps long transfers with sockets to their first path, and direct I/O to
      its first blocks, as do --block, and --route with one path
  CORDBOARD_TUNE=processor
      prefers the path that takes the least processor time
  CORDBOARD_ENGINE=epoll
      makes background transfers do without io_uring(7)
  CORDBOARD_ENGINE=io_uring
      makes them require it",
);

pub const CUE_EXIT: Text = section(
    "EXIT STATUS",
    "\
Exit status:
  0    success, also if the answer is that the command has ended
  1    failure: no command has the socket open, the action was refused, there
       was no answer within ten seconds, or another error
  2    wrong usage
  141  the reader of standard output has closed it (SIGPIPE ends the command)",
);

pub const CUE_UNITS: Text = section(
    "UNITS",
    "\
A rate may have a unit: K, M, G, T (powers of 1024) or kB, MB, GB, TB (powers of
1000), as in 1.5M or 10MB/s.",
);

pub const SERVE_EXIT: Text = section(
    "EXIT STATUS",
    "\
Exit status:
  0      after the first SIGTERM, SIGINT, SIGHUP or SIGALRM
  1      failure
  2      wrong usage
  128+N  a second signal, N, has ended the server",
);

pub const SERVE_VARIABLES: Text = section(
    "ENVIRONMENT",
    "\
Environment:
  CORDBOARD_ROUTE, CORDBOARD_WITHOUT
      are lists of data paths: all transfers use only, or do not use, them
  CORDBOARD_TUNE, CORDBOARD_ENGINE
      have the same meaning as for cordboard splice",
);

pub const EXAMPLES: Text = Text {
    has_commands: true,
    ..section(
        "EXAMPLES",
        "\
Examples:
  cordboard copy big.img /mnt/backup/      one file, by the fastest path
  cordboard copy -rp src/ dst              a tree with its attributes
  cordboard splice tcp-listen:[::]:9000 in.tar --progress always
  tar c dir | cordboard splice - tcp:host:9000 --json
  cordboard splice tcp-listen:[::]:9000 in.tar tcp:host:9000 \\
      --on-slow detach
  cordboard splice a.fifo b.fifo all.log --fan-in line
  cordboard splice - tcp:host:9000 --buffer 1G --buffer-file /var/tmp
  cordboard cat part1 part2 > whole
  cordboard explain big.img tcp:host:9000  which paths would be tried
  cordboard play film.pcm film.yuv --frame 3110400 --fps 30000/1001 \\
      --audio-to audio.fifo --video-to video.fifo",
    )
};

pub const PLAYING: Text = section(
    "PLAYING",
    "\
Both start at the same time. The audio goes as fast as its sink takes it: the
speed applies to the video only. The command ends when both have ended, or when
one of them fails. A late frame is still shown, whole and in order, and the next
ones follow as fast as the sink takes them until the delay is made up. --drop
omits frames whose display time is over before they begin. A short last frame is
passed on.

AUDIO, VIDEO, the two sinks and the list are opened in that order. A sink that
is a FIFO without a reader, or that listens, does not delay the opening of the
other sinks. A file is read from its current position, and not rewound at the
end.",
);

pub const PLAY_KEYS: Text = section(
    "KEYS",
    "\
Keys, if standard input is a terminal: Space pauses the video and resumes it,
[ and ] change the speed by a tenth, { and } by half and double, Backspace
resets the speed, q quits. The audio is not paused: its sink has its own clock.
The modes of the terminal are restored while the command is stopped (Ctrl-Z),
and at its end, also by a signal (Ctrl-\\). Ctrl-Z is no pause: the frames of
the time in between are late, and follow at once. The audio continues where it
was, behind the video.",
);

pub const TOP_KEYS: Text = section(
    "KEYS",
    "\
Keys: j and k or the arrows select a transfer, p pauses it, r resumes it, Space
does either. + and - raise and lower its rate (1, 2, 5, 10 and so on), = or R
types in a rate, 0 removes rate and schedule, a selects the schedule of --auto
background, c cancels it after a confirmation. ? shows the keys, Ctrl-L draws
the screen again, q quits.",
);

pub const TOP_FILES: Text = section(
    "FILES",
    "\
Running commands are listed in the directory cordboard of $XDG_RUNTIME_DIR or of
/run/user/UID, if that belongs to the user, or else in /tmp/cordboard-UID. top
reads all three. If CORDBOARD_RUNTIME_DIR is set, the only directory is
cordboard in $CORDBOARD_RUNTIME_DIR.",
);

const fn section(title: &'static str, text: &'static str) -> Text {
    Text {
        title,
        text,
        has_commands: false,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// A man page has no other text behind the options.
    #[test]
    fn the_help_consists_of_these_texts() {
        fn check(command: &clap::Command) {
            for help in [command.get_after_help(), command.get_after_long_help()] {
                let help = help.map(ToString::to_string).unwrap_or_default();
                let rest = ALL
                    .iter()
                    .fold(help, |rest, text| rest.replace(text.text, ""));
                assert_eq!(rest.trim(), "", "{}", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        check(&crate::flags::Cli::command());
    }

    #[test]
    fn lines_fit_into_80_columns() {
        let lines = ALL.iter().flat_map(|text| text.text.lines());
        lines.for_each(|line| assert!(line.len() <= 80, "{line}"));
        // A man page indents them.
        let commands = EXAMPLES.text.lines();
        commands.for_each(|line| assert!(line.len() <= 73, "{line}"));
    }
}
