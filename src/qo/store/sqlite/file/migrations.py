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
