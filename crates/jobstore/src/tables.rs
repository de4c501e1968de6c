//! The questions and changes of one transaction, which each dialect answers with its own SQL.

use gridlane_core::Result;
use gridlane_jobs::JobId;

use crate::rows::{AttemptRow, FileRow, Head, Hot, JobRow, NameKey, NameOf};
use crate::store::{Beat, Setting};

/// The digest of a URL or a name.
pub(crate) type Digest = [u8; 32];

/// A transaction that writes.
pub(crate) trait Tables: NameOf {
    /// The number of a name, which is made if it is not there.
    fn key_of(&mut self, name: &str) -> Result<NameKey>;

    /// Takes so many numbers of files, the first of which is returned. Until the transaction ends no other one takes any: jobs
    /// are seen in the order of their numbers, and no two of them come at once.
    fn take_numbers(&mut self, count: i64) -> Result<i64>;

    /// True if there is a job with this id, in the archive as well.
    fn has_job(&mut self, id: JobId) -> Result<bool>;

    /// A new job, with its files.
    fn insert_job(&mut self, job: &JobRow, files: &[FileRow]) -> Result<()>;

    /// The first of these destinations that is taken, by its place among them.
    fn taken_destination(&mut self, digests: &[Digest]) -> Result<Option<usize>>;

    /// Takes destinations for a job.
    fn take_destinations(&mut self, job: i64, digests: &[Digest]) -> Result<()>;

    /// Gives a destination free that this job has.
    fn free_destination(&mut self, job: i64, digest: &Digest) -> Result<()>;

    /// Gives all destinations free that a job has.
    fn free_destinations(&mut self, job: i64) -> Result<()>;

    /// The URL of a file's destination.
    fn destination(&mut self, file: i64) -> Result<String>;

    /// Has these jobs and those of these files for itself until the transaction ends.
    fn lock(&mut self, files: &[i64], jobs: &[JobId]) -> Result<()>;

    /// These files, as far as they exist, and the jobs that they are of, which no other transaction changes until this one ends.
    fn load(&mut self, files: &[i64]) -> Result<(Vec<Head>, Vec<Hot>)>;

    /// A job, which no other transaction changes until this one ends.
    fn head(&mut self, id: JobId) -> Result<Option<Head>>;

    /// The files of a job, by number.
    fn files_of(&mut self, job: &Head) -> Result<Vec<Hot>>;

    /// Writes jobs and files that have changed, and attempts that have failed.
    fn save(&mut self, jobs: &[&Head], files: &[&Hot], attempts: &[AttemptRow]) -> Result<()>;

    /// A file's metadata, as JSON.
    fn metadata(&mut self, file: i64) -> Result<Option<String>>;

    /// Replaces a file's metadata.
    fn set_metadata(&mut self, file: i64, metadata: &str) -> Result<()>;

    /// Changes the priority of a job.
    fn set_priority(&mut self, job: i64, priority: u8) -> Result<()>;

    /// Makes or changes a setting, whose value is JSON.
    fn set(&mut self, kind: Setting, name: &str, value: &str) -> Result<()>;

    /// Removes a setting; false if there is none.
    fn unset(&mut self, kind: Setting, name: &str) -> Result<bool>;

    /// Keeps a change of a setting.
    fn add_audit(&mut self, at_s: i64, by: &str, subject: &str, action: &str) -> Result<()>;

    /// Keeps a sign of life.
    fn beat(&mut self, beat: &Beat) -> Result<()>;

    /// Takes the right to decide, if it is free; true if this broker has it now.
    fn lead(&mut self, host: NameKey, until_s: i64, at_s: i64) -> Result<bool>;

    /// Puts jobs into the archive that have ended until then.
    fn archive(&mut self, before_s: i64, limit: u32) -> Result<u64>;
}
