-- The first version. Times are seconds since 1970, states and kinds the numbers of src/codes.rs, JSON is text. The numbers
-- of a job's files follow each other, and the job's own is that of the first. Rows of files have no foreign keys: each would
-- cost a look-up by a trigger, which is most of the work of a submission.

-- The next number of a file.
CREATE TABLE counter (next int8 NOT NULL);
INSERT INTO counter (next) VALUES (1);

-- Storages, VOs, activities, users and brokers, each once. They are never removed.
CREATE TABLE name (
    key int4 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest bytea NOT NULL UNIQUE, -- SHA-256: names are of any length
    text text NOT NULL
);

-- What changes of a job, and what jobs are looked for by.
CREATE TABLE job (
    key int8 PRIMARY KEY,
    id bytea NOT NULL UNIQUE, -- the 16 bytes of the UUID
    files int4 NOT NULL,
    kind int2 NOT NULL,
    state int2 NOT NULL,
    tally text NOT NULL, -- files by state
    states int4 NOT NULL, -- the states that files have, a bit each
    priority int2 NOT NULL,
    user_dn int4 NOT NULL REFERENCES name,
    vo int4 NOT NULL REFERENCES name,
    delegation int4 NOT NULL REFERENCES name,
    source_se int4 REFERENCES name,
    dest_se int4 REFERENCES name,
    submit_host int4 NOT NULL REFERENCES name,
    submitted_s int8 NOT NULL,
    finished_s int8, -- NULL: open
    expires_s int8,
    is_unique boolean NOT NULL,
    is_archived boolean NOT NULL DEFAULT false,
    reason text
);
-- Each ends with the key: the newest first needs no sorting.
CREATE INDEX job_open ON job (key) WHERE finished_s IS NULL;
CREATE INDEX job_finished ON job (finished_s) WHERE NOT is_archived;
CREATE INDEX job_delegation ON job (delegation, key) WHERE NOT is_archived;
CREATE INDEX job_delegation_open ON job (delegation, key) WHERE finished_s IS NULL;
CREATE INDEX job_vo ON job (vo, key) WHERE NOT is_archived;
CREATE INDEX job_vo_open ON job (vo, key) WHERE finished_s IS NULL;

-- What stays of a job.
CREATE TABLE job_text (
    key int8 PRIMARY KEY REFERENCES job,
    params text NOT NULL,
    metadata text
);

-- What changes of a file, and what the queues are made of.
CREATE TABLE file (
    id int8 PRIMARY KEY,
    job int8 NOT NULL,
    number int4 NOT NULL, -- the place in the submission
    hashed_id int4 NOT NULL,
    state int2 NOT NULL,
    initial_state int2 NOT NULL,
    source_se int4 NOT NULL,
    dest_se int4 NOT NULL,
    activity int4 NOT NULL,
    user_size_bytes int8 NOT NULL,
    attempts int4 NOT NULL,
    retry_after_s int8,
    host int4,
    reason text,
    is_recoverable boolean,
    size_bytes int8,
    transferred_bytes int8,
    throughput_bytes_per_s float8,
    duration_s float8,
    started_s int8,
    finished_s int8,
    staging_started_s int8,
    staging_finished_s int8,
    archive_started_s int8,
    archive_finished_s int8,
    bringonline_token text
);
CREATE INDEX file_job ON file (job, id);
-- Files that a broker has now: thousands among millions.
CREATE INDEX file_host ON file (host, state) WHERE host IS NOT NULL AND state < 32;

-- What stays of a file.
CREATE TABLE file_text (
    id int8 PRIMARY KEY,
    source text NOT NULL,
    destination text NOT NULL,
    checksum text NOT NULL,
    selection int2 NOT NULL,
    scitag int4,
    metadata text,
    staging_metadata text,
    archive_metadata text,
    source_token text,
    destination_token text
);

CREATE TABLE attempt (
    file int8 NOT NULL,
    number int4 NOT NULL,
    ended_s int8 NOT NULL,
    reason text NOT NULL,
    host int4 NOT NULL,
    PRIMARY KEY (file, number)
);

-- Destinations of files that are not done, of jobs that want theirs for themselves.
CREATE TABLE live_destination (
    digest bytea PRIMARY KEY, -- SHA-256 of the URL
    job int8 NOT NULL REFERENCES job
);
CREATE INDEX live_destination_job ON live_destination (job);

CREATE TABLE setting (
    kind text NOT NULL,
    digest bytea NOT NULL, -- SHA-256 of the name
    name text NOT NULL,
    value text NOT NULL,
    PRIMARY KEY (kind, digest)
);

CREATE TABLE audit (
    number int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at_s int8 NOT NULL,
    by text NOT NULL,
    subject text NOT NULL,
    action text NOT NULL
);

CREATE TABLE host (
    name int4 PRIMARY KEY REFERENCES name,
    beat_s int8 NOT NULL,
    is_draining boolean NOT NULL
);

-- One row at most: the broker that decides.
CREATE TABLE leader (
    one int4 PRIMARY KEY CHECK (one = 1),
    host int4 NOT NULL REFERENCES name,
    until_s int8 NOT NULL
);

-- Sealed credentials.
CREATE TABLE secret (
    kind text NOT NULL,
    name text NOT NULL,
    sealed bytea NOT NULL,
    PRIMARY KEY (kind, name)
);
