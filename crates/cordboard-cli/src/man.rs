//! Completions and man pages, generated from the flags.

use std::ffi::OsStr;
use std::path::Path;

use clap::CommandFactory;
use clap_mangen::roff::{Roff, bold, roman};
use cordboard::Side;

use crate::flags::Cli;
use crate::flags::texts::{self, Text};
use crate::output::{errno_of, one_line, print_line};
use crate::print::show;
use crate::problem::{Action, Problem};

/// Prints the completions for a shell.
pub fn completions(shell: clap_complete::Shell) -> u8 {
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "cordboard", &mut out);
    show(&out)
}

/// Writes all man pages into a directory; or prints the page of a command; or,
/// without an argument, the main page.
pub fn man(what: Option<&OsStr>) -> u8 {
    let pages = all_pages();
    let Some(what) = what else {
        return show(&pages[0].text);
    };
    let is_named = |page: &&Page| page.of.as_ref().is_some_and(|of| what == of.as_str());
    if let Some(page) = pages.iter().find(is_named) {
        return show(&page.text);
    }
    let shown = what.to_string_lossy();
    if !Path::new(what).is_dir() {
        print_line(format_args!(
            "cordboard: {}: is neither a command nor a directory",
            one_line(&shown)
        ));
        return 2;
    }
    for page in pages {
        let path = Path::new(what).join(page.file);
        if let Err(error) = std::fs::write(&path, page.text) {
            let shown = path.to_string_lossy();
            print_line(Problem::call(
                shown,
                Side::Sink,
                errno_of(&error),
                Action::Transfer,
            ));
            return 1;
        }
    }
    0
}

/// A man page.
struct Page {
    /// Its command; `None`: the main page.
    of: Option<String>,
    /// Its file name.
    file: String,
    text: Vec<u8>,
}

/// All pages, the main page first. A page names those of its subcommands, which may have
/// subcommands too.
fn all_pages() -> Vec<Page> {
    let mut whole = Cli::command().disable_help_subcommand(true);
    whole.build();
    let mut pages = Vec::new();
    add_pages(&whole, None, &mut pages);
    pages
}

/// Adds the page of a command and those of its subcommands. `of`: its name behind that of
/// the program, with `-` between the words.
fn add_pages(command: &clap::Command, of: Option<String>, pages: &mut Vec<Page>) {
    let above = of.as_ref().map_or_else(String::new, |of| format!("{of}-"));
    let (file, text) = page(command);
    pages.push(Page { of, file, text });
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        add_pages(sub, Some(format!("{above}{}", sub.get_name())), pages);
    }
}

/// Returns the file name and the source of a page.
fn page(command: &clap::Command) -> (String, Vec<u8>) {
    let package = format!("cordboard {}", env!("CARGO_PKG_VERSION"));
    // clap_mangen's own synopsis lacks the dots behind an operand that may be repeated.
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim().to_owned();
    let man = clap_mangen::Man::new(command.clone().override_usage(usage)).source(&package);
    let help = command.get_after_long_help().or(command.get_after_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    let has_options = command.get_arguments().any(|arg| !arg.is_hide_set());
    let has_commands = command.get_subcommands().any(|sub| !sub.is_hide_set());
    let render = |out: &mut Vec<u8>| -> std::io::Result<()> {
        man.render_title(out)?;
        // A word with a hyphen is a name, and words are not spread over the line.
        out.extend(b".nh\n.ad l\n");
        man.render_name_section(out)?;
        man.render_synopsis_section(out)?;
        man.render_description_section(out)?;
        if has_options {
            man.render_options_section(out)?;
        }
        if has_commands {
            man.render_subcommands_section(out)?;
        }
        for text in texts::ALL.iter().filter(|text| help.contains(text.text)) {
            section(text).to_writer(out)?;
        }
        man.render_version_section(out)
    };
    let mut out = Vec::new();
    render(&mut out).expect("writing to memory");
    // Each section begins with the same definitions.
    let definitions = Roff::new().render();
    let text = String::from_utf8_lossy(&out).replace(&definitions, "");
    (man.get_filename(), (definitions + &text).into_bytes())
}

/// Returns the section of a text.
fn section(text: &Text) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", [text.title]);
    let is_title = |line: &&str| line.trim_end_matches(':').eq_ignore_ascii_case(text.title);
    let mut is_list = false;
    for line in text.text.lines().filter(|line| !is_title(line)) {
        let item = line.strip_prefix("  ");
        let begins = item.is_some() && !is_list;
        let ends = item.is_none() && is_list;
        is_list = item.is_some();
        let request = match text.has_commands {
            true if begins => Some("nf"),
            true if ends => Some("fi"),
            false if ends && !line.is_empty() => Some("PP"),
            _ => None,
        };
        if let Some(request) = request {
            roff.control(request, []);
        }
        match item {
            None if line.is_empty() => roff.control("PP", []),
            None => roff.text([roman(line)]),
            Some(command) if text.has_commands => roff.text([roman(command)]),
            Some(more) if more.starts_with(' ') => roff.text([roman(more.trim_start())]),
            Some(item) => match item.split_once("  ") {
                None => roff.control("TP", []).text([bold(item)]),
                Some((term, description)) => (roff.control("TP", []))
                    .text([bold(term)])
                    .text([roman(description.trim_start())]),
            },
        };
    }
    if is_list && text.has_commands {
        roff.control("fi", []);
    }
    roff
}
