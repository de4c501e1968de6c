-- The first version. Times are seconds since 1970, states and kinds the numbers of src/codes.rs, JSON is text. The numbers
-- of a job's files follow each other, and the job's own is that of the first: files of a job need no index.

-- The next number of a file.
CREATE TABLE counter (next INTEGER NOT NULL);
INSERT INTO counter (next) VALUES (1);

-- Storages, VOs, activities, users and brokers, each once. They are never removed.
CREATE TABLE name (
    key INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE, -- SHA-256: names are of any length
    text TEXT NOT NULL
);

-- What changes of a job, and what jobs are looked for by.
CREATE TABLE job (
    key INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE, -- the 16 bytes of the UUID
    files INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    state INTEGER NOT NULL,
    tally TEXT NOT NULL, -- files by state
    states INTEGER NOT NULL, -- the states that files have, a bit each
    priority INTEGER NOT NULL,
    user_dn INTEGER NOT NULL REFERENCES name,
    vo INTEGER NOT NULL REFERENCES name,
    delegation INTEGER NOT NULL REFERENCES name,
    source_se INTEGER REFERENCES name,
    dest_se INTEGER REFERENCES name,
    submit_host INTEGER NOT NULL REFERENCES name,
    submitted_s INTEGER NOT NULL,
    finished_s INTEGER, -- NULL: open
    expires_s INTEGER,
    is_unique INTEGER NOT NULL,
    is_archived INTEGER NOT NULL DEFAULT 0,
    reason TEXT
);
-- Each ends with the key, which SQLite adds: the newest first needs no sorting.
CREATE INDEX job_finished ON job (finished_s) WHERE is_archived = 0;
CREATE INDEX job_delegation ON job (delegation, finished_s) WHERE is_archived = 0;
CREATE INDEX job_vo ON job (vo, finished_s) WHERE is_archived = 0;

-- What stays of a job.
CREATE TABLE job_text (
    key INTEGER PRIMARY KEY REFERENCES job,
    params TEXT NOT NULL,
    metadata TEXT
);

-- What changes of a file, and what the queues are made of.
CREATE TABLE file (
    id INTEGER PRIMARY KEY,
    job INTEGER NOT NULL REFERENCES job,
    number INTEGER NOT NULL, -- the place in the submission
    hashed_id INTEGER NOT NULL,
    state INTEGER NOT NULL,
    initial_state INTEGER NOT NULL,
    source_se INTEGER NOT NULL,
    dest_se INTEGER NOT NULL,
    activity INTEGER NOT NULL,
    user_size_bytes INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    retry_after_s INTEGER,
    host INTEGER,
    reason TEXT,
    is_recoverable INTEGER,
    size_bytes INTEGER,
    transferred_bytes INTEGER,
    throughput_bytes_per_s REAL,
    duration_s REAL,
    started_s INTEGER,
    finished_s INTEGER,
    staging_started_s INTEGER,
    staging_finished_s INTEGER,
    archive_started_s INTEGER,
    archive_finished_s INTEGER,
    bringonline_token TEXT
);
-- Files that a broker has now: thousands among millions.
CREATE INDEX file_host ON file (host, state) WHERE host IS NOT NULL AND state < 32;

-- What stays of a file.
CREATE TABLE file_text (
    id INTEGER PRIMARY KEY REFERENCES file,
    source TEXT NOT NULL,
    destination TEXT NOT NULL,
    checksum TEXT NOT NULL,
    selection INTEGER NOT NULL,
    scitag INTEGER,
    metadata TEXT,
    staging_metadata TEXT,
    archive_metadata TEXT,
    source_token TEXT,
    destination_token TEXT
);

CREATE TABLE attempt (
    file INTEGER NOT NULL REFERENCES file,
    number INTEGER NOT NULL,
    ended_s INTEGER NOT NULL,
    reason TEXT NOT NULL,
    host INTEGER NOT NULL REFERENCES name,
    PRIMARY KEY (file, number)
) WITHOUT ROWID;

-- Destinations of files that are not done, of jobs that want theirs for themselves.
CREATE TABLE live_destination (
    digest BLOB PRIMARY KEY, -- SHA-256 of the URL
    job INTEGER NOT NULL REFERENCES job
) WITHOUT ROWID;
CREATE INDEX live_destination_job ON live_destination (job);

CREATE TABLE setting (
    kind TEXT NOT NULL,
    digest BLOB NOT NULL, -- SHA-256 of the name
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (kind, digest)
);

CREATE TABLE audit (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at_s INTEGER NOT NULL,
    by TEXT NOT NULL,
    subject TEXT NOT NULL,
    action TEXT NOT NULL
);

CREATE TABLE host (
    name INTEGER PRIMARY KEY REFERENCES name,
    beat_s INTEGER NOT NULL,
    is_draining INTEGER NOT NULL
);

-- One row at most: the broker that decides.
CREATE TABLE leader (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    host INTEGER NOT NULL REFERENCES name,
    until_s INTEGER NOT NULL
);

-- Sealed credentials.
CREATE TABLE secret (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    sealed BLOB NOT NULL,
    PRIMARY KEY (kind, name)
);
