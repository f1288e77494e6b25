//! A terminal that draws what it gets, as a terminal emulator does.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Arc, Mutex};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use super::common::{Owned, Start, until};

/// A terminal with a program in its foreground.
pub struct Tty {
    master: File,
    /// Keeps the terminal open after the program has ended.
    pub slave: OwnedFd,
    screen: Arc<Mutex<vt100::Parser>>,
    /// All output.
    output: Arc<Mutex<Vec<u8>>>,
    pub child: Owned,
}

fn winsize(rows: u16, columns: u16) -> Winsize {
    Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

fn cells(count: u16) -> std::num::NonZero<u16> {
    count.try_into().unwrap()
}

impl Tty {
    /// Starts a program in a session of its own, at a terminal of this size.
    pub fn start(command: &mut Command, rows: u16, columns: u16) -> Tty {
        Tty::start_at(command, rows, columns, |_| ())
    }

    /// The same, at a terminal that is changed before.
    pub fn start_at(
        command: &mut Command,
        rows: u16,
        columns: u16,
        change: impl FnOnce(&OwnedFd),
    ) -> Tty {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        tcsetwinsize(&master, winsize(rows, columns)).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        use rustix::fs::{Mode, OFlags};
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = rustix::fs::open(name.as_c_str(), flags, Mode::empty()).unwrap();
        change(&slave);
        let copy = || slave.try_clone().unwrap();
        command.stdin(copy()).stdout(copy()).stderr(copy());
        command.env("LC_ALL", "C.UTF-8");
        if !command.get_envs().any(|(name, _)| name == "TERM") {
            command.env("TERM", "xterm");
        }
        // SAFETY: two system calls.
        unsafe {
            command.pre_exec(|| {
                rustix::process::setsid()?;
                rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
                Ok(())
            });
        }
        let child = command.start();
        let master = File::from(master);
        let screen = Arc::new(Mutex::new(vt100::Parser::new(
            cells(rows),
            cells(columns),
            0,
        )));
        let output = Arc::<Mutex<Vec<u8>>>::default();
        let (mut reader, drawn) = (master.try_clone().unwrap(), Arc::clone(&screen));
        let all = Arc::clone(&output);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = reader.read(&mut bytes) {
                all.lock().unwrap().extend_from_slice(&bytes[..n]);
                drawn.lock().unwrap().process(&bytes[..n]);
            }
        });
        Tty {
            master,
            slave,
            screen,
            output,
            child,
        }
    }

    /// How often the alternate screen was entered.
    pub fn entered(&self) -> usize {
        let enter = b"\x1b[?1049h";
        let output = self.output.lock().unwrap();
        let is_one = |bytes: &&[u8]| bytes == enter;
        output.windows(enter.len()).filter(is_one).count()
    }

    /// Types.
    pub fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    /// Writes to the terminal, as another process does.
    pub fn print(&self, text: &str) {
        let length = rustix::io::write(&self.slave, text.as_bytes()).unwrap();
        assert_eq!(length, text.len());
    }

    /// Changes the size of the terminal.
    pub fn resize(&self, rows: u16, columns: u16) {
        self.screen
            .lock()
            .unwrap()
            .screen_mut()
            .set_size(cells(rows), cells(columns));
        tcsetwinsize(&self.master, winsize(rows, columns)).unwrap();
    }

    /// The lines that are visible.
    pub fn lines(&self) -> Vec<String> {
        let parser = self.screen.lock().unwrap();
        let columns = parser.screen().size().1.get();
        parser.screen().rows(0, columns).collect()
    }

    /// Waits until the screen satisfies this.
    #[track_caller]
    pub fn sees(&self, what: &str, holds: impl Fn(&[String]) -> bool) -> Vec<String> {
        let mut last = Vec::new();
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until(what, || {
                last = self.lines();
                holds(&last).then(|| last.clone())
            })
        }));
        found
            .unwrap_or_else(|_| panic!("{what} is not on the screen:\n{}", self.lines().join("\n")))
    }

    /// Waits until a line has all these words.
    #[track_caller]
    pub fn shows(&self, words: &[&str]) -> String {
        let has = |line: &&String| words.iter().all(|word| line.contains(word));
        let lines = self.sees(&words.join(" "), |lines| {
            lines.iter().any(|line| has(&line))
        });
        lines.iter().find(has).unwrap().clone()
    }

    /// Whether the program has the alternate screen, a hidden cursor and keys without echo;
    /// or none of them.
    pub fn is_taken(&self) -> Option<bool> {
        let parser = self.screen.lock().unwrap();
        let screen = parser.screen();
        let modes = tcgetattr(self.slave.as_fd()).unwrap().local_modes;
        let each = [
            screen.alternate_screen(),
            screen.hide_cursor(),
            !modes.contains(LocalModes::ICANON),
            !modes.contains(LocalModes::ECHO),
        ];
        each.iter()
            .all(|taken| *taken == each[0])
            .then_some(each[0])
    }

    /// The number of the process group in the foreground, and so of its first process.
    pub fn foreground(&self) -> i32 {
        rustix::termios::tcgetpgrp(&self.master)
            .unwrap()
            .as_raw_nonzero()
            .get()
    }

    /// Returns a check for whether the output is stopped: a terminal then has no room.
    pub fn stops(&self) -> impl FnMut() -> bool + use<> {
        let slave = self.slave.try_clone().unwrap();
        move || {
            let mut fds = [PollFd::new(&slave, PollFlags::OUT)];
            poll(&mut fds, Some(&Timespec::default())).unwrap() == 0
        }
    }

    /// Waits for the end of the program, after which the terminal is as before.
    #[track_caller]
    pub fn ends(&mut self) -> std::process::ExitStatus {
        let status = until("the end", || self.child.try_wait().unwrap());
        until("the terminal as before", || {
            (self.is_taken() == Some(false)).then_some(())
        });
        status
    }
}
