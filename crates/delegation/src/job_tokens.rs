//! Tokens of jobs: kept sealed, exchanged and refreshed by their issuers.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridlane_auth::delegation::{Exchanged, Issued, JobToken, Step, TokenTerms, Trouble, Unusable};
use gridlane_core::{Error, ErrorKind, Fault, Result, Secret};
use ring::rand::SecureRandom as _;
use tokio::task::spawn_blocking;

use crate::store::{Kind, RecordId, Store};
use crate::vault::Vault;

/// An issuer of tokens, asked over the network. Words of a [`Trouble`] are without secrets.
pub trait Issuer {
    /// Exchanges an access token for a refresh token (RFC 8693, with `offline_access`). `issuer` is as the token names it.
    fn exchange(
        &self,
        issuer: &str,
        access: &Secret,
    ) -> impl Future<Output = std::result::Result<Exchanged, Trouble>> + Send;

    /// Gets an access token with a refresh token (RFC 6749, 6).
    fn refresh(
        &self,
        issuer: &str,
        refresh: &Secret,
    ) -> impl Future<Output = std::result::Result<Issued, Trouble>> + Send;
}

/// The state of a job's token after [`JobTokens::advance`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advanced {
    /// Nothing is to be done before this time, in seconds since 1970; `None`: until the token is wanted, or another call
    /// that is under way has its answer.
    Wait(Option<i64>),
    /// The owner of the job has to bring another token; the words say why. The one that is there can be used to its end.
    OwnerMustAct(String),
    /// The job has no token.
    NoToken,
}

/// Tokens of jobs, in a vault.
///
/// A question to an issuer is noted in the vault before it is asked, so that a refresh token that is good for one use is not
/// used twice by two callers; and the answer before a caller gets it. An answer that cannot be written (the disk is full)
/// stays in memory and is written with the next call. One process at a time has the vault.
pub struct JobTokens<S> {
    vault: Vault<S>,
    terms: TokenTerms,
    open: Mutex<Open>,
}

/// The state beside the vault.
#[derive(Default)]
struct Open {
    /// Jobs with a question of this process under way, and its number.
    asking: HashSet<(String, u64)>,
    /// Answers that could not be written.
    unwritten: HashMap<String, JobToken>,
}

impl<S: Store + 'static> JobTokens<S> {
    /// The tokens of this vault.
    pub fn new(vault: Vault<S>, terms: TokenTerms) -> JobTokens<S> {
        JobTokens { vault, terms, open: Mutex::new(Open::default()) }
    }

    /// Keeps the token that a job comes with.
    pub fn submit(&self, job: &str, token: &JobToken) -> Result<()> {
        let mut ticket = [0; 8];
        self.vault
            .random()
            .fill(&mut ticket)
            .map_err(|_| Error::new(ErrorKind::Other, "no randomness for a job's token"))?;
        let mut open = self.open();
        self.write(&mut open, job, &token.clone().numbered_from(u64::from_be_bytes(ticket)))
    }

    /// The owner has brought another token, good until `ends_s`. False if the job has none to replace.
    pub fn replace(&self, job: &str, access: Secret, ends_s: i64, now_s: i64) -> Result<bool> {
        let mut open = self.open();
        let Some(mut token) = self.read(&open, job)? else { return Ok(false) };
        token.replaced(access, ends_s, now_s);
        self.write(&mut open, job, &token)?;
        Ok(true)
    }

    /// The job is done.
    pub fn forget(&self, job: &str) -> Result<bool> {
        let mut open = self.open();
        open.unwritten.remove(job);
        self.vault.remove(&RecordId::new(Kind::Token, job)?)
    }

    /// A job's access token, if it can be used now; `None` if the job has no token.
    pub fn usable(&self, job: &str, now_s: i64) -> Result<Option<std::result::Result<Secret, Unusable>>> {
        let token = self.read(&self.open(), job)?;
        Ok(token.map(|token| token.usable(now_s, &self.terms).cloned()))
    }

    /// A server has refused this access token before its time was over: [`JobToken::doubt`]. False for a job without one,
    /// too.
    pub fn doubt(&self, job: &str, access: &Secret, now_s: i64) -> Result<bool> {
        let mut open = self.open();
        let Some(mut token) = self.read(&open, job)? else { return Ok(false) };
        let before = token.clone();
        let may_help = token.doubt(access, now_s, &self.terms);
        if token != before {
            self.write(&mut open, job, &token)?;
        }
        Ok(may_help)
    }

    /// The jobs that have tokens.
    pub fn jobs(&self) -> Result<Vec<String>> {
        self.vault.names(Kind::Token)
    }

    /// The vault.
    pub fn vault(&self) -> &Vault<S> {
        &self.vault
    }

    /// Does what is due about a job's token: asks the issuer at most once. `is_wanted` as in [`JobToken::step`]; `clock`
    /// tells the seconds since 1970.
    ///
    /// A call that is dropped while the issuer is asked counts as one whose answer was lost.
    pub async fn advance<I: Issuer>(
        self: &Arc<Self>,
        job: &str,
        is_wanted: bool,
        issuer: &I,
        clock: impl Fn() -> i64,
    ) -> Result<Advanced> {
        let now_s = clock();
        let (this, name) = (self.clone(), job.to_owned());
        let Some(begun) = blocking(move || this.begin(&name, is_wanted, now_s)).await? else {
            return Ok(Advanced::NoToken);
        };
        let answer = match &begun.step {
            Step::Wait { until_s } => return Ok(Advanced::Wait(*until_s)),
            Step::OwnerMustAct(words) => return Ok(Advanced::OwnerMustAct(words.clone())),
            Step::Exchange { access, .. } => Answer::Exchanged(issuer.exchange(&begun.issuer, access).await),
            Step::Refresh { refresh, .. } => Answer::Refreshed(issuer.refresh(&begun.issuer, refresh).await),
        };
        let now_s = clock();
        blocking(move || begun.finish(answer, is_wanted, now_s)).await
    }
}

impl<S: Store> JobTokens<S> {
    /// The first half: what is to be asked of which issuer, noted. `None` for a job without a token.
    fn begin(self: &Arc<Self>, job: &str, is_wanted: bool, now_s: i64) -> Result<Option<Begun<S>>> {
        let mut open = self.open();
        if let Some(token) = open.unwritten.get(job).cloned() {
            // Nothing is asked while what was answered before is not safe.
            self.write(&mut open, job, &token)?;
        }
        let Some(mut token) = self.read(&open, job)? else { return Ok(None) };
        let step = token.step(now_s, is_wanted, &self.terms);
        let mut ticket = None;
        if let Step::Exchange { ticket: asked, .. } | Step::Refresh { ticket: asked, .. } = &step {
            self.write(&mut open, job, &token)?;
            open.asking.insert((job.to_owned(), *asked));
            ticket = Some(*asked);
        }
        let issuer = token.issuer().to_owned();
        Ok(Some(Begun { tokens: self.clone(), job: job.to_owned(), issuer, step, ticket }))
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        // Sets and maps, each changed in one call.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, open: &Open, job: &str) -> Result<Option<JobToken>> {
        if let Some(token) = open.unwritten.get(job) {
            return Ok(Some(token.clone()));
        }
        let Some(text) = self.vault.get(&RecordId::new(Kind::Token, job)?)? else { return Ok(None) };
        let mut token = JobToken::decode(&text)?;
        if !open.asking.iter().any(|(name, ticket)| name == job && token.is_asking_with(*ticket)) {
            token.resumed();
        }
        Ok(Some(token))
    }

    fn write(&self, open: &mut Open, job: &str, token: &JobToken) -> Result<()> {
        self.vault.put(&RecordId::new(Kind::Token, job)?, token.encode()?.expose().as_bytes())?;
        open.unwritten.remove(job);
        Ok(())
    }
}

/// An issuer's answer.
enum Answer {
    Exchanged(std::result::Result<Exchanged, Trouble>),
    Refreshed(std::result::Result<Issued, Trouble>),
}

/// A step, and perhaps a question that is under way; dropped, it is not any more.
struct Begun<S: Store> {
    tokens: Arc<JobTokens<S>>,
    job: String,
    issuer: String,
    step: Step,
    ticket: Option<u64>,
}

impl<S: Store> Begun<S> {
    /// The second half: the answer, kept.
    fn finish(self, answer: Answer, is_wanted: bool, now_s: i64) -> Result<Advanced> {
        let (tokens, job, terms) = (&self.tokens, self.job.as_str(), &self.tokens.terms);
        let mut open = tokens.open();
        let Some(mut token) = tokens.read(&open, job)? else { return Ok(Advanced::NoToken) };
        let ticket = self.ticket.unwrap_or_default();
        let is_of_interest = match answer {
            Answer::Exchanged(answer) => token.exchanged(ticket, answer, now_s, terms),
            Answer::Refreshed(answer) => token.refreshed(ticket, answer, now_s, terms),
        };
        if is_of_interest && let Err(error) = tokens.write(&mut open, job, &token) {
            // What it says may be all that is left of a refresh token.
            open.unwritten.insert(job.to_owned(), token);
            return Err(error.more("the issuer's answer is kept in memory until it can be written"));
        }
        // What comes next, of a copy: nothing is asked here.
        Ok(match token.step(now_s, is_wanted, terms) {
            Step::OwnerMustAct(words) => Advanced::OwnerMustAct(words),
            Step::Wait { until_s } => Advanced::Wait(until_s),
            Step::Exchange { .. } | Step::Refresh { .. } => Advanced::Wait(Some(now_s)),
        })
    }
}

impl<S: Store> Drop for Begun<S> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.tokens.open().asking.remove(&(std::mem::take(&mut self.job), ticket));
        }
    }
}

/// Runs where waiting for a disk delays no other task.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    spawn_blocking(work)
        .await
        .map_err(|_| Error::new(ErrorKind::Interrupted, "the service is stopping").fault(Fault::Local))?
}
