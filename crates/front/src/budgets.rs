//! The budgets that all clients of a server share.

use std::sync::Arc;

use gridlane_core::limits;
use gridlane_share::budget::{Budget, Share};

use crate::settings::Shares;

/// All that clients share, for all generations.
pub struct Budgets {
    pub(crate) connections: Arc<Budget>,
    /// Of those, the ones that speak HTTP.
    pub(crate) http: Arc<Budget>,
    /// And those that speak XRootD's protocol.
    pub(crate) root: Arc<Budget>,
    /// Connections beside those, which are told that there are too many.
    pub(crate) turned_away: Arc<Budget>,
    /// Files and listed directories that are open over root://.
    pub open_files: Arc<Budget>,
    pub(crate) root_memory: Arc<Budget>,
    pub(crate) admin: Arc<Budget>,
    /// Connections there that wait to be one of those.
    pub(crate) admin_waiting: Arc<Budget>,
}

impl Budgets {
    pub(crate) fn new() -> Budgets {
        let shares = Shares::default();
        let connections = Shares::connections(limits::CONNECTIONS_MAX);
        let protocol = Shares::protocol(connections.all);
        Budgets {
            connections: Budget::new("connections", connections),
            http: Budget::new("http_connections", protocol),
            root: Budget::new("root_connections", protocol),
            turned_away: Budget::new("turned_away", Share::of(limits::TURNED_AWAY_MAX)),
            open_files: Budget::new("root_files", shares.open_files),
            root_memory: Budget::new("root_memory_bytes", shares.root_memory_bytes),
            admin: Budget::new("admin_connections", Share::of(limits::ADMIN_CONNECTIONS_MAX)),
            admin_waiting: Budget::new("admin_waiting", Share::of(limits::ADMIN_WAITING_MAX)),
        }
    }

    /// All of them, in the order of the documentation.
    pub(crate) fn all(&self) -> [&Arc<Budget>; 8] {
        [
            &self.connections,
            &self.http,
            &self.root,
            &self.turned_away,
            &self.open_files,
            &self.root_memory,
            &self.admin,
            &self.admin_waiting,
        ]
    }

    /// Goes by other settings.
    pub(crate) fn resize(&self, connections: Share, has_root: bool, shares: &Shares) {
        // Without the other protocol there is none to leave anything to.
        let protocol = match has_root {
            true => Shares::protocol(connections.all),
            false => Share { one: connections.all, ..connections },
        };
        for (budget, share) in [
            (&self.connections, connections),
            (&self.http, protocol),
            (&self.root, protocol),
            (&self.open_files, shares.open_files),
            (&self.root_memory, shares.root_memory_bytes),
        ] {
            budget.resize(share);
        }
    }
}
