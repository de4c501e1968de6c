//! Rows of the store, the same in every dialect, and the jobs and files that they are.

use std::sync::Arc;

use gridlane_core::Result;
use gridlane_jobs::{
    Attempt, File, FileId, FileState, Job, JobId, JobKind, JobState, Link, Owner, Stamps, Storage, Tally,
};
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::codes;
use crate::store::{Audit, Beat, Waiting};

/// A name by its number in the table of names.
pub(crate) type NameKey = i32;

/// A row as it is read, column after column.
pub(crate) trait Columns {
    /// The next column: a number, or truth as 0 or 1.
    fn int_or_null(&mut self) -> Result<Option<i64>>;
    /// The next column: a fraction.
    fn real_or_null(&mut self) -> Result<Option<f64>>;
    /// The next column: text.
    fn text_or_null(&mut self) -> Result<Option<String>>;
    /// The next column: bytes.
    fn bytes(&mut self) -> Result<Vec<u8>>;

    /// The next column: a number that is there.
    fn int(&mut self) -> Result<i64> {
        self.int_or_null()?.ok_or_else(|| codes::damaged("a number is missing"))
    }

    /// The next column: a number that is there and not negative, of at most 32 bits.
    fn count(&mut self) -> Result<u32> {
        narrow(self.int()?)
    }

    /// The next column: the number of a name.
    fn name(&mut self) -> Result<NameKey> {
        narrow(self.int()?)
    }

    /// The next column: the number of a name.
    fn name_or_null(&mut self) -> Result<Option<NameKey>> {
        self.int_or_null()?.map(narrow).transpose()
    }

    /// The next column: text that is there.
    fn text(&mut self) -> Result<String> {
        self.text_or_null()?.ok_or_else(|| codes::damaged("a text is missing"))
    }
}

/// A number of fewer bits.
pub(crate) fn narrow<T: TryFrom<i64>>(number: i64) -> Result<T> {
    T::try_from(number).map_err(|_| codes::damaged(format!("the number {number} is out of range")))
}

/// JSON of a row.
pub(crate) fn read_json<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|cause| codes::damaged(format!("JSON: {cause}")))
}

/// Where names of rows come from.
pub(crate) trait NameOf {
    /// The name of a number.
    fn name_of(&mut self, key: NameKey) -> Result<Arc<str>>;

    /// The storage of a number.
    fn storage_of(&mut self, key: NameKey) -> Result<Storage> {
        self.name_of(key).map(Storage)
    }

    /// The name of a number, to own.
    fn string_of(&mut self, key: NameKey) -> Result<String> {
        self.name_of(key).map(|name| name.as_ref().to_owned())
    }
}

/// The part of a job's row that changes of its files need and make.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    /// The number of its first file, and its own.
    pub(crate) key: i64,
    /// Its id.
    pub(crate) id: JobId,
    /// Files that it has: their numbers follow each other.
    pub(crate) files: u32,
    /// Its kind.
    pub(crate) kind: JobKind,
    /// Its state.
    pub(crate) state: JobState,
    /// Its files by state.
    pub(crate) tally: Tally,
    /// The source of all its files, or the one that worked.
    pub(crate) source_se: Option<NameKey>,
    /// When it got its last state.
    pub(crate) finished_s: Option<i64>,
    /// True if no other job may have its destinations while they are not done.
    pub(crate) is_unique: bool,
    /// True if it is in the archive.
    pub(crate) is_archived: bool,
    /// Why it has not finished well.
    pub(crate) reason: Option<String>,
}

/// The columns of a [`Head`] of the table `job j`, in the order in which it is read.
pub(crate) const HEAD: &str = "j.key, j.id, j.files, j.kind, j.state, j.tally, j.source_se, j.finished_s, j.is_unique, \
                               j.is_archived, j.reason";

impl Head {
    /// Reads [`HEAD`].
    pub(crate) fn read(row: &mut impl Columns) -> Result<Head> {
        Ok(Head {
            key: row.int()?,
            id: read_id(&row.bytes()?)?,
            files: row.count()?,
            kind: codes::read_job_kind(row.int()?)?,
            state: codes::read_job_state(row.int()?)?,
            tally: codes::read_tally(&row.text()?)?,
            source_se: row.name_or_null()?,
            finished_s: row.int_or_null()?,
            is_unique: row.int()? != 0,
            is_archived: row.int()? != 0,
            reason: row.text_or_null()?,
        })
    }
}

/// A job's id.
pub(crate) fn read_id(bytes: &[u8]) -> Result<JobId> {
    Uuid::from_slice(bytes).map(JobId).map_err(|cause| codes::damaged(format!("the id of a job: {cause}")))
}

/// A job's row.
#[derive(Clone, Debug)]
pub(crate) struct JobRow {
    /// The part that changes with its files.
    pub(crate) head: Head,
    /// 1 to 5.
    pub(crate) priority: u8,
    /// The user.
    pub(crate) user_dn: NameKey,
    /// The VO.
    pub(crate) vo: NameKey,
    /// The name of what the user has lent.
    pub(crate) delegation: NameKey,
    /// The destination of all its files.
    pub(crate) dest_se: Option<NameKey>,
    /// The broker that took it.
    pub(crate) submit_host: NameKey,
    /// When it came.
    pub(crate) submitted_s: i64,
    /// When files that still wait are cancelled.
    pub(crate) expires_s: Option<i64>,
    /// Its parameters, as JSON.
    pub(crate) params: String,
    /// The submitter's own words, as JSON.
    pub(crate) metadata: Option<String>,
}

/// The columns of a [`JobRow`] of the tables `job j` and `job_text t` behind [`HEAD`].
pub(crate) const JOB: &str = "j.priority, j.user_dn, j.vo, j.delegation, j.dest_se, j.submit_host, j.submitted_s, \
                              j.expires_s, t.params, t.metadata";

impl JobRow {
    /// Reads [`HEAD`] and [`JOB`].
    pub(crate) fn read(row: &mut impl Columns) -> Result<JobRow> {
        Ok(JobRow {
            head: Head::read(row)?,
            priority: narrow(row.int()?)?,
            user_dn: row.name()?,
            vo: row.name()?,
            delegation: row.name()?,
            dest_se: row.name_or_null()?,
            submit_host: row.name()?,
            submitted_s: row.int()?,
            expires_s: row.int_or_null()?,
            params: row.text()?,
            metadata: row.text_or_null()?,
        })
    }

    /// The job.
    pub(crate) fn job(self, names: &mut impl NameOf) -> Result<Job> {
        Ok(Job {
            id: self.head.id,
            kind: self.head.kind,
            state: self.head.state,
            owner: Owner {
                user_dn: names.string_of(self.user_dn)?,
                vo: names.string_of(self.vo)?,
                delegation_id: names.string_of(self.delegation)?,
            },
            source_se: self.head.source_se.map(|key| names.storage_of(key)).transpose()?,
            dest_se: self.dest_se.map(|key| names.storage_of(key)).transpose()?,
            reason: self.head.reason,
            submitted_s: self.submitted_s,
            finished_s: self.head.finished_s,
            priority: self.priority,
            submit_host: names.string_of(self.submit_host)?,
            expires_s: self.expires_s,
            params: read_json(&self.params)?,
            metadata: self.metadata.map(|text| read_json(&text)).transpose()?,
        })
    }
}

/// The part of a file's row that changes.
#[derive(Clone, Debug)]
pub(crate) struct Hot {
    /// Its number.
    pub(crate) id: i64,
    /// Its job's number.
    pub(crate) job: i64,
    /// Its state.
    pub(crate) state: FileState,
    /// The state in which it begins.
    pub(crate) initial_state: FileState,
    /// Its storage at the source.
    pub(crate) source_se: NameKey,
    /// A number by which brokers share files out.
    pub(crate) hashed_id: u16,
    /// Attempts that have failed.
    pub(crate) attempts: u32,
    /// Not before this.
    pub(crate) retry_after_s: Option<i64>,
    /// The broker that has it.
    pub(crate) host: Option<NameKey>,
    /// Why it has failed.
    pub(crate) reason: Option<String>,
    /// True if another attempt could help.
    pub(crate) is_recoverable: Option<bool>,
    /// Bytes, as the source says.
    pub(crate) size_bytes: Option<u64>,
    /// Bytes that have moved.
    pub(crate) transferred_bytes: Option<u64>,
    /// Bytes per second.
    pub(crate) throughput_bytes_per_s: Option<f64>,
    /// Time of the copy, in seconds.
    pub(crate) duration_s: Option<f64>,
    /// When things happened.
    pub(crate) stamps: Stamps,
    /// The number of the request to bring it from tape.
    pub(crate) bringonline_token: Option<String>,
}

/// The columns of a [`Hot`] of the table `file f`, in the order in which it is read.
pub(crate) const HOT: &str = "f.id, f.job, f.state, f.initial_state, f.source_se, f.hashed_id, f.attempts, f.retry_after_s, f.host, f.reason, \
     f.is_recoverable, f.size_bytes, f.transferred_bytes, f.throughput_bytes_per_s, f.duration_s, f.started_s, \
     f.finished_s, f.staging_started_s, f.staging_finished_s, f.archive_started_s, f.archive_finished_s, \
     f.bringonline_token";

impl Hot {
    /// Reads [`HOT`].
    pub(crate) fn read(row: &mut impl Columns) -> Result<Hot> {
        Ok(Hot {
            id: row.int()?,
            job: row.int()?,
            state: codes::read_file_state(row.int()?)?,
            initial_state: codes::read_file_state(row.int()?)?,
            source_se: row.name()?,
            hashed_id: narrow(row.int()?)?,
            attempts: row.count()?,
            retry_after_s: row.int_or_null()?,
            host: row.name_or_null()?,
            reason: row.text_or_null()?,
            is_recoverable: row.int_or_null()?.map(|truth| truth != 0),
            size_bytes: row.int_or_null()?.map(codes::unsigned),
            transferred_bytes: row.int_or_null()?.map(codes::unsigned),
            throughput_bytes_per_s: row.real_or_null()?,
            duration_s: row.real_or_null()?,
            stamps: Stamps {
                started_s: row.int_or_null()?,
                finished_s: row.int_or_null()?,
                staging_started_s: row.int_or_null()?,
                staging_finished_s: row.int_or_null()?,
                archive_started_s: row.int_or_null()?,
                archive_finished_s: row.int_or_null()?,
            },
            bringonline_token: row.text_or_null()?,
        })
    }
}

/// A file's row.
#[derive(Clone, Debug)]
pub(crate) struct FileRow {
    /// The part that changes.
    pub(crate) hot: Hot,
    /// The place in the submission.
    pub(crate) number: u32,
    /// Its storage at the destination.
    pub(crate) dest_se: NameKey,
    /// The activity.
    pub(crate) activity: NameKey,
    /// Bytes, as its submitter says.
    pub(crate) user_size_bytes: u64,
    /// The part that stays.
    pub(crate) text: FileText,
}

/// The columns of a [`FileRow`] of the tables `file f` and `file_text x` behind [`HOT`].
pub(crate) const FILE: &str = "f.number, f.dest_se, f.activity, f.user_size_bytes, x.source, x.destination, x.checksum, \
                               x.selection, x.scitag, x.metadata, x.staging_metadata, x.archive_metadata, \
                               x.source_token, x.destination_token";
/// The columns of its job that a file has as well, of the table `job j`, behind [`FILE`].
pub(crate) const FILE_JOB: &str = "j.id, j.vo, j.priority";

/// The part of a file's row that stays, as its submitter has said it.
#[derive(Clone, Debug)]
pub(crate) struct FileText {
    /// The source's URL.
    pub(crate) source: String,
    /// The destination's URL.
    pub(crate) destination: String,
    /// The checksum.
    pub(crate) checksum: String,
    /// The way in which its source was chosen: its number.
    pub(crate) selection: i64,
    /// The mark of its packets.
    pub(crate) scitag: Option<u16>,
    /// Its submitter's own words, as JSON.
    pub(crate) metadata: Option<String>,
    /// Words for the tape system of the source, as JSON.
    pub(crate) staging_metadata: Option<String>,
    /// Words for the tape system of the destination, as JSON.
    pub(crate) archive_metadata: Option<String>,
    /// The name of its token for the source.
    pub(crate) source_token: Option<String>,
    /// The name of its token for the destination.
    pub(crate) destination_token: Option<String>,
}

impl FileRow {
    /// Reads [`HOT`] and [`FILE`].
    pub(crate) fn read(row: &mut impl Columns) -> Result<FileRow> {
        Ok(FileRow {
            hot: Hot::read(row)?,
            number: row.count()?,
            dest_se: row.name()?,
            activity: row.name()?,
            user_size_bytes: codes::unsigned(row.int()?),
            text: FileText {
                source: row.text()?,
                destination: row.text()?,
                checksum: row.text()?,
                selection: row.int()?,
                scitag: row.int_or_null()?.map(narrow).transpose()?,
                metadata: row.text_or_null()?,
                staging_metadata: row.text_or_null()?,
                archive_metadata: row.text_or_null()?,
                source_token: row.text_or_null()?,
                destination_token: row.text_or_null()?,
            },
        })
    }

    /// The file, of a job of which this is known.
    pub(crate) fn file(self, job: &FileJob, names: &mut impl NameOf) -> Result<File> {
        let (hot, text) = (self.hot, self.text);
        let json = |text: Option<String>| text.map(|text| read_json(&text)).transpose();
        Ok(File {
            id: FileId(hot.id),
            job: job.id,
            index: self.number,
            hashed_id: hot.hashed_id,
            state: hot.state,
            initial_state: hot.initial_state,
            source: text.source,
            destination: text.destination,
            link: Link {
                source: names.storage_of(hot.source_se)?,
                destination: names.storage_of(self.dest_se)?,
            },
            vo: names.string_of(job.vo)?,
            activity: names.string_of(self.activity)?,
            priority: job.priority,
            user_size_bytes: self.user_size_bytes,
            size_bytes: hot.size_bytes,
            checksum: text.checksum,
            metadata: json(text.metadata)?,
            staging_metadata: json(text.staging_metadata)?,
            archive_metadata: json(text.archive_metadata)?,
            scitag: text.scitag,
            selection: codes::read_selection(text.selection)?,
            attempts: hot.attempts,
            retry_after_s: hot.retry_after_s,
            transfer_host: hot.host.map(|key| names.string_of(key)).transpose()?,
            reason: hot.reason,
            is_recoverable: hot.is_recoverable,
            transferred_bytes: hot.transferred_bytes.unwrap_or(0),
            throughput_bytes_per_s: hot.throughput_bytes_per_s.unwrap_or(0.0),
            duration_s: hot.duration_s.unwrap_or(0.0),
            stamps: hot.stamps,
            bringonline_token: hot.bringonline_token,
            tokens: text.source_token.zip(text.destination_token),
        })
    }
}

/// The part of a file that is its job's.
#[derive(Clone, Debug)]
pub(crate) struct FileJob {
    /// The job.
    pub(crate) id: JobId,
    /// Its VO.
    pub(crate) vo: NameKey,
    /// 1 to 5.
    pub(crate) priority: u8,
}

impl FileJob {
    /// Reads [`FILE_JOB`].
    pub(crate) fn read(row: &mut impl Columns) -> Result<FileJob> {
        Ok(FileJob { id: read_id(&row.bytes()?)?, vo: row.name()?, priority: narrow(row.int()?)? })
    }
}

/// The columns of [`Waiting`], of the tables `file f` and `job j`, in the order in which it is read.
pub(crate) const WAITING: &str = "f.id, j.id, j.kind, f.state, f.source_se, f.dest_se, j.vo, f.activity, j.priority, \
                                  j.submitted_s, f.retry_after_s, j.expires_s, f.size_bytes, f.user_size_bytes, f.host";

/// Reads [`WAITING`].
pub(crate) fn read_waiting(row: &mut impl Columns, names: &mut impl NameOf) -> Result<Waiting> {
    Ok(Waiting {
        file: FileId(row.int()?),
        job: read_id(&row.bytes()?)?,
        kind: codes::read_job_kind(row.int()?)?,
        state: codes::read_file_state(row.int()?)?,
        link: Link { source: names.storage_of(row.name()?)?, destination: names.storage_of(row.name()?)? },
        vo: names.string_of(row.name()?)?,
        activity: names.string_of(row.name()?)?,
        priority: narrow(row.int()?)?,
        submitted_s: row.int()?,
        retry_after_s: row.int_or_null()?,
        expires_s: row.int_or_null()?,
        size_bytes: {
            let (size_bytes, user_size_bytes) = (row.int_or_null()?, row.int()?);
            codes::unsigned(size_bytes.unwrap_or(user_size_bytes))
        },
        transfer_host: row.name_or_null()?.map(|key| names.string_of(key)).transpose()?,
    })
}

/// Brokers as [`read_beat`] reads them, in every dialect.
pub(crate) const BEATS: &str =
    "SELECT n.key, n.text, h.beat_s, h.is_draining FROM host h JOIN name n ON n.key = h.name";

/// Reads a row of [`BEATS`].
pub(crate) fn read_beat(row: &mut impl Columns) -> Result<(NameKey, Beat)> {
    let key = row.name()?;
    Ok((key, Beat { host: row.text()?, at_s: row.int()?, is_draining: row.int()? != 0 }))
}

/// Reads the columns `host, state, count(*)` of files that are counted.
pub(crate) fn read_busy(row: &mut impl Columns) -> Result<(NameKey, FileState, u64)> {
    Ok((row.name()?, codes::read_file_state(row.int()?)?, narrow(row.int()?)?))
}

/// The broker that decides as [`read_leader`] reads it, in every dialect.
pub(crate) const LEADER: &str = "SELECT n.text, l.until_s FROM leader l JOIN name n ON n.key = l.host";

/// Reads the row of [`LEADER`].
pub(crate) fn read_leader(row: &mut impl Columns) -> Result<(String, i64)> {
    Ok((row.text()?, row.int()?))
}

/// Reads the columns `at_s, by, subject, action` of the audit.
pub(crate) fn read_audit(row: &mut impl Columns) -> Result<Audit> {
    Ok(Audit { at_s: row.int()?, by: row.text()?, subject: row.text()?, action: row.text()? })
}

/// Reads the columns `name, value` of settings.
pub(crate) fn read_setting(row: &mut impl Columns) -> Result<(String, serde_json::Value)> {
    Ok((row.text()?, read_json(&row.text()?)?))
}

/// An attempt that has failed.
#[derive(Clone, Debug)]
pub(crate) struct AttemptRow {
    /// The file.
    pub(crate) file: i64,
    /// From 0.
    pub(crate) number: u32,
    /// When it ended.
    pub(crate) ended_s: i64,
    /// Why it failed.
    pub(crate) reason: String,
    /// The broker that made it.
    pub(crate) host: NameKey,
}

/// The columns of an [`AttemptRow`] of the table `attempt`, in the order in which it is read.
pub(crate) const ATTEMPT: &str = "file, number, ended_s, reason, host";

impl AttemptRow {
    /// Reads [`ATTEMPT`].
    pub(crate) fn read(row: &mut impl Columns) -> Result<AttemptRow> {
        Ok(AttemptRow {
            file: row.int()?,
            number: row.count()?,
            ended_s: row.int()?,
            reason: row.text()?,
            host: row.name()?,
        })
    }

    /// The attempt.
    pub(crate) fn attempt(self, names: &mut impl NameOf) -> Result<Attempt> {
        Ok(Attempt {
            file: FileId(self.file),
            number: self.number,
            ended_s: self.ended_s,
            reason: self.reason,
            transfer_host: names.string_of(self.host)?,
        })
    }
}
