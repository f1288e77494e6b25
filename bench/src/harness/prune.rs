//! Removes the raw data of recorded runs, except the newest of each experiment.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::runs::{RAW, name, parts};

/// Removes the raw data of all runs except the newest of each experiment; the
/// removed files.
pub fn prune(runs: &Path) -> Result<Vec<PathBuf>> {
    let files = outdated(runs)?;
    for file in &files {
        fs::remove_file(file).with_context(|| file.display().to_string())?;
    }
    Ok(files)
}

/// The raw data of all runs except the newest of each experiment.
fn outdated(runs: &Path) -> Result<Vec<PathBuf>> {
    let mut experiments: BTreeMap<String, Vec<(String, u32)>> = BTreeMap::new();
    for day in directories(runs)? {
        for run in directories(&runs.join(&day))? {
            let (experiment, number) = parts(&run);
            let numbers = experiments.entry(experiment.to_owned()).or_default();
            numbers.push((day.clone(), number));
        }
    }
    let mut files = Vec::new();
    for (experiment, mut numbers) in experiments {
        // The name of a day begins with the date.
        numbers.sort();
        numbers.pop();
        for (day, number) in numbers {
            files.push(runs.join(day).join(name(&experiment, number)).join(RAW));
        }
    }
    files.retain(|file| file.exists());
    Ok(files)
}

fn directories(place: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(place).with_context(|| place.display().to_string())? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::runs;

    #[test]
    fn the_newest_run_of_each_experiment_keeps_its_raw_data() {
        let runs = tempfile::tempdir().unwrap();
        let all = [
            "2026-11-21-2core-6.18.44/cat-2",
            "2026-11-21-2core-6.18.44/relay",
            "2026-11-22-2core-6.18.44/cat",
            "2026-11-22-2core-6.18.44/cat-9",
            "2026-11-22-2core-6.18.44/cat-10",
            "2026-11-22-2core-6.18.44/copy-file",
        ];
        for run in all {
            let place = runs.path().join(run);
            fs::create_dir_all(&place).unwrap();
            for file in [RAW, "summary.md"] {
                fs::write(place.join(file), "").unwrap();
            }
        }
        fs::write(runs.path().join("README.md"), "").unwrap();

        let removed = prune(runs.path()).unwrap();
        assert_eq!(
            removed,
            [all[0], all[2], all[3]].map(|run| runs.path().join(run).join(RAW))
        );
        for run in all {
            let place = runs.path().join(run);
            let newest = [all[1], all[4], all[5]].contains(&run);
            assert_eq!(place.join(RAW).exists(), newest, "{run}");
            assert!(place.join("summary.md").exists(), "{run}");
        }
        assert!(prune(runs.path()).unwrap().is_empty());
    }

    #[test]
    fn the_recorded_runs_are_pruned() {
        let files = outdated(&runs::directory()).unwrap();
        assert!(files.is_empty(), "`bench prune` removes {files:?}");
    }

    #[test]
    fn the_index_links_to_files_that_are_there() {
        let index = fs::read_to_string(runs::directory().join("README.md")).unwrap();
        let links = index.split("](").skip(1);
        let links: Vec<&str> = links.filter_map(|rest| rest.split(')').next()).collect();
        assert!(!links.is_empty());
        for link in links {
            let file = link.split('#').next().unwrap_or(link);
            assert!(runs::directory().join(file).exists(), "{link}");
        }
    }
}
