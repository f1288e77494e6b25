//! Writing to standard output and standard error, which another program may
//! have left with `O_NONBLOCK`: the flag belongs to the open description, and
//! a terminal's is shared by all that was started there.

use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Between two writes where `poll(2)` says that there is room, and a write that
/// there is too little: a terminal takes a line feed as two characters
/// (`do_output_char`, drivers/tty/n_tty.c).
const SHORT_OF_ROOM: Duration = Duration::from_millis(10);

/// Writes all of this, and flushes it. Waits as long as there is no room, as a
/// blocking descriptor would; a second signal to stop ends the process then too.
pub fn write_all(out: &mut (impl Write + AsFd), mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match patiently(out, |out| out.write(bytes))? {
            0 => return Err(ErrorKind::WriteZero.into()),
            n => bytes = &bytes[n..],
        }
    }
    patiently(out, |out| out.flush())
}

fn patiently<O: Write + AsFd, T>(
    out: &mut O,
    mut call: impl FnMut(&mut O) -> io::Result<T>,
) -> io::Result<T> {
    let mut was_ready = false;
    loop {
        match call(out) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if was_ready {
                    pause();
                }
                match room(out) {
                    Ok(()) => was_ready = true,
                    Err(Errno::INTR) => was_ready = false,
                    // Where nobody may be asked (RLIMIT_NOFILE, a filter).
                    Err(_) => return Err(error),
                }
            }
            done => return done,
        }
    }
}

/// Waits until there is room, or an error to be told of.
fn room(out: &impl AsFd) -> Result<(), Errno> {
    poll(&mut [PollFd::new(out, PollFlags::OUT)], None).map(drop)
}

fn pause() {
    let time = Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(SHORT_OF_ROOM.subsec_nanos()),
    };
    let _ = poll(&mut [], Some(&time));
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    #[test]
    fn what_does_not_fit_waits_for_room() {
        let (reader, writer) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).unwrap();
        let mut writer = std::fs::File::from(writer);
        let bytes: Vec<u8> = (0..1 << 20).map(|n| (n % 251) as u8).collect();
        assert!(writer.write_all(&bytes).is_err(), "more than it holds");
        let mut there = vec![0; 1 << 20];
        let n = rustix::io::read(&reader, &mut there).unwrap();
        assert_eq!(there[..n], bytes[..n]);
        rustix::io::ioctl_fionbio(&reader, false).unwrap();
        let reading = std::thread::spawn(move || {
            let mut all = Vec::new();
            std::fs::File::from(reader).read_to_end(&mut all).unwrap();
            all
        });
        write_all(&mut writer, &bytes).unwrap();
        drop(writer);
        assert!(reading.join().unwrap() == bytes);
    }

    #[test]
    fn a_reader_that_has_gone_is_an_error() {
        let (reader, writer) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).unwrap();
        let mut writer = std::fs::File::from(writer);
        while writer.write(&[0; 4096]).is_ok() {}
        drop(reader);
        let error = write_all(&mut writer, b"x").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    }
}
