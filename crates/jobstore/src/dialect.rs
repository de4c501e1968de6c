//! What a dialect of SQL has to bring for a store of jobs: transactions and questions. The rest is the same for all.

use gridlane_core::Result;
use gridlane_jobs::{Attempt, File, FileId, FileState, Job, JobId};

use crate::apply::apply;
use crate::rows::NameKey;
use crate::store::{Answer, Audit, Beat, Filter, Host, JobFilter, JobStore, Setting, Waiting, Write};
use crate::tables::Tables;

/// A store in a dialect of SQL.
pub(crate) trait Dialect: Send + Sync + 'static {
    /// A transaction that writes.
    type Transaction<'a>: Tables;
    /// A connection that reads what is in the store for good.
    type Reader<'a>: Questions;

    /// Makes a transaction that is durable when this returns. It is made again if another one got into its way, and if a connection
    /// was lost before it was complete.
    fn transact<T>(&self, make: impl FnMut(&mut Self::Transaction<'_>) -> Result<T>) -> Result<T>;

    /// Reads with a connection of its own; again if that was lost before it told anything.
    fn read<T>(&self, read: impl FnMut(&mut Self::Reader<'_>) -> Result<T>) -> Result<T>;
}

/// The questions that a [`JobStore`] answers, each by its own SQL; what they mean is said there.
pub(crate) trait Questions {
    /// [`JobStore::job`].
    fn job(&mut self, id: JobId) -> Result<Option<Job>>;

    /// [`JobStore::files`].
    fn files(&mut self, job: JobId, after: Option<FileId>, limit: u32) -> Result<Vec<File>>;

    /// [`JobStore::file`].
    fn file(&mut self, id: FileId) -> Result<Option<File>>;

    /// [`JobStore::attempts`].
    fn attempts(&mut self, file: FileId) -> Result<Vec<Attempt>>;

    /// [`JobStore::jobs`].
    fn jobs(&mut self, filter: &JobFilter) -> Result<Vec<Job>>;

    /// [`JobStore::files_like`].
    fn files_like(&mut self, filter: &Filter) -> Result<Vec<File>>;

    /// [`JobStore::waiting`].
    fn waiting(&mut self, after: Option<FileId>, take: &mut dyn FnMut(Waiting) -> Result<()>) -> Result<()>;

    /// [`JobStore::settings`].
    fn settings(&mut self, kind: Setting) -> Result<Vec<(String, serde_json::Value)>>;

    /// [`JobStore::audit`].
    fn audit(&mut self, limit: u32) -> Result<Vec<Audit>>;

    /// The last signs of life of brokers, with the numbers of their names, in any order.
    fn beats(&mut self) -> Result<Vec<(NameKey, Beat)>>;

    /// Files that brokers have and that are not final, counted by broker and state.
    fn busy(&mut self) -> Result<Vec<(NameKey, FileState, u64)>>;

    /// [`JobStore::hosts`].
    fn hosts(&mut self) -> Result<Vec<Host>> {
        let host = |(key, beat)| (key, Host { beat, active: 0, staging: 0 });
        let mut hosts: Vec<(NameKey, Host)> = self.beats()?.into_iter().map(host).collect();
        for (key, state, files) in self.busy()? {
            if let Some((_, host)) = hosts.iter_mut().find(|(host, _)| *host == key) {
                host.count(state, files);
            }
        }
        Ok(Host::by_name(hosts.into_iter().map(|(_, host)| host).collect()))
    }

    /// [`JobStore::leader`].
    fn leader(&mut self) -> Result<Option<(String, i64)>>;
}

/// What has a dialect is a store of jobs.
impl<D: Dialect> JobStore for D {
    fn write(&self, writes: &[Write]) -> Result<Vec<Answer>> {
        self.transact(|transaction| apply(transaction, writes))
    }

    fn job(&self, id: JobId) -> Result<Option<Job>> {
        self.read(|reader| reader.job(id))
    }

    fn files(&self, job: JobId, after: Option<FileId>, limit: u32) -> Result<Vec<File>> {
        self.read(|reader| reader.files(job, after, limit))
    }

    fn file(&self, id: FileId) -> Result<Option<File>> {
        self.read(|reader| reader.file(id))
    }

    fn attempts(&self, file: FileId) -> Result<Vec<Attempt>> {
        self.read(|reader| reader.attempts(file))
    }

    fn jobs(&self, filter: &JobFilter) -> Result<Vec<Job>> {
        self.read(|reader| reader.jobs(filter))
    }

    fn files_like(&self, filter: &Filter) -> Result<Vec<File>> {
        self.read(|reader| reader.files_like(filter))
    }

    fn waiting(&self, after: Option<FileId>, take: &mut dyn FnMut(Waiting) -> Result<()>) -> Result<()> {
        self.read(|reader| reader.waiting(after, take))
    }

    fn settings(&self, kind: Setting) -> Result<Vec<(String, serde_json::Value)>> {
        self.read(|reader| reader.settings(kind))
    }

    fn audit(&self, limit: u32) -> Result<Vec<Audit>> {
        self.read(|reader| reader.audit(limit))
    }

    fn hosts(&self) -> Result<Vec<Host>> {
        self.read(|reader| reader.hosts())
    }

    fn leader(&self) -> Result<Option<(String, i64)>> {
        self.read(|reader| reader.leader())
    }
}
