//! The token of a job that may outlive it: when it is exchanged and refreshed, and when only its owner can help.

use gridlane_core::text::printable;
use gridlane_core::{Error, ErrorKind, Result as CoreResult, Secret, limits};
use serde::{Deserialize, Serialize};

/// Rules for tokens of jobs.
#[derive(Clone, Copy, Debug)]
pub struct TokenTerms {
    /// A token is not used in the last seconds of its time: by so much clocks may differ.
    pub skew_s: i64,
    /// A refresh begins when a third of the time is left, but at most so many seconds before the end.
    pub ahead_max_s: i64,
    /// First pause after an issuer gave no answer, in seconds; the next ones double.
    pub pause_s: i64,
    /// Longest pause, in seconds.
    pub pause_max_s: i64,
}

impl Default for TokenTerms {
    fn default() -> TokenTerms {
        TokenTerms {
            skew_s: i64::try_from(limits::CLOCK_SKEW_MAX.as_secs()).unwrap_or(i64::MAX),
            ahead_max_s: limits::JOB_TOKEN_AHEAD_MAX_S,
            pause_s: limits::JOB_TOKEN_PAUSE_S,
            pause_max_s: limits::JOB_TOKEN_PAUSE_MAX_S,
        }
    }
}

/// An issuer's answer to a refresh.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The new access token.
    pub access: Secret,
    /// When it ends, in seconds since 1970: the earlier one of what the answer and the token itself say.
    pub ends_s: i64,
    /// The refresh token that takes the place of the one that was used; `None`: that one stays good.
    pub refresh: Option<Secret>,
}

/// An issuer's answer to an exchange (RFC 8693).
#[derive(Clone, Debug)]
pub struct Exchanged {
    /// The refresh token.
    pub refresh: Secret,
    /// An access token with its end in seconds since 1970, if one came along.
    pub access: Option<(Secret, i64)>,
}

/// Why an issuer gave nothing. Words are without secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It said no: what was shown is revoked, over, or not allowed to do this. Asking again does not help.
    Refused(String),
    /// It gave no answer that means anything: asking again may help.
    Unreachable(String),
}

/// The next thing to do about a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask the issuer for a refresh token in exchange for this access token, and tell the answer with the number.
    Exchange {
        /// The number of the question.
        ticket: u64,
        /// The token that the job came with.
        access: Secret,
    },
    /// Ask the issuer for an access token with this refresh token, which may be good for one use only.
    Refresh {
        /// The number of the question.
        ticket: u64,
        /// The refresh token.
        refresh: Secret,
    },
    /// Nothing before this time, in seconds since 1970; or until something happens.
    Wait {
        /// When to ask again; `None`: after an answer, or when the token is wanted.
        until_s: Option<i64>,
    },
    /// Nothing more can be done here: the owner of the job has to bring another token. The words say why.
    OwnerMustAct(String),
}

/// Why there is no token that can be used at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// When the last one ended, in seconds since 1970.
    pub ended_s: i64,
    /// True if nothing but another token by the owner helps.
    pub is_final: bool,
    /// One sentence without a full stop.
    pub message: String,
}

/// A job's token, with what makes new ones.
///
/// Pure: [`JobToken::step`] says what to do at a time, [`JobToken::exchanged`] and [`JobToken::refreshed`] take the issuer's
/// answers. Its driver keeps it ([`JobToken::encode`]) *before* a question is asked, and again with the answer: where
/// a service dies in between, what is kept says that a refresh token may have been spent.
///
/// Times are those of a clock that may be wrong and set right: only an issuer's refusal is final; what follows from the
/// time is judged anew each time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobToken {
    issuer: String,
    access: Secret,
    got_s: i64,
    ends_s: i64,
    refresh: Option<Secret>,
    is_managed: bool,
    job_ends_s: i64,
    /// A server has refused the access token before its end.
    is_doubted: bool,
    /// When that last led to a question.
    doubted_s: Option<i64>,
    /// Failures in a row, when the last question was asked, and what was said.
    failures: u32,
    tried_s: i64,
    words: Option<String>,
    /// Number of the last question, and whether its answer is out.
    ticket: u64,
    is_asking: bool,
    /// A question was asked whose answer was never kept.
    is_cut_off: bool,
    /// The issuer's last word.
    refused: Option<String>,
}

impl JobToken {
    /// The token that a job came with at `now_s`, good until `ends_s`, by this issuer. With `is_managed` it is exchanged for
    /// a refresh token, else used as it is. After `job_ends_s` no issuer is asked for the job. Times in seconds since 1970.
    pub fn new(
        issuer: &str,
        access: Secret,
        ends_s: i64,
        is_managed: bool,
        job_ends_s: i64,
        now_s: i64,
    ) -> JobToken {
        JobToken {
            issuer: issuer.to_owned(),
            access,
            got_s: now_s,
            ends_s,
            refresh: None,
            is_managed,
            job_ends_s,
            is_doubted: false,
            doubted_s: None,
            failures: 0,
            tried_s: now_s,
            words: None,
            ticket: 0,
            is_asking: false,
            is_cut_off: false,
            refused: None,
        }
    }

    /// The same, whose questions are numbered from here on: of jobs of one name each has numbers of its own, so that an answer to
    /// a question of an earlier one is no answer to one of a later.
    pub fn numbered_from(self, ticket: u64) -> JobToken {
        JobToken { ticket, ..self }
    }

    /// The issuer, as the token names it.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// When the current access token ends, in seconds since 1970.
    pub fn ends_s(&self) -> i64 {
        self.ends_s
    }

    /// True once there is a refresh token.
    pub fn has_refresh(&self) -> bool {
        self.refresh.is_some()
    }

    /// The access token, if it can be used now: not in the last seconds of its time.
    ///
    /// # Errors
    /// It is over, or nearly; and whether another one may come.
    pub fn usable(&self, now_s: i64, terms: &TokenTerms) -> Result<&Secret, Unusable> {
        if self.is_usable(now_s, terms) {
            return Ok(&self.access);
        }
        let over = self.over(now_s, terms);
        let message = over.clone().unwrap_or_else(|| match &self.words {
            Some(words) => {
                format!("the token is over, and its issuer has not given another one yet: {words}")
            }
            None => "the token is over, and is being refreshed".to_owned(),
        });
        Err(Unusable { ended_s: self.ends_s, is_final: over.is_some(), message })
    }

    /// The thing to do now. `is_wanted` is false while the job only waits for its turn: its token is exchanged, since that is
    /// possible only in time, and not refreshed.
    pub fn step(&mut self, now_s: i64, is_wanted: bool, terms: &TokenTerms) -> Step {
        if self.is_asking {
            return Step::Wait { until_s: None };
        }
        if let Some(words) = &self.refused {
            return Step::OwnerMustAct(words.clone());
        }
        if let Some(words) = self.over(now_s, terms) {
            return Step::OwnerMustAct(words);
        }
        let last_s = self.ends_s.saturating_sub(terms.skew_s);
        if !self.is_managed || now_s >= self.job_ends_s {
            return Step::Wait { until_s: Some(last_s) };
        }
        if self.refresh.is_some() {
            if !is_wanted {
                return Step::Wait { until_s: None };
            }
            let due_s = self.refresh_s(terms);
            // A clock that was set back says nothing about when the token came.
            let is_set_back = now_s < self.got_s.saturating_sub(terms.skew_s);
            if now_s < due_s && !is_set_back && !self.is_doubted {
                return Step::Wait { until_s: Some(due_s) };
            }
        }
        let pause_s = self.pause_s(terms);
        let next_s = self.tried_s.saturating_add(pause_s);
        if pause_s > 0 && (self.tried_s..next_s).contains(&now_s) {
            // An exchange is of no use any more after the token's end, which is looked at in time.
            let until_s = if self.refresh.is_none() { next_s.min(last_s) } else { next_s };
            return Step::Wait { until_s: Some(until_s) };
        }
        self.is_asking = true;
        self.tried_s = now_s;
        self.ticket = self.ticket.wrapping_add(1);
        let ticket = self.ticket;
        match &self.refresh {
            Some(refresh) => Step::Refresh { ticket, refresh: refresh.clone() },
            None => Step::Exchange { ticket, access: self.access.clone() },
        }
    }

    /// The answer to an exchange, at `now_s`. False if it is to a question that is not of interest any more.
    pub fn exchanged(
        &mut self,
        ticket: u64,
        answer: Result<Exchanged, Trouble>,
        now_s: i64,
        terms: &TokenTerms,
    ) -> bool {
        if !self.is_answer(ticket) {
            return false;
        }
        match answer {
            Err(trouble) => self.failed(trouble),
            Ok(exchanged) => {
                self.refresh = Some(exchanged.refresh);
                self.succeeded();
                if let Some((access, ends_s)) = exchanged.access
                    && ends_s.saturating_sub(terms.skew_s) > now_s
                {
                    self.take(access, ends_s, now_s);
                }
            }
        }
        true
    }

    /// The answer to a refresh, at `now_s`. False if it is to a question that is not of interest any more.
    pub fn refreshed(
        &mut self,
        ticket: u64,
        answer: Result<Issued, Trouble>,
        now_s: i64,
        terms: &TokenTerms,
    ) -> bool {
        if !self.is_answer(ticket) {
            return false;
        }
        match answer {
            Err(trouble) => self.failed(trouble),
            Ok(issued) => {
                // In any case: the one before may be good for nothing now.
                if let Some(refresh) = issued.refresh {
                    self.refresh = Some(refresh);
                }
                let left_s = issued.ends_s.saturating_sub(now_s);
                if left_s > terms.skew_s {
                    self.succeeded();
                    self.take(issued.access, issued.ends_s, now_s);
                } else {
                    self.is_cut_off = false;
                    let skew_s = terms.skew_s;
                    self.failed(Trouble::Unreachable(format!(
                        "it gave a token that ends in {left_s} s by the clock here, of which the last {skew_s} s are not \
                         used: clocks differ, or its tokens are too short"
                    )));
                }
            }
        }
        true
    }

    /// A server has refused this access token although its time is not over: it is refreshed before anything else. True
    /// if a new one is there or will be; false if that was tried before in the last minutes (the longest pause), so that the
    /// token is not the reason, and where tokens are not refreshed.
    pub fn doubt(&mut self, access: &Secret, now_s: i64, terms: &TokenTerms) -> bool {
        if self.access != *access || self.is_doubted {
            return true;
        }
        let is_soon =
            |doubted_s: i64| (doubted_s..doubted_s.saturating_add(terms.pause_max_s)).contains(&now_s);
        if self.refresh.is_none() || self.refused.is_some() || self.doubted_s.is_some_and(is_soon) {
            return false;
        }
        self.doubted_s = Some(now_s);
        self.is_doubted = true;
        true
    }

    /// The owner has brought another token: everything begins anew.
    pub fn replaced(&mut self, access: Secret, ends_s: i64, now_s: i64) {
        let ticket = self.ticket;
        let fresh = JobToken::new(&self.issuer, access, ends_s, self.is_managed, self.job_ends_s, now_s);
        // An answer to a question about the old one finds another number.
        *self = fresh.numbered_from(ticket.wrapping_add(1));
    }

    /// It was read from where it was kept, by a process that has asked nothing: an open question will not be answered.
    pub fn resumed(&mut self) {
        self.is_cut_off |= self.is_asking;
        self.is_asking = false;
    }

    /// True if the answer to this question is waited for.
    pub fn is_asking_with(&self, ticket: u64) -> bool {
        self.is_asking && self.ticket == ticket
    }

    /// Its text, to be sealed: it has secrets in it.
    pub fn encode(&self) -> CoreResult<Secret> {
        let kept = Kept {
            issuer: self.issuer.clone(),
            access: self.access.expose().to_owned(),
            got_s: self.got_s,
            ends_s: self.ends_s,
            refresh: self.refresh.as_ref().map(|refresh| refresh.expose().to_owned()),
            is_managed: self.is_managed,
            job_ends_s: self.job_ends_s,
            is_doubted: self.is_doubted,
            doubted_s: self.doubted_s,
            failures: self.failures,
            tried_s: self.tried_s,
            words: self.words.clone(),
            ticket: self.ticket,
            is_asking: self.is_asking,
            is_cut_off: self.is_cut_off,
            refused: self.refused.clone(),
        };
        let text = serde_json::to_string(&kept);
        text.map(Secret::new).map_err(|_| Error::new(ErrorKind::Other, "a job's token could not be written"))
    }

    /// The one that was [encoded](JobToken::encode).
    pub fn decode(text: &[u8]) -> CoreResult<JobToken> {
        // The parser's words would quote what it read.
        let kept: Kept = serde_json::from_slice(text)
            .map_err(|_| Error::new(ErrorKind::Other, "what is kept of a job's token cannot be read"))?;
        Ok(JobToken {
            issuer: kept.issuer,
            access: Secret::new(kept.access),
            got_s: kept.got_s,
            ends_s: kept.ends_s,
            refresh: kept.refresh.map(Secret::new),
            is_managed: kept.is_managed,
            job_ends_s: kept.job_ends_s,
            is_doubted: kept.is_doubted,
            doubted_s: kept.doubted_s,
            failures: kept.failures,
            tried_s: kept.tried_s,
            words: kept.words,
            ticket: kept.ticket,
            is_asking: kept.is_asking,
            is_cut_off: kept.is_cut_off,
            refused: kept.refused,
        })
    }

    fn is_usable(&self, now_s: i64, terms: &TokenTerms) -> bool {
        now_s < self.ends_s.saturating_sub(terms.skew_s)
    }

    /// Why no other token will come, once this one cannot be used.
    fn over(&self, now_s: i64, terms: &TokenTerms) -> Option<String> {
        if self.is_usable(now_s, terms) {
            return None;
        }
        if let Some(words) = &self.refused {
            return Some(words.clone());
        }
        let said = self.words.as_ref().map_or_else(String::new, |words| format!(": {words}"));
        if !self.is_managed {
            Some(
                "the token is over, and was given to be used as it is, without another one after it"
                    .to_owned(),
            )
        } else if self.refresh.is_none() && !self.is_asking {
            Some(format!("the token ended before its issuer gave a refresh token for it{said}"))
        } else if now_s >= self.job_ends_s {
            Some(format!("the job's time was over before its issuer gave another token{said}"))
        } else {
            None
        }
    }

    /// When a refresh begins.
    fn refresh_s(&self, terms: &TokenTerms) -> i64 {
        let last_s = self.ends_s.saturating_sub(terms.skew_s);
        let lifetime_s = last_s.saturating_sub(self.got_s).max(0);
        last_s.saturating_sub((lifetime_s / 3).min(terms.ahead_max_s))
    }

    /// The pause after the last failure. While the token is still good, no longer than a quarter of its time that was left:
    /// an issuer that comes back is found before the job has to wait.
    fn pause_s(&self, terms: &TokenTerms) -> i64 {
        let Some(doublings) = self.failures.checked_sub(1) else { return 0 };
        let factor = 1i64.checked_shl(doublings.min(62)).unwrap_or(i64::MAX);
        let pause_s = terms.pause_s.saturating_mul(factor).min(terms.pause_max_s);
        let left_s = self.ends_s.saturating_sub(terms.skew_s).saturating_sub(self.tried_s);
        if left_s > 0 { pause_s.min((left_s / 4).max(terms.pause_s)) } else { pause_s }
    }

    fn is_answer(&mut self, ticket: u64) -> bool {
        let is_answer = self.is_asking_with(ticket);
        if is_answer {
            self.is_asking = false;
        }
        is_answer
    }

    fn take(&mut self, access: Secret, ends_s: i64, now_s: i64) {
        self.access = access;
        self.ends_s = ends_s;
        self.got_s = now_s;
        self.is_doubted = false;
    }

    fn succeeded(&mut self) {
        self.failures = 0;
        self.words = None;
        self.is_cut_off = false;
    }

    fn failed(&mut self, trouble: Trouble) {
        match trouble {
            Trouble::Unreachable(words) => {
                self.failures = self.failures.saturating_add(1);
                self.words = Some(printable(&words));
            }
            Trouble::Refused(words) => {
                let words = printable(&words);
                let cut_off = match self.is_cut_off {
                    true => {
                        " (an earlier question was cut off before its answer was kept, which may have spent the refresh \
                             token)"
                    }
                    false => "",
                };
                self.refused = Some(format!("the issuer refused{cut_off}: {words}"));
            }
        }
    }
}

/// A token as it is kept. Names stay; what is new has a default.
#[derive(Serialize, Deserialize)]
struct Kept {
    issuer: String,
    access: String,
    got_s: i64,
    ends_s: i64,
    refresh: Option<String>,
    is_managed: bool,
    job_ends_s: i64,
    is_doubted: bool,
    doubted_s: Option<i64>,
    failures: u32,
    tried_s: i64,
    words: Option<String>,
    ticket: u64,
    is_asking: bool,
    is_cut_off: bool,
    refused: Option<String>,
}
