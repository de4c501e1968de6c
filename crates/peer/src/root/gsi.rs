//! `gsi`: the login by the user's certificate, for servers that know people by certificates.
//!
//! The exchange is `gridlane-gsi`'s. Decided here: the certificate goes to servers that may see the user's credentials, and to one
//! whose own certificate is believed as in a handshake of TLS, for the host of the URL that was asked for or that a redirect has led to;
//! no name is looked up backwards. What failed is kept with its advice, which a machine's words cannot carry.
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

/// True if this build has it.
pub(super) const IS_BUILT_IN: bool = cfg!(feature = "gsi");

/// A certificate, and the server that it is for.
pub(super) struct Asked {
    /// The certificate of the moment, with its key.
    pub(super) shown: ClientIdentity,
    /// `the proxy of /tmp/x509up_u1000`.
    pub(super) name: String,
    /// Its trust is that of TLS.
    pub(super) dialer: Dialer,
    /// The host, as it was asked for.
    pub(super) host: String,
}

/// What has gone wrong, for whoever waits for the end of a login. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct Failure(Arc<Mutex<Option<Error>>>);

impl Failure {
    /// The error, if there was one.
    pub(super) fn take(&self) -> Option<Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    #[cfg(feature = "gsi")]
    fn keep(&self, error: Error) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }
}

/// The way to log in by this certificate; none in a build that has none.
pub(super) fn methods(asked: Asked, failure: &Failure) -> Vec<Box<dyn Method>> {
    #[cfg(feature = "gsi")]
    let methods: Vec<Box<dyn Method>> = vec![Box::new(exchange::Gsi::new(asked, failure.clone()))];
    #[cfg(not(feature = "gsi"))]
    let methods = {
        let _ = (asked, failure);
        Vec::new()
    };
    methods
}
