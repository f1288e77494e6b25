//! The post of 2006 on sending and receiving a file by TCP: its ways A, B and C of sending and
//! 1, 2 and 3 of receiving, with those that the kernel has had since, and Cordboard.
//!
//! The ways of one end are compared with the same process at the other end: those of sending
//! with one that discards, those of receiving with one that sends a cached file by `sendfile`.

mod ends;
mod side_by_side;
mod ways;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;

use super::experiment::Experiment;
use crate::harness::digest::{Content, Digest};
use crate::harness::interleave::{Setting, Turn};
use crate::harness::network::Network;
use crate::harness::target::{Against, Measure, Target};
use crate::harness::{Bench, files};
use crate::post_2006::MTU;
use ends::Ends;

/// The entry in the list of experiments.
pub const EXPERIMENT: Experiment = Experiment {
    name: "net2006",
    about: "A file by TCP, over loopback and over a veth pair: the ways of sending and of \
            receiving of the post of 2006, sendfile, direct I/O, and Cordboard.",
    run,
};

const OURS: &str = "cordboard splice";
const OURS_DIRECT: &str = "cordboard splice O_DIRECT";
const ROUNDS: usize = 5;
/// The minimum rate and the maximum processor time, relative to the best hand-written way.
const RATE: f64 = 0.95;
const PROCESSOR: f64 = 1.1;

/// The source of a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Zero,
    Cached,
    Cold,
}

/// The sink of a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sink {
    Null,
    File,
    Synced,
}

const SOURCES: [Source; 3] = [Source::Zero, Source::Cached, Source::Cold];
const SINKS: [Sink; 3] = [Sink::Null, Sink::File, Sink::Synced];

impl Source {
    fn setting(self, network: &str) -> String {
        let what = match self {
            Source::Zero => "zero",
            Source::Cached => "cached file",
            Source::Cold => "cold file",
        };
        format!("send {what} {network}")
    }
}

impl Sink {
    fn setting(self, network: &str) -> String {
        let what = match self {
            Sink::Null => "null",
            Sink::File => "file",
            Sink::Synced => "file fsync",
        };
        format!("receive {what} {network}")
    }
}

fn run(bench: &mut Bench) -> Result<()> {
    let size = bench.size(2 << 30, 4 << 20);
    let source = bench.path("source");
    let content = files::make(&source, size)?;
    let loopback = Some(Network::Loopback);
    let veth = Network::veth(MTU).map_err(|why| bench.skip("veth", format!("{why:#}")));
    let mut paths = String::new();
    let quick = bench.options.quick;
    for network in loopback.into_iter().chain(veth.ok()) {
        // The loops are the same in both networks: a quick run tries one of each.
        let fewer = quick && matches!(network, Network::Veth(_));
        let (sources, sinks) = match fewer {
            true => (&SOURCES[1..2], &SINKS[1..2]),
            false => (&SOURCES[..], &SINKS[..]),
        };
        for from in sources.iter().copied() {
            paths += &sending(bench, &network, from, (&source, content))?;
        }
        for to in sinks.iter().copied() {
            paths += &receiving(bench, &network, to, (&source, content))?;
        }
    }
    files::remove(&source);
    if !paths.is_empty() {
        let head = "## Paths of Cordboard\n\n| setting | contestant | paths |\n|---|---|---|";
        bench.notes.push(format!("{head}\n{paths}"));
    }
    bench.notes.extend(side_by_side::tables(bench));
    bench.notes.push(format!(
        "{}. The measured time is from the start of the contestant until the receiver has reached \
         the end of file, or has synced the file. The others' processor time is that of the other \
         end. busy s/GB is the busy time of all cores, with that of interrupts and of the \
         kernel's threads.",
        files::size_text(size)
    ));
    Ok(())
}

/// All ways of sending this source.
fn sending(
    bench: &mut Bench,
    network: &Network,
    from: Source,
    (file, content): (&Path, Content),
) -> Result<String> {
    let name = from.setting(network.name());
    if !bench.wants(&name) {
        return Ok(String::new());
    }
    let may_drop = rustix::process::geteuid().is_root();
    if from == Source::Cold && !may_drop {
        bench.skip(&name, "only root can empty the caches");
        return Ok(String::new());
    }
    let everything = !bench.options.quick;
    let contestants = ways::sending(bench, from);
    let setting = setting(
        bench,
        &name,
        match from {
            Source::Zero => zeros(content.bytes),
            Source::Cached | Source::Cold => content,
        },
    );
    let ends = Ends::new(bench, network, content.bytes);
    let mut taken = Taken::new();
    bench.measure(&setting, &contestants, |turn| {
        let path = match from {
            Source::Zero => Path::new("/dev/zero"),
            Source::Cached | Source::Cold => file,
        };
        match from {
            Source::Zero => {}
            Source::Cached => files::cache(file)?,
            Source::Cold => files::evict(file, everything)?,
        }
        ends.cache(turn)?;
        let (sample, paths) = ends.send(path, turn)?;
        note(&mut taken, turn, paths);
        Ok(sample)
    })?;
    require(bench, &name);
    Ok(taken_text(&name, &taken))
}

/// All ways of receiving into this sink.
fn receiving(
    bench: &mut Bench,
    network: &Network,
    to: Sink,
    (file, content): (&Path, Content),
) -> Result<String> {
    let name = to.setting(network.name());
    if !bench.wants(&name) {
        return Ok(String::new());
    }
    let contestants = ways::receiving(bench, to);
    let setting = setting(bench, &name, content);
    let ends = Ends::new(bench, network, content.bytes);
    let directory = bench.directory.path().to_owned();
    let quick = bench.options.quick;
    let copy = bench.path("sink");
    let mut taken = Taken::new();
    bench.measure(&setting, &contestants, |turn| {
        if !quick {
            files::sync(&directory)?;
        }
        files::cache(file)?;
        // What goes to /dev/null cannot be verified there.
        let sink = match to {
            Sink::Null if !turn.verifies() => Path::new("/dev/null"),
            _ => &copy,
        };
        let result = ends.receive(file, sink, turn);
        files::remove(&copy);
        let (sample, paths) = result?;
        note(&mut taken, turn, paths);
        Ok(sample)
    })?;
    require(bench, &name);
    Ok(taken_text(&name, &taken))
}

fn setting(bench: &Bench, name: &str, expected: Content) -> Setting {
    Setting {
        name: name.to_owned(),
        expected,
        rounds: if bench.options.quick { 1 } else { ROUNDS },
    }
}

/// The content of the first bytes of `/dev/zero`.
fn zeros(bytes: u64) -> Content {
    let mut digest = Digest::default();
    let piece = vec![0; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        let now = left.min(piece.len() as u64);
        digest.update(&piece[..now as usize]);
        left -= now;
    }
    digest.finish()
}

fn require(bench: &mut Bench, setting: &str) {
    for (measure, bound) in [(Measure::Rate, RATE), (Measure::Processor, PROCESSOR)] {
        bench.targets.push(Target {
            setting: setting.to_owned(),
            ours: OURS,
            against: Against::Baselines,
            measure,
            bound,
        });
    }
}

/// The paths that each contestant of Cordboard took in the measured rounds.
type Taken = BTreeMap<String, BTreeSet<String>>;

fn note(taken: &mut Taken, turn: &Turn<'_>, paths: Option<String>) {
    if !turn.verifies() {
        let all = taken.entry(turn.contestant.name.clone()).or_default();
        all.extend(paths);
    }
}

/// The rows of the table of paths.
fn taken_text(setting: &str, taken: &Taken) -> String {
    let some = taken.iter().filter(|(_, paths)| !paths.is_empty());
    let row = |(name, paths): (&String, &BTreeSet<String>)| {
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        format!("| {setting} | {name} | {} |\n", paths.join(" or "))
    };
    some.map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_has_a_name_of_its_own() {
        let names = ["loopback", "veth"].into_iter().flat_map(|network| {
            let sends = SOURCES.map(|source| source.setting(network));
            let receives = SINKS.map(|sink| sink.setting(network));
            sends.into_iter().chain(receives)
        });
        let all: Vec<String> = names.collect();
        let unique: BTreeSet<&String> = all.iter().collect();
        assert_eq!(unique.len(), 12);
        assert!(all.iter().all(|name| !name.contains(',')));
    }

    #[test]
    fn the_digest_of_zeros_is_that_of_the_device() {
        use std::io::Read;
        let size = (1 << 20) + 4096;
        let mut read = vec![1; size];
        let mut device = std::fs::File::open("/dev/zero").unwrap();
        device.read_exact(&mut read).unwrap();
        let mut digest = Digest::default();
        digest.update(&read);
        assert_eq!(zeros(size as u64), digest.finish());
    }
}
