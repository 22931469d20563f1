-- The tables, their indexes and types. Later files only add, so that workers of this schema go on; functions are in
-- functions/*.sql. {schema} is the schema's quoted name. Everything but the tables `outbox`, `event_handled` and
-- `subscription` begins with outbox_, so that the schema may hold other tables too.
--
-- Text is compared byte by byte (COLLATE "C"): order and prefixes mean the same on every server.
-- No row triggers and no foreign keys: a claim pays for every one of them.

CREATE SEQUENCE {schema}.outbox_token;  -- one number per act; letters carry the one that moved them last
CREATE SEQUENCE {schema}.outbox_seq;    -- a letter's place; never used twice

-- The columns stand in the order that is quickest to read: fixed widths that are always there, then text that is,
-- then what may be missing.
CREATE TABLE {schema}.outbox (
    seq              bigint PRIMARY KEY DEFAULT nextval('{schema}.outbox_seq'),
    token            bigint NOT NULL,
    act              bigint NOT NULL DEFAULT 0,  -- the call that moved it last; negative if that was a claim
    due_at           timestamptz NOT NULL,
    occurred_at      timestamptz NOT NULL,
    cycle_at         timestamptz NOT NULL,       -- when this cycle began
    updated_at       timestamptz NOT NULL,
    id               uuid NOT NULL,
    event_version    integer NOT NULL DEFAULT 1,
    attempts         integer NOT NULL DEFAULT 0,
    losses           integer NOT NULL DEFAULT 0,
    cycles           integer NOT NULL DEFAULT 0,
    payload_version  integer NOT NULL DEFAULT 1,
    held             integer NOT NULL DEFAULT 0, -- how many letters it waits for
    priority         smallint NOT NULL DEFAULT 1,  -- 0 high, 1 medium, 2 low
    lane             smallint NOT NULL DEFAULT 0,  -- 0 unordered, 1 first of its key, 2 behind another, 3 arriving
    odd              boolean NOT NULL DEFAULT false,  -- some text in it is written with escapes
    queue_wide       boolean NOT NULL DEFAULT false,  -- its idempotency key is also unique among such keys of its queue
    status           text COLLATE "C" NOT NULL DEFAULT 'pending',
    queue            text COLLATE "C" NOT NULL,
    event_type       text COLLATE "C" NOT NULL,  -- the kind
    content_type     text COLLATE "C" NOT NULL DEFAULT 'application/json',
    channel          text COLLATE "C" NOT NULL DEFAULT 'outbox_default',
    payload          bytea NOT NULL,
    failure_history  jsonb NOT NULL DEFAULT '[]',
    why              text COLLATE "C",
    worker           text COLLATE "C",
    lease_until      timestamptz,                -- by the clock of leases
    key              text COLLATE "C",
    idempotency_key  text COLLATE "C",
    policy           text COLLATE "C",
    generation       bigint,
    source           text COLLATE "C",           -- the origin
    target           text COLLATE "C",           -- the handler
    workspace_id     text COLLATE "C",           -- the tenant
    trace_context    text,
    extras           bytea,                      -- headers, metadata, after: JSON, NULL when there are none
    category         text COLLATE "C",
    error_type       text COLLATE "C",
    last_error       text COLLATE "C",
    fingerprint      text COLLATE "C",
    applied_policy   text COLLATE "C",
    release          text COLLATE "C",
    archived_from    text COLLATE "C",
    plan             text COLLATE "C",           -- the plan by which an operator acted on it last
    first_failed_at  timestamptz,                -- of this cycle
    failed_at        timestamptz,
    deleted_at       timestamptz,                -- when it was archived
    tries            jsonb                       -- the attempt log of this cycle
) WITH (  -- no fillfactor: every move changes an indexed column, so that no update could be a HOT update
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.05
);

CREATE UNIQUE INDEX outbox_id ON {schema}.outbox (id);
CREATE UNIQUE INDEX outbox_idempotency ON {schema}.outbox (queue, event_type, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
CREATE UNIQUE INDEX outbox_queue_wide ON {schema}.outbox (queue, idempotency_key) WHERE queue_wide;
CREATE INDEX outbox_due ON {schema}.outbox (queue, event_type, priority, due_at, seq)
    WHERE status = 'pending' AND held = 0;
CREATE INDEX outbox_lease ON {schema}.outbox (lease_until) WHERE status = 'in_flight';
CREATE INDEX outbox_lane ON {schema}.outbox (queue, key, seq) WHERE lane > 0 AND status IN ('pending', 'in_flight');
CREATE INDEX outbox_arriving ON {schema}.outbox (queue, seq) WHERE lane = 3;
CREATE INDEX outbox_held ON {schema}.outbox (seq) WHERE status = 'pending' AND held > 0;
CREATE INDEX outbox_cycles ON {schema}.outbox (cycles) WHERE cycles > 0;
CREATE INDEX outbox_plan ON {schema}.outbox (plan, seq) WHERE plan IS NOT NULL;
CREATE INDEX outbox_failed_seq ON {schema}.outbox (seq) WHERE status = 'failed';
CREATE INDEX outbox_failed_kind ON {schema}.outbox (event_type, seq) WHERE status = 'failed';
CREATE INDEX outbox_failed_queue ON {schema}.outbox (queue, seq) WHERE status = 'failed';
CREATE INDEX outbox_failed_group ON {schema}.outbox (fingerprint, seq) WHERE status = 'failed';
CREATE INDEX outbox_failed_error_type ON {schema}.outbox (error_type, seq) WHERE status = 'failed';
CREATE INDEX outbox_failed_category ON {schema}.outbox (category, seq) WHERE status = 'failed';
CREATE INDEX outbox_failed_at ON {schema}.outbox (failed_at, seq) WHERE status = 'failed';
CREATE INDEX outbox_archived_seq ON {schema}.outbox (seq) WHERE status = 'archived';
CREATE INDEX outbox_archived_group ON {schema}.outbox (fingerprint) WHERE status = 'archived';

-- For outbox_uses_name: the digests of long names (65 characters), of the few letters that may have one.
CREATE INDEX outbox_long_names ON {schema}.outbox USING gin ((ARRAY[
    right(key, 65), right(idempotency_key, 65), right(source, 65), right(target, 65), right(workspace_id, 65),
    right(policy, 65), right(content_type, 65), right(queue, 65), right(event_type, 65), right(error_type, 65),
    right(fingerprint, 65), right(worker, 65)])) WHERE odd;

CREATE TABLE {schema}.outbox_waits (     -- letter seq waits for letter on_seq
    on_seq  bigint NOT NULL,
    seq     bigint NOT NULL,
    PRIMARY KEY (on_seq, seq)
);
CREATE INDEX outbox_waits_seq ON {schema}.outbox_waits (seq);
CREATE TABLE {schema}.outbox_unsure (    -- it waits for a letter that may have been delivered already: see outbox_make_sure
    seq bigint NOT NULL
);

-- Counts. A call that moves letters appends what changed, so that no call waits for another; later a worker folds the
-- changes into the sums. A reader adds sums and changes, in one snapshot.
CREATE TABLE {schema}.outbox_tallies (
    queue text COLLATE "C" NOT NULL, kind text COLLATE "C" NOT NULL, status text COLLATE "C" NOT NULL,
    category text COLLATE "C" NOT NULL DEFAULT '', policy text COLLATE "C" NOT NULL DEFAULT '',
    error_type text COLLATE "C" NOT NULL DEFAULT '', fingerprint text COLLATE "C" NOT NULL DEFAULT '',
    n bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 500);
CREATE UNIQUE INDEX outbox_tallies_traits ON {schema}.outbox_tallies (md5(  -- seven names may be too long for an index
    queue || E'\x1f' || kind || E'\x1f' || status || E'\x1f' || category || E'\x1f' || policy || E'\x1f' || error_type
    || E'\x1f' || fingerprint));
CREATE INDEX outbox_tallies_status ON {schema}.outbox_tallies (status, queue);  -- dead letters have a row for each error
CREATE TABLE {schema}.outbox_deltas (
    queue text COLLATE "C" NOT NULL, kind text COLLATE "C" NOT NULL, status text COLLATE "C" NOT NULL,
    category text COLLATE "C" NOT NULL DEFAULT '', policy text COLLATE "C" NOT NULL DEFAULT '',
    error_type text COLLATE "C" NOT NULL DEFAULT '', fingerprint text COLLATE "C" NOT NULL DEFAULT '',
    n bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE {schema}.outbox_names (      -- names too long for an index, by their digest: see functions/retain.sql
    digest text COLLATE "C" PRIMARY KEY, name text NOT NULL,
    kept_us bigint NOT NULL,              -- when a process wrote it, or made sure that it is here; by the clock of leases
    left_us bigint                        -- when a letter with it was removed; NULL if that was looked at since
);
CREATE INDEX outbox_names_left ON {schema}.outbox_names (left_us) WHERE left_us IS NOT NULL;

CREATE TABLE {schema}.outbox_groups (
    fingerprint text COLLATE "C" PRIMARY KEY, error_type text NOT NULL, title text NOT NULL,
    first_seen_at timestamptz NOT NULL, last_seen_at timestamptz NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE {schema}.outbox_queues (
    name text COLLATE "C" PRIMARY KEY, ordered boolean NOT NULL DEFAULT false, max_size bigint,
    rate double precision, max_in_flight bigint, paused boolean NOT NULL DEFAULT false,
    paused_by text NOT NULL DEFAULT '', reason text NOT NULL DEFAULT '',
    allowance double precision NOT NULL DEFAULT 0, allowance_at timestamptz NOT NULL DEFAULT 'epoch'
);

CREATE TABLE {schema}.outbox_workers (
    name text COLLATE "C" PRIMARY KEY, kinds bytea NOT NULL, in_flight integer NOT NULL, seen_at timestamptz NOT NULL,
    lease_until timestamptz NOT NULL
) WITH (fillfactor = 50);

-- The clock of leases, which never jumps: see outbox_tick. `wall_at` is the server's own time of its last tick.
CREATE TABLE {schema}.outbox_clock (
    one boolean PRIMARY KEY DEFAULT true CHECK (one), lease_us bigint NOT NULL, wall_at timestamptz NOT NULL
) WITH (fillfactor = 10);
INSERT INTO {schema}.outbox_clock (lease_us, wall_at)
SELECT round(date_part('epoch', at) * 1e6)::bigint, at FROM clock_timestamp() AS at;

CREATE TABLE {schema}.outbox_state (      -- breakers and retry budgets, as JSON
    room text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL, value bytea NOT NULL, PRIMARY KEY (room, name)
) WITH (fillfactor = 50);

CREATE TABLE {schema}.outbox_plans (
    id text COLLATE "C" PRIMARY KEY, value bytea NOT NULL
);

CREATE TABLE {schema}.outbox_audit (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz NOT NULL, by text NOT NULL,
    verb text NOT NULL, target text NOT NULL, count bigint NOT NULL, reason text NOT NULL
);

CREATE TABLE {schema}.outbox_calls (      -- the answers to operators' calls, for a caller that lost its answer
    call bigint PRIMARY KEY, at timestamptz NOT NULL DEFAULT now(), answer bytea NOT NULL
);

CREATE TABLE {schema}.event_handled (
    handler_name text COLLATE "C" NOT NULL, idempotency_key text COLLATE "C" NOT NULL,
    handled_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (handler_name, idempotency_key)
);

CREATE INDEX outbox_handled_long ON {schema}.event_handled (right(idempotency_key, 65))
    WHERE strpos(idempotency_key, E'\x1aL') > 0;  -- for outbox_uses_name

CREATE TABLE {schema}.subscription (
    event_type text COLLATE "C" NOT NULL, handler_name text COLLATE "C" NOT NULL,  -- the kind of the letter it gets
    queue text COLLATE "C" NOT NULL DEFAULT 'default', created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (event_type, handler_name), CHECK (event_type <> handler_name)
);

CREATE TABLE {schema}.outbox_handled_cursor (  -- the last handled key that retention looked at
    one boolean PRIMARY KEY DEFAULT true CHECK (one), handler_name text COLLATE "C" NOT NULL DEFAULT '',
    idempotency_key text COLLATE "C" NOT NULL DEFAULT ''
);
INSERT INTO {schema}.outbox_handled_cursor DEFAULT VALUES;

CREATE TABLE {schema}.outbox_meta (
    one      boolean PRIMARY KEY DEFAULT true CHECK (one),
    version  integer NOT NULL,            -- the newest migration that was applied
    oldest   integer NOT NULL DEFAULT 1,  -- the oldest version of redrive, by its schema's number, that works with it
    functions text COLLATE "C" NOT NULL DEFAULT '',  -- the digest of the functions that were applied
    retained bigint NOT NULL DEFAULT 0,   -- the last seq that retention looked at
    groups_retained text COLLATE "C" NOT NULL DEFAULT ''  -- the last group that it looked at
);
INSERT INTO {schema}.outbox_meta (version) VALUES (0);

-- A letter as a claim returns it; due_us and cycle_us are NULL where they are created_us.
CREATE TYPE {schema}.outbox_claimed AS (
    seq bigint, id text, queue text, kind text, payload bytea, content_type text, key text, idempotency_key text,
    priority smallint, due_us bigint, attempts integer, losses integer, policy text, generation bigint, origin text,
    handler text, tenant text, cycles integer, cycle_us bigint, created_us bigint, updated_us bigint,
    payload_version integer, token bigint, rich boolean, category text, error_type text, last_error text,
    fingerprint text, why text, first_failed_us bigint, failed_us bigint, applied_policy text, release text,
    plan text, waits_for integer, unique_in text, odd boolean, extras bytea, tries text, failure_history text
);
