//! Completions and man pages, generated from the flags.

use std::ffi::OsStr;
use std::path::Path;

use clap::CommandFactory;
use cordboard::Side;

use crate::flags::Cli;
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
    let package = format!("cordboard {}", env!("CARGO_PKG_VERSION"));
    let man = clap_mangen::Man::new(command.clone()).source(&package);
    let mut text = Vec::new();
    man.render(&mut text).expect("writing to memory");
    let above = of.as_ref().map_or_else(String::new, |of| format!("{of}-"));
    pages.push(Page {
        of,
        file: man.get_filename(),
        text,
    });
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        add_pages(sub, Some(format!("{above}{}", sub.get_name())), pages);
    }
}
