//! Commands on files and directories that need no data connection.

use std::io;

use rustix::io::Errno;

use super::budget::Share;
use super::command::Command;
use super::listing;
use super::root::Place;
use super::session::{Next, Session, Step};
use super::time::Utc;

impl Session {
    pub(super) fn of_files(&mut self, command: Command) -> Step {
        match command {
            Command::Pwd => {
                self.lines.reply(257, &quoted(&self.here))?;
                Ok(Next::Continue)
            }
            Command::Cwd(path) => self.change(&path),
            Command::Cdup => self.change(b".."),
            Command::Size(path) => self.size(&path),
            Command::ModifiedAt(path) => self.modified(&path),
            Command::MachineFact(path) => self.facts(&path),
            Command::Stat(path) if path.is_empty() => self.status(),
            Command::Stat(path) => self.listed(&path),
            Command::Delete(path) => self.change_tree("DELE", &path, |session, path| {
                session.is_name_of_file(path)?;
                session.server.root.remove_file(&session.here.join(path))
            }),
            Command::RemoveDirectory(path) => self.change_tree("RMD", &path, |session, path| {
                session
                    .server
                    .root
                    .remove_directory(&session.here.join(path))
            }),
            Command::MakeDirectory(path) => self.make_directory(&path),
            Command::SetModified { seconds, path } => self.set_modified(&path, seconds),
            _ => self.say(502, "Not implemented"),
        }
    }

    /// Refuses a path with a slash at its end, which a `Place` does not contain, as the kernel does
    /// (path_resolution(7)): it is that of a directory.
    pub(super) fn is_name_of_file(&self, path: &[u8]) -> io::Result<()> {
        if !path.ends_with(b"/") && !path.ends_with(b"/.") {
            return Ok(());
        }
        let about = self.server.root.metadata(&self.here.join(path))?;
        Err(match about.is_dir() {
            true => Errno::ISDIR.into(),
            false => Errno::NOTDIR.into(),
        })
    }

    fn make_directory(&mut self, path: &[u8]) -> Step {
        if let Some(step) = self.refuses_to_write() {
            return step;
        }
        let place = self.here.join(path);
        let result = self.server.root.make_directory(&place);
        let text = [&quoted(&place)[..], b" created"].concat();
        self.done("MKD", path, (257, &text), result)
    }

    fn set_modified(&mut self, path: &[u8], seconds: i64) -> Step {
        if let Some(step) = self.refuses_to_write() {
            return step;
        }
        let place = self.here.join(path);
        let result = self.server.root.set_modified(&place, seconds);
        let digits = Utc::of(seconds).digits().unwrap_or_default();
        let text = [b"Modify=", digits.as_bytes(), b"; ", path].concat();
        self.done("MFMT", path, (213, &text), result)
    }

    fn change(&mut self, path: &[u8]) -> Step {
        let place = self.here.join(path);
        match self.server.root.enter(&place) {
            Ok(()) => {
                self.here = place;
                self.say(250, "Changed")
            }
            Err(error) => self.failed(path, &error),
        }
    }

    fn size(&mut self, path: &[u8]) -> Step {
        if self.ascii {
            // The size would be that of the converted file.
            return self.say(550, "SIZE needs TYPE I");
        }
        match self.server.root.metadata(&self.here.join(path)) {
            Ok(about) if about.is_file() => self.say(213, &about.length.to_string()),
            Ok(_) => self.failed(path, &io::Error::other("not a regular file")),
            Err(error) => self.failed(path, &error),
        }
    }

    fn modified(&mut self, path: &[u8]) -> Step {
        match self.server.root.metadata(&self.here.join(path)) {
            Ok(about) => match Utc::of(about.modified.0).digits() {
                Some(digits) => self.say(213, &digits),
                None => self.failed(path, &io::Error::other("the year has no four digits")),
            },
            Err(error) => self.failed(path, &error),
        }
    }

    fn facts(&mut self, path: &[u8]) -> Step {
        let writes = self.user.as_ref().is_some_and(|user| user.writes);
        match listing::facts(&self.server.root, &self.here, path, writes) {
            Ok(line) => {
                self.lines.reply_lines(250, "Facts", [&line[..]], "End")?;
                Ok(Next::Continue)
            }
            Err(error) => self.failed(path, &error),
        }
    }

    /// Sends a listing over the control connection.
    fn listed(&mut self, argument: &[u8]) -> Step {
        let root = &self.server.root;
        let path = match listing::without_options(root, &self.here, argument) {
            Ok(path) => path,
            Err(error) => return self.failed(argument, &error),
        };
        let share = Share::none_of(&self.server.listings, self.client);
        match listing::listing((root, share), &self.here, path, listing::Kind::Long, false) {
            Ok((text, _share)) => {
                let lines = text
                    .split(|byte| *byte == b'\n')
                    .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
                    .filter(|line| !line.is_empty());
                self.lines.reply_lines(213, "Status", lines, "End")?;
                Ok(Next::Continue)
            }
            Err(error) => self.failed(path, &error),
        }
    }

    fn status(&mut self) -> Step {
        let name = self.user.as_ref().map_or("-", |user| &user.name);
        let kind = if self.ascii { "ASCII" } else { "binary" };
        let data = if self.private { "encrypted" } else { "plain" };
        let lines = [
            format!("Logged in as {name} from {}", self.client),
            format!("Type {kind}, data connections {data}"),
        ];
        let lines = lines.iter().map(String::as_bytes);
        self.lines.reply_lines(211, "Status", lines, "End")?;
        Ok(Next::Continue)
    }

    fn change_tree(
        &mut self,
        verb: &str,
        path: &[u8],
        change: impl FnOnce(&Session, &[u8]) -> io::Result<()>,
    ) -> Step {
        if let Some(step) = self.refuses_to_write() {
            return step;
        }
        let result = change(self, path);
        self.done(verb, path, (250, b"Done"), result)
    }
}

/// Returns a path as clients parse it in a reply 257: a quotation mark of a name is doubled
/// (RFC 959, appendix II).
fn quoted(place: &Place) -> Vec<u8> {
    let mut text = b"\"".to_vec();
    for byte in place.shown() {
        text.extend(std::iter::repeat_n(byte, 1 + usize::from(byte == b'"')));
    }
    text.push(b'"');
    text
}
