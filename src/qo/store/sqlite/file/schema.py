"""The tables of a qo file, and how an older file becomes a present one.

`PRAGMA user_version` is the number of migrations applied. A released migration is never edited; a change is
a new one at the end.
"""

from __future__ import annotations

import apsw

from qo.errors import StoreUnavailable
from qo.store.sqlite.file.migrations import HISTORY_VIEWS, START_BY, SUSPECTS, TURNS

APPLICATION_ID = 0x716F_7175  # "qoqu": tells a qo file from any other SQLite file

FIRST = """
CREATE TABLE counter (               -- last_token, noted_at, no_expiry_before, next_sequence, last_job, last_audit
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE job (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    task TEXT NOT NULL,
    state TEXT NOT NULL,
    stage TEXT,
    priority INTEGER NOT NULL,
    boost INTEGER NOT NULL,
    user TEXT,
    project TEXT,
    tier TEXT,
    parent TEXT,
    phase INTEGER,
    own_groups TEXT NOT NULL,        -- JSON
    unique_key TEXT,
    key INTEGER,                     -- the order key; kept while the job is held, so that it can come back
    parked TEXT,                     -- the group it was put aside in; NULL and queued: ready
    aged_at INTEGER,                 -- when it entered the line or last aged; NULL unless queued
    joined_at INTEGER,
    position_original INTEGER,
    run_at INTEGER,
    due_at INTEGER,                  -- joins the line then; NULL where it waits for anything but time
    parent_order TEXT NOT NULL,
    quota_day INTEGER,
    deferred INTEGER NOT NULL,       -- waits for a later day because of the quota
    attempts INTEGER NOT NULL,
    max_attempts INTEGER,            -- NULL: its task decides when it first starts
    timeout_ms INTEGER,
    iterations INTEGER NOT NULL,
    iterations_batch INTEGER,
    iterations_granted INTEGER,
    iterations_max INTEGER,
    token INTEGER,
    ended_token INTEGER,             -- the token whose finish was applied last, and the state it led to
    ended_state TEXT,
    worker TEXT,
    cancel_wanted INTEGER NOT NULL,
    progress TEXT,                   -- JSON
    error TEXT,                      -- JSON
    message TEXT,
    submitted_at INTEGER NOT NULL,
    started_at INTEGER,
    confirming_at INTEGER,
    reminded INTEGER NOT NULL,
    finished_at INTEGER,
    -- CASE, because SQLite builds a table for every IN list at every write
    CHECK (CASE state
        WHEN 'queued' THEN key IS NOT NULL AND aged_at IS NOT NULL AND finished_at IS NULL
        WHEN 'starting' THEN key IS NOT NULL AND aged_at IS NULL AND finished_at IS NULL AND parked IS NULL
        WHEN 'running' THEN key IS NOT NULL AND aged_at IS NULL AND finished_at IS NULL AND parked IS NULL
        WHEN 'succeeded' THEN key IS NULL AND aged_at IS NULL AND finished_at IS NOT NULL AND parked IS NULL
        WHEN 'failed' THEN key IS NULL AND aged_at IS NULL AND finished_at IS NOT NULL AND parked IS NULL
        WHEN 'cancelled' THEN key IS NULL AND aged_at IS NULL AND finished_at IS NOT NULL AND parked IS NULL
        WHEN 'scheduled' THEN key IS NULL AND aged_at IS NULL AND finished_at IS NULL AND parked IS NULL
        WHEN 'waiting' THEN key IS NULL AND aged_at IS NULL AND finished_at IS NULL AND parked IS NULL
        WHEN 'confirming' THEN key IS NULL AND aged_at IS NULL AND finished_at IS NULL AND parked IS NULL
        ELSE false END)
) STRICT;
CREATE INDEX job_ready ON job (task, key) WHERE state = 'queued' AND parked IS NULL;
CREATE INDEX job_parked ON job (parked, task, key) WHERE parked IS NOT NULL;
CREATE UNIQUE INDEX job_line ON job (key) WHERE state = 'queued';
CREATE INDEX job_aged ON job (aged_at, number) WHERE aged_at IS NOT NULL;
CREATE INDEX job_due ON job (due_at, parent_order, phase, id) WHERE due_at IS NOT NULL;
CREATE INDEX job_deferred ON job (user, quota_day, run_at) WHERE deferred;
CREATE UNIQUE INDEX job_unique ON job (unique_key) WHERE unique_key IS NOT NULL AND finished_at IS NULL;
CREATE UNIQUE INDEX job_parent ON job (parent, phase) WHERE parent IS NOT NULL;
CREATE INDEX job_user ON job (user, number) WHERE user IS NOT NULL;
CREATE INDEX job_confirming ON job (confirming_at, number) WHERE confirming_at IS NOT NULL;
CREATE INDEX job_finished ON job (finished_at, number) WHERE finished_at IS NOT NULL;

CREATE TABLE content (               -- apart from the job, so that a state change never rewrites a payload
    number INTEGER PRIMARY KEY,
    payload BLOB NOT NULL,
    checkpoint BLOB,
    result BLOB
) STRICT;

CREATE TABLE moved (                 -- places given by a move; drawn ones cannot clash with them
    place INTEGER PRIMARY KEY,
    number INTEGER NOT NULL UNIQUE
) STRICT;

CREATE TABLE line_count (            -- queued jobs by the priority they are ordered by
    priority INTEGER PRIMARY KEY,
    waiting INTEGER NOT NULL
) STRICT;

CREATE TABLE grp (
    name TEXT PRIMARY KEY,
    slots INTEGER,                   -- the limit
    source INTEGER,
    paused INTEGER NOT NULL,
    closed_until INTEGER,
    last_job INTEGER NOT NULL        -- the newest job that named it
) STRICT, WITHOUT ROWID;
CREATE INDEX grp_closed ON grp (closed_until) WHERE closed_until IS NOT NULL;

CREATE TABLE slot (                  -- a free number (token NULL) is kept only while a higher one is held
    grp TEXT NOT NULL,
    number INTEGER NOT NULL,
    token INTEGER,
    PRIMARY KEY (grp, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX slot_free ON slot (grp, number) WHERE token IS NULL;
CREATE INDEX slot_token ON slot (token) WHERE token IS NOT NULL;

CREATE TABLE open (                  -- groups with room and something of this task parked ('' for callers)
    task TEXT NOT NULL,
    grp TEXT NOT NULL,
    key INTEGER NOT NULL,            -- of the first one parked there
    PRIMARY KEY (task, grp)
) STRICT, WITHOUT ROWID;
CREATE INDEX open_first ON open (task, key);
CREATE INDEX open_group ON open (grp);

CREATE TABLE lease (
    token INTEGER PRIMARY KEY,
    holder TEXT NOT NULL,            -- a job's id, or a caller's; a caller may have the name of a job
    job INTEGER,                     -- NULL: a caller's
    task TEXT,
    priority INTEGER,                -- the job's own when it was claimed
    worker TEXT,
    claim TEXT,
    expires_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX lease_caller ON lease (holder) WHERE job IS NULL;
CREATE INDEX lease_expiry ON lease (expires_at, token);
CREATE INDEX lease_claim ON lease (claim) WHERE claim IS NOT NULL;
CREATE INDEX lease_worker ON lease (worker) WHERE job IS NOT NULL;

CREATE TABLE ticket (
    holder TEXT PRIMARY KEY,
    key INTEGER NOT NULL,
    groups TEXT NOT NULL,            -- JSON
    parked TEXT,
    expires_at INTEGER NOT NULL,
    lease_ms INTEGER NOT NULL,
    wait_ms INTEGER NOT NULL,
    worker TEXT,
    joined_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX ticket_ready ON ticket (key) WHERE parked IS NULL;
CREATE INDEX ticket_parked ON ticket (parked, key) WHERE parked IS NOT NULL;
CREATE INDEX ticket_expiry ON ticket (expires_at);

CREATE TABLE user (
    name TEXT PRIMARY KEY,
    standing TEXT NOT NULL,          -- JSON
    pinned INTEGER NOT NULL,         -- set by a person
    last_job INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE quota (
    user TEXT NOT NULL,
    day INTEGER NOT NULL,
    used INTEGER NOT NULL,
    PRIMARY KEY (user, day)
) STRICT, WITHOUT ROWID;

CREATE TABLE parent (
    name TEXT PRIMARY KEY,
    priority INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE task (
    name TEXT PRIMARY KEY,
    groups TEXT NOT NULL,            -- JSON; this and the next as the most recently started worker has it
    max_attempts INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE worker (
    name TEXT PRIMARY KEY,
    tasks TEXT NOT NULL,             -- JSON
    places INTEGER NOT NULL,
    lifetime_ms INTEGER NOT NULL,
    host TEXT,
    pid INTEGER,
    registered_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE event (
    id INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    detail TEXT NOT NULL             -- JSON
) STRICT;

CREATE TABLE audit (
    id INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    by TEXT,
    action TEXT NOT NULL,
    subject TEXT NOT NULL,
    detail TEXT NOT NULL             -- JSON
) STRICT;
CREATE INDEX audit_subject ON audit (subject, id);

CREATE TABLE figure (                -- minute 0: all that is older than the retention
    minute INTEGER NOT NULL,
    name TEXT NOT NULL,
    count INTEGER NOT NULL,
    total_ms INTEGER NOT NULL,
    PRIMARY KEY (minute, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE average (
    name TEXT PRIMARY KEY,
    value REAL NOT NULL,
    square REAL NOT NULL,
    count INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE estimate_error (
    id INTEGER PRIMARY KEY,
    task TEXT NOT NULL,
    ratio REAL NOT NULL
) STRICT;
CREATE INDEX estimate_error_task ON estimate_error (task, id);

CREATE TABLE record (
    name TEXT PRIMARY KEY,
    version INTEGER NOT NULL,
    value TEXT NOT NULL              -- JSON
) STRICT, WITHOUT ROWID;
"""

# Entries of the audit are numbered by a counter: the newest may be forgotten, and its number is not used again.
AUDIT_COUNTER = """
INSERT INTO counter SELECT 'last_audit', max(id) FROM audit HAVING count(*) > 0;
"""

# Spans end on another scale than times do, each with an index of its own. Jobs that are due together join in the order
# in which they were submitted. `expires_at` of leases and tickets is on counted time, `closed_until` on steady time.
COUNTED_TIME = """
ALTER TABLE job ADD COLUMN steady_at INTEGER; -- when the span it waits for is over, on steady time; NULL: it has none
DROP INDEX job_due;
CREATE INDEX job_due ON job (due_at, parent_order, phase, number) WHERE due_at IS NOT NULL AND steady_at IS NULL;
CREATE INDEX job_due_by_span ON job (due_at, parent_order, phase, number)
    WHERE due_at IS NOT NULL AND steady_at IS NOT NULL;
DELETE FROM counter WHERE name = 'no_expiry_before';
"""

# A cancelled phase can be submitted again, so that a phase is unique only among the others.
PHASES_AGAIN = """
DROP INDEX job_parent;
CREATE INDEX job_parent ON job (parent, phase, number) WHERE parent IS NOT NULL;
CREATE UNIQUE INDEX job_phase ON job (parent, phase) WHERE phase IS NOT NULL AND state <> 'cancelled';
"""

# What people did to a job's place: by the first it is known when a moved job joined, the second is told to its user.
DISPLACED = """
ALTER TABLE job ADD COLUMN undisturbed_key INTEGER; -- the order key before a person or a move beside it changed it
ALTER TABLE job ADD COLUMN displaced TEXT;          -- how a person put it further back
"""

# A worker is told from others of its name by its instance, and it is known when it was last heard of.
WORKER_INSTANCES = """
ALTER TABLE worker ADD COLUMN instance TEXT NOT NULL DEFAULT '';
ALTER TABLE worker ADD COLUMN heard_at INTEGER NOT NULL DEFAULT 0;
UPDATE worker SET heard_at = expires_at - lifetime_ms;
"""

# A place is in line; how many jobs a worker runs at once is its capacity.
WORKER_CAPACITY = """
ALTER TABLE worker RENAME COLUMN places TO capacity;
"""

# Jobs, and callers, that need the same groups stand in one lane. Only its first one is marked, and has the group that
# the lane is parked in. What was ready or parked before may stand elsewhere now: the next claims look at it.
LANES = """
ALTER TABLE job ADD COLUMN lane TEXT;       -- what all jobs of the lane have in common; NULL unless queued
ALTER TABLE job ADD COLUMN first INTEGER;   -- 1: the first of its lane
ALTER TABLE ticket ADD COLUMN first INTEGER; -- 1: the first of those that ask for these groups
DROP INDEX job_ready;
DROP INDEX job_parked;
DROP INDEX ticket_ready;
DROP INDEX ticket_parked;
UPDATE job SET parked = NULL, lane = rtrim(concat_ws(char(31), task, priority, ifnull(user, ''), ifnull(project, ''),
    ifnull(tier, ''), ifnull(parent, ''), iif(own_groups = '[]', '', own_groups)), char(31)) WHERE state = 'queued';
CREATE INDEX job_lane ON job (lane, key) WHERE lane IS NOT NULL;
CREATE INDEX ticket_lane ON ticket (groups, key);
UPDATE job SET first = 1 WHERE lane IS NOT NULL AND key =
    (SELECT min(key) FROM job AS other WHERE other.lane = job.lane);
UPDATE ticket SET parked = NULL, first = CASE WHEN key =
    (SELECT min(key) FROM ticket AS other WHERE other.groups = ticket.groups) THEN 1 END;
CREATE INDEX job_ready ON job (task, key) WHERE first AND parked IS NULL;
CREATE INDEX job_parked ON job (parked, task, key) WHERE parked IS NOT NULL;
CREATE INDEX ticket_ready ON ticket (key) WHERE first AND parked IS NULL;
CREATE INDEX ticket_parked ON ticket (parked, key) WHERE parked IS NOT NULL;
DELETE FROM open;
"""

# An address is kept beside the payload, because nothing that reads a job may see it.
CONTACTS = """
ALTER TABLE content ADD COLUMN contact TEXT;
ALTER TABLE job ADD COLUMN has_contact INTEGER NOT NULL DEFAULT 0;
"""

# What a job keeps of its past, the trace that it belongs to, and how many jobs there are in each state.
JOB_HISTORY = """
ALTER TABLE job ADD COLUMN states TEXT NOT NULL DEFAULT '';        -- lines; policy/job_history.py has their format
ALTER TABLE job ADD COLUMN past_attempts TEXT NOT NULL DEFAULT ''; -- lines
ALTER TABLE job ADD COLUMN promise TEXT;                           -- what its user was told first
ALTER TABLE job ADD COLUMN trace TEXT;
INSERT INTO counter SELECT 'state:' || state, count(*) FROM job GROUP BY state;
"""

MIGRATIONS = (
    FIRST,
    AUDIT_COUNTER,
    COUNTED_TIME,
    PHASES_AGAIN,
    DISPLACED,
    WORKER_INSTANCES,
    WORKER_CAPACITY,
    LANES,
    CONTACTS,
    TURNS,
    START_BY,
    SUSPECTS,
    JOB_HISTORY,
    HISTORY_VIEWS,
)


def prepare(db: apsw.Connection, path: str) -> None:
    """Bring a new or older file to the present schema; refuse a newer or a foreign one. Changes all or nothing."""
    db.execute("BEGIN IMMEDIATE")
    try:
        version = db.pragma("user_version")
        application = db.pragma("application_id")
        tables = db.execute("SELECT count(*) FROM sqlite_schema").get
        if tables and application != APPLICATION_ID:
            raise StoreUnavailable(
                f"{path} is an SQLite file but not a qo store; name another file in the store's url."
            )
        if version > len(MIGRATIONS):
            raise StoreUnavailable(
                f"{path} was written by a newer qo (schema {version}, this one knows {len(MIGRATIONS)}); "
                "upgrade qo, or name another file in the store's url."
            )
        for migration in MIGRATIONS[version:]:
            db.execute(migration)
        if version < len(MIGRATIONS):
            db.pragma("application_id", APPLICATION_ID)
            db.pragma("user_version", len(MIGRATIONS))
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")
