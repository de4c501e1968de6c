//! `gsi`: the login by the user's certificate, for servers that know people by certificates.
//!
//! The exchange is `gridlane-gsi`'s. Decided here: the certificate goes to servers that may see the user's credentials, and to one
//! whose own certificate is believed as in a handshake of TLS, for the host of the URL that was asked for or that a redirect has led to;
//! no name is looked up backwards. Of a proxy for the server, with which it acts for the user, see
//! [`Client::delegating`](super::Client::delegating). What failed is kept with its advice, which a machine's words cannot carry.
//!
//! A build without the feature `gsi` has none of it, and says so.

#[cfg(feature = "gsi")]
mod exchange;

use std::sync::{Arc, Mutex, PoisonError};

use gridlane_core::Error;
use gridlane_net::Dialer;
use gridlane_net::tls::ClientIdentity;
use gridlane_xrd::client::Method;

/// The name of the method.
pub(super) const NAME: &str = "gsi";

/// What is said of an error that a server has answered in the course of it.
pub(super) const ANSWERED: &str = "this was its answer to the login by gsi";

/// True if this build has it.
pub(super) const IS_BUILT_IN: bool = cfg!(feature = "gsi");

/// A certificate, and the server that it is for.
#[cfg_attr(not(feature = "gsi"), expect(dead_code, reason = "there is nobody to read it"))]
pub(super) struct Asked {
    /// The certificate of the moment, with its key.
    pub(super) shown: ClientIdentity,
    /// `the proxy of /tmp/x509up_u1000`.
    pub(super) name: String,
    /// Its trust is that of TLS.
    pub(super) dialer: Dialer,
    /// The host, as it was asked for.
    pub(super) host: String,
    /// True if a server that asks for it gets a proxy of the user's, to act for the user.
    pub(super) delegates: bool,
}

/// What became of a server's wish for a proxy of the user's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Delegation {
    /// It has none.
    #[default]
    Unasked,
    /// It has got one.
    Given,
    /// None could be made, and why.
    Failed(String),
}

/// What whoever waits for the end of a login has to know of it. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct Ending(Arc<Ended>);

#[derive(Default)]
struct Ended {
    error: Mutex<Option<Error>>,
    delegation: Mutex<Delegation>,
}

impl Ending {
    /// The error, if there was one.
    pub(super) fn take_error(&self) -> Option<Error> {
        self.0.error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// What became of the server's wish for a proxy.
    pub(super) fn delegation(&self) -> Delegation {
        self.0.delegation.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    #[cfg(feature = "gsi")]
    fn keep(&self, error: Error) {
        *self.0.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    #[cfg(feature = "gsi")]
    fn delegated(&self, delegation: Delegation) {
        *self.0.delegation.lock().unwrap_or_else(PoisonError::into_inner) = delegation;
    }
}

/// The way to log in by this certificate; none in a build that has none.
pub(super) fn methods(asked: Asked, ending: &Ending) -> Vec<Box<dyn Method>> {
    #[cfg(feature = "gsi")]
    let methods: Vec<Box<dyn Method>> = vec![Box::new(exchange::Gsi::new(asked, ending.clone()))];
    #[cfg(not(feature = "gsi"))]
    let methods = {
        let _ = (asked, ending);
        Vec::new()
    };
    methods
}

/// What is known here about a certificate that a server has refused without a word.
pub(super) fn suspicions(shown: &ClientIdentity, name: &str) -> String {
    #[cfg(feature = "gsi")]
    let words = exchange::suspicions(shown, name);
    #[cfg(not(feature = "gsi"))]
    let words = format!("it was {name}, of {}", shown.facts().dn);
    words
}
