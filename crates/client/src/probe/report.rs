//! The findings about one endpoint: a state for each step, and figures.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use gridlane_core::{Error, ErrorKind};

use super::site::Endpoint;

/// A step of a probe, in the order in which they are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// The protocol is spoken here.
    Protocol,
    /// The name of the host has addresses.
    Resolve,
    /// One of them takes a connection.
    Connect,
    /// TLS, or the handshake and login of XRootD's protocol.
    Login,
    /// The directory is listed.
    List,
    /// Small files are written.
    Write,
    /// They are read back and compared, or one that is there is read.
    Read,
    /// A large file is written.
    WriteRate,
    /// It is read back and compared, or one that was named is read.
    ReadRate,
    /// The files that were written are removed, and are gone.
    Delete,
}

impl Step {
    /// Every step.
    pub const ALL: [Step; 10] = [
        Step::Protocol,
        Step::Resolve,
        Step::Connect,
        Step::Login,
        Step::List,
        Step::Write,
        Step::Read,
        Step::WriteRate,
        Step::ReadRate,
        Step::Delete,
    ];

    /// The name used in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Step::Protocol => "protocol",
            Step::Resolve => "resolve",
            Step::Connect => "connect",
            Step::Login => "login",
            Step::List => "list",
            Step::Write => "write",
            Step::Read => "read",
            Step::WriteRate => "write_rate",
            Step::ReadRate => "read_rate",
            Step::Delete => "delete",
        }
    }
}

/// The reason for which a step was not tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untried {
    /// It was not asked for.
    NotAsked,
    /// A step that it needs has failed.
    Needless,
    /// Connections go through a proxy, which does that.
    ByProxy,
    /// There is nothing that it could be tried with: no file to read.
    NoFile,
    /// The time for the endpoint was over.
    NoTime,
    /// The probe was stopped.
    Stopped,
}

impl Untried {
    /// The name used in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Untried::NotAsked => "not_asked",
            Untried::Needless => "needless",
            Untried::ByProxy => "by_proxy",
            Untried::NoFile => "no_file",
            Untried::NoTime => "no_time",
            Untried::Stopped => "stopped",
        }
    }
}

/// The end of a step.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// It works.
    Works,
    /// It does not.
    Fails(Error),
    /// Nothing is known.
    Untried(Untried),
}

/// A credential that an endpoint was shown, or would have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// A token, by its name in messages.
    Token(String),
    /// A certificate or a proxy, likewise.
    Certificate(String),
    /// The password or token in the URL.
    Url,
}

impl Shown {
    /// The kind, as used in JSON.
    pub fn kind(&self) -> &'static str {
        match self {
            Shown::Token(_) => "token",
            Shown::Certificate(_) => "certificate",
            Shown::Url => "url",
        }
    }

    /// The name in messages, which is no secret.
    pub fn name(&self) -> &str {
        match self {
            Shown::Token(name) | Shown::Certificate(name) => name,
            Shown::Url => "what is in the URL",
        }
    }
}

/// Bytes that were moved in a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// The bytes.
    pub bytes: u64,
    /// The time.
    pub seconds: f64,
    /// They were compared: with those that were written, or with a checksum of the server.
    pub is_verified: bool,
}

impl Rate {
    /// Bytes per second.
    pub fn bytes_per_s(&self) -> f64 {
        self.bytes as f64 / self.seconds.max(1e-9)
    }
}

/// A file that the probe has written, or may have, and that could not be removed.
#[derive(Clone, Debug)]
pub struct Left {
    /// Its URL for messages.
    pub url: String,
    /// It was there when it was last looked at, or was stored by the server's word; else it is only not known to be gone.
    pub is_certain: bool,
    /// The reason.
    pub error: Error,
}

/// The findings about one endpoint.
#[derive(Clone, Debug)]
pub struct Report {
    /// Number of the site that it is of.
    pub site: usize,
    /// The endpoint.
    pub endpoint: Endpoint,
    steps: [(Outcome, Duration); Step::ALL.len()],
    /// All addresses of its host.
    pub addresses: Vec<IpAddr>,
    /// The one that took a connection.
    pub address: Option<SocketAddr>,
    /// The round trip of that connection.
    pub round_trip: Option<Duration>,
    /// The connection in words: address, version of TLS.
    pub connection: Option<String>,
    /// The credentials that were used.
    pub shown: Vec<Shown>,
    /// Number of entries of the directory that were listed, and whether these are all.
    pub listed: Option<(usize, bool)>,
    /// Time to write a small file: the median.
    pub small_write: Option<Duration>,
    /// Time to read a small file: the median.
    pub small_read: Option<Duration>,
    /// The large file on its way there.
    pub write_rate: Option<Rate>,
    /// A large file on its way back.
    pub read_rate: Option<Rate>,
    /// Files that are left there.
    pub left: Vec<Left>,
}

impl Report {
    /// The report of an endpoint of which nothing is known yet.
    pub fn new(site: usize, endpoint: Endpoint) -> Report {
        let untried = || (Outcome::Untried(Untried::Needless), Duration::ZERO);
        Report {
            site,
            endpoint,
            steps: std::array::from_fn(|_| untried()),
            addresses: Vec::new(),
            address: None,
            round_trip: None,
            connection: None,
            shown: Vec::new(),
            listed: None,
            small_write: None,
            small_read: None,
            write_rate: None,
            read_rate: None,
            left: Vec::new(),
        }
    }

    /// The end of a step.
    pub fn outcome(&self, step: Step) -> &Outcome {
        &self.steps[step as usize].0
    }

    /// Time that a step took.
    pub fn took(&self, step: Step) -> Duration {
        self.steps[step as usize].1
    }

    /// Notes the end of a step. One that was stopped says nothing of the endpoint.
    pub fn note(&mut self, step: Step, outcome: Outcome, took: Duration) {
        let outcome = match outcome {
            Outcome::Fails(error) if error.kind() == ErrorKind::Interrupted => {
                Outcome::Untried(Untried::Stopped)
            }
            other => other,
        };
        self.steps[step as usize] = (outcome, took);
    }

    /// True if a step works.
    pub fn works(&self, step: Step) -> bool {
        matches!(self.outcome(step), Outcome::Works)
    }

    /// The steps that fail, with the reasons.
    pub fn failures(&self) -> impl Iterator<Item = (Step, &Error)> {
        Step::ALL.into_iter().filter_map(|step| match self.outcome(step) {
            Outcome::Fails(error) => Some((step, error)),
            Outcome::Works | Outcome::Untried(_) => None,
        })
    }
}
