//! Users and their passwords.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;

use argon2::Argon2;
use argon2::password_hash::rand_core::OsRng;
use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};

/// A user that has logged in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub writes: bool,
}

/// The users from the file, by name.
pub struct Users {
    known: HashMap<String, (String, bool)>,
    anonymous: bool,
    /// A hash that is verified for unknown names, so that they take as long as known ones.
    decoy: String,
    /// Held while a password is verified, because each verification takes 19 MiB.
    verifying: Mutex<()>,
}

impl Users {
    /// Reads the file of users. Without one, only anonymous clients are known.
    ///
    /// # Errors
    ///
    /// A message with the number of the line that is wrong.
    pub fn read(file: Option<&Path>, anonymous: bool) -> Result<Users, String> {
        let text = match file {
            Some(path) => std::fs::read_to_string(path)
                .map_err(|error| format!("{}: {error}", path.display()))?,
            None => String::new(),
        };
        let shown = file.map_or(String::new(), |path| path.display().to_string());
        Users::parse(&text, anonymous).map_err(|error| format!("{shown}: {error}"))
    }

    fn parse(text: &str, anonymous: bool) -> Result<Users, String> {
        let mut known = HashMap::new();
        for (number, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let bad = |why: &str| format!("line {}: {why}", number + 1);
            let mut parts = line.split(':');
            let (Some(name), Some(hash)) = (parts.next(), parts.next()) else {
                return Err(bad("a line is NAME:HASH or NAME:HASH:ro"));
            };
            let writes = match (parts.next(), parts.next()) {
                (None | Some("rw"), None) => true,
                (Some("ro"), None) => false,
                _ => return Err(bad("a line is NAME:HASH or NAME:HASH:ro")),
            };
            if PasswordHash::new(hash).is_err() {
                return Err(bad("not a hash from --hash-password"));
            }
            if name.is_empty() || is_anonymous(name) {
                return Err(bad("this name cannot have a password"));
            }
            if known
                .insert(name.to_owned(), (hash.to_owned(), writes))
                .is_some()
            {
                return Err(bad("the user is listed twice"));
            }
        }
        // Without users, no name needs to be hidden.
        let decoy = match known.is_empty() {
            true => String::new(),
            false => hash(b"")?,
        };
        Ok(Users {
            known,
            anonymous,
            decoy,
            verifying: Mutex::new(()),
        })
    }

    /// Returns whether this name logs in anonymously, with any password.
    pub fn takes_anonymous(&self, name: &str) -> bool {
        self.anonymous && is_anonymous(name)
    }

    /// Returns the user, if name and password are correct.
    pub fn login(&self, name: &str, password: &[u8]) -> Option<User> {
        if self.takes_anonymous(name) {
            return Some(User {
                name: "anonymous".to_owned(),
                writes: false,
            });
        }
        let found = self.known.get(name);
        let hash = found.map_or(&self.decoy, |(hash, _)| hash);
        let _turn = self.verifying.lock();
        let parsed = PasswordHash::new(hash).ok()?;
        let right = Argon2::default().verify_password(password, &parsed).is_ok();
        let (_, writes) = found.filter(|_| right)?;
        Some(User {
            name: name.to_owned(),
            writes: *writes,
        })
    }
}

fn is_anonymous(name: &str) -> bool {
    name.eq_ignore_ascii_case("anonymous") || name.eq_ignore_ascii_case("ftp")
}

/// Returns the hash of a password, in the format of the file of users.
pub fn hash(password: &[u8]) -> Result<String, String> {
    let salt = SaltString::generate(&mut OsRng);
    let hash = Argon2::default().hash_password(password, &salt);
    hash.map(|hash| hash.to_string())
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_password_is_taken() {
        let text = format!(
            "# users\n\nann:{}\nbob:{}:ro\n",
            hash(b"a").unwrap(),
            hash(b"b").unwrap()
        );
        let users = Users::parse(&text, false).unwrap();
        let user = |name: &str, writes| {
            Some(User {
                name: name.to_owned(),
                writes,
            })
        };
        assert_eq!(users.login("ann", b"a"), user("ann", true));
        assert_eq!(users.login("bob", b"b"), user("bob", false));
        for (name, password) in [("ann", b"b"), ("eve", b"a"), ("anonymous", b"a")] {
            assert_eq!(users.login(name, password), None);
        }
        assert_eq!(
            Users::parse("", true).unwrap().login("FTP", b"me@"),
            user("anonymous", false)
        );
        assert_eq!(Users::parse("", true).unwrap().login("ann", b""), None);
    }

    #[test]
    fn a_wrong_line_is_named() {
        let hash = hash(b"x").unwrap();
        for (text, says) in [
            ("ann".to_owned(), "line 1: a line is"),
            (format!("\nann:{hash}:rx"), "line 2: a line is"),
            ("ann:secret".to_owned(), "line 1: not a hash"),
            (format!("ftp:{hash}"), "line 1: this name"),
            (
                format!("a:{hash}\na:{hash}"),
                "line 2: the user is listed twice",
            ),
        ] {
            let error = Users::parse(&text, true).err().unwrap();
            assert!(error.starts_with(says), "{error}");
        }
    }
}
