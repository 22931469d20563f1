-- The first schema. Forward only: later files add, and code of this schema keeps running on them.
-- Instants are whole microseconds since the epoch (UTC). `lease` is the boot clock in milliseconds
-- with the boot's number above it, so that a lease of an earlier boot is always the smaller number.

CREATE TABLE meta (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    token      INTEGER NOT NULL,  -- the newest number given to an act; letters carry the one that moved them last
    seq        INTEGER NOT NULL,  -- the newest letter's; never used twice
    retained   INTEGER NOT NULL,  -- the last seq that retention looked at
    mark       BLOB NOT NULL      -- which transaction wrote last, and which before it: tells whether a WAL belongs here
) STRICT;
INSERT INTO meta VALUES (1, 0, 0, 0, x'');

CREATE TABLE boots (
    number     INTEGER PRIMARY KEY,
    boot_id    TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE letters (
    seq              INTEGER PRIMARY KEY,
    id               TEXT NOT NULL,
    queue            TEXT NOT NULL,
    kind             TEXT NOT NULL,
    payload          BLOB,              -- NULL when it is large and lives in bodies
    content_type     TEXT NOT NULL,
    key              TEXT,
    idempotency_key  TEXT,
    priority         INTEGER NOT NULL,  -- 0 high, 1 medium, 2 low
    due_us           INTEGER NOT NULL,
    attempts         INTEGER NOT NULL,
    losses           INTEGER NOT NULL,
    policy           TEXT,
    generation       INTEGER,
    origin           TEXT,
    handler          TEXT,
    tenant           TEXT,
    cycles           INTEGER NOT NULL,
    cycle_us         INTEGER NOT NULL,
    created_us       INTEGER NOT NULL,
    updated_us       INTEGER NOT NULL,
    payload_version  INTEGER NOT NULL,
    status           TEXT NOT NULL,
    token            INTEGER NOT NULL,
    held             INTEGER NOT NULL,  -- how many letters it waits for
    lane             INTEGER NOT NULL,  -- 0 unordered, 1 the first of its key, 2 behind another
    lease            INTEGER NOT NULL,  -- when a claim on it ends; before the first one any number, so that rows keep their size
    plan             TEXT,              -- the plan by which an operator acted on it last
    extras           BLOB,              -- headers, metadata, after: JSON, NULL when there are none
    category         TEXT,
    error_type       TEXT,
    last_error       TEXT,
    fingerprint      TEXT,
    why              TEXT,
    first_failed_us  INTEGER,
    failed_us        INTEGER,
    applied_policy   TEXT,
    release          TEXT,
    archived_from    TEXT,
    tries            BLOB,              -- the attempt log of this cycle: JSON
    failure_history  BLOB,              -- ended cycles: JSON
    dead             INTEGER,           -- 1 while it is failed: indexes on this, not on the status, cost a claim nothing
    queue_wide       INTEGER            -- 1 if its idempotency key is also unique among such keys of its queue
) STRICT;

CREATE UNIQUE INDEX letters_id ON letters (id);
CREATE UNIQUE INDEX letters_idempotency ON letters (queue, kind, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE UNIQUE INDEX letters_queue_wide ON letters (queue, idempotency_key) WHERE queue_wide = 1;
CREATE INDEX letters_due ON letters (queue, kind, priority, due_us, seq) WHERE status = 'pending' AND held = 0;
CREATE INDEX letters_lease ON letters (lease) WHERE status = 'in_flight';
CREATE INDEX letters_lane ON letters (queue, key, seq) WHERE lane > 0 AND status IN ('pending', 'in_flight');
CREATE INDEX letters_held ON letters (seq) WHERE held > 0;
CREATE INDEX letters_cycles ON letters (cycles) WHERE cycles > 0;
CREATE INDEX letters_plan ON letters (plan, seq) WHERE plan IS NOT NULL;
CREATE INDEX failed_seq ON letters (seq) WHERE dead = 1;
CREATE INDEX failed_kind ON letters (kind, seq) WHERE dead = 1;
CREATE INDEX failed_queue ON letters (queue, seq) WHERE dead = 1;
CREATE INDEX failed_group ON letters (fingerprint, seq) WHERE dead = 1;
CREATE INDEX failed_error_type ON letters (error_type, seq) WHERE dead = 1;
CREATE INDEX failed_category ON letters (category, seq) WHERE dead = 1;
CREATE INDEX failed_at ON letters (failed_us, seq) WHERE dead = 1;
CREATE INDEX failed_long ON letters (seq) WHERE length(last_error) > 500;  -- texts that error_text covers in part
CREATE INDEX archived_seq ON letters (seq) WHERE archived_from IS NOT NULL;
CREATE INDEX archived_group ON letters (fingerprint) WHERE archived_from IS NOT NULL;

CREATE TABLE holders (                  -- which worker made a claim: the letters in flight carry its token
    token   INTEGER PRIMARY KEY,
    worker  TEXT NOT NULL
) STRICT;

CREATE TABLE bodies (
    seq   INTEGER PRIMARY KEY,
    body  BLOB NOT NULL
) STRICT;

CREATE TABLE waits (                    -- letter seq waits for letter on_seq
    on_seq  INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    PRIMARY KEY (on_seq, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX waits_seq ON waits (seq);

CREATE VIRTUAL TABLE error_text USING fts5 (
    error, content = '', contentless_delete = 1, tokenize = 'trigram'
);

CREATE TABLE tallies (
    queue TEXT NOT NULL, kind TEXT NOT NULL, status TEXT NOT NULL, category TEXT NOT NULL,
    policy TEXT NOT NULL, error_type TEXT NOT NULL, fingerprint TEXT NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (queue, kind, status, category, policy, error_type, fingerprint)
) STRICT, WITHOUT ROWID;
CREATE INDEX tallies_status ON tallies (status, queue);  -- dead letters have many rows, one for each distinct error

CREATE TABLE groups (
    fingerprint TEXT PRIMARY KEY, error_type TEXT NOT NULL, title TEXT NOT NULL,
    first_seen_us INTEGER NOT NULL, last_seen_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE queues (
    name TEXT PRIMARY KEY, ordered INTEGER NOT NULL DEFAULT 0, max_size INTEGER, rate REAL, max_in_flight INTEGER,
    paused INTEGER NOT NULL DEFAULT 0, paused_by TEXT NOT NULL DEFAULT '', reason TEXT NOT NULL DEFAULT '',
    allowance REAL NOT NULL DEFAULT 0, allowance_at INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TABLE workers (
    name TEXT PRIMARY KEY, kinds BLOB NOT NULL, in_flight INTEGER NOT NULL, seen_us INTEGER NOT NULL,
    lease INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE shared_state (             -- breakers and retry budgets, as JSON
    room TEXT NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (room, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE plans (
    id TEXT PRIMARY KEY, value BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE audit (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, at_us INTEGER NOT NULL, by TEXT NOT NULL, verb TEXT NOT NULL,
    target TEXT NOT NULL, count INTEGER NOT NULL, reason TEXT NOT NULL
) STRICT;

CREATE TABLE event_handled (
    handler_name TEXT NOT NULL, idempotency_key TEXT NOT NULL, handled_us INTEGER NOT NULL,
    PRIMARY KEY (handler_name, idempotency_key)
) STRICT, WITHOUT ROWID;

-- The same letters for people who know the webhook inbox's table.
CREATE VIEW events AS
SELECT id, idempotency_key, kind AS event_type,
       coalesce(payload, (SELECT body FROM bodies WHERE bodies.seq = letters.seq)) AS payload,
       CASE status WHEN 'in_flight' THEN 'processing' WHEN 'delivered' THEN 'completed' ELSE status END AS status,
       -- Tries that failed or were lost; one that runs, or that succeeded, is none of them.
       attempts + losses - (status IN ('in_flight', 'delivered') AND attempts > 0) AS attempts, last_error,
       CASE WHEN status = 'pending' AND due_us > cycle_us
            THEN strftime('%Y-%m-%dT%H:%M:%fZ', due_us / 1000000.0, 'unixepoch') END AS retry_after,
       strftime('%Y-%m-%dT%H:%M:%fZ', created_us / 1000000.0, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', updated_us / 1000000.0, 'unixepoch') AS updated_at
  FROM letters;
