//! One file: whether it is copied by the rules, and then by the engine. Single files and those of trees go this way.

use std::future::Future;

use gridlane_core::{Error, Result, Url};
use gridlane_engine::{CopySpec, Options, Outcome, copy};
use gridlane_peer::Client;
use gridlane_share::turns::BriefKind;
use gridlane_store::journal_key::JournalKeys;
use gridlane_store::path_target::sweep;
use gridlane_store::turns_of_names;

use super::rules::{Action, Existing, FileFacts, decide, keep_time, refuse_itself};
use crate::target::Goal;
use crate::third_party::{Carrier, FileObserver, Initiator, Task, Tried, Wish};

/// The rules for every file of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// The rule about a target that exists.
    pub(crate) existing: Existing,
    /// The target gets the time of the last change of its source.
    pub(crate) preserve_times: bool,
    /// A dry run: what would be done is told, and nothing is done.
    pub(crate) dry_run: bool,
    /// What servers copy between themselves.
    pub(crate) wish: Wish,
}

/// The end of a file's copy.
#[derive(Debug)]
pub(crate) struct FileEnd {
    pub(crate) outcome: Outcome,
    pub(crate) time: TimeKept,
    /// The server that made the copy; `None`: the bytes went through this process.
    pub(crate) carrier: Option<Carrier>,
}

impl Rules {
    /// True where an existing target may be replaced.
    pub(crate) fn replaces(&self) -> bool {
        self.existing != Existing::Refuse
    }
}

/// The outcome of giving the target the time of its source.
#[derive(Clone, Debug)]
pub(crate) enum TimeKept {
    Yes,
    NotAsked,
    No(Error),
}

/// A file with its target.
#[derive(Debug)]
pub(crate) struct FileCopy {
    /// Where it is, the first of which says what there is to know of it.
    pub(crate) sources: Vec<Url>,
    pub(crate) target: Goal,
    /// Size and time of the source, as far as they are known.
    pub(crate) facts: FileFacts,
    pub(crate) rules: Rules,
}

impl FileCopy {
    /// The URL of the target; `None` for what takes bytes in order.
    pub(crate) fn target_url(&self) -> Result<Option<Url>> {
        match &self.target {
            Goal::File(path) => Url::from_path(path).map(Some),
            Goal::Upload(url) => Ok(Some(url.clone())),
            Goal::Stream(_) => Ok(None),
        }
    }

    /// Decides, after a look at the source and the target where the rules want to know of them. Otherwise the
    /// engine finds out by itself.
    pub(crate) async fn decide(&mut self, client: &Client) -> Result<Action> {
        let target = self.target_url()?;
        let Rules { existing, preserve_times, dry_run, .. } = self.rules;
        let decides = existing == Existing::Update || dry_run;
        if decides || preserve_times && target.is_some() {
            self.facts = std::mem::take(&mut self.facts).or_ask(client, &self.sources[0]).await?;
        }
        let action = match target.filter(|_| decides) {
            Some(url) => decide(client, &self.facts, &url, existing).await?,
            None => Action::Copy,
        };
        if let Goal::Upload(target) = &self.target
            && self.rules.replaces()
            && action != Action::Skip
        {
            refuse_itself(&self.sources, target)?;
        }
        if action == Action::Skip
            && !dry_run
            && let Goal::File(path) = &self.target
        {
            // Perhaps an earlier run was killed when all was there.
            turns_of_names().brief(BriefKind::Other).await.run(|| sweep(path));
        }
        Ok(action)
    }

    /// Copies it, or has servers copy it, and sees to its time. What is left of a copy that fails is believed by the owner of
    /// `keys`.
    pub(crate) async fn run(
        self,
        options: Options,
        keys: &JournalKeys,
        (client, initiator): (Client, &Initiator),
        observer: &mut dyn FileObserver,
        stop: impl Future<Output = ()> + Send,
    ) -> FileEnd {
        tokio::pin!(stop);
        let keeps = self.rules.preserve_times;
        let modified = self.facts.modified.filter(|_| keeps);
        let kept_at = self.target_url().ok().flatten().filter(|_| keeps);
        let tried = match &self.target {
            Goal::Upload(target) => {
                let task = Task {
                    client: &client,
                    sources: &self.sources,
                    target,
                    facts: &self.facts,
                    options: &options,
                    replaces: self.rules.replaces(),
                    preserves_times: keeps,
                    wish: self.rules.wish,
                };
                Box::pin(initiator.copy(&task, observer, stop.as_mut())).await
            }
            Goal::File(_) | Goal::Stream(_) => Tried::Streams,
        };
        let (outcome, carrier) = match tried {
            Tried::Ended(outcome, carrier) => (*outcome, carrier),
            Tried::Streams => {
                let target = self.target.spec(self.rules.replaces(), modified, keys);
                let spec = CopySpec { sources: self.sources, target, options };
                (copy(spec, client, observer, stop).await, None)
            }
        };
        let time = match kept_at.filter(|_| outcome.result.is_ok()) {
            None => TimeKept::NotAsked,
            Some(target) => match keep_time(&target, modified, &outcome.report).await {
                Ok(()) => TimeKept::Yes,
                Err(error) => TimeKept::No(error),
            },
        };
        FileEnd { outcome, time, carrier }
    }
}
