//! Identities of connections. One process serves many users: a connection, and a session of TLS that is gone on with, belongs to
//! one identity and carries nothing of another.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use crate::tls::ClientIdentity;

/// The number of an [`Identity`] in this process, for what is remembered of it. No two identities have the same one, the default
/// is that of anonymous.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct IdentityId(u64);

impl IdentityId {
    /// True for that of connections on which nothing of a user is shown.
    pub fn is_anonymous(self) -> bool {
        self == IdentityId::default()
    }
}

/// One set of credentials of a user in this process; the default is anonymous, which has none. Clones are the same identity, and
/// each call of [`Identity::new`] makes another one, for the same certificate as well.
#[derive(Clone, Default)]
pub struct Identity(Option<Arc<Known>>);

struct Known {
    id: IdentityId,
    certificate: Option<ClientIdentity>,
}

/// Tells whether an identity is in use anywhere.
pub(crate) struct InUse(Weak<Known>);

impl Identity {
    /// Another identity, whose connections show a certificate to servers that ask for one.
    pub fn new(certificate: Option<ClientIdentity>) -> Identity {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let id = IdentityId(LAST.fetch_add(1, Ordering::Relaxed) + 1);
        Identity(Some(Arc::new(Known { id, certificate })))
    }

    /// Its number.
    pub fn id(&self) -> IdentityId {
        self.0.as_ref().map(|known| known.id).unwrap_or_default()
    }

    /// True if it is that of connections on which nothing of a user is shown.
    pub fn is_anonymous(&self) -> bool {
        self.0.is_none()
    }

    /// The certificate that its connections show.
    pub fn certificate(&self) -> Option<&ClientIdentity> {
        self.0.as_ref()?.certificate.as_ref()
    }

    pub(crate) fn in_use(&self) -> InUse {
        InUse(self.0.as_ref().map(Arc::downgrade).unwrap_or_default())
    }
}

impl InUse {
    pub(crate) fn is_so(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Identity) -> bool {
        self.id() == other.id()
    }
}

impl Eq for Identity {}

impl Hash for Identity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id().hash(state);
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_are_the_same_and_what_is_made_is_another() {
        let ada = Identity::new(None);
        assert_eq!(ada, ada.clone());
        assert_ne!(ada, Identity::new(None));
        assert_ne!(ada, Identity::default());
        assert!(Identity::default().is_anonymous() && !ada.is_anonymous());
        let in_use = ada.in_use();
        assert!(in_use.is_so());
        drop(ada);
        assert!(!in_use.is_so());
    }
}
