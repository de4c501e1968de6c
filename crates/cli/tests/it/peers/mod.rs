//! Other people's clients against `gridlane serve`, and gridlane's commands against other people's servers.
//!
//! These programs do what the field does: where one of them and a specification disagree, it is written
//! here how the server answers both.

mod aria2;
mod cadaver;
mod curl_forms;
mod davix;
mod fsspec;
mod gfal;
mod litmus;
mod rclone;
mod servers;

use std::fs;
use std::path::PathBuf;

use crate::support::Scratch;
use crate::support::serve::Server;

/// `gridlane serve` with a directory that anyone may write to.
pub(super) struct Site {
    pub(super) scratch: Scratch,
    pub(super) server: Server,
}

impl Site {
    pub(super) fn new() -> Site {
        Site::with(&[])
    }

    /// The same with more options.
    pub(super) fn with(options: &[&str]) -> Site {
        let scratch = Scratch::new();
        let mut all = vec!["--allow-write"];
        all.extend(options);
        let server = Server::with(&scratch.dir("export"), &all);
        Site { scratch, server }
    }

    /// Where an exported file is on the disk.
    pub(super) fn exported(&self, name: &str) -> PathBuf {
        self.scratch.join("export").join(name)
    }

    /// Puts a file into the export.
    pub(super) fn put(&self, name: &str, bytes: &[u8]) {
        fs::create_dir_all(self.exported(name).parent().unwrap()).unwrap();
        fs::write(self.exported(name), bytes).unwrap();
    }

    pub(super) fn url(&self, path: &str) -> String {
        self.server.url(path)
    }
}
