//! The service of storage as the front sees it.

use std::sync::Arc;

use gridlane_core::Result;
use gridlane_dav::request::RequestHead;
use gridlane_front::client::Client;
use gridlane_front::front::Front;
use gridlane_front::metrics::{Kind, Page};
use gridlane_front::reply::Reply;
use gridlane_front::root::answer::Outcome;
use gridlane_front::service::{Exchange, Service};
use gridlane_share::budget::Budget;
use gridlane_xrd::{PathArg, QueryKind, Request};

use crate::digests::Digests;
use crate::export::{Exports, Place};
use crate::recent::Recent;
use crate::root::files::{Files, OpenFiles};
use crate::root::intake::Intake;
use crate::root::places::{Context, Places as _};
use crate::root::{close, requests, third_party};
use crate::storage_checks::{self, StorageChecks};
use crate::storage_service::{StorageService, StorageSettings};
use crate::third_party::ThirdParty;
use crate::{cors, methods};

impl Service for StorageService {
    type Settings = StorageSettings;
    type Kept = Recent;
    type Files = Files;
    type Sink = Intake;

    fn new(
        settings: StorageSettings,
        front: &Arc<Front>,
        before: Option<&StorageService>,
    ) -> Result<StorageService> {
        let exports =
            Exports::new(settings.exports, Arc::clone(&front.policy), Arc::clone(&front.auth_methods))?;
        // Nothing fails from here on.
        let devices = exports.turns();
        for turns in &devices {
            turns.resize(settings.device.of_each(devices.len()));
        }
        let front = Arc::clone(front);
        let third_party = settings.third_party.map(|settings| {
            let before = before.and_then(|before| before.third_party.as_deref());
            Arc::new(ThirdParty::new(settings, before))
        });
        Ok(match before {
            Some(before) => StorageService {
                front,
                exports,
                digests: before.digests.clone(),
                open_files: Arc::clone(&before.open_files),
                meetings: Arc::clone(&before.meetings),
                storage_checks: Arc::clone(&before.storage_checks),
                third_party,
            },
            None => StorageService {
                exports,
                digests: Digests::new(),
                open_files: Arc::new(OpenFiles::of(Arc::clone(&front.budgets.open_files))),
                meetings: Arc::default(),
                storage_checks: StorageChecks::default(),
                third_party,
                front,
            },
        })
    }

    /// Removes what earlier servers left behind in writable exports, when it is old.
    async fn begin(&self) -> Result<()> {
        match storage_checks::remove_abandoned(&self.exports, &self.storage_checks).await.pop() {
            Some((_, error)) => Err(error.into()),
            None => Ok(()),
        }
    }

    async fn tidy(&self) {
        for (path, error) in storage_checks::remove_abandoned(&self.exports, &self.storage_checks).await {
            let what = format!("cannot remove abandoned uploads in {path}: {error}");
            self.front.access_log.note(&what);
        }
    }

    fn budgets(&self) -> Vec<Arc<Budget>> {
        let copies = self.third_party.iter().flat_map(|third_party| third_party.budgets());
        self.exports.turns().into_iter().flat_map(|turns| turns.budgets()).chain(copies).collect()
    }

    async fn metrics(&self, page: &mut Page) {
        if let Some(third_party) = &self.third_party {
            third_party.metrics(page);
        }
        let turns = self.exports.turns();
        page.gauge(
            "disk_operations_running",
            "Operations that may wait for a disk, running now.",
            turns.iter().map(|turns| turns.running()).sum::<usize>(),
        );
        page.gauge(
            "disk_operations_waiting",
            "Operations that wait for the end of others.",
            turns.iter().map(|turns| turns.waiting()).sum::<u64>(),
        );
        let digests = self.digests.progress();
        page.gauge("digests_running", "Checksums that are being computed on demand.", digests.running);
        page.gauge("digests_size_bytes", "Bytes of the files of these checksums.", digests.size_bytes);
        page.gauge("digests_done_bytes", "Bytes of those files that were read so far.", digests.done_bytes);
        page.counter("digests_read_bytes", "Bytes read for checksums on demand.", digests.hashed_bytes);
        page.family(
            "export_quota_bytes",
            Kind::Gauge,
            "Bytes of each export's quota or file system, used and available.",
        );
        for (export, space) in storage_checks::spaces(&self.exports, &self.storage_checks).await {
            page.sample("", &[("export", &export), ("kind", "used")], space.used_bytes);
            page.sample("", &[("export", &export), ("kind", "available")], space.available_bytes);
        }
    }

    async fn fault(&self) -> Option<String> {
        let export = storage_checks::displaced(&self.exports, &self.storage_checks).await?;
        Some(format!(
            "another directory has taken the place of export {export}: it is served after the server's next \
             look, or at SIGHUP"
        ))
    }

    async fn answer(&self, exchange: Exchange<'_, Recent>) -> Reply {
        methods::answer(self, exchange).await
    }

    fn finish(&self, head: &RequestHead, client: &Client, reply: Reply) -> Reply {
        cors::apply(&self.exports, client, head, reply)
    }

    async fn answer_root(context: &Context, request: &Request) -> Outcome {
        requests::answer(context, request).await
    }

    fn answer_root_nowait(context: &Context, request: &Request) -> Option<Outcome> {
        requests::answer_nowait(context, request)
    }

    fn may_take_long(request: &Request) -> bool {
        match request {
            Request::Query(query) => query.kind == QueryKind::CHECKSUM,
            Request::Sync(_) | Request::Locate(_) => true,
            Request::Open(open) => third_party::is_fetch(&open.about),
            _ => false,
        }
    }

    fn change_queue(context: &Context, path: &PathArg) -> Option<usize> {
        match context.place(path) {
            // Each export has one.
            Ok(Place::Inside(spot)) => Some(Arc::as_ptr(&spot.export).addr()),
            _ => None,
        }
    }

    fn take(context: &Context, head: &gridlane_xrd::RequestHead) -> Intake {
        Intake::new(context, head)
    }

    async fn end_session(context: &Context) {
        close::end_all(context).await;
    }
}
