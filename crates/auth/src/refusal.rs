//! Why a credential is not believed.

use std::fmt;

/// The fault of a credential, as coarse as a caller needs to decide what to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// It is not written as such a credential is.
    Malformed,
    /// It is too long, too deep, or made with an algorithm that proves nothing.
    Unacceptable,
    /// No trusted issuer vouches for it.
    Untrusted,
    /// Its signature is not by the issuer that it names, or its bytes were changed.
    BadSignature,
    /// Its time is over.
    Expired,
    /// Its time has not come.
    NotYetValid,
    /// Its issuer has revoked it.
    Revoked,
    /// It was made for another audience.
    WrongAudience,
    /// The key that it was signed with is not known yet: fetching the issuer's keys may help.
    UnknownKey,
    /// The keys that would tell cannot be had at the moment: trying again later may help.
    Unavailable,
    /// The password is not the user's, or there is no such user.
    WrongPassword,
    /// Too many wrong passwords came before from the same place: this one was not looked at.
    Guessing,
}

/// The reason why a credential is not believed. Its words are for the client: they say what is wrong, never what the
/// secret is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The kind of trouble.
    pub cause: Cause,
    /// One sentence without a full stop: "the proxy certificate expired 2026-01-02T03:04:05Z".
    pub message: String,
    /// After how many seconds another try makes sense, if that is known.
    pub retry_after_s: Option<u64>,
}

impl Refusal {
    /// A refusal in words.
    pub fn new(cause: Cause, message: impl Into<String>) -> Refusal {
        Refusal { cause, message: message.into(), retry_after_s: None }
    }

    /// The same, with the seconds after which another try makes sense.
    pub fn retry_after_s(mut self, seconds: u64) -> Refusal {
        self.retry_after_s = Some(seconds);
        self
    }

    /// The same, with where it happened in front.
    pub fn context(mut self, place: impl fmt::Display) -> Refusal {
        self.message = format!("{place}: {}", self.message);
        self
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}
