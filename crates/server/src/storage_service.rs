//! The service of storage, by one generation of settings.

use std::net::SocketAddr;
use std::sync::Arc;

use gridlane_auth::Policy;
use gridlane_front::Settings;
use gridlane_front::front::Front;
use gridlane_share::DeviceShares;
use gridlane_store::Storage;

use crate::digests::Digests;
use crate::export::{Export, Exports, open_to_anyone, turns_of};
use crate::root::files::OpenFiles;
use crate::root::meetings::Meetings;
use crate::storage_checks::StorageChecks;
use crate::third_party::{ThirdParty, ThirdPartySettings};

/// An operator's settings of storage.
#[derive(Clone, Default)]
pub struct StorageSettings {
    /// The exports: none lies in another.
    pub exports: Vec<Export>,
    /// The shares of each device.
    pub device: DeviceShares,
    /// Copies between this server and others; `None`: there are none.
    pub third_party: Option<ThirdPartySettings>,
}

impl StorageSettings {
    /// The number of devices that the exports are on: each has turns of its own.
    pub fn devices(&self) -> usize {
        turns_of(self.exports.iter()).len()
    }
}

/// The service, by one generation of settings.
pub struct StorageService {
    pub(crate) front: Arc<Front>,
    pub(crate) exports: Exports,
    pub(crate) digests: Digests,
    pub(crate) open_files: Arc<OpenFiles>,
    pub(crate) meetings: Arc<Meetings>,
    pub(crate) storage_checks: StorageChecks,
    pub(crate) third_party: Option<Arc<ThirdParty>>,
}

/// Settings that serve `storage` to every client as the only export, read-only, at `listen`, without TLS and without a
/// log.
pub fn settings_of(listen: Vec<SocketAddr>, storage: Arc<dyn Storage>) -> Settings<StorageSettings> {
    let export = Export::new(storage);
    // The export says if it may be changed as well.
    let policy = Arc::new(Policy::new(vec![open_to_anyone("anyone", &export.path, true)]));
    let service = StorageSettings { exports: vec![export], ..StorageSettings::default() };
    Settings { policy, ..Settings::new(listen, service) }
}
