//! `--hash`, `--zstd`, `--unzstd`: what is done to the bytes on their way.

use std::ffi::OsStr;
use std::fmt::Display;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;

use cordboard::{DataPath, Errno, Failure, Report, Request, Size, Stage, Switches, Transfer};

use crate::flags::{Hash, Stages};
use crate::memory;
use crate::output::one_line;
use crate::problem::{Problem, Refused};
use crate::request;
use crate::sys;

use self::stand_in::StandIn;

mod beginning;
mod rehearsal;
mod stand_in;

impl Stages {
    /// Whether there are any stages.
    pub fn any(&self) -> bool {
        !self.hash.is_empty() || self.transform()
    }

    /// Whether what is written differs from what is read.
    pub fn transform(&self) -> bool {
        self.zstd.is_some() || self.unzstd
    }

    /// The hashes, each once.
    fn hashes(&self) -> Vec<Hash> {
        let mut all: Vec<Hash> = Vec::new();
        for hash in &self.hash {
            if !all.contains(hash) {
                all.push(*hash);
            }
        }
        all
    }
}

/// Returns the hint if `--size` has cut compressed data short.
pub fn cut_by_size(
    report: &Report,
    request: &Request,
    packed: Option<u64>,
) -> Option<&'static str> {
    let Size::Bytes(size) = request.size else {
        return None;
    };
    let short = |fault: &String| fault.contains("truncated after") || size == 0;
    let faults = || report.stages.iter().filter_map(|s| s.fault.as_ref());
    let cut = report.read == size && packed != Some(size) && faults().any(short);
    cut.then_some("--size counts compressed bytes and cut them short: specify more, or omit --size")
}

/// Refuses contradictory options before anything is opened.
pub fn check(stages: &Stages, request: &Request) -> Result<(), Problem> {
    if stages.zstd.is_some() && stages.unzstd {
        let both = Problem::usage("", "--zstd and --unzstd exclude each other");
        return Err(both.help("omit one of them"));
    }
    let switches = match request.switches {
        Some(switches) => switches,
        None => Switches::from_env().map_err(|bad| Problem::usage("", bad.to_string()))?,
    };
    if stages.any() && !switches.allows(DataPath::ReadWrite) {
        let text = "--hash, --zstd and --unzstd need the path read/write, which is not allowed";
        return Err(Problem::usage("", text).help("allow that path, or omit these options"));
    }
    Ok(())
}

/// What one transfer needs in addition to the stages of the command.
#[derive(Debug, Default)]
pub struct TransferExtras {
    /// The source can be read only once: `--verify` needs its hash from the
    /// transfer.
    pub read_once: bool,
    /// The stages of the command; `None`: they are built when the transfer begins.
    pub built: Option<Vec<Stage>>,
    /// A stage after all others.
    pub stage: Option<Stage>,
}

/// The stages of each transfer of a command.
#[derive(Debug, Clone, Default)]
pub struct Staging {
    /// The stages that were requested.
    pub stages: Stages,
    /// Transfers are verified: if their bytes pass through user space, the last
    /// stage is an xxh3 of what is written.
    pub verify: bool,
}

impl Staging {
    /// Returns a transfer with its stages.
    pub fn onto<'a>(
        &self,
        transfer: Result<Transfer<'a>, Failure>,
        extras: TransferExtras,
        source: &dyn Display,
        sink: &dyn Display,
    ) -> Result<Transfer<'a>, Refused> {
        let mut all = match extras.built {
            Some(built) => built,
            None => self.build(source, None)?,
        };
        let refused = |failure: Failure| Refused::of(&failure, source, sink);
        let transfer = transfer.map_err(refused)?;
        let first = transfer.route().choices[0].path;
        let seen = extras.read_once || self.stages.any() || first == DataPath::ReadWrite;
        if self.verify && seen {
            // This hash is cheap, and saves reading the source twice.
            all.push(Stage::xxh3());
        }
        all.extend(extras.stage);
        let staged = all.into_iter().try_fold(transfer, Transfer::stage);
        staged.map_err(refused)
    }

    /// Checks whether the stages are accepted. Takes no memory for them.
    pub fn check(
        &self,
        transfer: Result<Transfer<'_>, Failure>,
        extras: TransferExtras,
        source: &dyn Display,
        sink: &dyn Display,
    ) -> Result<(), Refused> {
        self.onto(transfer, self.with_stand_ins(extras), source, sink)
            .map(drop)
    }

    /// Puts stand-ins in the place of the stages that change the bytes.
    fn with_stand_ins(&self, extras: TransferExtras) -> TransferExtras {
        let stages = &self.stages;
        let hashes = stages.hashes().into_iter().map(Hash::stage);
        let unpacks = stages.unzstd.then(|| StandIn::stage("unzstd"));
        let packs = stages.zstd.map(|_| StandIn::stage("zstd"));
        let built = unpacks.into_iter().chain(hashes).chain(packs).collect();
        TransferExtras {
            built: Some(built),
            ..extras
        }
    }

    /// Builds the stages of one transfer, in their order: a transfer that replaces contents
    /// begins only if there is memory for them. Hashes are of the contents: before packing, and
    /// after unpacking. `name`: of the file, for messages. `data`: the source and the request;
    /// for `--unzstd`, the first header is checked if it can be read without taking it.
    pub fn build(
        &self,
        name: &dyn Display,
        data: Option<(BorrowedFd<'_>, &Request)>,
    ) -> Result<Vec<Stage>, Refused> {
        let stages = &self.stages;
        let refused = |errno| self.without_memory(name, errno);
        let mut all = Vec::new();
        if stages.unzstd {
            let unzstd = match data {
                Some((source, request)) => self.unzstd_of(source, request, name)?,
                None => Stage::unzstd().map_err(refused)?,
            };
            all.push(unzstd);
        }
        all.extend(stages.hashes().into_iter().map(Hash::stage));
        if let Some(level) = stages.zstd {
            all.push(Stage::zstd(level).map_err(refused)?);
        }
        if stages.transform() {
            memory::check_spare().map_err(refused)?;
        }
        Ok(all)
    }

    fn without_memory(&self, name: &dyn Display, errno: Errno) -> Refused {
        let stage = match self.stages.unzstd {
            true => "--unzstd",
            false => "--zstd",
        };
        let text = format!("{errno} preparing {stage}");
        let problem = Problem::unsided(name.to_string(), errno, text);
        let problem = match self.stages.zstd {
            Some(_) => problem.help("use a lower level, or raise the limit (ulimit -v)"),
            None => problem.help("raise the limit (ulimit -v)"),
        };
        Refused {
            report: None,
            problem: Box::new(problem),
        }
    }

    /// The number of compressed bytes, if it is known beforehand.
    pub fn packed_size(&self, source: BorrowedFd<'_>, request: &Request) -> Option<u64> {
        if !self.stages.unzstd {
            return None;
        }
        let all = Request {
            size: Size::Eof,
            ..request.clone()
        };
        request::total(source, &all)
    }

    /// One line for each hash, in the format of the usual sum tools.
    pub fn hash_lines(&self, report: &Report, name: &OsStr) -> Vec<HashLine> {
        // Only the requested hashes; --verify may have added its own.
        let hashes = report.stages.iter().filter_map(|stage| {
            let digest = stage.digest.as_ref()?;
            Some((stage.stage, digest))
        });
        let asked = hashes.take(self.stages.hashes().len());
        let line = |(stage, digest): (&str, &String)| match stage {
            // xxhsum(1) takes 16 digits without this prefix for XXH64.
            "xxh3" => HashLine::new(&format!("XXH3_{digest}"), name),
            _ => HashLine::new(digest, name),
        };
        asked.map(line).collect()
    }
}

/// A line that the sum tools can check. The name is printed as its bytes. If it
/// contains a line feed, a carriage return or a backslash, the tools put a
/// backslash before the line, and write `\n`, `\r` and `\\` in the name
/// (`sha256sum(1)`, `b3sum(1)`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HashLine(Vec<u8>);

impl HashLine {
    fn new(digest: &str, name: &OsStr) -> HashLine {
        let name = name.as_bytes();
        let mut line = Vec::new();
        if name
            .iter()
            .any(|byte| matches!(byte, b'\n' | b'\r' | b'\\'))
        {
            line.push(b'\\');
        }
        line.extend_from_slice(digest.as_bytes());
        line.extend_from_slice(b"  ");
        for byte in name {
            match byte {
                b'\n' => line.extend_from_slice(b"\\n"),
                b'\r' => line.extend_from_slice(b"\\r"),
                b'\\' => line.extend_from_slice(b"\\\\"),
                byte => line.push(*byte),
            }
        }
        HashLine(line)
    }

    /// The line with its line feed, with control characters escaped on a
    /// terminal.
    pub fn bytes(&self, terminal: bool) -> Vec<u8> {
        let mut line = match terminal {
            true => one_line(&String::from_utf8_lossy(&self.0))
                .into_owned()
                .into_bytes(),
            false => self.0.clone(),
        };
        line.push(b'\n');
        line
    }
}

/// Returns the address space that the stages of one transfer take, in bytes, if it is limited.
/// `u64::MAX`: there is not enough for one.
pub fn addresses(stages: &Stages) -> u64 {
    /// The largest window of a frame, and the buffers of the decoder. It allocates them for the
    /// first frame.
    const UNPACKING: u64 = 132 << 20;
    if stages.unzstd {
        return UNPACKING;
    }
    let limited = stages.zstd.zip(sys::addresses_left());
    limited.map_or(0, |(level, before)| match Stage::zstd(level) {
        Ok(_built) => before.saturating_sub(sys::addresses_left().unwrap_or(0)),
        Err(_) => u64::MAX,
    })
}

impl Hash {
    fn stage(self) -> Stage {
        match self {
            Hash::Crc32 => Stage::crc32(),
            Hash::Xxh3 => Stage::xxh3(),
            Hash::Blake3 => Stage::blake3(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_lines_escape_names_as_the_sum_tools_do() {
        let line = |name: &[u8]| HashLine::new("00", OsStr::from_bytes(name)).bytes(false);
        assert_eq!(line(b"a b"), b"00  a b\n");
        assert_eq!(line(b"a\\b\nc"), b"\\00  a\\\\b\\nc\n");
        assert_eq!(line(b"a\r"), b"\\00  a\\r\n");
        assert_eq!(line(b"\xff\x1b"), b"00  \xff\x1b\n");
        let shown = HashLine::new("00", OsStr::from_bytes(b"\xff\x1b")).bytes(true);
        assert_eq!(shown, "00  \u{fffd}\\u{1b}\n".as_bytes());
    }
}
