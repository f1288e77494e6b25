//! STOR, APPE and STOU.

use std::io;

use super::random;
use super::root::{Opened, Upload};
use super::session::{Session, Step};
use super::tls::Direction;
use super::transfer::Job;

/// The number of names that STOU tries: first short ones, then random ones. A client may have
/// stored all of the short ones.
const TRIES: u32 = 200;
const SHORT: u32 = 100;

impl Session {
    pub(super) fn store(&mut self, path: &[u8]) -> Step {
        let upload = match std::mem::take(&mut self.rest) {
            0 => Upload::Replace,
            offset => Upload::From(offset),
        };
        self.upload("STOR", |_| path.to_vec(), upload)
    }

    pub(super) fn append(&mut self, path: &[u8]) -> Step {
        self.rest = 0;
        self.upload("APPE", |_| path.to_vec(), Upload::Append)
    }

    pub(super) fn store_unique(&mut self) -> Step {
        self.rest = 0;
        self.upload("STOU", unique, Upload::New)
    }

    /// Writes a file. It is opened after the data connection is made, and truncated once its
    /// transfer runs (`carry`), so that a failed connection does not truncate it. If a new file is
    /// required and the name exists, the next name is tried.
    fn upload(
        &mut self,
        verb: &'static str,
        name: impl Fn(u32) -> Vec<u8>,
        upload: Upload,
    ) -> Step {
        if let Some(step) = self.refuses_to_write() {
            return step;
        }
        if let Err(error) = self.is_name_of_file(&name(1)) {
            return self.failed(&name(1), &error);
        }
        let socket = match self.data()? {
            Ok(socket) => socket,
            Err(step) => return step,
        };
        for number in 1..=TRIES {
            let path = name(number);
            match self.server.root.write(&self.here.join(&path), upload) {
                Ok(Opened {
                    file,
                    upload: running,
                }) => {
                    let job = Job {
                        verb,
                        path: &path,
                        direction: Direction::FromClient,
                        converts: self.ascii,
                        replaces: upload == Upload::Replace,
                        upload: Some(running),
                    };
                    return self.transfer(&job, file, socket);
                }
                Err(error)
                    if upload == Upload::New && error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return self.failed(&path, &error),
            }
        }
        self.say(450, "No unused name was found")
    }

    /// Removes the file that the upload has created, if it is empty and no other upload
    /// writes to it.
    pub(super) fn remove_new(&self, job: &Job<'_>) {
        if let Some(upload) = &job.upload {
            self.server
                .root
                .remove_new(&self.here.join(job.path), upload);
        }
    }
}

/// Returns the name of an attempt of STOU.
fn unique(attempt: u32) -> Vec<u8> {
    match attempt {
        ..=SHORT => format!("upload.{attempt}"),
        _ => format!("upload.{}", random::number()),
    }
    .into_bytes()
}
