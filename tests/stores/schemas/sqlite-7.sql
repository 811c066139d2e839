BEGIN TRANSACTION;
CREATE TABLE backfill (
            number          INTEGER PRIMARY KEY AUTOINCREMENT,
            uid             INTEGER NOT NULL REFERENCES job (uid) ON DELETE CASCADE,
            max_concurrent  INTEGER NOT NULL,
            payload         TEXT,
            total           INTEGER NOT NULL,
            done            INTEGER NOT NULL,
            failed          INTEGER NOT NULL,
            state           TEXT NOT NULL,
            at              INTEGER NOT NULL
        ) STRICT
        ;
CREATE TABLE backfill_due (
            backfill       INTEGER NOT NULL REFERENCES backfill (number) ON DELETE CASCADE,
            scheduled_for  INTEGER NOT NULL,
            PRIMARY KEY (backfill, scheduled_for)
        ) STRICT
        ;
CREATE TABLE change (
            number    INTEGER PRIMARY KEY,
            uid       INTEGER NOT NULL,
            previous  INTEGER,
            decision  INTEGER,
            at        INTEGER NOT NULL,
            action    TEXT NOT NULL,
            actor     TEXT,
            via       TEXT,
            reason    TEXT,
            before    TEXT,
            after     TEXT
        ) STRICT
        ;
CREATE TABLE group_start (
            rate_key  TEXT NOT NULL,
            settled   INTEGER NOT NULL,  -- whether their handlers have begun
            until     INTEGER NOT NULL,
            starts    INTEGER NOT NULL,
            UNIQUE (rate_key, settled, until)
        ) STRICT
        ;
CREATE TABLE "handler" (
            number  INTEGER PRIMARY KEY AUTOINCREMENT,
            name    TEXT NOT NULL UNIQUE
        ) STRICT
        ;
INSERT INTO "handler" VALUES(1,'work');
INSERT INTO "handler" VALUES(2,'fail');
INSERT INTO "handler" VALUES(3,'absent');
INSERT INTO "handler" VALUES(4,'by-hand');
INSERT INTO "handler" VALUES(6,'hang');
CREATE TABLE instance (
            run       INTEGER PRIMARY KEY REFERENCES run (id) ON DELETE CASCADE,
            uid       INTEGER NOT NULL,
            node      INTEGER,
            backfill  INTEGER
        ) STRICT
        ;
CREATE TABLE "job" (
            uid           INTEGER PRIMARY KEY,
            namespace     TEXT NOT NULL,
            id            TEXT NOT NULL,
            handler       TEXT NOT NULL,
            schedule      TEXT NOT NULL,
            retry         TEXT,
            payload       TEXT NOT NULL,
            metadata      TEXT NOT NULL,
            user_id       TEXT,
            name          TEXT,
            priority      TEXT NOT NULL,
            job_group     TEXT,
            misfire       TEXT NOT NULL,
            timeout       INTEGER,
            on_interrupt  TEXT NOT NULL,
            anchor        INTEGER NOT NULL,
            created_at    INTEGER NOT NULL,
            updated_at    INTEGER NOT NULL,
            revision      INTEGER NOT NULL,
            removed_at    INTEGER
        , policy TEXT, last_change INTEGER) STRICT
        ;
INSERT INTO "job" VALUES(1,'default','hourly','work','{"version":1,"kind":"every","interval":"1h"}',NULL,'{"to":["ops"]}','{"team":"blue"}','ann',NULL,'standard','mail','run_once',NULL,'rerun',1767614400000000,1767614400000000,1767614400000000,1,NULL,NULL,NULL);
INSERT INTO "job" VALUES(2,'tenant/one','hourly','work','{"version":1,"kind":"every","interval":"1h"}',NULL,'null','{}',NULL,NULL,'high','mail','run_once',NULL,'rerun',1767614400000000,1767614400000000,1767614400000000,1,NULL,NULL,NULL);
INSERT INTO "job" VALUES(3,'default','failing','fail','{"version":1,"kind":"every","interval":"1h"}','{"version":1,"kind":"none"}','null','{}',NULL,NULL,'standard',NULL,'run_once',NULL,'rerun',1767614400000000,1767614400000000,1767614400000000,1,NULL,NULL,NULL);
INSERT INTO "job" VALUES(4,'default','paused','absent','{"version":1,"kind":"cron","expression":"0 9 * * *","tz":"Europe/Stockholm"}',NULL,'null','{}',NULL,NULL,'standard',NULL,'run_once',300000000,'rerun',1767614400000000,1767614400000000,1767614400000000,1,NULL,NULL,NULL);
INSERT INTO "job" VALUES(5,'default','disabled','by-hand','{"version":1,"kind":"manual"}',NULL,'null','{}',NULL,NULL,'standard','50%','run_once',NULL,'rerun',1767614400000000,1767614400000000,1767614400000000,1,NULL,NULL,NULL);
INSERT INTO "job" VALUES(6,'default','later','work','{"version":1,"kind":"at","at":"2027-01-01T00:00:00Z"}',NULL,'null','{}',NULL,NULL,'standard',NULL,'run_once',NULL,'rerun',1767614400000000,1767614400000000,1767614400000000,1,NULL,NULL,NULL);
INSERT INTO "job" VALUES(8,'default','running','hang','{"version":1,"kind":"manual"}',NULL,'null','{}',NULL,NULL,'standard','mail','run_once',NULL,'rerun',1767614400000000,1767614400000000,1767614400000000,1,NULL,NULL,NULL);
CREATE TABLE node (
    number         INTEGER PRIMARY KEY AUTOINCREMENT,
    name           TEXT NOT NULL,
    host           TEXT NOT NULL,
    pid            INTEGER NOT NULL,
    process_start  TEXT NOT NULL,
    beat           INTEGER NOT NULL,
    since          INTEGER NOT NULL
, beat_at INTEGER NOT NULL DEFAULT 0, handlers TEXT) STRICT
;
INSERT INTO "node" VALUES(1,'elsewhere:4711:00c0ffee','elsewhere',4711,'17',1,1767614400000000,1794962375226865,NULL);
CREATE TABLE node_span (
            number  INTEGER PRIMARY KEY,
            name    TEXT NOT NULL,
            host    TEXT NOT NULL,
            pid     INTEGER NOT NULL,
            since   INTEGER NOT NULL,
            until   INTEGER,
            how     TEXT NOT NULL
        ) STRICT
        ;
INSERT INTO "node_span" VALUES(1,'elsewhere:4711:00c0ffee','elsewhere',4711,1767614400000000,NULL,'running');
CREATE TABLE output (
    run   INTEGER PRIMARY KEY REFERENCES run (id) ON DELETE CASCADE,
    text  TEXT NOT NULL
) STRICT
;
INSERT INTO "output" VALUES(1,'what it wrote');
INSERT INTO "output" VALUES(3,'what it wrote');
CREATE TABLE request (
            run     INTEGER PRIMARY KEY REFERENCES run (id) ON DELETE CASCADE,
            uid     INTEGER NOT NULL,
            kind    TEXT NOT NULL,
            reason  TEXT,
            at      INTEGER NOT NULL
        ) STRICT
        ;
CREATE TABLE run (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    uid            INTEGER NOT NULL REFERENCES job (uid) ON DELETE CASCADE,
    scheduled_for  INTEGER NOT NULL,
    attempt        INTEGER NOT NULL,
    trigger        TEXT NOT NULL,
    claimed_at     INTEGER NOT NULL,
    started_at     INTEGER,
    finished_at    INTEGER,
    outcome        TEXT,
    reason         TEXT,
    missed         INTEGER NOT NULL DEFAULT 0,
    error          TEXT,
    message        TEXT,
    exit_code      INTEGER,
    node           TEXT
, payload TEXT, origin INTEGER, result TEXT, progress REAL, progress_message TEXT, after_run INTEGER) STRICT
;
INSERT INTO "run" VALUES(1,2,1767618000000000,1,'schedule',1767618000000000,1767618000000000,1767618000000000,'success',NULL,0,NULL,NULL,NULL,'elsewhere:4711:00c0ffee',NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "run" VALUES(2,3,1767618000000000,1,'schedule',1767618000000000,1767618000000000,1767618000000000,'error',NULL,0,'ValueError: no',NULL,NULL,'elsewhere:4711:00c0ffee',NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "run" VALUES(3,1,1767618000000000,1,'schedule',1767618000000000,1767618000000000,1767618000000000,'success',NULL,0,NULL,NULL,NULL,'elsewhere:4711:00c0ffee',NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "run" VALUES(4,8,1767618000000000,1,'manual',1767618000000000,1767618000000000,NULL,NULL,NULL,0,NULL,NULL,NULL,'elsewhere:4711:00c0ffee',NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE state (
    uid                 INTEGER PRIMARY KEY REFERENCES job (uid) ON DELETE CASCADE,
    revision            INTEGER NOT NULL,
    handler             INTEGER NOT NULL REFERENCES handler (number),
    rank                INTEGER NOT NULL,
    id                  TEXT NOT NULL,
    group_key           TEXT,
    phase               TEXT NOT NULL,
    disabled_reason     TEXT,
    disabled_at         INTEGER,
    activity            TEXT NOT NULL,
    next_run_at         INTEGER,
    retry_of            INTEGER,
    attempts            INTEGER NOT NULL,
    regular_at          INTEGER,
    consecutive_errors  INTEGER NOT NULL,
    retry_count         INTEGER NOT NULL,
    period_start        INTEGER,
    last_run_at         INTEGER,
    last_success_at     INTEGER,
    last_error_at       INTEGER,
    last_error          TEXT,
    last_exit_code      INTEGER,
    last_message        TEXT,
    forgotten_until     INTEGER,
    run                 INTEGER,
    node                INTEGER
, interruptions INTEGER NOT NULL DEFAULT 0, touched INTEGER NOT NULL DEFAULT 1, counted_until INTEGER, paused_reason TEXT, paused_until INTEGER, cursor TEXT, cursor_edits INTEGER NOT NULL DEFAULT 0, running INTEGER NOT NULL DEFAULT 0, retries TEXT, owed_until INTEGER, occurrences_run INTEGER NOT NULL DEFAULT 0) STRICT
;
INSERT INTO "state" VALUES(1,1,1,1,'hourly','default
mail','active',NULL,NULL,'idle',1767621600000000,NULL,0,NULL,0,0,NULL,1767618000000000,1767618000000000,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,0,0,NULL,NULL,0);
INSERT INTO "state" VALUES(2,1,1,0,'hourly','tenant/one
mail','active',NULL,NULL,'idle',1767621600000000,NULL,0,NULL,0,0,NULL,1767618000000000,1767618000000000,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,0,0,NULL,NULL,0);
INSERT INTO "state" VALUES(3,1,2,1,'failing',NULL,'active',NULL,NULL,'idle',1767621600000000,NULL,0,NULL,1,0,NULL,1767618000000000,NULL,1767618000000000,'ValueError: no',NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,0,0,NULL,NULL,0);
INSERT INTO "state" VALUES(4,1,3,1,'paused',NULL,'paused',NULL,NULL,'idle',1767686400000000,NULL,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,1,1767614400000000,NULL,NULL,NULL,0,0,NULL,NULL,0);
INSERT INTO "state" VALUES(5,1,4,1,'disabled','default
50%','disabled','enough',1767614400000000,'idle',NULL,NULL,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,1,1767614400000000,NULL,NULL,NULL,0,0,NULL,NULL,0);
INSERT INTO "state" VALUES(6,1,1,1,'later',NULL,'active',NULL,NULL,'idle',1798761600000000,NULL,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,1,NULL,NULL,NULL,NULL,0,0,NULL,NULL,0);
INSERT INTO "state" VALUES(8,1,6,1,'running','default
mail','active',NULL,NULL,'running',NULL,NULL,0,NULL,0,0,NULL,1767618000000000,NULL,NULL,NULL,NULL,NULL,NULL,4,1,0,0,NULL,NULL,NULL,NULL,0,0,NULL,NULL,0);
CREATE TABLE successor (
            uid        INTEGER PRIMARY KEY REFERENCES job (uid) ON DELETE CASCADE,
            namespace  TEXT NOT NULL,
            id         TEXT NOT NULL,
            run        INTEGER  -- the last run of the other job that made this one due
        ) STRICT
        ;
CREATE TABLE traceback (
            run   INTEGER PRIMARY KEY REFERENCES run (id) ON DELETE CASCADE,
            text  TEXT NOT NULL
        ) STRICT
        ;
CREATE INDEX state_due ON state (handler, next_run_at)
WHERE phase = 'active' AND activity = 'idle' AND next_run_at IS NOT NULL
;
CREATE INDEX state_claimed ON state (node, group_key)
WHERE activity <> 'idle'
;
CREATE INDEX run_of_job ON run (uid);
CREATE UNIQUE INDEX run_once ON run (uid, scheduled_for, attempt)
WHERE attempt > 0 AND trigger <> 'manual'
;
CREATE INDEX run_beside ON run (uid, scheduled_for)
WHERE attempt = 0 OR trigger = 'manual'
;
CREATE INDEX state_of_handler ON state (handler);
CREATE TRIGGER job_number BEFORE DELETE ON job
        WHEN old.uid < 9007199254740992 AND old.uid > coalesce((SELECT max(seq) FROM sqlite_sequence WHERE name = 'job' AND typeof(seq) = 'integer' AND seq < 9007199254740992), 0)
        BEGIN
            DELETE FROM sqlite_sequence WHERE name = 'job';
            INSERT INTO sqlite_sequence (name, seq) VALUES ('job', old.uid);
        END;
CREATE UNIQUE INDEX job_name ON job (namespace, id) WHERE removed_at IS NULL;
CREATE INDEX job_removed ON job (removed_at) WHERE removed_at IS NOT NULL;
CREATE INDEX job_removed_name ON job (namespace, id) WHERE removed_at IS NOT NULL;
CREATE INDEX state_paused ON state (paused_until) WHERE phase = 'paused' AND paused_until IS NOT NULL;
CREATE INDEX state_disabled ON state ((coalesce(disabled_reason, '') = 'ended'), disabled_at) WHERE phase = 'disabled';
CREATE INDEX run_skipped ON run (uid, scheduled_for) WHERE attempt = 0;
CREATE INDEX run_unusual ON run (outcome, id) WHERE outcome NOT IN ('noop', 'success');
CREATE INDEX successor_of ON successor (namespace, id);
CREATE INDEX group_start_until ON group_start (until);
CREATE INDEX request_start ON request (uid) WHERE kind = 'start';
CREATE INDEX request_cancel ON request (uid) WHERE kind = 'cancel';
CREATE INDEX instance_of_job ON instance (uid);
CREATE INDEX instance_of_node ON instance (node);
CREATE INDEX instance_of_backfill ON instance (backfill) WHERE backfill IS NOT NULL;
CREATE INDEX backfill_running ON backfill (number) WHERE state = 'running';
CREATE INDEX backfill_of_job ON backfill (uid);
CREATE INDEX node_span_until ON node_span (until);
CREATE INDEX node_span_since ON node_span (since);
CREATE INDEX node_span_long ON node_span (until) WHERE until - since >= 86400000000;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('node',1);
INSERT INTO "sqlite_sequence" VALUES('run',4);
INSERT INTO "sqlite_sequence" VALUES('handler',6);
INSERT INTO "sqlite_sequence" VALUES('job',8);
PRAGMA user_version = 7;
PRAGMA application_id = 1548671569;
COMMIT;
