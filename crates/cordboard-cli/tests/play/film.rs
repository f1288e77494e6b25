//! Films to play, and their readers.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread::JoinHandle;

use serde_json::Value;

use crate::common::*;

/// Bytes of a frame.
pub const FRAME: usize = 3000;
/// Fast enough for a test, with a timer tick for each frame.
const FPS: &str = "1000";

/// Plays audio and video, each to a sink, with these options.
pub fn play([audio, video, audio_to, video_to]: [&str; 4], more: &[&str]) -> Owned {
    let mut command = cordboard();
    command
        .args(["play", audio, video, "--json"])
        .args(["--audio-to", audio_to, "--video-to", video_to])
        .args(["--frame", &FRAME.to_string()])
        .args(more);
    if !more.contains(&"--fps") {
        command.args(["--fps", FPS]);
    }
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .start()
}

/// A film of this number of frames, and its audio.
pub struct Film {
    pub dir: TempDir,
    pub audio: PathBuf,
    pub video: PathBuf,
}

impl Film {
    pub fn new(video: usize) -> Film {
        let dir = dir();
        Film {
            audio: file(&dir, "audio", &bytes(50_000)),
            video: file(&dir, "video", &bytes(video)),
            dir,
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Its audio and its video.
    pub fn names(&self) -> [&str; 2] {
        [&self.audio, &self.video].map(|path| path.to_str().unwrap())
    }

    /// Plays it to these sinks, with these options.
    pub fn play(&self, audio_to: &str, video_to: &str, more: &[&str]) -> Owned {
        let [audio, video] = self.names();
        play([audio, video, audio_to, video_to], more)
    }
}

/// Reads everything, a little at a time: the sink is full again and again.
pub fn slow_reader(mut from: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let (mut all, mut piece) = (Vec::new(), [0; 700]);
        // EIO: the other side of a terminal has been closed.
        while let Ok(n @ 1..) = from.read(&mut piece) {
            all.extend_from_slice(&piece[..n]);
            std::thread::yield_now();
        }
        all
    })
}

pub fn read_if(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_default()
}

#[track_caller]
pub fn counts(json: &Value, name: &str, read: usize, written: usize) {
    let report = &json[name];
    let found = [&report["read"], &report["written"]].map(|n| n.as_u64().unwrap() as usize);
    assert_eq!(found, [read, written], "{name}: {json}");
    let stranded = report["stranded"].as_u64().unwrap() as usize;
    assert_eq!(read, written + stranded, "{name}: {json}");
}

/// A terminal, and the side where programs run.
pub fn terminal() -> (File, File) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let slave = (File::options().read(true).write(true))
        .open(name.to_str().unwrap())
        .unwrap();
    (File::from(master), slave)
}

pub fn name_of(slave: &File) -> String {
    let name = rustix::termios::ttyname(slave, Vec::new()).unwrap();
    name.into_string().unwrap()
}
