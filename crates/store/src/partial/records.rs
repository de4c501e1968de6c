//! What is recorded of a copy, wherever the lines of its journal are kept.

use std::io::{self, Read};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::journal::{self, Chain, JOURNAL_VERSION, Record, Unusable};
use crate::journal_key::JournalKeys;
use crate::target::Found;

/// The chain of a journal's lines.
pub(crate) struct Records {
    /// In front of the first line, or why nothing is recorded: there is no key.
    begin: Result<Chain, String>,
    /// Where the next line goes, and what it is tagged with.
    end: Mutex<Option<End>>,
}

#[derive(Clone)]
struct End {
    at_bytes: u64,
    chain: Chain,
}

impl Records {
    /// Of a journal about the file of this name and number. Without a key, no earlier record counts, and nothing
    /// is recorded.
    pub(crate) fn new(keys: &JournalKeys, name: &[u8], number: u64) -> Records {
        let begin = match keys.key() {
            Ok(key) => Ok(Chain::new(key.clone(), name, number)),
            Err(why) => Err(why.to_owned()),
        };
        Records { end: Mutex::new(first(&begin)), begin }
    }

    /// True if records count for a later copy.
    pub(crate) fn is_recorded(&self) -> bool {
        self.begin.is_ok()
    }

    /// Reads what an earlier copy has left. `is_empty`: there are no bytes that it could be about.
    pub(crate) fn read(&self, mut journal: impl Read, is_empty: bool) -> io::Result<Found> {
        let mut chain = match &self.begin {
            Ok(chain) => chain.clone(),
            Err(why) => {
                let has_journal = journal.read(&mut [0])? > 0;
                return Ok(match (is_empty, has_journal) {
                    (true, _) => Found::Nothing,
                    (false, true) => Found::Locked(why.clone()),
                    (false, false) => Found::Dropped(why.clone()),
                });
            }
        };
        Ok(match journal::read(journal, &mut chain)? {
            Ok((journaled, at_bytes)) => {
                *self.lock() = Some(End { at_bytes, chain });
                Found::Earlier(journaled)
            }
            // What a kill between the last two steps has left: the journal is that of a file which has its name.
            Err(_) if is_empty => Found::Nothing,
            Err(Unusable::Empty | Unusable::Damaged) => Found::Dropped("its journal is damaged".into()),
            Err(Unusable::Version(version)) => {
                Found::Dropped(format!("its journal has version {version}, not {JOURNAL_VERSION}"))
            }
            Err(Unusable::Foreign) => Found::Dropped(
                "its journal was written by another user, on another machine or for another file".into(),
            ),
        })
    }

    /// Has `write` put the lines of these records at an offset, behind all before.
    pub(crate) fn append(
        &self,
        records: &[Record],
        write: impl FnOnce(&[u8], u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut end = self.lock();
        let Some(End { at_bytes, chain }) = &mut *end else { return Ok(()) };
        let (text, next) = journal::lines(chain, records)?;
        write(&text, *at_bytes)?;
        *at_bytes += text.len() as u64;
        *chain = next;
        Ok(())
    }

    /// Begins again, when `cut` has removed all lines.
    pub(crate) fn restart(&self, cut: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut end = self.lock();
        cut()?;
        *end = first(&self.begin);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Option<End>> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn first(begin: &Result<Chain, String>) -> Option<End> {
    begin.as_ref().ok().map(|chain| End { at_bytes: 0, chain: chain.clone() })
}
