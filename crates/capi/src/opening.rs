//! The options of a file that is opened.

use std::ffi::c_char;
use std::path::PathBuf;
use std::time::Duration;

use gridlane_client::credentials::Wanted;
use gridlane_core::{Result, Secret};
use gridlane_engine::reading::{Choices, ReadOptions};

use crate::memory::usage;

const NO_CREDENTIALS: u32 = 1;
const INSECURE: u32 = 2;
const CHECK_PAGES: u32 = 4;
const NO_PROOF: u32 = 8;

/// `gridlane_options`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Options {
    pub(crate) size: usize,
    pub(crate) policy: *const c_char,
    pub(crate) memory_bytes: u64,
    pub(crate) budget: f64,
    pub(crate) connections: u32,
    pub(crate) flags: u32,
    pub(crate) patience_ms: i64,
    pub(crate) timeout_ms: i64,
    pub(crate) token: *const c_char,
    pub(crate) token_file: *const c_char,
    pub(crate) certificate: *const c_char,
    pub(crate) key: *const c_char,
    pub(crate) authorities: *const *const c_char,
}

/// Its texts, copied.
#[derive(Clone, Debug, Default)]
pub(crate) struct Texts {
    pub(crate) policy: Option<String>,
    pub(crate) token: Option<String>,
    pub(crate) token_file: Option<String>,
    pub(crate) certificate: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) authorities: Vec<String>,
}

/// Its numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Numbers {
    pub(crate) memory_bytes: u64,
    pub(crate) budget: f64,
    pub(crate) connections: u32,
    pub(crate) flags: u32,
    pub(crate) patience_ms: i64,
    pub(crate) timeout_ms: i64,
}

/// The wishes of the caller about a file.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) reading: ReadOptions,
    pub(crate) wanted: Wanted,
    pub(crate) authorities: Vec<PathBuf>,
    pub(crate) insecure: bool,
    pub(crate) timeout: Option<Duration>,
}

impl Opening {
    /// Checks them all.
    pub(crate) fn new(numbers: Numbers, texts: Texts) -> Result<Opening> {
        let flags = numbers.flags;
        let unknown = flags & !(NO_CREDENTIALS | INSECURE | CHECK_PAGES | NO_PROOF);
        if unknown != 0 {
            return Err(usage(format!("there is no flag {unknown:#x} of options")));
        }
        let choices = Choices {
            policy: texts.policy.as_deref(),
            memory_bytes: Some(numbers.memory_bytes).filter(|bytes| *bytes != 0),
            budget: Some(numbers.budget).filter(|budget| *budget != 0.0),
            lanes: Some(numbers.connections as usize).filter(|count| *count != 0),
            patience: time(numbers.patience_ms, "patience_ms")?,
        };
        let path = |text: Option<String>| text.map(PathBuf::from);
        Ok(Opening {
            reading: ReadOptions {
                settings: choices.settings()?,
                checks_every_page: flags & CHECK_PAGES != 0,
                skips_proof: flags & NO_PROOF != 0,
                cache: None,
            },
            wanted: Wanted {
                nothing: flags & NO_CREDENTIALS != 0,
                token: texts.token.map(Secret::new),
                token_file: path(texts.token_file),
                certificate: path(texts.certificate),
                key: path(texts.key),
                ..Wanted::default()
            },
            authorities: texts.authorities.into_iter().map(PathBuf::from).collect(),
            insecure: flags & INSECURE != 0,
            timeout: time(numbers.timeout_ms, "timeout_ms")?,
        })
    }
}

/// `None` for 0.
fn time(ms: i64, what: &str) -> Result<Option<Duration>> {
    match u64::try_from(ms) {
        Ok(0) => Ok(None),
        Ok(ms) => Ok(Some(Duration::from_millis(ms))),
        Err(_) => Err(usage(format!("{what} is negative"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_said_is_the_usual() {
        let opening = Opening::new(Numbers::default(), Texts::default()).unwrap();
        assert_eq!(opening.reading.settings, gridlane_engine::reading::Settings::default());
        assert_eq!(opening.timeout, None);
        assert!(!opening.insecure && !opening.wanted.nothing && !opening.reading.skips_proof);
    }

    #[test]
    fn mistakes_are_told() {
        let wrong = [
            Numbers { flags: 16, ..Numbers::default() },
            Numbers { budget: 0.5, ..Numbers::default() },
            Numbers { budget: f64::NAN, ..Numbers::default() },
            Numbers { connections: 17, ..Numbers::default() },
            Numbers { patience_ms: -1, ..Numbers::default() },
            Numbers { timeout_ms: i64::MIN, ..Numbers::default() },
        ];
        for numbers in wrong {
            assert!(Opening::new(numbers, Texts::default()).is_err(), "{numbers:?}");
        }
        let texts = Texts { policy: Some("quick".into()), ..Texts::default() };
        assert!(Opening::new(Numbers::default(), texts).unwrap_err().message().contains("lazy"));
    }
}
