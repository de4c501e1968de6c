//! The certificate that clients of gsi are shown: the server's own, or another one that the table `[root]` names.

#[cfg(feature = "gsi")]
use std::fs;
#[cfg(feature = "gsi")]
use std::path::PathBuf;
#[cfg(feature = "gsi")]
use std::sync::Arc;

#[cfg(feature = "gsi")]
use gridlane_config::value::wrong;
use gridlane_core::Result;
#[cfg(feature = "gsi")]
use gridlane_front::HostCredential;
use gridlane_front::{RootAuth, RootSettings};

use super::settings::Certificate;

/// What is there for logins by certificate.
#[derive(Default)]
pub(super) struct Host {
    /// The certificate and its key.
    #[cfg(feature = "gsi")]
    pub(super) credential: Option<Arc<HostCredential>>,
    /// Why there is none, for an operator who has not asked for it.
    pub(super) absent: Option<String>,
}

impl Host {
    /// True if clients can log in by certificate.
    pub(super) fn is_there(&self) -> bool {
        #[cfg(feature = "gsi")]
        return self.credential.is_some();
        #[cfg(not(feature = "gsi"))]
        false
    }
}

/// Reads them, where clients' certificates count (`counts`) and gsi is not left out by the configuration. A certificate
/// without an RSA key is an error only where gsi is asked for.
pub(super) fn host(root: &RootSettings, counts: bool, own: &Certificate) -> Result<Host> {
    let is_asked_for = root.auth.as_ref().map(|ways| ways.contains(&RootAuth::Gsi));
    if !counts || !root.is_enabled || is_asked_for == Some(false) {
        return Ok(Host::default());
    }
    #[cfg(feature = "gsi")]
    {
        let (cert, key) = root.gsi_files.clone().unwrap_or_else(|| (own.cert.clone(), own.key.clone()));
        let read = |path: &PathBuf| {
            fs::read(path).map_err(|cause| wrong(format!("cannot read {}: {cause}", path.display())))
        };
        let credential = HostCredential::from_pem(&read(&cert)?, &read(&key)?);
        match credential {
            Ok(credential) => Ok(Host { credential: Some(Arc::new(credential)), absent: None }),
            Err(refusal) if is_asked_for == Some(true) || root.gsi_files.is_some() => {
                Err(wrong(format!("{}: {refusal}", cert.display()))
                    .hint("name a certificate with an RSA key by gsi-cert and gsi-key in [root]"))
            }
            Err(refusal) => Ok(Host { credential: None, absent: Some(refusal.message) }),
        }
    }
    #[cfg(not(feature = "gsi"))]
    {
        let _ = own;
        Ok(Host { absent: Some("this program was built without gsi".to_owned()) })
    }
}
