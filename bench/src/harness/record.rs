//! Records a run.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::bench::Bench;
use super::env::Environment;
use super::runs::{self, RAW};
use super::series::Sample;

/// Writes `raw.csv`, `env.json` and `summary.md` of a run; their directory.
pub fn write(
    directory: &Path,
    name: &str,
    bench: &Bench,
    env: &Environment,
    summary: &str,
) -> Result<PathBuf> {
    let day = directory.join(env.tag());
    let place = (1..)
        .map(|number| day.join(runs::name(name, number)))
        .find(|place| !place.exists())
        .context("no unused name")?;
    fs::create_dir_all(&place)?;
    fs::write(place.join(RAW), raw(name, bench))?;
    fs::write(
        place.join("env.json"),
        serde_json::to_string_pretty(env)? + "\n",
    )?;
    fs::write(place.join("summary.md"), summary)?;
    Ok(place)
}

fn raw(name: &str, bench: &Bench) -> String {
    let mut out = "experiment,setting,contestant,role,round,place,bytes,wall_s,user_s,system_s,\
                   others_user_s,others_system_s,instructions,figures\n"
        .to_owned();
    for result in &bench.results {
        for series in &result.series {
            let count = series.instructions.map_or(String::new(), |n| n.to_string());
            for (round, (place, s)) in series.samples.iter().enumerate() {
                let _ = writeln!(
                    out,
                    "{name},{},{},{},{},{place},{},{:.9},{:.6},{:.6},{:.6},{:.6},{count},{}",
                    quoted(&result.name),
                    quoted(&series.name),
                    series.role.name(),
                    round + 1,
                    s.bytes,
                    s.wall,
                    s.cpu.user,
                    s.cpu.system,
                    s.others.user,
                    s.others.system,
                    quoted(&figures(s)),
                );
            }
        }
    }
    out
}

/// The figures as `name=value;name=value`, in full precision.
fn figures(sample: &Sample) -> String {
    let pairs = sample.figures.iter().map(|(n, v)| format!("{n}={v}"));
    pairs.collect::<Vec<_>>().join(";")
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_are_quoted() {
        assert_eq!(quoted("a, \"b\""), "\"a, \"\"b\"\"\"");
        assert_eq!(quoted("plain"), "plain");
    }

    #[test]
    fn figures_keep_their_names_and_all_their_digits() {
        let sample = Sample::default().with("p50 us", 1.0625).with("F", 2.0);
        assert_eq!(figures(&sample), "p50 us=1.0625;F=2");
    }
}
