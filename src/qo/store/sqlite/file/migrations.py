"""The latest migrations of a qo file; `schema.py` has those before them and applies all."""

# A job or caller that was passed often enough has a turn, for which slots of its groups are kept.
TURNS = """
ALTER TABLE job ADD COLUMN passed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN turn INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ticket ADD COLUMN passed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ticket ADD COLUMN turn INTEGER NOT NULL DEFAULT 0;
CREATE INDEX job_turn ON job (key) WHERE turn;
CREATE INDEX ticket_turn ON ticket (key) WHERE turn;
"""

# A job that has not started by then fails. The message is beside the payload, because it is read only then.
START_BY = """
ALTER TABLE job ADD COLUMN start_by INTEGER;        -- on the store's clock
ALTER TABLE job ADD COLUMN steady_start_by INTEGER; -- the same on steady time, where the caller gave a span
ALTER TABLE content ADD COLUMN overdue_message TEXT;
CREATE INDEX job_start_by ON job (start_by, number)
    WHERE start_by IS NOT NULL AND started_at IS NULL AND finished_at IS NULL;
CREATE INDEX job_steady_start_by ON job (steady_start_by, number)
    WHERE steady_start_by IS NOT NULL AND started_at IS NULL AND finished_at IS NULL;
"""

# To the indexes, the suspects of a task are a task of their own, and so are those that must run alone.
SUSPECTS = """
ALTER TABLE job ADD COLUMN suspicion INTEGER NOT NULL DEFAULT 0; -- 1: a lease of it ran out; 2: it must run alone
DROP INDEX job_ready;
DROP INDEX job_parked;
CREATE INDEX job_ready ON job (task, suspicion, key) WHERE first AND parked IS NULL;
CREATE INDEX job_parked ON job (parked, task, suspicion, key) WHERE parked IS NOT NULL;
CREATE INDEX job_alone ON job (worker) WHERE suspicion = 2;
ALTER TABLE open RENAME TO open_before;
CREATE TABLE open (                  -- groups with room and something of this task and suspicion parked
    task TEXT NOT NULL,              -- '' for callers
    suspicion INTEGER NOT NULL,
    grp TEXT NOT NULL,
    key INTEGER NOT NULL,            -- of the first one parked there
    PRIMARY KEY (task, suspicion, grp)
) STRICT, WITHOUT ROWID;
INSERT INTO open SELECT task, 0, grp, key FROM open_before;
DROP TABLE open_before;
CREATE INDEX open_first ON open (task, suspicion, key);
CREATE INDEX open_group ON open (grp);
"""

# The history of what the file keeps, for people and programs that read the file. The columns are named as in the views
# that a recorder keeps in PostgreSQL (`history/migrations/`). A migration that renames a column of `job` or `audit`
# drops these views first and makes them anew.
HISTORY_VIEWS = """
CREATE VIEW history_jobs AS
SELECT id, strftime('%Y-%m-%dT%H:%M:%fZ', submitted_at / 1000.0, 'unixepoch') AS submitted_at,
    iif(finished_at IS NULL, 'accepted', state) AS state, task, user AS user_id, project, tier, parent, phase, priority,
    position_original AS position, strftime('%Y-%m-%dT%H:%M:%fZ', run_at / 1000.0, 'unixepoch') AS run_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', joined_at / 1000.0, 'unixepoch') AS joined_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', started_at / 1000.0, 'unixepoch') AS started_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', finished_at / 1000.0, 'unixepoch') AS finished_at,
    attempts, max_attempts, worker, message, error,
    (started_at - joined_at) / 1000.0 AS wait_seconds, (finished_at - started_at) / 1000.0 AS run_seconds
FROM job;

CREATE VIEW history_daily AS            -- percentiles are the smallest value that so many are not above
SELECT day, tier, task, state, count(*) AS count,
    min(iif(wait_share >= 0.5, wait_seconds, NULL)) AS wait_p50,
    min(iif(wait_share >= 0.95, wait_seconds, NULL)) AS wait_p95,
    min(iif(run_share >= 0.5, run_seconds, NULL)) AS run_p50,
    min(iif(run_share >= 0.95, run_seconds, NULL)) AS run_p95
FROM (
    SELECT *, cume_dist() OVER (PARTITION BY day, tier, task, state, wait_seconds IS NULL ORDER BY wait_seconds)
        AS wait_share,
        cume_dist() OVER (PARTITION BY day, tier, task, state, run_seconds IS NULL ORDER BY run_seconds) AS run_share
    FROM (SELECT substr(submitted_at, 1, 10) AS day, * FROM history_jobs)
)
GROUP BY day, tier, task, state;

CREATE VIEW history_audit AS
SELECT strftime('%Y-%m-%dT%H:%M:%fZ', at / 1000.0, 'unixepoch') AS at, id AS audit_id,
    substr(by, 1, instr(by || char(31), char(31)) - 1) AS by_name, action, subject, detail
FROM audit;
"""
