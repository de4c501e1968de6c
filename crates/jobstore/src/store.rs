//! The interface of a store.

use gridlane_core::Result;
use gridlane_jobs::{
    Attempt, Change, File, FileId, FileState, FileStates, Job, JobId, JobKind, JobState, Link, NewJob,
    Storage,
};

/// Something to be written. Each is made or refused by itself.
#[derive(Clone, Debug)]
pub enum Write {
    /// A job that is new, with its files.
    Submit(Box<NewJob>),
    /// A file's state, with what follows for its job, and for the other files of a job with replicas or hops.
    Change(Box<Change>),
    /// Cancels these files of a job, or all that are not final, for this reason.
    Cancel {
        /// The job.
        job: JobId,
        /// Some of its files; `None`: all.
        files: Option<Vec<FileId>>,
        /// The reason, which job and files get.
        reason: String,
        /// When, in seconds since 1970.
        at_s: i64,
    },
    /// The priority of a job and of its files, if it is not final.
    Priority {
        /// The job.
        job: JobId,
        /// 1 to 5.
        priority: u8,
    },
    /// A setting, made or changed or (`None`) removed; the change is kept for the audit.
    Set {
        /// Its kind.
        kind: Setting,
        /// Its name among its kind.
        name: String,
        /// Its content.
        value: Option<serde_json::Value>,
        /// The user that changes it.
        by: String,
        /// The words for the audit.
        action: String,
        /// When, in seconds since 1970.
        at_s: i64,
    },
    /// A broker lives.
    Beat(Beat),
    /// Takes the right to decide, if nobody has it, or this broker, or one whose time is over.
    Lead {
        /// This broker.
        host: String,
        /// Until when it has it, in seconds since 1970.
        until_s: i64,
        /// Now.
        at_s: i64,
    },
    /// Puts jobs into the archive that have been final since this time, at most so many.
    Archive {
        /// In seconds since 1970.
        before_s: i64,
        /// Jobs at a time.
        limit: u32,
    },
}

/// The result of a [`Write`] that was made.
#[derive(Clone, Debug, PartialEq)]
pub enum Written {
    /// A job, with the numbers of its files in the order of the submission.
    Submitted(Vec<FileId>),
    /// These files got these states: the file itself, and those that follow from it. And the state of the job.
    Changed(Vec<Standing>, JobState),
    /// Nothing: the file was in another state, or another broker has it; the job is final already.
    Stale,
    /// Files of a job were cancelled: with the state and the broker that each had before. Behind them a replica that begins
    /// instead, which was not used before.
    Canceled(Vec<(Standing, FileState, Option<String>)>, JobState),
    /// It is done. Of [`Write::Archive`], so many jobs; of [`Write::Priority`], so many files.
    Done(u64),
    /// True if this broker decides.
    Leads(bool),
}

/// Why a [`Write`] was not made, though the store works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is a job with this id.
    DuplicateJob,
    /// A file that is not done has this destination.
    DuplicateDestination(String),
    /// There is no such job or file.
    NotFound,
}

/// A file and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The file.
    pub file: FileId,
    /// Its state.
    pub state: FileState,
}

/// A kind of setting, each with names of its own (fts3-rest 3.5, 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Setting {
    /// A link, by its symbolic name.
    Link,
    /// A storage, by its name or `*`.
    Storage,
    /// The share of a VO on a link: `source|destination|vo`.
    Share,
    /// Shares of activities, by VO.
    ActivityShare,
    /// Settings of all jobs of a VO, or of `*`.
    Global,
    /// A storage that is banned for a VO: `storage|vo`.
    BannedStorage,
    /// A user that is banned, by DN.
    BannedUser,
    /// An operation that a user may do: `operation|dn`.
    Grant,
    /// Keys of cloud storages: `name|user or VO`.
    CloudStorage,
    /// What the deciding remembers of a link: `source|destination`. No audit.
    Decision,
}

impl Setting {
    /// All of them.
    pub const ALL: [Setting; 10] = [
        Setting::Link,
        Setting::Storage,
        Setting::Share,
        Setting::ActivityShare,
        Setting::Global,
        Setting::BannedStorage,
        Setting::BannedUser,
        Setting::Grant,
        Setting::CloudStorage,
        Setting::Decision,
    ];

    /// Its name in the store, which stays.
    pub fn name(self) -> &'static str {
        match self {
            Setting::Link => "link",
            Setting::Storage => "storage",
            Setting::Share => "share",
            Setting::ActivityShare => "activity_share",
            Setting::Global => "global",
            Setting::BannedStorage => "banned_storage",
            Setting::BannedUser => "banned_user",
            Setting::Grant => "grant",
            Setting::CloudStorage => "cloud_storage",
            Setting::Decision => "decision",
        }
    }
}

/// A change of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// When, in seconds since 1970.
    pub at_s: i64,
    /// The user.
    pub by: String,
    /// What it was about: the kind and name.
    pub subject: String,
    /// What was done.
    pub action: String,
}

/// A sign of life of a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beat {
    /// The broker.
    pub host: String,
    /// When, in seconds since 1970.
    pub at_s: i64,
    /// It takes nothing new.
    pub is_draining: bool,
}

/// A broker, by its last sign of life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its last sign of life.
    pub beat: Beat,
    /// Files that it copies.
    pub active: u64,
    /// Files that it brings from tape.
    pub staging: u64,
}

impl Host {
    /// Counts files that it has, in this state.
    pub(crate) fn count(&mut self, state: FileState, files: u64) {
        match state {
            FileState::Ready | FileState::Active => self.active += files,
            FileState::Staging | FileState::Started => self.staging += files,
            _ => {}
        }
    }

    /// These, by name.
    pub(crate) fn by_name(mut hosts: Vec<Host>) -> Vec<Host> {
        hosts.sort_by(|one, other| one.beat.host.cmp(&other.beat.host));
        hosts
    }
}

/// What a queue in memory knows of a file that is not final.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    /// The file.
    pub file: FileId,
    /// Its job.
    pub job: JobId,
    /// Its job's kind.
    pub kind: JobKind,
    /// Its state.
    pub state: FileState,
    /// Its link.
    pub link: Link,
    /// Its VO.
    pub vo: String,
    /// Its activity.
    pub activity: String,
    /// 1 to 5.
    pub priority: u8,
    /// When its job came, in seconds since 1970.
    pub submitted_s: i64,
    /// Not before this, in seconds since 1970.
    pub retry_after_s: Option<i64>,
    /// When it is cancelled if it still waits, in seconds since 1970.
    pub expires_s: Option<i64>,
    /// Bytes; 0: not known.
    pub size_bytes: u64,
    /// The broker that has it.
    pub transfer_host: Option<String>,
}

/// An order of jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The newest first.
    #[default]
    Newest,
    /// The oldest first.
    Oldest,
}

/// Which jobs (fts3-rest 3.2); what is `None` holds for all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobFilter {
    /// The user.
    pub user_dn: Option<String>,
    /// The VO.
    pub vo: Option<String>,
    /// The name of what the user has lent.
    pub delegation_id: Option<String>,
    /// These states; an empty list: none that there is.
    pub states: Option<Vec<JobState>>,
    /// Only those that have not ended, whatever their state.
    pub is_open: bool,
    /// Only those that have ended since, in seconds since 1970.
    pub ended_since_s: Option<i64>,
    /// The source of all files.
    pub source_se: Option<Storage>,
    /// The destination of all files.
    pub dest_se: Option<Storage>,
    /// The order.
    pub order: Order,
    /// At most so many; 0: all.
    pub limit: u32,
}

/// Which files; what is `None` holds for all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    /// The VO.
    pub vo: Option<String>,
    /// The user.
    pub user_dn: Option<String>,
    /// These states; an empty set: none that there is.
    pub states: Option<FileStates>,
    /// The source.
    pub source_se: Option<Storage>,
    /// The destination.
    pub dest_se: Option<Storage>,
    /// This destination.
    pub destination: Option<String>,
    /// The broker that has them.
    pub transfer_host: Option<String>,
    /// Only those that have ended since, in seconds since 1970, also of jobs that have not.
    pub ended_since_s: Option<i64>,
    /// Only those after this one, by number: for pages.
    pub after: Option<FileId>,
    /// At most so many; 0: all.
    pub limit: u32,
}

/// The result of a [`Write`], made or refused.
pub type Answer = std::result::Result<Written, Refused>;

/// Keeps jobs. Everything blocks: call it where that is allowed.
pub trait JobStore: Send + Sync + 'static {
    /// Makes these in this order, in one transaction, which is durable when this returns. What is refused keeps no other from being
    /// made.
    ///
    /// # Errors
    /// The store does not work: nothing of it was made, or it is not known whether all of it was.
    fn write(&self, writes: &[Write]) -> Result<Vec<Answer>>;

    /// A job, also from the archive.
    fn job(&self, id: JobId) -> Result<Option<Job>>;

    /// The files of a job by number, also from the archive. `limit` 0: all, `after`: those behind that one.
    fn files(&self, job: JobId, after: Option<FileId>, limit: u32) -> Result<Vec<File>>;

    /// A file, also from the archive.
    fn file(&self, id: FileId) -> Result<Option<File>>;

    /// Attempts of a file that have failed, the first one first.
    fn attempts(&self, file: FileId) -> Result<Vec<Attempt>>;

    /// Jobs that are not in the archive.
    fn jobs(&self, filter: &JobFilter) -> Result<Vec<Job>>;

    /// Files that are not in the archive, by number.
    fn files_like(&self, filter: &Filter) -> Result<Vec<File>>;

    /// Every file that is not final, of jobs that are not, by number, one after the other: at the start, for the queues. `after`:
    /// only those of jobs that came after this file, by number; no job comes later with a lower one. `take` asks the
    /// store nothing: it has a connection for as long as it lasts.
    ///
    /// # Errors
    /// Those of the store, and the first one of `take`.
    fn waiting(&self, after: Option<FileId>, take: &mut dyn FnMut(Waiting) -> Result<()>) -> Result<()>;

    /// Settings of a kind, by name.
    fn settings(&self, kind: Setting) -> Result<Vec<(String, serde_json::Value)>>;

    /// The last changes of settings, the latest one first.
    fn audit(&self, limit: u32) -> Result<Vec<Audit>>;

    /// Brokers, by name.
    fn hosts(&self) -> Result<Vec<Host>>;

    /// The broker that decides, and until when, in seconds since 1970.
    fn leader(&self) -> Result<Option<(String, i64)>>;
}
