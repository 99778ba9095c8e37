-- The history: tables by month, views over them, and the one function that writes.
--
-- A month of every table is a partition, so that retention drops it whole. `record` makes partitions and drops them,
-- with the owner's rights; the recorder's role needs no other right than to call it.

CREATE TABLE history.recorder (
    is_only_row boolean PRIMARY KEY DEFAULT true CHECK (is_only_row),
    namespace text,                       -- of the queue whose history this is; null until the first portion
    newest bigint NOT NULL DEFAULT 0,     -- the highest entry id that was given
    renumbered bigint NOT NULL DEFAULT 0, -- how many entries got another id than they had in the outbox
    keep_days integer NOT NULL DEFAULT 90,
    kept_on date                          -- when partitions were last made ahead and dropped
);
INSERT INTO history.recorder DEFAULT VALUES;

-- Which entries of the outbox were recorded. An entry is known by its id and its content: after the store has lost its
-- newest data, another entry may have the same id.
CREATE TABLE history.entry_rows (
    id bigint NOT NULL,     -- as in the outbox: microseconds since 1970, or a little more
    digest bigint NOT NULL, -- of its content
    entry bigint NOT NULL,  -- the id under which it was recorded
    PRIMARY KEY (id, digest)
) PARTITION BY RANGE (id);

CREATE TABLE history.job_rows (
    id text NOT NULL,
    submitted_at timestamptz NOT NULL,
    entry bigint NOT NULL, -- the newest that was written here
    state text NOT NULL CHECK (state IN ('accepted', 'succeeded', 'failed', 'cancelled')),
    task text NOT NULL,
    user_id text,
    project text,
    tier text,
    parent text,
    phase integer,
    priority integer NOT NULL,
    groups text[] NOT NULL,
    place bigint,          -- drawn when it first joined the line; null if that was later than its submit
    position integer,      -- its position when it last joined the line
    submitted_by text,
    run_at timestamptz,
    joined_at timestamptz,
    started_at timestamptz,
    finished_at timestamptz,
    attempts integer NOT NULL,
    max_attempts integer,
    worker text,
    message text,
    error jsonb,
    promised_at timestamptz,
    promised_lower_seconds double precision,
    promised_upper_seconds double precision,
    payload jsonb,
    result jsonb,
    PRIMARY KEY (submitted_at, id)
) PARTITION BY RANGE (submitted_at);
-- No index has a column that the end of a job changes, so the end can be written beside the row (HOT).
CREATE INDEX ON history.job_rows (id);
CREATE INDEX ON history.job_rows (user_id, submitted_at);
CREATE INDEX ON history.job_rows (tier, submitted_at);
CREATE INDEX ON history.job_rows (task, submitted_at);

CREATE TABLE history.attempt_rows (
    at timestamptz NOT NULL, -- when it ended
    entry bigint NOT NULL,
    job_id text NOT NULL,
    submitted_at timestamptz NOT NULL,
    number integer NOT NULL,
    worker text NOT NULL,
    slots jsonb NOT NULL,
    started_at timestamptz NOT NULL,
    outcome text NOT NULL,
    error jsonb,
    debug_id text,
    PRIMARY KEY (at, entry)
) PARTITION BY RANGE (at);
CREATE INDEX ON history.attempt_rows (job_id);

CREATE TABLE history.audit_rows (
    at timestamptz NOT NULL,
    entry bigint NOT NULL,
    audit_id bigint NOT NULL, -- its id in the store
    by_name text,
    role text,
    address text,
    batch text,
    action text NOT NULL,
    subject text NOT NULL,
    detail jsonb NOT NULL,
    PRIMARY KEY (at, entry)
) PARTITION BY RANGE (at);
CREATE INDEX ON history.audit_rows (subject, at);

-- Entries that could not be written, as they were in the outbox.
CREATE TABLE history.rejected (
    id bigint NOT NULL,
    digest bigint NOT NULL,
    packed bytea NOT NULL,
    reason text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (id, digest)
);

-- --- reading ------------------------------------------------------------------------------------------------------

CREATE VIEW history.jobs AS
SELECT id, submitted_at, state, task, user_id, project, tier, parent, phase, priority, groups, place, position,
    submitted_by, run_at, joined_at, started_at, finished_at, attempts, max_attempts, worker, message, error,
    promised_at, promised_lower_seconds, promised_upper_seconds, payload, result,
    extract(epoch FROM started_at - joined_at)::double precision AS wait_seconds,
    extract(epoch FROM finished_at - started_at)::double precision AS run_seconds
FROM history.job_rows;

CREATE VIEW history.attempts AS
SELECT job_id, submitted_at, number, worker, slots, started_at, at AS ended_at, outcome, error, debug_id, entry
FROM history.attempt_rows;

CREATE VIEW history.audit AS
SELECT at, entry, audit_id, by_name, role, address, batch, action, subject, detail FROM history.audit_rows;

CREATE VIEW history.daily AS
SELECT (submitted_at AT TIME ZONE 'UTC')::date AS day, tier, task, state, count(*) AS count,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY wait_seconds) AS wait_p50,
    percentile_cont(0.95) WITHIN GROUP (ORDER BY wait_seconds) AS wait_p95,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY run_seconds) AS run_p50,
    percentile_cont(0.95) WITHIN GROUP (ORDER BY run_seconds) AS run_p95
FROM history.jobs
GROUP BY 1, 2, 3, 4;

-- --- writing ------------------------------------------------------------------------------------------------------

CREATE FUNCTION history.moment(ms bigint) RETURNS timestamptz
LANGUAGE sql IMMUTABLE AS $$ SELECT to_timestamp(ms / 1000.0::double precision) $$;

-- With settings of its own, because a time that is written with the letters of a time zone may be read as another one.
CREATE FUNCTION history.add_month(month date) RETURNS void
LANGUAGE plpgsql SET search_path = history, pg_temp SET datestyle = 'ISO' SET timezone = 'UTC' AS $$
DECLARE
    suffix text := to_char(month, '_YYYY_MM');
    first timestamptz := month::timestamp AT TIME ZONE 'UTC';
    next timestamptz := (month::timestamp + interval '1 month') AT TIME ZONE 'UTC';
    parent text;
BEGIN
    IF to_regclass('history.entry_rows' || suffix) IS NOT NULL THEN
        RETURN;
    END IF;
    FOREACH parent IN ARRAY ARRAY['job_rows', 'attempt_rows', 'audit_rows'] LOOP
        EXECUTE format('CREATE TABLE IF NOT EXISTS history.%I PARTITION OF history.%I FOR VALUES FROM (%L) TO (%L)%s',
            parent || suffix, parent, first, next, CASE parent WHEN 'job_rows' THEN ' WITH (fillfactor = 70)' END);
    END LOOP;
    EXECUTE format('CREATE TABLE IF NOT EXISTS history.%I PARTITION OF history.entry_rows FOR VALUES FROM (%s) TO (%s)',
        'entry_rows' || suffix, (extract(epoch FROM first) * 1000000)::bigint,
        (extract(epoch FROM next) * 1000000)::bigint);
END $$;

CREATE FUNCTION history.drop_months(keep_days integer) RETURNS void
LANGUAGE plpgsql SET search_path = history, pg_temp AS $$
DECLARE
    expired text;
BEGIN
    FOR expired IN
        SELECT child.relname FROM pg_catalog.pg_inherits
        JOIN pg_catalog.pg_class child ON child.oid = inhrelid AND child.relkind = 'r'
        JOIN pg_catalog.pg_class parent ON parent.oid = inhparent
        WHERE parent.relnamespace = 'history'::regnamespace AND parent.relname LIKE '%\_rows'
            AND to_date(right(child.relname, 7), 'YYYY_MM') + interval '1 month'
                <= (clock_timestamp() AT TIME ZONE 'UTC')::date - keep_days
    LOOP
        EXECUTE format('DROP TABLE history.%I', expired);
    END LOOP;
    DELETE FROM history.rejected WHERE at < clock_timestamp() - keep_days * interval '24 hours';
END $$;

-- Once a day: make the partitions of two months ahead, and drop those that are too old. Both need all of a table for a
-- moment. While somebody reads it for long, such as a backup, everybody else would wait with this. So it gives up
-- soon: then it is done on the next day, which is early enough.
CREATE FUNCTION history.begin_day(today date, keep_days integer) RETURNS void
LANGUAGE plpgsql SET search_path = history, pg_temp SET lock_timeout = '1s' AS $$
DECLARE
    this_month date := date_trunc('month', today)::date;
BEGIN
    FOR months_ahead IN 0..2 LOOP
        PERFORM history.add_month((this_month + months_ahead * interval '1 month')::date);
    END LOOP;
    PERFORM history.drop_months(keep_days);
EXCEPTION WHEN lock_not_available THEN
    RAISE LOG 'the partitions of the history are made and dropped tomorrow, because somebody reads it for long';
END $$;

-- Write a portion of the outbox's entries, in the order of their ids. Those that are known already change nothing.
--
-- version   of the schema that the caller knows
-- months    the first days of all months that the entries are in
-- ids       all of theirs are in this range
-- portion   a list; `history/records.py` says what is in it. Not jsonb: to make that took longer than to read the text
-- refused   why the entries could not be written: then they are only put aside
CREATE FUNCTION history.record(
    version integer, of_namespace text, months date[], ids int8range, portion json, refused text DEFAULT NULL,
    OUT recorded bigint, OUT renumbered bigint
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = history, pg_temp AS $$
DECLARE
    own history.recorder;
    today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
    month date;
    first_id bigint := lower(ids);
    last_id bigint := upper(ids);
    highest bigint;
    others bigint;
BEGIN
    IF version <> 1 THEN
        RAISE EXCEPTION 'the history has schema 1, and the recorder knows %', version USING ERRCODE = 'QO001';
    END IF;
    -- One portion at a time, also of two recorders of which one has lost its slot without knowing it.
    SELECT * INTO STRICT own FROM history.recorder FOR UPDATE;
    IF own.namespace <> of_namespace THEN
        RAISE EXCEPTION 'the history is that of the namespace %, not of %', own.namespace, of_namespace
            USING ERRCODE = 'QO002';
    END IF;
    IF own.kept_on IS DISTINCT FROM today THEN
        PERFORM history.begin_day(today, own.keep_days);
    END IF;
    FOREACH month IN ARRAY months LOOP
        PERFORM history.add_month(month);
    END LOOP;

    IF refused IS NOT NULL THEN
        INSERT INTO history.rejected (id, digest, packed, reason)
        SELECT id, digest, decode(packed, 'base64'), refused
        FROM json_to_recordset(portion) AS given(id bigint, digest bigint, packed text)
        ON CONFLICT DO NOTHING;
        portion := (SELECT json_agg(json_build_object('id', id, 'digest', digest, 'kind', 'rejected'))
            FROM json_to_recordset(portion) AS given(id bigint, digest bigint));
    END IF;

    WITH given AS MATERIALIZED (
        SELECT * FROM json_to_recordset(portion) AS given(
            id bigint, digest bigint, kind text, job_id text, submitted_ms bigint, state text, task text, user_id text,
            project text, tier text, parent text, phase integer, priority integer, groups text[], place bigint,
            "position" integer, submitted_by text, run_at_ms bigint, joined_ms bigint, started_ms bigint,
            finished_ms bigint, attempts integer, max_attempts integer, worker text, message text, error jsonb,
            promised_ms bigint, promised_lower_ms bigint, promised_upper_ms bigint, payload jsonb, result jsonb,
            attempt integer, attempt_worker text, attempt_slots jsonb, attempt_started_ms bigint, outcome text,
            debug_id text, attempt_error jsonb, at_ms bigint, audit_id bigint, by_name text, role text, address text,
            batch text, action text, subject text, detail jsonb)
    ), fresh AS (
        SELECT given.*, row_number() OVER (ORDER BY given.id) AS nth FROM given
        WHERE NOT EXISTS (
            SELECT FROM history.entry_rows known
            WHERE known.id BETWEEN first_id AND last_id AND known.id = given.id AND known.digest = given.digest)
    ), numbered AS MATERIALIZED (
        -- Each id is higher than all before it, also where the store has lost ids and gave them again.
        SELECT fresh.*, nth + greatest(max(id - nth) OVER (ORDER BY nth), own.newest) AS entry FROM fresh
    ), noted AS (
        INSERT INTO history.entry_rows (id, digest, entry) SELECT id, digest, entry FROM numbered
    ), job_given AS (
        -- Of a job that was accepted and has ended in this portion, its end, with what only its acceptance has.
        SELECT DISTINCT ON (submitted_ms, job_id) job.*,
            max(place) OVER same AS first_place, max(submitted_by) OVER same AS first_submitted_by,
            max(payload::text) OVER same AS first_payload
        FROM numbered job WHERE kind = 'job'
        WINDOW same AS (PARTITION BY submitted_ms, job_id)
        ORDER BY submitted_ms, job_id, state <> 'accepted' DESC, entry DESC
    ), jobs AS (
        INSERT INTO history.job_rows AS present (
            id, submitted_at, entry, state, task, user_id, project, tier, parent, phase, priority, groups, place,
            position, submitted_by, run_at, joined_at, started_at, finished_at, attempts, max_attempts, worker, message,
            error, promised_at, promised_lower_seconds, promised_upper_seconds, payload, result)
        SELECT job_id, history.moment(submitted_ms), entry, state, task, user_id, project, tier, parent, phase,
            priority, groups, first_place, position, first_submitted_by, history.moment(run_at_ms),
            history.moment(joined_ms), history.moment(started_ms), history.moment(finished_ms), attempts, max_attempts,
            worker, message, error, history.moment(promised_ms), promised_lower_ms / 1000.0, promised_upper_ms / 1000.0,
            first_payload::jsonb, result
        FROM job_given
        ON CONFLICT (submitted_at, id) DO UPDATE SET
            entry = excluded.entry, state = excluded.state, user_id = excluded.user_id, project = excluded.project,
            tier = excluded.tier, priority = excluded.priority, groups = excluded.groups,
            place = coalesce(present.place, excluded.place), position = excluded.position,
            submitted_by = coalesce(present.submitted_by, excluded.submitted_by), run_at = excluded.run_at,
            joined_at = excluded.joined_at, started_at = excluded.started_at, finished_at = excluded.finished_at,
            attempts = excluded.attempts, max_attempts = excluded.max_attempts, worker = excluded.worker,
            message = excluded.message, error = excluded.error, promised_at = excluded.promised_at,
            promised_lower_seconds = excluded.promised_lower_seconds,
            promised_upper_seconds = excluded.promised_upper_seconds,
            payload = coalesce(present.payload, excluded.payload), result = excluded.result
        WHERE excluded.state <> 'accepted' AND excluded.entry > present.entry -- a row only moves forward
    ), attempts AS (
        INSERT INTO history.attempt_rows (
            at, entry, job_id, submitted_at, number, worker, slots, started_at, outcome, error, debug_id)
        SELECT history.moment(at_ms), entry, job_id, history.moment(submitted_ms), attempt, attempt_worker,
            attempt_slots, history.moment(attempt_started_ms), outcome, attempt_error, debug_id
        FROM numbered WHERE attempt IS NOT NULL
    ), audit AS (
        INSERT INTO history.audit_rows (
            at, entry, audit_id, by_name, role, address, batch, action, subject, detail)
        SELECT history.moment(at_ms), entry, audit_id, by_name, role, address, batch, action, subject, detail
        FROM numbered WHERE kind = 'audit'
    )
    SELECT count(*), count(*) FILTER (WHERE entry <> id), max(entry) INTO recorded, others, highest FROM numbered;
    renumbered := others;

    IF recorded > 0 OR own.kept_on IS DISTINCT FROM today OR own.namespace IS NULL THEN
        UPDATE history.recorder SET namespace = of_namespace, newest = greatest(newest, highest),
            renumbered = recorder.renumbered + others, kept_on = today;
    END IF;
END $$;

REVOKE ALL ON FUNCTION history.record, history.begin_day, history.add_month, history.drop_months
FROM PUBLIC;
