//! The layout of the recorded runs: a directory per day, with one per run.

use std::path::PathBuf;

/// The file with a line for each measurement.
pub const RAW: &str = "raw.csv";

/// The directory of the recorded runs.
pub fn directory() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or("bench".into(), PathBuf::from)
        .join("runs")
}

/// The name of a run of an experiment. The first of a day has no number.
pub fn name(experiment: &str, number: u32) -> String {
    if number == 1 {
        experiment.to_owned()
    } else {
        format!("{experiment}-{number}")
    }
}

/// The experiment and the number of a run of this name.
pub fn parts(name: &str) -> (&str, u32) {
    let split = name.rsplit_once('-');
    let numbered = split.and_then(|(experiment, n)| Some((experiment, n.parse().ok()?)));
    numbered.unwrap_or((name, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_their_parts() {
        for (experiment, number, run) in [
            ("cat", 1, "cat"),
            ("copy-file", 1, "copy-file"),
            ("small-files", 12, "small-files-12"),
            ("table1", 2, "table1-2"),
        ] {
            assert_eq!(name(experiment, number), run);
            assert_eq!(parts(run), (experiment, number));
        }
    }
}
