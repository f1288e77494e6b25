//! `cordboard explain SRC DST`: prints the route, without moving a byte.

use std::fmt::Write as _;

use cordboard::endpoint::Facts;
use cordboard::plan::plan;
use cordboard::{Endpoint, Refusal, Side, Tune};

use crate::endpoint::{self, Existing, Preview, StandIn};
use crate::flags::Explain;
use crate::output::{one_line, one_line_json};
use crate::problem::{Problem, request_refused};
use crate::{print, request, units};

/// Runs the command, and returns the exit status.
pub fn run(flags: &Explain) -> u8 {
    let done = explain(flags).and_then(|text| print::print(text.as_bytes()));
    let Err(problem) = done else { return 0 };
    print::failed(&problem)
}

fn explain(flags: &Explain) -> Result<String, Problem> {
    let source_name = endpoint::parse(&flags.source, Side::Source)?;
    let sink_name = endpoint::parse(&flags.sink, Side::Sink)?;
    let request = request::for_writing(&flags.range, &flags.paths, &flags.writing)?;
    let shown = flags.source.to_string_lossy();
    let source = endpoint::preview(
        &source_name,
        &shown,
        Side::Source,
        (Existing::Keep, StandIn::Described),
    )?;
    let shown = flags.sink.to_string_lossy();
    let existing = request::existing(&flags.writing);
    let sink = endpoint::preview(
        &sink_name,
        &shown,
        Side::Sink,
        (existing, StandIn::Described),
    )?;
    sink.check_sparse(&request)?;
    if sink.is_replaced() {
        endpoint::check_same_file(source.itself(), &source.shown, sink.itself(), &sink.shown)?;
    }
    let route = plan(&source.found()?, &sink.found()?, &request).map_err(|failure| {
        let problem = request_refused(format!("{} to {}", source.shown, sink.shown), &failure);
        match failure.refusal {
            // The usual hint names this command.
            Some(Refusal::NoPath { .. }) => {
                problem.help("allow another path: see --route and --without")
            }
            _ => problem,
        }
    })?;
    let sides = [
        description(Side::Source, &source, &source.endpoint()?),
        description(Side::Sink, &sink, &sink.endpoint()?),
    ];
    let goal = match Tune::from_env() {
        Ok(Tune::Off) | Err(_) => None,
        Ok(Tune::Processor) => Some("the one that takes the least processor time"),
        Ok(_) => Some("the fastest"),
    };
    let measured = (route.measured().filter(|_| goal.is_some())).map(|path| path.name());
    let measured: Vec<&str> = measured.collect();
    // One path has no order.
    let prior = (route.choices.len() > 1).then_some(route.prior);
    if flags.json {
        let paths: Vec<_> = (route.choices.iter())
            .map(|c| serde_json::json!({"path": c.path.name(), "why": c.why}))
            .collect();
        let line = serde_json::json!({
            "source": sides[0].json, "sink": sides[1].json,
            "paths": paths, "prior": prior, "excluded": route.excluded, "measured": measured,
        });
        return Ok(format!("{}\n", one_line_json(&line.to_string())));
    }
    let mut out = format!("{}{}", sides[0].text, sides[1].text);
    out += "paths in the order of attempts:\n";
    for (i, choice) in route.choices.iter().enumerate() {
        let _ = writeln!(out, "  {}. {}: {}", i + 1, choice.path, choice.why);
    }
    if let Some(prior) = prior {
        let _ = writeln!(out, "reason for the order: {prior}");
    }
    if let (Some(goal), false) = (goal, measured.is_empty()) {
        let list = measured.join(", ");
        let _ = writeln!(
            out,
            "a long transfer measures these paths and uses {goal}: {list}"
        );
    }
    if !route.excluded.is_empty() {
        out += "paths not attempted:\n";
        for declined in &route.excluded {
            let _ = writeln!(out, "  {}: {}", declined.path, declined.why);
        }
    }
    Ok(out)
}

struct Described {
    text: String,
    json: serde_json::Value,
}

fn description(side: Side, preview: &Preview, endpoint: &Endpoint<'_>) -> Described {
    let facts = endpoint.facts();
    let mut list = Vec::new();
    if let (Some(size), false) = (facts.size, preview.to_be_created) {
        list.push(match size {
            0..1024 => units::bytes(size),
            size => format!("{size} bytes ({})", units::bytes(size)),
        });
    }
    let filesystem = facts.filesystem.map(|fs| match fs.name() {
        Some(name) => name.to_owned(),
        None => format!("file system {:#x}", fs.0),
    });
    if let Some(name) = &filesystem {
        list.push(format!("on {name}"));
    }
    let cached = endpoint.cached_share().filter(|_| !preview.to_be_created);
    if let Some(share) = cached {
        list.push(format!("{:.0} % cached", share * 100.0));
    }
    let holes = facts.may_have_holes() && side == Side::Source;
    if holes {
        list.push("has holes".to_owned());
    }
    let alignment = endpoint
        .direct_alignment()
        .filter(|_| facts.kind.is_cached());
    if let Some(alignment) = alignment {
        list.push(format!(
            "direct I/O aligned to {}",
            units::number_of(alignment.offset.into(), "byte")
        ));
    }
    list.extend(flags(facts, preview.given).map(str::to_owned));
    if !preview.note.is_empty() {
        list.push(preview.note.to_owned());
    }
    // A name must not forge lines, or send escape sequences to a terminal.
    let mut text = format!("{side}: {}: {}", one_line(&preview.shown), facts.kind);
    for fact in &list {
        text += ", ";
        text += fact;
    }
    text.push('\n');
    let json = serde_json::json!({
        "name": preview.shown, "kind": facts.kind.name(), "size": facts.size,
        "filesystem": filesystem, "cached": cached, "holes": holes,
        "alignment": alignment.map(|a| a.offset),
        "flags": flags(facts, preview.given).collect::<Vec<_>>(), "note": preview.note,
    });
    Described { text, json }
}

fn flags(facts: &Facts, given: bool) -> impl Iterator<Item = &'static str> {
    [
        (facts.append, "appending"),
        (
            facts.nonblocking && given && facts.can_block(),
            "non-blocking",
        ),
        (facts.o_direct, "direct"),
    ]
    .into_iter()
    .filter_map(|(set, name)| set.then_some(name))
}
