//! The ends of a third-party copy that are here: the file that is sent, and the target of the file that comes.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use gridlane_core::{Checksum, ChecksumKind, Error, Url};
use gridlane_dav::ResourcePath;
use gridlane_engine::{OpenTarget, StoredSource, TargetSpec};
use gridlane_front::reply::Reply;
use gridlane_share::turns::BriefKind;
use gridlane_store::journal_key::JournalKeys;
use gridlane_store::target::TargetOptions;
use gridlane_store::{Completion, Expectation, Object, ObjectPath, Opened, Storage, StoreError, Target};

use crate::digests::Digests;
use crate::export::{Export, Spot};

/// The file that is sent: open, with the checksums that are kept of it.
pub(crate) async fn source(spot: &Spot, digests: &Digests) -> Result<StoredSource, StoreError> {
    let object: Arc<dyn Object> = match spot.storage().open(&spot.object).await? {
        Opened::File(object) => object,
        _ => return Err(StoreError::NotAFile),
    };
    let checksums = digests.kept(object.as_ref(), &ChecksumKind::OFFERED).await;
    Ok(StoredSource { object, checksums })
}

/// The checksum that is kept of a file: what is read of it is compared with that.
pub(crate) fn kept(stored: &StoredSource) -> Option<(ChecksumKind, Option<Checksum>)> {
    let combinable = stored.checksums.iter().find(|checksum| checksum.kind().is_combinable())?;
    Some((combinable.kind(), Some(combinable.clone())))
}

/// A name for a file that is here, as clients know it.
pub(crate) fn name_of(spot: &Spot) -> gridlane_core::Result<Url> {
    Url::from_path(Path::new(&ResourcePath::of_names(spot.names()).to_string()))
}

/// The target of a file that comes: opened when the copy's turn has come.
#[derive(Clone)]
pub(crate) struct Landing {
    export: Arc<Export>,
    object: ObjectPath,
    completion: Completion,
    keys: JournalKeys,
    /// Makes directories that are missing.
    parents: bool,
    /// The length of the file, where the client has said it.
    expected_bytes: Option<u64>,
    opened: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    target: Option<Arc<dyn Target>>,
    /// The answer of the storage that did not let it be opened.
    refused: Option<Reply>,
}

impl Landing {
    /// A file at a spot, which shall be as `completion` says. The owner of `keys` goes on with what an earlier copy left.
    pub(crate) fn new(spot: &Spot, completion: Completion, keys: JournalKeys) -> Landing {
        let (export, object) = (Arc::clone(&spot.export), spot.object.clone());
        Landing {
            export,
            object,
            completion,
            keys,
            parents: false,
            expected_bytes: None,
            opened: Arc::default(),
        }
    }

    /// The same with the directories that are missing, if `parents`; and for a file of so many bytes.
    pub(crate) fn making(self, parents: bool, expected_bytes: Option<u64>) -> Landing {
        Landing { parents, expected_bytes, ..self }
    }

    /// True if nothing may have the name of the file before.
    pub(crate) fn is_for_new_file(&self) -> bool {
        self.completion.expectation == Expectation::Absent
    }

    /// The target for the engine.
    pub(crate) async fn spec(&self) -> Result<TargetSpec, StoreError> {
        if self.export.storage.targets().is_none() {
            let upload = self.export.storage.create(&self.object, None).await?;
            return Ok(TargetSpec::stored(upload, self.completion.clone()));
        }
        let landing = self.clone();
        Ok(TargetSpec::Anywhere(Box::pin(async move { landing.open().await })))
    }

    async fn open(&self) -> gridlane_core::Result<OpenTarget> {
        let options = TargetOptions {
            expected_bytes: self.expected_bytes,
            keys: self.keys.clone(),
            parents: self.parents,
        };
        let storage: &dyn Storage = self.export.storage.as_ref();
        let opened = match storage.targets() {
            Some(targets) => targets.open_target(&self.object, &options).await,
            None => Err(StoreError::Unsupported),
        };
        let mut state = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        match opened {
            Ok((target, found)) => {
                state.target = Some(Arc::clone(&target));
                Ok(OpenTarget { target, found, completion: self.completion.clone() })
            }
            Err(error) => {
                state.refused = Some(Reply::store_failure(&error));
                Err(Error::from(error))
            }
        }
    }

    /// The answer of the storage, if it did not let the target be opened; told once.
    pub(crate) fn refusal(&self) -> Option<Reply> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).refused.take()
    }

    /// Closes the target of a copy that has failed. What is there stays for the next copy of the same user, or goes.
    pub(crate) async fn close(&self, keeps: bool) {
        let target = self.opened.lock().unwrap_or_else(PoisonError::into_inner).target.take();
        if let Some(target) = target.filter(|_| !keeps) {
            let turns = Arc::clone(target.turns());
            turns.brief(BriefKind::Other).await.run(|| target.discard());
        }
    }
}
