//! The summary of a run, as Markdown.

use std::fmt::Write as _;

use super::bench::Bench;
use super::contestant::Role;
use super::series::{Series, SettingResult};
use super::stats::{Spread, ratio_of_medians};

/// Renders the results, targets, notes and remarks.
pub fn render(name: &str, about: &str, bench: &Bench) -> String {
    let mut out = format!("# {name}\n\n{about}\n");
    for result in &bench.results {
        let _ = write!(out, "\n## {}\n\n{}", result.name, table(result));
    }
    if !bench.targets.is_empty() {
        let _ = write!(out, "\n## Required and reached\n\n{}", targets(bench));
    }
    if bench.options.quick {
        out.push_str("\nA quick run: it checks that everything works; its times mean nothing.\n");
    }
    for note in &bench.notes {
        let _ = write!(out, "\n{}\n", note.trim_end());
    }
    let mut remarks: Vec<String> = Vec::new();
    if let Err(why) = &bench.counting {
        remarks.push(format!("instructions: {why}"));
    }
    remarks.extend(bench.skipped.iter().map(|s| format!("skipped: {s}")));
    for f in &bench.failures {
        let how = if f.corrupt { "WRONG BYTES" } else { "failed" };
        remarks.push(format!("{how}: {}, {}: {}", f.name, f.setting, f.why));
    }
    if !remarks.is_empty() {
        let _ = write!(out, "\n## Remarks\n\n");
        for remark in remarks {
            let _ = writeln!(out, "- {remark}");
        }
    }
    out
}

type Cell<'a> = Box<dyn Fn(&Series) -> Option<String> + 'a>;

fn table(result: &SettingResult) -> String {
    let columns = columns(result);
    // A column without any figure is omitted.
    let columns: Vec<&(String, Cell<'_>)> = columns
        .iter()
        .filter(|(_, cell)| result.series.iter().any(|s| cell(s).is_some()))
        .collect();
    let mut out = String::from("| contestant | role |");
    for (title, _) in &columns {
        let _ = write!(out, " {title} |");
    }
    let _ = writeln!(out, "\n|---|---{}|", "|--:".repeat(columns.len()));
    for series in result.series.iter().filter(|s| !s.samples.is_empty()) {
        let _ = write!(out, "| {} | {} |", series.name, series.role.name());
        for (_, cell) in &columns {
            let _ = write!(out, " {} |", cell(series).unwrap_or("–".to_owned()));
        }
        out.push('\n');
    }
    out
}

fn columns(result: &SettingResult) -> Vec<(String, Cell<'_>)> {
    let small = result.bytes < 1 << 20;
    let gigabytes = result.bytes as f64 / 1e9;
    let (cost, unit) = if small {
        ("cpu ms", 1e-3)
    } else {
        ("cpu s/GB", gigabytes)
    };
    let spent = move |seconds: Vec<f64>| {
        let median = Spread::of(&seconds)?.median;
        (median > 0.0).then(|| format!("{:.3}", median / unit))
    };
    let times = |title: String, other: Option<&'_ Series>| -> (String, Cell<'_>) {
        let walls = other.map(Series::walls);
        let cell = move |s: &Series| {
            let ratio = ratio_of_medians(walls.as_ref()?, &s.walls())?;
            Some(format!("{ratio:.2}"))
        };
        (title, Box::new(cell))
    };
    let spread = |s: &Series| Spread::of(&s.walls());
    let reference = result.series.iter().find(|s| s.role == Role::Reference);
    let best = result.best(|s| s.role == Role::Baseline);
    let mut columns: Vec<(String, Cell<'_>)> = vec![
        (
            "median ms".to_owned(),
            Box::new(move |s| Some(format!("{:.2}", spread(s)?.median * 1e3))),
        ),
        (
            "IQR ms".to_owned(),
            Box::new(move |s| Some(format!("{:.2}", spread(s)?.iqr() * 1e3))),
        ),
        (
            "GB/s".to_owned(),
            Box::new(move |s| (!small).then_some(format!("{:.2}", gigabytes / spread(s)?.median))),
        ),
        times(
            reference.map_or(String::new(), |s| format!("× {}", s.name)),
            reference,
        ),
        times(
            best.map_or(String::new(), |s| format!("× best baseline ({})", s.name)),
            best,
        ),
        (cost.to_owned(), Box::new(move |s| spent(s.cpus()))),
        (
            format!("others' {cost}"),
            Box::new(move |s| spent(s.others())),
        ),
        (
            "instructions".to_owned(),
            Box::new(|s| s.instructions.map(|n| n.to_string())),
        ),
    ];
    for name in result.figure_names() {
        let title = name.clone();
        let cell = move |s: &Series| Some(figure(Spread::of(&s.figure(&name))?.median));
        columns.push((title, Box::new(cell)));
    }
    columns
}

/// A number with three significant digits, or its integer part.
pub fn figure(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        f64::INFINITY => "∞".to_owned(),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn targets(bench: &Bench) -> String {
    let mut out = "| setting | required | reached | |\n|---|---|--:|---|\n".to_owned();
    for target in &bench.targets {
        let check = target.check(&bench.results);
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} |",
            target.setting,
            check.required,
            check.reached.map_or("–".to_owned(), |r| format!("{r:.3}")),
            match check.met {
                Some(true) => "yes",
                Some(false) => "**no**",
                None => "not measured",
            }
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::figure;

    #[test]
    fn three_digits_are_significant() {
        let shown: Vec<String> = [0.0, 0.0123, 1.651, 81.44, 3343.2].map(figure).into();
        assert_eq!(shown, ["0", "0.012", "1.65", "81.4", "3343"]);
    }
}
