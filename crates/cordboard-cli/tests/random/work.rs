//! The work of the command, and the expected results.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread::JoinHandle;

use fastrand::Rng;
use serde_json::Value;

use crate::common::*;

/// Sources that several rounds share.
pub struct Trees {
    dir: TempDir,
    tops: Vec<PathBuf>,
}

/// As many small ones as large ones, up to `1 << most` bytes.
fn length(rng: &mut Rng, most: u32) -> usize {
    let power = rng.u32(0..most);
    rng.usize(0..1 << power)
}

impl Trees {
    pub fn new() -> Trees {
        let rng = &mut Rng::with_seed(9);
        let dir = dir();
        let mut tops = Vec::new();
        for (tree, files) in [1, 3, 70, 300].into_iter().enumerate() {
            let top = dir.path().join(format!("t{tree}"));
            for index in 0..files {
                let at = top.join(format!("d{}/e{}", index % 5, index % 3));
                std::fs::create_dir_all(&at).unwrap();
                let length = length(rng, if index % 40 == 0 { 24 } else { 15 });
                std::fs::write(at.join(format!("f{index}")), bytes(length)).unwrap();
            }
            tops.push(top);
        }
        Trees { dir, tops }
    }

    fn files(top: &Path) -> Vec<PathBuf> {
        let mut all = Vec::new();
        let mut below = vec![top.to_owned()];
        while let Some(dir) = below.pop() {
            for entry in std::fs::read_dir(dir).unwrap() {
                let entry = entry.unwrap();
                match entry.file_type().unwrap().is_dir() {
                    true => below.push(entry.path()),
                    false => all.push(entry.path()),
                }
            }
        }
        all.sort();
        all
    }
}

/// One run of the command.
pub struct Work {
    pub what: String,
    /// Sources and their targets.
    pairs: Vec<(PathBuf, PathBuf)>,
    /// Or the bytes from a pipe.
    reader: Option<JoinHandle<Vec<u8>>>,
    got: Vec<u8>,
    writer: Option<JoinHandle<()>>,
    into: PathBuf,
    _dir: TempDir,
}

impl Work {
    pub fn start(rng: &mut Rng, trees: &Trees) -> (Work, Owned) {
        let top = &trees.tops[rng.usize(..trees.tops.len())];
        let dir = tempfile::tempdir_in(trees.dir.path()).unwrap();
        let into = dir.path().join("into");
        let files = Trees::files(top);
        let mut command = cordboard();
        command.stderr(Stdio::piped());
        let mut arguments: Vec<String> = Vec::new();
        let mut add = |words: &[&str]| arguments.extend(words.iter().map(|w| (*w).to_owned()));
        let kind = rng.u8(..5);
        add(match kind {
            0 | 1 => &["copy", "--json"],
            2 => &["copy", "--json", "--verify"],
            3 => &["splice", "--json"],
            _ => &["cat", "--json"],
        });
        match rng.u8(..6) {
            0 => add(&["--hash", "crc32"]),
            1 => add(&["--hash", "blake3"]),
            2 => add(&["--route", "read/write"]),
            _ => {}
        }
        if kind < 3 && rng.bool() {
            add(&["--jobs", ["1", "2", "3", "8"][rng.usize(..4)]]);
        }
        if kind < 3 && rng.u8(..4) == 0 {
            add(&[["-p", "--sync"][rng.usize(..2)]]);
        }
        command.args(&arguments);
        let mut pairs = Vec::new();
        match kind {
            0 | 2 => {
                command.arg("-r").arg(top).arg(&into);
                for file in files {
                    let to = into.join(file.strip_prefix(top).unwrap());
                    pairs.push((file, to));
                }
            }
            1 => {
                std::fs::create_dir(&into).unwrap();
                command.args(&files).arg(&into);
                for file in files {
                    let to = into.join(file.file_name().unwrap());
                    pairs.push((file, to));
                }
            }
            3 => {
                let file = files[rng.usize(..files.len())].clone();
                command.arg("-").arg(&into).stdin(Stdio::piped());
                pairs.push((file, into.clone()));
            }
            _ => {
                command.args(&files).stdout(Stdio::piped());
                pairs.extend(files.into_iter().map(|file| (file, PathBuf::new())));
            }
        }
        let what = format!("{command:?}");
        let mut child = command
            .try_start()
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        let piece = length(rng, 18).max(1);
        let writer = child.stdin.take().map(|mut stdin| {
            let data = read(&pairs[0].0);
            std::thread::spawn(move || {
                for piece in data.chunks(piece) {
                    // It may have been interrupted.
                    if stdin.write_all(piece).is_err() {
                        return;
                    }
                }
            })
        });
        let reader = child.stdout.take().map(|mut stdout| {
            std::thread::spawn(move || {
                let mut all = Vec::new();
                stdout.read_to_end(&mut all).unwrap();
                all
            })
        });
        let work = Work {
            what,
            pairs,
            reader,
            got: Vec::new(),
            writer,
            into,
            _dir: dir,
        };
        (work, child)
    }

    /// Waits until the command has its handlers, and has made this number of
    /// files in one of the directories, or has ended.
    pub fn is_under_way(&self, pid: u32, files: usize) {
        let ended = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit(") ")
                .next()
                .is_none_or(|rest| rest.starts_with('Z'))
        };
        let last = &self.pairs[files.min(self.pairs.len() - 1)].1;
        until("the first of it", || {
            let made = last.as_os_str().is_empty() || last.exists();
            (ended() || handles(pid, 14) && made).then_some(())
        });
    }

    /// The command has ended: nothing more comes.
    pub fn settle(&mut self) {
        if let Some(reader) = self.reader.take() {
            self.got = reader.join().unwrap();
        }
        if let Some(writer) = self.writer.take() {
            writer.join().unwrap();
        }
    }

    fn is_cat(&self) -> bool {
        self.pairs[0].1.as_os_str().is_empty()
    }

    /// The bytes of all sources.
    fn all(&self) -> Vec<u8> {
        self.pairs.iter().flat_map(|(from, _)| read(from)).collect()
    }

    pub fn is_whole(&self, json: &Value) -> bool {
        let sum: u64 = self.pairs.iter().map(|(from, _)| size(from)).sum();
        let same = if self.is_cat() {
            self.got == self.all()
        } else {
            let mut pairs = self.pairs.iter();
            pairs.all(|(from, to)| to.exists() && read(from) == read(to))
        };
        same && json["read"] == sum && json["written"] == sum
    }

    /// Checks that there are exactly as many bytes as reported, and the right
    /// ones.
    pub fn is_as_told(&self, json: &Value) -> bool {
        let there = match self.is_cat() {
            true => self.got.len() as u64,
            false => {
                let made = self.pairs.iter().filter(|(_, to)| to.exists());
                made.map(|(_, to)| size(to)).sum()
            }
        };
        self.is_a_part() && json["written"] == there
    }

    /// Checks that there is nothing but bytes of the sources.
    pub fn is_a_part(&self) -> bool {
        if self.is_cat() {
            return self.all().starts_with(&self.got);
        }
        // Blocks of direct I/O are not written in order.
        let mut made = self.pairs.iter().filter(|(_, to)| to.exists());
        let known = |at: &PathBuf| self.pairs.iter().any(|(_, to)| to == at);
        made.all(|(from, to)| read(from).starts_with(&read(to)))
            && (!self.into.is_dir() || Trees::files(&self.into).iter().all(known))
    }
}

fn size(path: &Path) -> u64 {
    File::open(path).unwrap().metadata().unwrap().len()
}
