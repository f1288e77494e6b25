//! `--hash`, `--zstd`, `--unzstd`: what is done to the bytes on their way.

use cordboard::{Errno, PathName, Report, Request, Side, Stage, Switches};

use crate::endpoint::STANDARD_INPUT;
use crate::flags::{Hash, Stages};
use crate::problem::Problem;

impl Stages {
    /// There are any.
    pub fn any(&self) -> bool {
        !self.hash.is_empty() || self.transform()
    }

    /// What is written is not what is read.
    pub fn transform(&self) -> bool {
        self.zstd.is_some() || self.unzstd
    }

    /// The hashes that were asked for, each once.
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

/// Refuses what makes no sense together, before anything is opened.
pub fn check(stages: &Stages, request: &Request) -> Result<(), Problem> {
    if stages.zstd.is_some() && stages.unzstd {
        let both = Problem::usage("", "--zstd and --unzstd undo each other");
        return Err(both.help("give the one that is meant"));
    }
    let switches = match request.switches {
        Some(switches) => switches,
        None => Switches::from_env().map_err(|bad| Problem::usage("", bad.to_string()))?,
    };
    if stages.any() && !switches.allows(PathName::ReadWrite) {
        let text = "--hash, --zstd and --unzstd take read/write, which is turned off";
        return Err(Problem::usage("", text).help("add it (--route read/write), or leave them out"));
    }
    Ok(())
}

/// The stages in their order. Hashes are of the contents: of what is packed,
/// before it is; of what is unpacked, after it was.
pub fn build(stages: &Stages) -> Result<Vec<Stage>, Problem> {
    let failed = |errno: Errno| Problem::refused("zstd", Side::Source, errno, errno.to_string());
    let mut all = Vec::new();
    if stages.unzstd {
        all.push(Stage::unzstd().map_err(failed)?);
    }
    all.extend(stages.hashes().into_iter().map(Hash::stage));
    if let Some(level) = stages.zstd {
        all.push(Stage::zstd(level).map_err(failed)?);
    }
    Ok(all)
}

/// One line a hash, as the usual sum tools print it.
pub fn sums(stages: &Stages, report: &Report, name: &str) -> Vec<String> {
    let name = match name {
        STANDARD_INPUT => "-",
        name => name,
    };
    // Only the hashes that were asked for; --verify may have one of its own.
    let hashes = report.stages.iter().filter_map(|s| s.digest.as_ref());
    let asked = hashes.take(stages.hashes().len());
    asked.map(|digest| format!("{digest}  {name}")).collect()
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
