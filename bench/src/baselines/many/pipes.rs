//! Simultaneous transfers from pipe to pipe. One thread serves all outer ends:
//! it fills them from the pages of a file and drains them into `/dev/null`,
//! both by splice, to use as little processor time as possible.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with};

use super::figures::{Memory, print_fairness};
use super::movers::{Mover, Transfer};
use crate::harness::figures::print;
use crate::harness::files::Noise;
use crate::harness::usage::Usage;

/// The size of the data that is sent repeatedly.
const PIECE: usize = 1 << 20;
const EVENTS: usize = 128;

/// The outer ends of one pair.
struct Outer {
    fill: Option<OwnedFd>,
    drain: OwnedFd,
    has_ended: bool,
    /// Keeps this pipe open, so that it counts as long as the others.
    _source: OwnedFd,
    filled: u64,
    drained: u64,
}

/// Moves `bytes` through each of `n` pairs. `verify` checks every byte.
pub fn run(mover: &str, n: usize, bytes: u64, verify: bool) -> Result<()> {
    let mover = Mover::named(mover)?;
    let mut outer = Vec::new();
    let mut inner = Vec::new();
    for _ in 0..n {
        let (source, fill) = pipe_with(PipeFlags::CLOEXEC)?;
        let (drain, sink) = pipe_with(PipeFlags::CLOEXEC)?;
        outer.push(Outer {
            fill: Some(fill),
            drain,
            has_ended: false,
            _source: rustix::io::dup(&source)?,
            filled: 0,
            drained: 0,
        });
        inner.push((source, sink));
    }
    let mut ends = Ends::new(bytes, verify)?;
    let memory = Memory::now()?;
    let (mine, all) = (Usage::of_thread()?, Usage::of_process()?);
    let started = Instant::now();
    let mut running = Vec::new();
    for (source, sink) in inner {
        running.push(Transfer::start(mover, source, sink, false, None)?);
    }
    let (progress, ended) = ends.serve(&mut outer, started, || memory.print_pipes(n))?;
    let wall = started.elapsed().as_secs_f64();
    for one in running {
        let written = one.wait()?;
        ensure!(written == bytes, "{written} bytes of {bytes}");
    }
    let (mine, all) = (Usage::of_thread()? - mine, Usage::of_process()? - all);
    print("bytes", (n as u64 * bytes) as f64);
    print("wall", wall);
    print("cpu", all.cpu - mine.cpu);
    memory.print_resident(n)?;
    print_fairness(&progress, &ended);
    print("wake-ups", all.switches - mine.switches);
    Ok(())
}

/// The thread that serves the outer ends.
struct Ends {
    file: File,
    piece: Vec<u8>,
    null: File,
    bytes: u64,
    verify: bool,
    room: Vec<u8>,
}

/// The progress of each pair at the first end, and the times of all ends.
type Ended = (Vec<f64>, Vec<f64>);

impl Ends {
    fn new(bytes: u64, verify: bool) -> Result<Ends> {
        let mut piece = vec![0; PIECE];
        Noise::new(bytes).fill(&mut piece);
        let mut file = File::from(memfd_create("piece", MemfdFlags::CLOEXEC)?);
        file.write_all(&piece)?;
        Ok(Ends {
            file,
            piece,
            null: OpenOptions::new().write(true).open("/dev/null")?,
            bytes,
            verify,
            room: vec![0; 64 << 10],
        })
    }

    /// Fills and drains until all have ended. Calls `at_eighth` when an eighth
    /// of all bytes has arrived.
    fn serve(
        &mut self,
        outer: &mut [Outer],
        started: Instant,
        at_eighth: impl FnOnce() -> Result<()>,
    ) -> Result<Ended> {
        let ready = epoll::create(CreateFlags::CLOEXEC)?;
        for (pair, number) in outer.iter().zip(0u64..) {
            let fill = pair.fill.as_ref().context("open")?;
            epoll::add(
                &ready,
                fill,
                EventData::new_u64(number * 2),
                EventFlags::OUT,
            )?;
            epoll::add(
                &ready,
                &pair.drain,
                EventData::new_u64(number * 2 + 1),
                EventFlags::IN,
            )?;
        }
        let early = outer.len() as u64 * self.bytes / 8;
        let mut at_eighth = Some(at_eighth);
        let mut drained = 0;
        let mut progress = Vec::new();
        let mut ended = Vec::new();
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        while ended.len() < outer.len() {
            events.clear();
            epoll::wait(&ready, rustix::buffer::spare_capacity(&mut events), None)?;
            for event in &events {
                let number = usize::try_from(event.data.u64())?;
                let pair = &mut outer[number / 2];
                if number % 2 == 0 {
                    self.fill(pair)?;
                    continue;
                }
                let before = pair.drained;
                let has_ended = self.drain(pair)?;
                drained += pair.drained - before;
                if has_ended {
                    epoll::delete(&ready, &pair.drain)?;
                    ended.push(started.elapsed().as_secs_f64());
                    if progress.is_empty() {
                        progress = outer.iter().map(|o| o.drained as f64).collect();
                    }
                }
                if drained >= early
                    && let Some(at_eighth) = at_eighth.take()
                {
                    at_eighth()?;
                }
            }
        }
        Ok((progress, ended))
    }

    /// Writes as much as fits; closes the end after the last byte, which
    /// removes it from the epoll instance.
    fn fill(&self, pair: &mut Outer) -> Result<()> {
        let Some(fill) = &pair.fill else {
            return Ok(());
        };
        let mut position = pair.filled % PIECE as u64;
        let most = (PIECE as u64 - position).min(self.bytes - pair.filled);
        let most = usize::try_from(most)?;
        let flags = SpliceFlags::NONBLOCK;
        match rustix::pipe::splice(&self.file, Some(&mut position), fill, None, most, flags) {
            Ok(n) => pair.filled += n as u64,
            Err(Errno::AGAIN) => {}
            Err(error) => return Err(error).context("filling"),
        }
        if pair.filled == self.bytes {
            pair.fill = None;
        }
        Ok(())
    }

    /// Reads as much as there is; whether that was the end of file.
    fn drain(&mut self, pair: &mut Outer) -> Result<bool> {
        if pair.has_ended {
            return Ok(false);
        }
        let drain = &pair.drain;
        let moved = if self.verify {
            let n = rustix::io::read(drain, &mut self.room)?;
            let at = usize::try_from(pair.drained % PIECE as u64)?;
            let expected = self.piece[at..].iter().chain(&self.piece).take(n);
            ensure!(self.room[..n].iter().eq(expected), "other bytes arrived");
            n
        } else {
            let flags = SpliceFlags::NONBLOCK;
            match rustix::pipe::splice(drain, None, &self.null, None, PIECE, flags) {
                Err(Errno::AGAIN) => return Ok(false),
                moved => moved.context("draining")?,
            }
        };
        pair.drained += moved as u64;
        if moved > 0 {
            return Ok(false);
        }
        let (came, sent) = (pair.drained, self.bytes);
        ensure!(came == sent, "{came} bytes arrived of {sent}");
        pair.has_ended = true;
        Ok(true)
    }
}
