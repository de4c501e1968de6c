//! Third-party copies: files that this server fetches from other servers, or sends to them, because a client asks for it
//! that carries no data itself.
//!
//! ```text
//!  COPY ─▶ copy_request ─▶ job ─▶ running ──the engine's copy──▶ ends: a target of the storage, or an upload
//!               │                   │ phases, bytes
//!               └─ a status         └─▶ stream: markers, and the last line
//! ```
//!
//! What can be refused at once is refused by a status of its own (`copy_request`). A copy runs as a task (`running`) by the engine
//! that `gridlane cp` has: pulled bytes land in a hidden file of the export with a journal, so that a copy that was killed goes
//! on when it is asked for again; quotas, rules, kept checksums and durability are those of PUT. The engine's governor says
//! how many copies move at a time, and which user's is next. Those that wait are told so by markers.
//!
//! The other servers are reached by a client of this server's own, that connects only to addresses which the operator allows
//! ([`gridlane_net::AddressRules`]), and shows each server the credentials that were sent for it and no others.
//!
//! The protocol: docs/protocol/third-party-copy.md.

pub(crate) mod ends;
pub(crate) mod metalinks;
pub(crate) mod refusal;
pub(crate) mod running;
pub(crate) mod stream;
pub(crate) mod users;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use gridlane_auth::Identity;
use gridlane_core::limits;
use gridlane_front::front::Front;
use gridlane_front::metrics::{Kind, Page};
use gridlane_peer::Client;
use gridlane_share::budget::Budget;
use gridlane_share::{Holder, Lease, Share};
use gridlane_store::journal_key::JournalKeys;

use metalinks::Metalinks;
use users::Users;

/// An operator's settings of third-party copies.
#[derive(Clone)]
pub struct ThirdPartySettings {
    /// The client that reaches other servers. Its dialer says which addresses it may connect to.
    pub client: Client,
    /// Where the key of the journals of unfinished copies is.
    pub journal_keys: JournalKeys,
    /// True if files are sent to other servers as well, for clients that have proved no identity too.
    pub pushes_for_anyone: bool,
    /// The copies that run or wait, and of them those that one client may have: the next one is told to try again later.
    pub copies: Share,
}

impl ThirdPartySettings {
    /// Copies by this client, with limits that suit a server on a machine of its own.
    pub fn new(client: Client, journal_keys: JournalKeys) -> ThirdPartySettings {
        let copies = Share {
            all: limits::THIRD_PARTY_COPIES_MAX,
            one: limits::THIRD_PARTY_COPIES_MAX / limits::THIRD_PARTY_CLIENT_PART,
        };
        ThirdPartySettings { client, journal_keys, pushes_for_anyone: false, copies }
    }
}

/// The third-party copies of a server, by one generation of settings.
pub(crate) struct ThirdParty {
    pub(crate) settings: ThirdPartySettings,
    lasting: Arc<Lasting>,
}

/// What all generations share.
struct Lasting {
    users: Users,
    copies: Arc<Budget>,
    metalinks: Metalinks,
    totals: Totals,
}

/// Counters for the metrics.
#[derive(Default)]
struct Totals {
    pulls_done: AtomicU64,
    pulls_failed: AtomicU64,
    pushes_done: AtomicU64,
    pushes_failed: AtomicU64,
    pulled_bytes: AtomicU64,
    pushed_bytes: AtomicU64,
    refused_addresses: AtomicU64,
}

impl ThirdParty {
    /// By these settings, after those of `before`.
    pub(crate) fn new(settings: ThirdPartySettings, before: Option<&ThirdParty>) -> ThirdParty {
        let lasting = match before {
            Some(before) => Arc::clone(&before.lasting),
            None => Arc::new(Lasting {
                users: Users::default(),
                copies: Budget::new("third_party_copies", settings.copies),
                metalinks: Metalinks::default(),
                totals: Totals::default(),
            }),
        };
        lasting.copies.resize(settings.copies);
        ThirdParty { settings, lasting }
    }

    /// Its budgets.
    pub(crate) fn budgets(&self) -> Vec<Arc<Budget>> {
        let copies = std::iter::once(&self.lasting.copies);
        copies.chain(self.lasting.metalinks.budgets()).map(Arc::clone).collect()
    }

    /// The metalinks that are read for copies.
    pub(crate) fn metalinks(&self) -> &Metalinks {
        &self.lasting.metalinks
    }

    /// A place for one more copy of the client in hand, if it may have one.
    pub(crate) fn place(&self) -> Option<Lease> {
        let holder: Holder = gridlane_share::budget::current();
        self.lasting.copies.try_take(holder, 1).ok()
    }

    /// Where the key is of the journals of a user's copies.
    pub(crate) fn journal_keys(&self, user: &Identity) -> JournalKeys {
        self.settings.journal_keys.of_user(&users::key(user))
    }

    /// The client that reaches other servers for a user. Its connections are those of the user's earlier copies.
    pub(crate) fn client_of(&self, user: &Identity) -> (Client, gridlane_net::Identity) {
        (self.settings.client.clone(), self.lasting.users.identity(user))
    }

    /// Adds its counters to the page of metrics.
    pub(crate) fn metrics(&self, page: &mut Page) {
        let Totals {
            pulls_done,
            pulls_failed,
            pushes_done,
            pushes_failed,
            pulled_bytes,
            pushed_bytes,
            refused_addresses,
        } = &self.lasting.totals;
        page.family("third_party_copies_ended", Kind::Counter, "Third-party copies that have ended.");
        for (direction, outcome, count) in [
            ("pull", "done", pulls_done),
            ("pull", "failed", pulls_failed),
            ("push", "done", pushes_done),
            ("push", "failed", pushes_failed),
        ] {
            let labels = [("direction", direction), ("outcome", outcome)];
            page.sample("_total", &labels, count.load(Relaxed));
        }
        page.family("third_party_moved_bytes", Kind::Counter, "Bytes moved by third-party copies.");
        page.sample("_total", &[("direction", "pull")], pulled_bytes.load(Relaxed));
        page.sample("_total", &[("direction", "push")], pushed_bytes.load(Relaxed));
        let help = "Third-party copies that run or wait.";
        page.gauge("third_party_copies_running", help, self.lasting.copies.used());
        page.counter(
            "third_party_refused_addresses",
            "Third-party copies refused for the address of the other server.",
            refused_addresses.load(Relaxed),
        );
    }
}

/// The front and the state that a copy needs after its request.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) front: Arc<Front>,
    pub(crate) third_party: Arc<ThirdParty>,
}
