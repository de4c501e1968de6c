//! One file of a tree: whether it is copied, and then by the engine.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use gridlane_core::{Error, Result, Url};
use gridlane_engine::{Event, Observer, Report, State};
use tokio::sync::mpsc::Sender;
use tokio::sync::watch;

use super::event::About;
use super::job::Job;
use super::news::{News, Note};
use super::shared::Shared;
use crate::copies::file::{FileCopy, FileEnd, TimeKept};
use crate::copies::rules::{Action, FileFacts};
use crate::stop::told;
use crate::target::Goal;
use crate::third_party::{Carrier, Detour, FileObserver};
use crate::tree_path::TreePath;

/// The end of a file's turn.
pub(super) enum End {
    Copied { report: Box<Report>, time: TimeKept, carrier: Option<Carrier> },
    ThereAlready,
    Would { action: Action, sources: Vec<Url>, target: Url, size_bytes: Option<u64> },
    Failed(Error),
}

/// A file's turn.
pub(super) struct Turn {
    pub(super) shared: Arc<Shared>,
    pub(super) job: Job,
    /// The file's name below the target.
    pub(super) name: TreePath,
    /// Told how many bytes are at the target.
    pub(super) done_bytes: Arc<AtomicU64>,
    pub(super) news: Sender<News>,
    pub(super) stop: watch::Receiver<bool>,
}

impl Turn {
    /// Does it, whatever it is.
    pub(super) async fn run(self) -> End {
        match self.try_run().await {
            Ok(end) => end,
            Err(error) => End::Failed(error),
        }
    }

    async fn try_run(&self) -> Result<End> {
        let shared = self.shared.clone();
        let root = &shared.roots[self.job.root as usize];
        let sources: Vec<Url> =
            root.sources.iter().map(|source| source.file(&self.job.path)).collect::<Result<_>>()?;
        let target = shared.target.file(&self.name)?;
        let client = shared.lister.client();
        let facts = FileFacts { size_bytes: self.job.size_bytes, modified: self.job.modified };
        let mut file = FileCopy { sources, target: Goal::at(&target), facts, rules: shared.rules };
        let action = file.decide(client).await?;
        if shared.rules.dry_run {
            let (sources, size_bytes) = (file.sources, file.facts.size_bytes);
            return Ok(End::Would { action, sources, target, size_bytes });
        }
        if action == Action::Skip {
            return Ok(End::ThereAlready);
        }
        if let Some(parent) = self.name.parent() {
            shared.directories.ensure(&parent).await?;
        }
        let urls = file.sources.iter().map(ToString::to_string).collect();
        let mut watch = Watch { name: &self.name, done_bytes: &self.done_bytes, news: &self.news, urls };
        let stop = told(self.stop.clone());
        let (options, keys) = (shared.options.clone(), &shared.journal_keys);
        let means = (client.clone(), &shared.initiator);
        let FileEnd { outcome, time, carrier } = file.run(options, keys, means, &mut watch, stop).await;
        outcome.result?;
        Ok(End::Copied { report: Box::new(outcome.report), time, carrier })
    }
}

/// Watches one copy for the tree.
struct Watch<'a> {
    name: &'a TreePath,
    done_bytes: &'a AtomicU64,
    news: &'a Sender<News>,
    urls: Vec<String>,
}

impl Watch<'_> {
    fn note(&self, source: Option<usize>, about: About, error: Option<&Error>) {
        let url = source.and_then(|number| self.urls.get(number).cloned());
        let note = Note { name: self.name.clone(), url, about, error: error.cloned() };
        // It is of interest only, so that nothing waits for it.
        let _ = self.news.try_send(News::Noted(note));
    }
}

impl FileObserver for Watch<'_> {
    fn detour(&mut self, detour: Detour, why: &Error) {
        self.note(None, About::Detour(detour), Some(why));
    }
}

impl Observer for Watch<'_> {
    fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Progress(snapshot) => self.done_bytes.store(snapshot.done_bytes, Relaxed),
            Event::Plan { resumed_bytes, .. } => self.done_bytes.store(*resumed_bytes, Relaxed),
            Event::Source { source, state, error } => self.note(Some(*source), About::Source(*state), *error),
            Event::Retry { source, error } => self.note(Some(*source), About::Retry, Some(*error)),
            Event::Mismatch { .. } => self.note(None, About::Mismatch, None),
            Event::Added { url, .. } => self.urls.push((*url).to_owned()),
            Event::WrongPiece { sources, .. } => {
                self.note(sources.first().copied(), About::Source(State::Wrong), None)
            }
            Event::Started { .. } | Event::Verified { .. } => {}
        }
    }
}
