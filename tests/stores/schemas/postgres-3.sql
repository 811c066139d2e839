CREATE TABLE version (number bigint NOT NULL);
CREATE SEQUENCE job_uid;
CREATE SEQUENCE run_id;
CREATE SEQUENCE activity;
CREATE TABLE handler (
    number  bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    name    text COLLATE "C" NOT NULL UNIQUE
);
CREATE TABLE job (
    uid           bigint PRIMARY KEY,
    namespace     text COLLATE "C" NOT NULL,
    id            text COLLATE "C" NOT NULL,
    handler       text COLLATE "C" NOT NULL,
    schedule      text NOT NULL,
    retry         text,
    payload       text NOT NULL,
    metadata      text NOT NULL,
    user_id       text COLLATE "C",
    name          text,
    priority      text NOT NULL,
    job_group     text COLLATE "C",
    misfire       text NOT NULL,
    timeout       bigint,
    on_interrupt  text NOT NULL,
    anchor        bigint NOT NULL,
    created_at    bigint NOT NULL,
    updated_at    bigint NOT NULL,
    revision      bigint NOT NULL,
    UNIQUE (namespace, id)
);
CREATE TABLE state (
    uid                 bigint PRIMARY KEY,
    revision            bigint NOT NULL,
    updated_at          bigint NOT NULL,
    handler             bigint NOT NULL,
    rank                bigint NOT NULL,
    next_run_at         bigint,
    last_run_at         bigint,
    run                 bigint,
    node                bigint,
    attempts            bigint NOT NULL,
    consecutive_errors  bigint NOT NULL,
    interruptions       bigint NOT NULL,
    retry_count         bigint NOT NULL,
    disabled_at         bigint,
    retry_of            bigint,
    regular_at          bigint,
    period_start        bigint,
    last_success_at     bigint,
    last_error_at       bigint,
    last_exit_code      bigint,
    forgotten_until     bigint,
    touched             boolean NOT NULL DEFAULT true,  -- while it ran; otherwise its run knows what it is
    id                  text COLLATE "C" NOT NULL,
    job_group           text COLLATE "C",
    phase               text COLLATE "C" NOT NULL,
    activity            text COLLATE "C" NOT NULL,
    disabled_reason     text,
    last_error          text,
    last_message        text
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000);
CREATE INDEX state_due ON state (handler, rank, next_run_at)
WHERE phase = 'active' AND activity = 'idle' AND next_run_at IS NOT NULL;
CREATE INDEX state_claimed ON state (node, job_group)
WHERE activity <> 'idle';
CREATE INDEX state_disabled ON state (disabled_at)
WHERE phase = 'disabled';
CREATE TABLE run (
    id             bigint PRIMARY KEY DEFAULT nextval('run_id'),
    uid            bigint NOT NULL,
    scheduled_for  bigint NOT NULL,
    attempt        bigint NOT NULL,
    claimed_at     bigint NOT NULL,
    started_at     bigint,
    finished_at    bigint,
    missed         bigint NOT NULL DEFAULT 0,
    exit_code      bigint,
    trigger        text NOT NULL,
    outcome        text,
    reason         text,
    error          text,
    message        text,
    node           text
) WITH (fillfactor = 60);
CREATE UNIQUE INDEX run_once
ON run (uid, scheduled_for, (CASE WHEN attempt > 0 AND trigger <> 'manual' THEN attempt END));
CREATE TABLE output (
    run   bigint PRIMARY KEY,
    text  text NOT NULL
);
CREATE TABLE node (
    number         bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    name           text NOT NULL,
    host           text NOT NULL,
    pid            bigint NOT NULL,
    process_start  text NOT NULL,
    beat           bigint NOT NULL,
    beat_at        timestamptz NOT NULL,
    skew           bigint,
    since          bigint NOT NULL
);
INSERT INTO version (number)
VALUES (1);
INSERT INTO handler (number, name) OVERRIDING SYSTEM VALUE
VALUES (1, 'work');
INSERT INTO handler (number, name) OVERRIDING SYSTEM VALUE
VALUES (2, 'fail');
INSERT INTO handler (number, name) OVERRIDING SYSTEM VALUE
VALUES (3, 'absent');
INSERT INTO handler (number, name) OVERRIDING SYSTEM VALUE
VALUES (4, 'by-hand');
INSERT INTO handler (number, name) OVERRIDING SYSTEM VALUE
VALUES (5, 'forgotten');
INSERT INTO handler (number, name) OVERRIDING SYSTEM VALUE
VALUES (6, 'hang');
INSERT INTO job (uid, namespace, id, handler, schedule, retry, payload, metadata, user_id, name, priority, job_group, misfire, timeout, on_interrupt, anchor, created_at, updated_at, revision)
VALUES (1, 'default', 'hourly', 'work', '{"version":1,"kind":"every","interval":"1h"}', NULL, '{"to":["ops"]}', '{"team":"blue"}', 'ann', NULL, 'standard', 'mail', 'run_once', NULL, 'rerun', 1767614400000000, 1767614400000000, 1767614400000000, 1);
INSERT INTO job (uid, namespace, id, handler, schedule, retry, payload, metadata, user_id, name, priority, job_group, misfire, timeout, on_interrupt, anchor, created_at, updated_at, revision)
VALUES (2, 'tenant/one', 'hourly', 'work', '{"version":1,"kind":"every","interval":"1h"}', NULL, 'null', '{}', NULL, NULL, 'high', 'mail', 'run_once', NULL, 'rerun', 1767614400000000, 1767614400000000, 1767614400000000, 1);
INSERT INTO job (uid, namespace, id, handler, schedule, retry, payload, metadata, user_id, name, priority, job_group, misfire, timeout, on_interrupt, anchor, created_at, updated_at, revision)
VALUES (3, 'default', 'failing', 'fail', '{"version":1,"kind":"every","interval":"1h"}', '{"version":1,"kind":"none"}', 'null', '{}', NULL, NULL, 'standard', NULL, 'run_once', NULL, 'rerun', 1767614400000000, 1767614400000000, 1767614400000000, 1);
INSERT INTO job (uid, namespace, id, handler, schedule, retry, payload, metadata, user_id, name, priority, job_group, misfire, timeout, on_interrupt, anchor, created_at, updated_at, revision)
VALUES (4, 'default', 'paused', 'absent', '{"version":1,"kind":"cron","expression":"0 9 * * *","tz":"Europe/Stockholm"}', NULL, 'null', '{}', NULL, NULL, 'standard', NULL, 'run_once', 300000000, 'rerun', 1767614400000000, 1767614400000000, 1767614400000000, 1);
INSERT INTO job (uid, namespace, id, handler, schedule, retry, payload, metadata, user_id, name, priority, job_group, misfire, timeout, on_interrupt, anchor, created_at, updated_at, revision)
VALUES (5, 'default', 'disabled', 'by-hand', '{"version":1,"kind":"manual"}', NULL, 'null', '{}', NULL, NULL, 'standard', '50%', 'run_once', NULL, 'rerun', 1767614400000000, 1767614400000000, 1767614400000000, 1);
INSERT INTO job (uid, namespace, id, handler, schedule, retry, payload, metadata, user_id, name, priority, job_group, misfire, timeout, on_interrupt, anchor, created_at, updated_at, revision)
VALUES (6, 'default', 'later', 'work', '{"version":1,"kind":"at","at":"2027-01-01T00:00:00Z"}', NULL, 'null', '{}', NULL, NULL, 'standard', NULL, 'run_once', NULL, 'rerun', 1767614400000000, 1767614400000000, 1767614400000000, 1);
INSERT INTO job (uid, namespace, id, handler, schedule, retry, payload, metadata, user_id, name, priority, job_group, misfire, timeout, on_interrupt, anchor, created_at, updated_at, revision)
VALUES (8, 'default', 'running', 'hang', '{"version":1,"kind":"manual"}', NULL, 'null', '{}', NULL, NULL, 'standard', 'mail', 'run_once', NULL, 'rerun', 1767614400000000, 1767614400000000, 1767614400000000, 1);
INSERT INTO state (uid, revision, updated_at, handler, rank, next_run_at, last_run_at, run, node, attempts, consecutive_errors, interruptions, retry_count, disabled_at, retry_of, regular_at, period_start, last_success_at, last_error_at, last_exit_code, forgotten_until, touched, id, job_group, phase, activity, disabled_reason, last_error, last_message)
VALUES (1, 1, 1767614400000000, 1, 1, 1767621600000000, 1767618000000000, NULL, NULL, 0, 0, 0, 0, NULL, NULL, NULL, NULL, 1767618000000000, NULL, NULL, NULL, false, 'hourly', 'mail', 'active', 'idle', NULL, NULL, NULL);
INSERT INTO state (uid, revision, updated_at, handler, rank, next_run_at, last_run_at, run, node, attempts, consecutive_errors, interruptions, retry_count, disabled_at, retry_of, regular_at, period_start, last_success_at, last_error_at, last_exit_code, forgotten_until, touched, id, job_group, phase, activity, disabled_reason, last_error, last_message)
VALUES (2, 1, 1767614400000000, 1, 0, 1767621600000000, 1767618000000000, NULL, NULL, 0, 0, 0, 0, NULL, NULL, NULL, NULL, 1767618000000000, NULL, NULL, NULL, false, 'hourly', 'mail', 'active', 'idle', NULL, NULL, NULL);
INSERT INTO state (uid, revision, updated_at, handler, rank, next_run_at, last_run_at, run, node, attempts, consecutive_errors, interruptions, retry_count, disabled_at, retry_of, regular_at, period_start, last_success_at, last_error_at, last_exit_code, forgotten_until, touched, id, job_group, phase, activity, disabled_reason, last_error, last_message)
VALUES (3, 1, 1767614400000000, 2, 1, 1767621600000000, 1767618000000000, NULL, NULL, 0, 1, 0, 0, NULL, NULL, NULL, NULL, NULL, 1767618000000000, NULL, NULL, false, 'failing', NULL, 'active', 'idle', NULL, 'ValueError: no', NULL);
INSERT INTO state (uid, revision, updated_at, handler, rank, next_run_at, last_run_at, run, node, attempts, consecutive_errors, interruptions, retry_count, disabled_at, retry_of, regular_at, period_start, last_success_at, last_error_at, last_exit_code, forgotten_until, touched, id, job_group, phase, activity, disabled_reason, last_error, last_message)
VALUES (4, 1, 1767614400000000, 3, 1, 1767686400000000, NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, true, 'paused', NULL, 'paused', 'idle', NULL, NULL, NULL);
INSERT INTO state (uid, revision, updated_at, handler, rank, next_run_at, last_run_at, run, node, attempts, consecutive_errors, interruptions, retry_count, disabled_at, retry_of, regular_at, period_start, last_success_at, last_error_at, last_exit_code, forgotten_until, touched, id, job_group, phase, activity, disabled_reason, last_error, last_message)
VALUES (5, 1, 1767614400000000, 4, 1, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 1767614400000000, NULL, NULL, NULL, NULL, NULL, NULL, NULL, true, 'disabled', '50%', 'disabled', 'idle', 'enough', NULL, NULL);
INSERT INTO state (uid, revision, updated_at, handler, rank, next_run_at, last_run_at, run, node, attempts, consecutive_errors, interruptions, retry_count, disabled_at, retry_of, regular_at, period_start, last_success_at, last_error_at, last_exit_code, forgotten_until, touched, id, job_group, phase, activity, disabled_reason, last_error, last_message)
VALUES (6, 1, 1767614400000000, 1, 1, 1798761600000000, NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, true, 'later', NULL, 'active', 'idle', NULL, NULL, NULL);
INSERT INTO state (uid, revision, updated_at, handler, rank, next_run_at, last_run_at, run, node, attempts, consecutive_errors, interruptions, retry_count, disabled_at, retry_of, regular_at, period_start, last_success_at, last_error_at, last_exit_code, forgotten_until, touched, id, job_group, phase, activity, disabled_reason, last_error, last_message)
VALUES (8, 1, 1767614400000000, 6, 1, NULL, 1767618000000000, 4, 1, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, false, 'running', 'mail', 'active', 'running', NULL, NULL, NULL);
INSERT INTO run (id, uid, scheduled_for, attempt, claimed_at, started_at, finished_at, missed, exit_code, trigger, outcome, reason, error, message, node)
VALUES (1, 2, 1767618000000000, 1, 1767618000000000, 1767618000000000, 1767618000000000, 0, NULL, 'schedule', 'success', NULL, NULL, NULL, 'elsewhere:4711:00c0ffee');
INSERT INTO run (id, uid, scheduled_for, attempt, claimed_at, started_at, finished_at, missed, exit_code, trigger, outcome, reason, error, message, node)
VALUES (2, 3, 1767618000000000, 1, 1767618000000000, 1767618000000000, 1767618000000000, 0, NULL, 'schedule', 'error', NULL, 'ValueError: no', NULL, 'elsewhere:4711:00c0ffee');
INSERT INTO run (id, uid, scheduled_for, attempt, claimed_at, started_at, finished_at, missed, exit_code, trigger, outcome, reason, error, message, node)
VALUES (3, 1, 1767618000000000, 1, 1767618000000000, 1767618000000000, 1767618000000000, 0, NULL, 'schedule', 'success', NULL, NULL, NULL, 'elsewhere:4711:00c0ffee');
INSERT INTO run (id, uid, scheduled_for, attempt, claimed_at, started_at, finished_at, missed, exit_code, trigger, outcome, reason, error, message, node)
VALUES (4, 8, 1767618000000000, 1, 1767618000000000, 1767618000000000, NULL, 0, NULL, 'manual', NULL, NULL, NULL, NULL, 'elsewhere:4711:00c0ffee');
INSERT INTO output (run, text)
VALUES (1, 'what it wrote');
INSERT INTO output (run, text)
VALUES (3, 'what it wrote');
INSERT INTO node (number, name, host, pid, process_start, beat, beat_at, skew, since) OVERRIDING SYSTEM VALUE
VALUES (1, 'elsewhere:4711:00c0ffee', 'elsewhere', 4711, '17', 1, '2026-01-05 13:00:00+00', NULL, 1767614400000000);
SELECT setval('job_uid', 8);
SELECT setval('run_id', 4);
SELECT setval('activity', 3);
SELECT setval('handler_number_seq', 6);
SELECT setval('node_number_seq', 1);
ALTER TABLE state ADD COLUMN IF NOT EXISTS touched boolean NOT NULL DEFAULT true;
DO $$
BEGIN
    IF to_regclass('run_of_job') IS NOT NULL THEN
        DROP INDEX run_of_job, run_once;
        CREATE UNIQUE INDEX run_once
        ON run (uid, scheduled_for, (CASE WHEN attempt > 0 AND trigger <> 'manual' THEN attempt END));
    END IF;
END $$;
ALTER TABLE state RENAME COLUMN job_group TO group_key;
UPDATE state SET group_key = job.namespace || chr(10) || group_key
  FROM job
 WHERE job.uid = state.uid AND group_key IS NOT NULL;
ALTER TABLE job ADD COLUMN removed_at bigint;
ALTER TABLE job DROP CONSTRAINT job_namespace_id_key;
CREATE UNIQUE INDEX job_name ON job (namespace, id) WHERE removed_at IS NULL;
CREATE INDEX job_removed ON job (removed_at) WHERE removed_at IS NOT NULL;
CREATE INDEX job_removed_name ON job (namespace, id) WHERE removed_at IS NOT NULL;
CREATE INDEX job_of_handler ON job (handler) WHERE removed_at IS NULL;
DELETE FROM handler WHERE NOT EXISTS (SELECT FROM job WHERE job.handler = handler.name);
UPDATE version SET number = 2;
ALTER TABLE job ADD COLUMN policy text;
ALTER TABLE state ADD COLUMN counted_until bigint;
ALTER TABLE state ADD COLUMN paused_reason text;
ALTER TABLE state ADD COLUMN paused_until bigint;
ALTER TABLE state ADD COLUMN cursor text;
ALTER TABLE state ADD COLUMN cursor_edits bigint NOT NULL DEFAULT 0;
ALTER TABLE state ADD COLUMN running bigint NOT NULL DEFAULT 0;
ALTER TABLE state ADD COLUMN retries text;
ALTER TABLE state ADD COLUMN owed_until bigint;
ALTER TABLE state ADD COLUMN occurrences_run bigint NOT NULL DEFAULT 0;
UPDATE state SET counted_until = coalesce(disabled_at, updated_at) WHERE phase <> 'active';
CREATE INDEX state_paused ON state (paused_until) WHERE phase = 'paused' AND paused_until IS NOT NULL;
DROP INDEX state_disabled;
CREATE INDEX state_disabled ON state (((coalesce(disabled_reason, '') = 'ended')::int), disabled_at) WHERE phase = 'disabled';
CREATE INDEX run_skipped ON run (uid, scheduled_for) WHERE attempt = 0;
ALTER TABLE run ADD COLUMN payload text;
ALTER TABLE run ADD COLUMN origin bigint;
ALTER TABLE run ADD COLUMN result text;
ALTER TABLE run ADD COLUMN progress double precision;
ALTER TABLE run ADD COLUMN progress_message text;
ALTER TABLE run ADD COLUMN after_run bigint;
CREATE TABLE successor (
    uid        bigint PRIMARY KEY,
    namespace  text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    run        bigint  -- the last run of the other job that made this one due
);
CREATE INDEX successor_of ON successor (namespace, id);
CREATE TABLE group_start (
    rate_key  text COLLATE "C" NOT NULL,
    settled   boolean NOT NULL,  -- whether their handlers have begun
    until     bigint NOT NULL,
    starts    bigint NOT NULL,
    PRIMARY KEY (rate_key, settled, until)
);
CREATE INDEX group_start_until ON group_start (until);
CREATE TABLE traceback (
    run   bigint PRIMARY KEY,
    text  text NOT NULL
);
CREATE TABLE request (
    run     bigint PRIMARY KEY,
    uid     bigint NOT NULL,
    kind    text NOT NULL,
    reason  text,
    at      bigint NOT NULL
);
CREATE INDEX request_start ON request (uid) WHERE kind = 'start';
CREATE INDEX request_cancel ON request (uid) WHERE kind = 'cancel';
CREATE TABLE instance (
    run       bigint PRIMARY KEY,
    uid       bigint NOT NULL,
    node      bigint,
    backfill  bigint
);
CREATE INDEX instance_of_job ON instance (uid);
CREATE INDEX instance_of_node ON instance (node);
CREATE INDEX instance_of_backfill ON instance (backfill) WHERE backfill IS NOT NULL;
CREATE TABLE backfill (
    number          bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    uid             bigint NOT NULL,
    max_concurrent  bigint NOT NULL,
    payload         text,
    total           bigint NOT NULL,
    done            bigint NOT NULL,
    failed          bigint NOT NULL,
    state           text NOT NULL,
    at              bigint NOT NULL
);
CREATE INDEX backfill_running ON backfill (number) WHERE state = 'running';
CREATE INDEX backfill_of_job ON backfill (uid);
CREATE TABLE backfill_due (
    backfill       bigint NOT NULL,
    scheduled_for  bigint NOT NULL,
    PRIMARY KEY (backfill, scheduled_for)
);
CREATE TABLE change (
    number  bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    uid     bigint NOT NULL,
    at      bigint NOT NULL,
    action  text NOT NULL,
    actor   text,
    via     text,
    reason  text,
    before  text,
    after   text
);
CREATE INDEX change_of_job ON change (uid, number);
CREATE INDEX change_decision ON change (uid, number) WHERE action NOT IN ('trigger', 'cancel');
ALTER TABLE node ADD COLUMN handlers text;
CREATE TABLE node_span (
    number  bigint PRIMARY KEY,
    name    text NOT NULL,
    host    text NOT NULL,
    pid     bigint NOT NULL,
    since   bigint NOT NULL,
    until   bigint,
    how     text NOT NULL
);
CREATE INDEX node_span_until ON node_span (until);
CREATE INDEX node_span_since ON node_span (since);
CREATE INDEX node_span_long ON node_span (until) WHERE until - since::float8 >= 86400000000;
INSERT INTO node_span SELECT number, name, host, pid, since, NULL, 'running' FROM node;
UPDATE version SET number = 3;
