BEGIN;
SELECT pg_advisory_xact_lock(hashtextextended('redrive redrive', 5));
SET LOCAL lock_timeout = '2s';
DO $make_schema$ BEGIN IF NOT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = 'redrive') THEN CREATE SCHEMA "redrive"; END IF; END $make_schema$;
-- The tables, their indexes and types. Later files only add, so that workers of this schema go on; functions are in
-- functions/*.sql. "redrive" is the schema's quoted name. Everything but the tables `outbox`, `event_handled` and
-- `subscription` begins with outbox_, so that the schema may hold other tables too.
--
-- Text is compared byte by byte (COLLATE "C"): order and prefixes mean the same on every server.
-- No row triggers and no foreign keys: a claim pays for every one of them.

CREATE SEQUENCE "redrive".outbox_token;  -- one number per act; letters carry the one that moved them last
CREATE SEQUENCE "redrive".outbox_seq;    -- a letter's place; never used twice

-- The columns stand in the order that is quickest to read: fixed widths that are always there, then text that is,
-- then what may be missing.
CREATE TABLE "redrive".outbox (
    seq              bigint PRIMARY KEY DEFAULT nextval('"redrive".outbox_seq'),
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

CREATE UNIQUE INDEX outbox_id ON "redrive".outbox (id);
CREATE UNIQUE INDEX outbox_idempotency ON "redrive".outbox (queue, event_type, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
CREATE UNIQUE INDEX outbox_queue_wide ON "redrive".outbox (queue, idempotency_key) WHERE queue_wide;
CREATE INDEX outbox_due ON "redrive".outbox (queue, event_type, priority, due_at, seq)
    WHERE status = 'pending' AND held = 0;
CREATE INDEX outbox_lease ON "redrive".outbox (lease_until) WHERE status = 'in_flight';
CREATE INDEX outbox_lane ON "redrive".outbox (queue, key, seq) WHERE lane > 0 AND status IN ('pending', 'in_flight');
CREATE INDEX outbox_arriving ON "redrive".outbox (queue, seq) WHERE lane = 3;
CREATE INDEX outbox_held ON "redrive".outbox (seq) WHERE status = 'pending' AND held > 0;
CREATE INDEX outbox_cycles ON "redrive".outbox (cycles) WHERE cycles > 0;
CREATE INDEX outbox_plan ON "redrive".outbox (plan, seq) WHERE plan IS NOT NULL;
CREATE INDEX outbox_failed_seq ON "redrive".outbox (seq) WHERE status = 'failed';
CREATE INDEX outbox_failed_kind ON "redrive".outbox (event_type, seq) WHERE status = 'failed';
CREATE INDEX outbox_failed_queue ON "redrive".outbox (queue, seq) WHERE status = 'failed';
CREATE INDEX outbox_failed_group ON "redrive".outbox (fingerprint, seq) WHERE status = 'failed';
CREATE INDEX outbox_failed_error_type ON "redrive".outbox (error_type, seq) WHERE status = 'failed';
CREATE INDEX outbox_failed_category ON "redrive".outbox (category, seq) WHERE status = 'failed';
CREATE INDEX outbox_failed_at ON "redrive".outbox (failed_at, seq) WHERE status = 'failed';
CREATE INDEX outbox_archived_seq ON "redrive".outbox (seq) WHERE status = 'archived';
CREATE INDEX outbox_archived_group ON "redrive".outbox (fingerprint) WHERE status = 'archived';

-- For outbox_uses_name: the digests of long names (65 characters), of the few letters that may have one.
CREATE INDEX outbox_long_names ON "redrive".outbox USING gin ((ARRAY[
    right(key, 65), right(idempotency_key, 65), right(source, 65), right(target, 65), right(workspace_id, 65),
    right(policy, 65), right(content_type, 65), right(queue, 65), right(event_type, 65), right(error_type, 65),
    right(fingerprint, 65), right(worker, 65)])) WHERE odd;

CREATE TABLE "redrive".outbox_waits (     -- letter seq waits for letter on_seq
    on_seq  bigint NOT NULL,
    seq     bigint NOT NULL,
    PRIMARY KEY (on_seq, seq)
);
CREATE INDEX outbox_waits_seq ON "redrive".outbox_waits (seq);
CREATE TABLE "redrive".outbox_unsure (    -- it waits for a letter that may have been delivered already: see outbox_make_sure
    seq bigint NOT NULL
);

-- Counts. A call that moves letters appends what changed, so that no call waits for another; later a worker folds the
-- changes into the sums. A reader adds sums and changes, in one snapshot.
CREATE TABLE "redrive".outbox_tallies (
    queue text COLLATE "C" NOT NULL, kind text COLLATE "C" NOT NULL, status text COLLATE "C" NOT NULL,
    category text COLLATE "C" NOT NULL DEFAULT '', policy text COLLATE "C" NOT NULL DEFAULT '',
    error_type text COLLATE "C" NOT NULL DEFAULT '', fingerprint text COLLATE "C" NOT NULL DEFAULT '',
    n bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 500);
CREATE UNIQUE INDEX outbox_tallies_traits ON "redrive".outbox_tallies (md5(  -- seven names may be too long for an index
    queue || E'\x1f' || kind || E'\x1f' || status || E'\x1f' || category || E'\x1f' || policy || E'\x1f' || error_type
    || E'\x1f' || fingerprint));
CREATE INDEX outbox_tallies_status ON "redrive".outbox_tallies (status, queue);  -- dead letters have a row for each error
CREATE TABLE "redrive".outbox_deltas (
    queue text COLLATE "C" NOT NULL, kind text COLLATE "C" NOT NULL, status text COLLATE "C" NOT NULL,
    category text COLLATE "C" NOT NULL DEFAULT '', policy text COLLATE "C" NOT NULL DEFAULT '',
    error_type text COLLATE "C" NOT NULL DEFAULT '', fingerprint text COLLATE "C" NOT NULL DEFAULT '',
    n bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE "redrive".outbox_names (      -- names too long for an index, by their digest: see functions/retain.sql
    digest text COLLATE "C" PRIMARY KEY, name text NOT NULL,
    kept_us bigint NOT NULL,              -- when a process wrote it, or made sure that it is here; by the clock of leases
    left_us bigint                        -- when a letter with it was removed; NULL if that was looked at since
);
CREATE INDEX outbox_names_left ON "redrive".outbox_names (left_us) WHERE left_us IS NOT NULL;

CREATE TABLE "redrive".outbox_groups (
    fingerprint text COLLATE "C" PRIMARY KEY, error_type text NOT NULL, title text NOT NULL,
    first_seen_at timestamptz NOT NULL, last_seen_at timestamptz NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE "redrive".outbox_queues (
    name text COLLATE "C" PRIMARY KEY, ordered boolean NOT NULL DEFAULT false, max_size bigint,
    rate double precision, max_in_flight bigint, paused boolean NOT NULL DEFAULT false,
    paused_by text NOT NULL DEFAULT '', reason text NOT NULL DEFAULT '',
    allowance double precision NOT NULL DEFAULT 0, allowance_at timestamptz NOT NULL DEFAULT 'epoch'
);

CREATE TABLE "redrive".outbox_workers (
    name text COLLATE "C" PRIMARY KEY, kinds bytea NOT NULL, in_flight integer NOT NULL, seen_at timestamptz NOT NULL,
    lease_until timestamptz NOT NULL
) WITH (fillfactor = 50);

-- The clock of leases, which never jumps: see outbox_tick. `wall_at` is the server's own time of its last tick.
CREATE TABLE "redrive".outbox_clock (
    one boolean PRIMARY KEY DEFAULT true CHECK (one), lease_us bigint NOT NULL, wall_at timestamptz NOT NULL
) WITH (fillfactor = 10);
INSERT INTO "redrive".outbox_clock (lease_us, wall_at)
SELECT round(date_part('epoch', at) * 1e6)::bigint, at FROM clock_timestamp() AS at;

CREATE TABLE "redrive".outbox_state (      -- breakers and retry budgets, as JSON
    room text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL, value bytea NOT NULL, PRIMARY KEY (room, name)
) WITH (fillfactor = 50);

CREATE TABLE "redrive".outbox_plans (
    id text COLLATE "C" PRIMARY KEY, value bytea NOT NULL
);

CREATE TABLE "redrive".outbox_audit (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz NOT NULL, by text NOT NULL,
    verb text NOT NULL, target text NOT NULL, count bigint NOT NULL, reason text NOT NULL
);

CREATE TABLE "redrive".outbox_calls (      -- the answers to operators' calls, for a caller that lost its answer
    call bigint PRIMARY KEY, at timestamptz NOT NULL DEFAULT now(), answer bytea NOT NULL
);

CREATE TABLE "redrive".event_handled (
    handler_name text COLLATE "C" NOT NULL, idempotency_key text COLLATE "C" NOT NULL,
    handled_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (handler_name, idempotency_key)
);

CREATE INDEX outbox_handled_long ON "redrive".event_handled (right(idempotency_key, 65))
    WHERE strpos(idempotency_key, E'\x1aL') > 0;  -- for outbox_uses_name

CREATE TABLE "redrive".subscription (
    event_type text COLLATE "C" NOT NULL, handler_name text COLLATE "C" NOT NULL,  -- the kind of the letter it gets
    queue text COLLATE "C" NOT NULL DEFAULT 'default', created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (event_type, handler_name), CHECK (event_type <> handler_name)
);

CREATE TABLE "redrive".outbox_handled_cursor (  -- the last handled key that retention looked at
    one boolean PRIMARY KEY DEFAULT true CHECK (one), handler_name text COLLATE "C" NOT NULL DEFAULT '',
    idempotency_key text COLLATE "C" NOT NULL DEFAULT ''
);
INSERT INTO "redrive".outbox_handled_cursor DEFAULT VALUES;

CREATE TABLE "redrive".outbox_meta (
    one      boolean PRIMARY KEY DEFAULT true CHECK (one),
    version  integer NOT NULL,            -- the newest migration that was applied
    oldest   integer NOT NULL DEFAULT 1,  -- the oldest version of redrive, by its schema's number, that works with it
    functions text COLLATE "C" NOT NULL DEFAULT '',  -- the digest of the functions that were applied
    retained bigint NOT NULL DEFAULT 0,   -- the last seq that retention looked at
    groups_retained text COLLATE "C" NOT NULL DEFAULT ''  -- the last group that it looked at
);
INSERT INTO "redrive".outbox_meta (version) VALUES (0);

-- A letter as a claim returns it; due_us and cycle_us are NULL where they are created_us.
CREATE TYPE "redrive".outbox_claimed AS (
    seq bigint, id text, queue text, kind text, payload bytea, content_type text, key text, idempotency_key text,
    priority smallint, due_us bigint, attempts integer, losses integer, policy text, generation bigint, origin text,
    handler text, tenant text, cycles integer, cycle_us bigint, created_us bigint, updated_us bigint,
    payload_version integer, token bigint, rich boolean, category text, error_type text, last_error text,
    fingerprint text, why text, first_failed_us bigint, failed_us bigint, applied_policy text, release text,
    plan text, waits_for integer, unique_in text, odd boolean, extras bytea, tries text, failure_history text
);

-- Instants, the clock of leases, and what makes a transaction durable.

CREATE OR REPLACE FUNCTION "redrive".outbox_at(us bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT to_timestamp(us::double precision / 1e6) $$;

CREATE OR REPLACE FUNCTION "redrive".outbox_us(at timestamptz) RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE
AS $$  -- instants beyond the years 1 to 9999 are shown as their end, because Python's datetime knows no others
    SELECT CASE WHEN at > '9999-12-31 23:59:59.999999+00' THEN 253402300799999999
                WHEN at < '0001-01-01 00:00:00+00' THEN -62135596800000000
                ELSE round(date_part('epoch', at) * 1e6)::bigint END
$$;

-- An instant inside a JSON document: fixed-width UTC, which casts to timestamptz and sorts as text.
CREATE OR REPLACE FUNCTION "redrive".outbox_iso(at timestamptz) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') $$;

-- Make this transaction's commit wait for the disk, whatever the server, the database or the role has set. A setting that
-- also waits for a standby stays. Holds until the end of the transaction, behind a pooler too.
CREATE OR REPLACE FUNCTION "redrive".outbox_durable() RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $$;

-- Move the clock of leases on, and return it. It adds up what workers measure with clocks that never jump: a worker that
-- saw it at p_seen, and finds it there p_passed microseconds later, adds these. So it never goes faster than time, it goes
-- on as long as one worker sweeps, and it does not notice when the server's wall clock is set or a standby with another
-- clock takes over. No call waits for it: one that finds it locked leaves it to the call that has the lock.
CREATE OR REPLACE FUNCTION "redrive".outbox_tick(p_seen bigint, p_passed bigint) RETURNS TABLE (lease_us bigint, moved boolean)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    PERFORM 1 FROM "redrive".outbox_clock WHERE one AND lease_us = p_seen AND p_passed > 0 FOR NO KEY UPDATE SKIP LOCKED;
    IF FOUND THEN
        RETURN QUERY UPDATE "redrive".outbox_clock SET lease_us = lease_us + p_passed, wall_at = clock_timestamp()
                      WHERE one RETURNING lease_us, true;
    ELSE
        RETURN QUERY SELECT lease_us, false FROM "redrive".outbox_clock WHERE one;
    END IF;
END $$;

-- When a lease of p_lease seconds ends that begins now. The wall clock says how long ago the last tick was; a third of the
-- lease bounds what it may say, because workers tick at least three times in a lease.
CREATE OR REPLACE FUNCTION "redrive".outbox_lease_end(p_lease double precision) RETURNS timestamptz LANGUAGE sql STABLE
AS $$
    SELECT "redrive".outbox_at(lease_us) + p_lease * interval '1 second'
           + least(greatest(clock_timestamp() - wall_at, '0'), p_lease / 3 * interval '1 second')
      FROM "redrive".outbox_clock WHERE one
$$;

-- Counts: sums, changes that are not folded into them yet, and what a letter is counted by.

-- How many letters of a queue are in one of these states.
CREATE OR REPLACE FUNCTION "redrive".outbox_counted(p_queue text, p_statuses text[]) RETURNS bigint LANGUAGE sql STABLE
AS $$
    SELECT coalesce(sum(n), 0)::bigint FROM (
        SELECT n FROM "redrive".outbox_tallies WHERE queue = p_queue AND status = ANY (p_statuses)
        UNION ALL
        SELECT n FROM "redrive".outbox_deltas WHERE queue = p_queue AND status = ANY (p_statuses)) AS all_counts
$$;

-- Fold up to p_limit changes into the sums; return how many. Only one caller folds at a time: others return at once.
CREATE OR REPLACE FUNCTION "redrive".outbox_fold(p_limit integer) RETURNS integer LANGUAGE plpgsql
AS $$
DECLARE
    v_folded integer;
    v_empty text[];
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('"redrive".outbox_fold', 3)) THEN
        RETURN 0;
    END IF;
    WITH gone AS (
        DELETE FROM "redrive".outbox_deltas WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM "redrive".outbox_deltas LIMIT p_limit)) RETURNING *),
    summed AS (
        INSERT INTO "redrive".outbox_tallies AS t
        SELECT queue, kind, status, category, policy, error_type, fingerprint, sum(n) FROM gone
         GROUP BY 1, 2, 3, 4, 5, 6, 7 HAVING sum(n) <> 0
        ON CONFLICT (md5(queue || E'\x1f' || kind || E'\x1f' || status || E'\x1f' || category || E'\x1f' || policy
                         || E'\x1f' || error_type || E'\x1f' || fingerprint)) DO UPDATE SET n = t.n + excluded.n
        RETURNING n, status, category, policy, md5(queue || E'\x1f' || kind || E'\x1f' || status || E'\x1f' || category || E'\x1f' || policy
                                 || E'\x1f' || error_type || E'\x1f' || fingerprint) AS traits)
    SELECT (SELECT count(*) FROM gone),
           (SELECT array_agg(traits) FROM summed WHERE n = 0 AND (
                       status NOT IN ('pending', 'in_flight') OR category <> '' OR policy <> ''))
      INTO v_folded, v_empty;
    DELETE FROM "redrive".outbox_tallies  -- found by their traits: there is a row for each distinct error
     WHERE md5(queue || E'\x1f' || kind || E'\x1f' || status || E'\x1f' || category || E'\x1f' || policy
               || E'\x1f' || error_type || E'\x1f' || fingerprint) = ANY (v_empty) AND n = 0;
    RETURN v_folded;
END $$;

-- What these letters are counted by, and how many they are: dead ones by their error, pending ones by the category of
-- their last failure and the policy that was applied, if any.
CREATE OR REPLACE FUNCTION "redrive".outbox_traits(p_seqs bigint[])
RETURNS TABLE (queue text, kind text, status text, category text, policy text, error_type text, fingerprint text,
               n bigint) LANGUAGE sql STABLE
AS $$
    SELECT o.queue, o.event_type, o.status,
           CASE WHEN o.status || '' IN ('failed', 'pending') THEN coalesce(o.category, '') ELSE '' END,
           CASE WHEN o.status || '' IN ('failed', 'pending') THEN coalesce(o.applied_policy, '') ELSE '' END,
           CASE WHEN o.status || '' = 'failed' THEN coalesce(o.error_type, '') ELSE '' END,
           CASE WHEN o.status || '' = 'failed' THEN coalesce(o.fingerprint, '') ELSE '' END, count(*)
      FROM "redrive".outbox AS o WHERE o.seq = ANY (p_seqs) GROUP BY 1, 2, 3, 4, 5, 6, 7
$$;

-- Count letters out of what they are and into p_status.
CREATE OR REPLACE FUNCTION "redrive".outbox_count_out(p_seqs bigint[], p_status text) RETURNS void LANGUAGE sql
AS $$
    WITH before AS MATERIALIZED (SELECT t.* FROM "redrive".outbox_traits(p_seqs) AS t)
    INSERT INTO "redrive".outbox_deltas
    SELECT queue, kind, status, category, policy, error_type, fingerprint, -n FROM before
    UNION ALL
    SELECT queue, kind, p_status, '', '', '', '', sum(n) FROM before GROUP BY 1, 2
$$;

-- Order per key.
--
-- A letter of an ordered queue arrives in lane 3. Its enqueuer holds the key's arrival lock until it commits, so that
-- places follow the order of commits. Then the letter is placed: first of its key (lane 1), or behind another (lane 2).
-- Only the first can be claimed. A call that changes a lane holds the lane's lock, in a short transaction. Enqueuers
-- never take that lock, so that a user's open transaction blocks no worker.

-- Lock keys for letters that arrive, until the end of the transaction; in one order, so that two callers cannot deadlock.
CREATE OR REPLACE FUNCTION "redrive".outbox_lock_arrivals(p_queues text[], p_keys text[]) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(name) FROM (
        SELECT DISTINCT hashtextextended(k, hashtextextended(q, 11)) AS name
          FROM unnest(p_queues, p_keys) AS l (q, k) WHERE k IS NOT NULL ORDER BY 1 OFFSET 0) AS names;
END $$;

-- Lock the lanes of these letters; in one order, so that two callers cannot deadlock.
CREATE OR REPLACE FUNCTION "redrive".outbox_lock_lanes(p_seqs bigint[]) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(name) FROM (
        SELECT DISTINCT hashtextextended(o.key, hashtextextended(o.queue, 7)) AS name
          FROM "redrive".outbox AS o JOIN "redrive".outbox_queues AS q ON q.name = o.queue
         WHERE o.seq = ANY (p_seqs) AND o.key IS NOT NULL AND q.ordered ORDER BY 1 OFFSET 0) AS names;
END $$;

-- Place letters that arrived; the caller holds their lanes.
CREATE OR REPLACE FUNCTION "redrive".outbox_place_rows(p_seqs bigint[]) RETURNS void LANGUAGE sql
AS $$
    UPDATE "redrive".outbox AS o
       SET lane = CASE WHEN p.first THEN 1 ELSE 2 END, held = o.held - p.first::integer
      FROM (SELECT a.seq, row_number() OVER (PARTITION BY a.queue, a.key ORDER BY a.seq) = 1 AND NOT EXISTS (
                       SELECT 1 FROM "redrive".outbox AS b
                        WHERE b.queue = a.queue AND b.key = a.key AND b.lane > 0 AND b.lane < 3
                          AND b.status IN ('pending', 'in_flight')) AS first
              FROM "redrive".outbox AS a WHERE a.seq = ANY (p_seqs) AND a.lane = 3) AS p
     WHERE o.seq = p.seq
$$;

-- Place what arrived in these queues. Waits for calls that hold one of the lanes; takes the locks in one order.
CREATE OR REPLACE FUNCTION "redrive".outbox_place_all(p_queues text[]) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE v_seqs bigint[];
BEGIN
    SELECT array_agg(seq) INTO v_seqs FROM "redrive".outbox WHERE lane = 3 AND queue = ANY (p_queues);
    IF v_seqs IS NOT NULL THEN
        PERFORM "redrive".outbox_lock_lanes(v_seqs);
        PERFORM "redrive".outbox_place_rows(v_seqs);
    END IF;
END $$;

-- Place what arrived in a queue, of the given keys or (NULL) of all, in lanes that no other call holds right now. A call
-- that puts or claims may hold letters and other lanes, so two that waited for each other's lane would deadlock. The next
-- claim, or a worker that looks what is left to do, places the rest.
CREATE OR REPLACE FUNCTION "redrive".outbox_place_free(p_queue text, p_keys text[]) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE v_seqs bigint[];
BEGIN
    SELECT array_agg(u.seq) INTO v_seqs
      FROM (SELECT k.seqs FROM (
                   SELECT key, array_agg(seq) AS seqs FROM "redrive".outbox
                    WHERE lane = 3 AND queue = p_queue AND (p_keys IS NULL OR key = ANY (p_keys))
                    GROUP BY key OFFSET 0) AS k
             WHERE pg_try_advisory_xact_lock(hashtextextended(k.key, hashtextextended(p_queue, 7))) OFFSET 0) AS free
     CROSS JOIN LATERAL unnest(free.seqs) AS u (seq);
    IF v_seqs IS NOT NULL THEN
        PERFORM "redrive".outbox_place_rows(v_seqs);
    END IF;
END $$;

-- Let the oldest letter of each of these letters' lanes go first: the one before it has come to rest.
CREATE OR REPLACE FUNCTION "redrive".outbox_advance(p_seqs bigint[]) RETURNS void LANGUAGE sql
AS $$
    UPDATE "redrive".outbox AS o SET lane = 1, held = o.held - 1
      FROM (SELECT DISTINCT queue, key FROM "redrive".outbox
             WHERE seq = ANY (p_seqs) AND lane > 0 AND key IS NOT NULL) AS l
     CROSS JOIN LATERAL (
           SELECT seq FROM "redrive".outbox AS n
            WHERE n.queue = l.queue AND n.key = l.key AND n.lane > 0 AND n.lane < 3
              AND n.status IN ('pending', 'in_flight') ORDER BY n.seq LIMIT 1) AS head
     WHERE o.seq = head.seq AND o.lane = 2
$$;

-- Put the lanes of these letters in order again, the oldest first; one that is in flight stays first. The caller holds
-- the rows of these letters and their lanes, but a claim takes the first of a lane without the lane's lock.
CREATE OR REPLACE FUNCTION "redrive".outbox_line_up(p_seqs bigint[]) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    -- They come back from rest, where no lane held them: only letters that they wait for hold them now.
    UPDATE "redrive".outbox AS o SET lane = r.lane, held = r.held
      FROM (SELECT n.seq, coalesce(q.ordered, false)::integer AS lane,
                   (SELECT count(*) FROM "redrive".outbox_waits AS w WHERE w.seq = n.seq) AS held
              FROM "redrive".outbox AS n LEFT JOIN "redrive".outbox_queues AS q ON q.name = n.queue
             WHERE n.seq = ANY (p_seqs) AND n.key IS NOT NULL) AS r
     WHERE o.seq = r.seq AND (o.lane <> r.lane OR o.held <> r.held);
    -- A claim that takes one of these right now did not see that it must wait: wait for its end, then look.
    PERFORM 1 FROM "redrive".outbox AS n
       JOIN (SELECT DISTINCT queue, key FROM "redrive".outbox
              WHERE seq = ANY (p_seqs) AND lane > 0 AND key IS NOT NULL) AS l ON n.queue = l.queue AND n.key = l.key
      WHERE n.lane > 0 AND n.lane < 2 AND n.status IN ('pending', 'in_flight') ORDER BY n.seq FOR NO KEY UPDATE OF n;
    UPDATE "redrive".outbox AS o SET lane = w.wanted, held = o.held + w.wanted - o.lane
      FROM (SELECT n.seq, CASE WHEN row_number() OVER (
                       PARTITION BY n.queue, n.key ORDER BY n.status = 'pending', n.seq) = 1 THEN 1 ELSE 2 END AS wanted
              FROM (SELECT DISTINCT queue, key FROM "redrive".outbox
                     WHERE seq = ANY (p_seqs) AND lane > 0 AND key IS NOT NULL) AS l
              JOIN "redrive".outbox AS n ON n.queue = l.queue AND n.key = l.key AND n.lane > 0 AND n.lane < 3
               AND n.status IN ('pending', 'in_flight')) AS w
     WHERE o.seq = w.seq AND o.lane <> w.wanted;
END $$;

-- Let a queue keep order from now on, or no longer.
CREATE OR REPLACE FUNCTION "redrive".outbox_order(p_queue text, p_ordered boolean) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    IF NOT p_ordered THEN
        UPDATE "redrive".outbox SET lane = 0, held = held - (lane > 1)::integer WHERE queue = p_queue AND lane > 0;
        RETURN;
    END IF;
    UPDATE "redrive".outbox SET lane = 1
     WHERE queue = p_queue AND key IS NOT NULL AND lane = 0 AND status IN ('pending', 'in_flight');
    PERFORM "redrive".outbox_line_up(ARRAY(
        SELECT seq FROM "redrive".outbox WHERE queue = p_queue AND lane = 1 AND status IN ('pending', 'in_flight')));
END $$;

-- Letters that wait for other letters (`after`).

-- Let new letters wait for others. p_seqs holds the place of every draft, p_token is their token. p_meant maps the id of a
-- draft of this call that is a duplicate to its number in the call and the id that is kept: a letter that waits for such
-- a draft waits for what is kept. p_lasting: the transaction is the user's own, and may stay open.
CREATE OR REPLACE FUNCTION "redrive".outbox_wait(p_rich jsonb, p_seqs bigint[], p_token bigint, p_meant jsonb, p_lasting boolean)
RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_seqs bigint[];  -- the letter that waits, and in v_ids the one that it waits for, pair by pair
    v_ids uuid[];
    v_unknown text;
    v_seq bigint;
    v_held bigint;
BEGIN
    SELECT array_agg(p_seqs[r.n] ORDER BY r.n, a.place), array_agg(coalesce(
               CASE WHEN (p_meant -> a.id ->> 0)::bigint < r.n THEN p_meant -> a.id ->> 1 END, a.id)::uuid ORDER BY r.n, a.place)
      INTO v_seqs, v_ids
      FROM jsonb_to_recordset(p_rich) AS r (n bigint, after text[])
     CROSS JOIN LATERAL (SELECT 1 FROM "redrive".outbox AS o WHERE o.seq = p_seqs[r.n] LIMIT 1) AS kept
     CROSS JOIN LATERAL unnest(r.after) WITH ORDINALITY AS a (id, place)
     WHERE cardinality(r.after) > 0;
    IF v_seqs IS NULL THEN
        RETURN;
    END IF;
    -- A short transaction locks them, so that no worker delivers one between our look and our commit. A user's own
    -- transaction only keeps them from being removed: no worker waits for it, and outbox_make_sure looks again later.
    IF p_lasting THEN
        PERFORM 1 FROM "redrive".outbox AS o WHERE o.id = ANY (v_ids) ORDER BY o.seq FOR KEY SHARE;
    ELSE
        PERFORM 1 FROM "redrive".outbox AS o WHERE o.id = ANY (v_ids) ORDER BY o.seq FOR SHARE;
    END IF;
    -- LIMIT makes the planner look each up in the index: after most letters were removed it takes the table for empty.
    SELECT u.id INTO v_unknown  -- those that come later in the same call are unknown, too
      FROM unnest(v_ids, v_seqs) WITH ORDINALITY AS u (id, seq, place)
      LEFT JOIN LATERAL (SELECT n.seq, n.token FROM "redrive".outbox AS n WHERE n.id = u.id LIMIT 1) AS o ON true
     WHERE o.seq IS NULL OR (o.token = p_token AND o.seq >= u.seq) ORDER BY u.place LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'no letter has the id %', v_unknown USING ERRCODE = 'RD404', DETAIL = v_unknown;
    END IF;
    IF p_meant <> '{}' THEN  -- and name what is kept: `after` stands last in the extras, and all ids have one length
        UPDATE "redrive".outbox AS o
           SET extras = overlay(o.extras PLACING k.ids FROM octet_length(o.extras) - octet_length(k.ids) + 1)
          FROM (SELECT u.seq, convert_to('["' || string_agg(u.id::text, '","' ORDER BY u.place) || '"]}', 'UTF8') AS ids
                  FROM unnest(v_seqs, v_ids) WITH ORDINALITY AS u (seq, id, place) GROUP BY u.seq) AS k
         WHERE o.seq = k.seq AND convert_to('"after":', 'UTF8') = substring(
               o.extras FROM octet_length(o.extras) - octet_length(k.ids) - 7 FOR 8);
    END IF;
    FOR v_seq, v_held IN
        WITH waits AS (
            INSERT INTO "redrive".outbox_waits (on_seq, seq)
            SELECT DISTINCT o.seq, u.seq FROM unnest(v_ids, v_seqs) AS u (id, seq)
             CROSS JOIN LATERAL (SELECT n.seq, n.status FROM "redrive".outbox AS n WHERE n.id = u.id LIMIT 1) AS o
             WHERE o.status <> 'delivered' RETURNING seq),
        unsure AS (INSERT INTO "redrive".outbox_unsure SELECT DISTINCT seq FROM waits WHERE p_lasting)
        SELECT seq, count(*) FROM waits GROUP BY seq
    LOOP
        UPDATE "redrive".outbox SET held = held + v_held WHERE seq = v_seq;
    END LOOP;
END $$;

-- Let go the letters that waited for these, which were delivered.
CREATE OR REPLACE FUNCTION "redrive".outbox_let_go(p_seqs bigint[]) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM "redrive".outbox_waits) THEN
        RETURN;
    END IF;
    WITH over AS (DELETE FROM "redrive".outbox_waits WHERE on_seq = ANY (p_seqs) RETURNING seq)
    UPDATE "redrive".outbox AS o SET held = o.held - w.n
      FROM (SELECT seq, count(*) AS n FROM over GROUP BY seq) AS w WHERE o.seq = w.seq;
END $$;

-- Let go those letters of outbox_unsure that wait for one that was delivered already; every worker looks before it rests.
CREATE OR REPLACE FUNCTION "redrive".outbox_make_sure() RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off
AS $$
DECLARE v_seqs bigint[];
BEGIN
    WITH looked_at AS (
        DELETE FROM "redrive".outbox_unsure WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM "redrive".outbox_unsure LIMIT 1000 FOR UPDATE SKIP LOCKED)) RETURNING seq)
    SELECT array_agg(seq) INTO v_seqs FROM looked_at;
    IF v_seqs IS NULL THEN
        RETURN;
    END IF;
    -- A call that delivers one of them right now did not see that a letter waits: wait for its end, then look.
    PERFORM 1 FROM "redrive".outbox AS o
      WHERE o.seq IN (SELECT w.on_seq FROM "redrive".outbox_waits AS w WHERE w.seq = ANY (v_seqs))
      ORDER BY o.seq FOR SHARE;
    PERFORM "redrive".outbox_let_go(ARRAY(
        SELECT DISTINCT w.on_seq FROM "redrive".outbox_waits AS w
          JOIN "redrive".outbox AS o ON o.seq = w.on_seq  -- one that is gone was purged before it was delivered
         WHERE w.seq = ANY (v_seqs) AND o.status = 'delivered'));
END $$;

-- Settling: what an attempt came to.
--
-- Tokens of one letter only grow: a settlement takes its number after the claim that it fences, and a claim passes over
-- letters whose number is newer than its own.

-- The attempt log before a line is added: its newest lines, without tracebacks if the new line has one, because a cycle
-- keeps only the newest traceback. What is no JSON array was not written by redrive and counts as empty.
CREATE OR REPLACE FUNCTION "redrive".outbox_log(p_tries jsonb, p_line jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE
AS $$
    SELECT CASE WHEN p_tries IS NULL OR jsonb_typeof(p_tries) <> 'array' THEN '[]'
                WHEN NOT p_line ? 'traceback' AND jsonb_array_length(p_tries) < 50 THEN p_tries
                ELSE (SELECT coalesce(jsonb_agg(CASE WHEN p_line ? 'traceback' AND jsonb_typeof(e.one) = 'object'
                                                     THEN e.one - 'traceback' ELSE e.one END ORDER BY e.n), '[]')
                        FROM jsonb_array_elements(p_tries) WITH ORDINALITY AS e (one, n)
                       WHERE e.n > jsonb_array_length(p_tries) - 49) END
$$;

-- Carry out moves to failed or back to pending; return the places of the letters whose claim still held. p_from is
-- in_flight, or pending for new letters that failed elsewhere: those keep their due time.
-- The array of places makes the planner look them up in the index: after most letters were removed it takes the table for
-- empty, and a join alone would go through all of it. `status || ''` keeps it from the partial indexes of a status.
CREATE OR REPLACE FUNCTION "redrive".outbox_fail(p_moves jsonb, p_call bigint, p_now timestamptz, p_from text)
RETURNS SETOF bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = on SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    v_refs bigint[] := ARRAY(SELECT m.ref FROM jsonb_to_recordset(p_moves) AS m (ref bigint));
    v_token bigint;
    v_seqs bigint[];
    v_firsts bigint[];  -- those that were the first of their lanes
BEGIN
    IF p_moves IS NULL THEN
        RETURN;
    END IF;
    v_token := CASE WHEN p_from = 'pending' THEN NULL ELSE nextval('"redrive".outbox_token') END;
    WITH asked AS MATERIALIZED (
        SELECT * FROM jsonb_to_recordset(p_moves) AS m (
            ref bigint, token bigint, "to" text, why text, delay bigint, uncount integer, loss integer, failed boolean,
            category text, error_type text, error text, fingerprint text, title text, policy text, release text,
            odd boolean, try jsonb)),
    moved AS (
        UPDATE "redrive".outbox AS o
           SET status = m."to", token = coalesce(v_token, o.token), act = CASE WHEN p_call = 0 THEN o.act ELSE p_call END,
               lease_until = NULL, worker = NULL,
               updated_at = p_now, why = m.why, attempts = o.attempts - m.uncount, losses = o.losses + m.loss,
               due_at = CASE WHEN m."to" = 'pending' AND p_from <> 'pending'
                             THEN p_now + m.delay * interval '1 microsecond' ELSE o.due_at END,
               failed_at = CASE WHEN m."to" = 'failed' THEN p_now ELSE o.failed_at END,
               lane = CASE WHEN m."to" = 'failed' THEN least(o.lane, 1::smallint) ELSE o.lane END,
               category = CASE WHEN m.failed THEN m.category ELSE o.category END,
               error_type = CASE WHEN m.failed THEN m.error_type ELSE o.error_type END,
               last_error = CASE WHEN m.failed THEN m.error ELSE o.last_error END,
               fingerprint = CASE WHEN m.failed THEN m.fingerprint ELSE o.fingerprint END,
               applied_policy = coalesce(nullif(m.policy, ''), CASE WHEN NOT m.failed THEN o.applied_policy END),
               first_failed_at = CASE WHEN m.failed THEN coalesce(o.first_failed_at, p_now) ELSE o.first_failed_at END,
               release = coalesce(m.release, o.release), odd = o.odd OR m.odd,
               tries = CASE WHEN m.failed THEN
                   "redrive".outbox_log(o.tries, m.try) || (m.try || jsonb_build_object('attempt', o.attempts, 'at', "redrive".outbox_iso(p_now)))
                   ELSE o.tries END
          FROM asked AS m
         WHERE o.seq = m.ref AND o.seq = ANY (v_refs) AND o.token = m.token AND o.status || '' = p_from
        RETURNING o.seq, o.queue, o.event_type, coalesce(o.category, '') AS last_category,
                  coalesce(o.applied_policy, '') AS last_policy, m.*),
    counted AS (
        INSERT INTO "redrive".outbox_deltas
        SELECT queue, event_type, p_from, '', '', '', '', -count(*) FROM moved GROUP BY 1, 2
        UNION ALL
        SELECT queue, event_type, 'pending', last_category, last_policy, '', '', count(*)
          FROM moved WHERE "to" = 'pending' GROUP BY 1, 2, 4, 5
        UNION ALL
        SELECT queue, event_type, 'failed', category, policy, error_type, fingerprint, count(*)
          FROM moved WHERE "to" = 'failed' GROUP BY 1, 2, 4, 5, 6, 7),
    grouped AS (
        INSERT INTO "redrive".outbox_groups
        SELECT DISTINCT ON (fingerprint) fingerprint, error_type, title, p_now, p_now
          FROM moved WHERE "to" = 'failed' ORDER BY fingerprint
        ON CONFLICT (fingerprint) DO UPDATE SET last_seen_at = excluded.last_seen_at)
    SELECT array_agg(seq) INTO v_seqs FROM moved;
    v_firsts := ARRAY(
        SELECT o.seq FROM "redrive".outbox AS o WHERE o.seq = ANY (v_seqs) AND o.status || '' = 'failed' AND o.lane > 0);
    IF cardinality(v_firsts) > 0 THEN
        PERFORM "redrive".outbox_advance(v_firsts);
    END IF;
    RETURN QUERY SELECT unnest(v_seqs);
END $$;

-- Deliver; return the places of the letters whose claim still held.
CREATE OR REPLACE FUNCTION "redrive".outbox_deliver(p_refs bigint[], p_tokens bigint[], p_call bigint, p_now timestamptz)
RETURNS bigint[] LANGUAGE plpgsql
AS $$
DECLARE
    v_token bigint := nextval('"redrive".outbox_token');
    v_seqs bigint[];
    v_lanes boolean;
BEGIN
    WITH moved AS (
        UPDATE "redrive".outbox AS o
           SET status = 'delivered', token = v_token, act = p_call, lease_until = NULL, worker = NULL,
               updated_at = p_now, why = 'succeeded'
          FROM unnest(p_refs, p_tokens) AS c (seq, token)
         WHERE o.seq = c.seq AND o.token = c.token AND o.status || '' = 'in_flight'  -- never by the index of leases
        RETURNING o.seq, o.queue, o.event_type, o.lane),
    counted AS (
        INSERT INTO "redrive".outbox_deltas (queue, kind, status, n)
        SELECT m.queue, m.event_type, s.status, m.n * s.sign
          FROM (SELECT queue, event_type, count(*) AS n FROM moved GROUP BY 1, 2) AS m
         CROSS JOIN (VALUES ('in_flight', -1), ('delivered', 1)) AS s (status, sign))
    SELECT array_agg(seq), bool_or(lane > 0) INTO v_seqs, v_lanes FROM moved;
    IF v_seqs IS NOT NULL THEN
        PERFORM "redrive".outbox_let_go(v_seqs);
        IF v_lanes THEN
            PERFORM "redrive".outbox_advance(v_seqs);
        END IF;
    END IF;
    RETURN coalesce(v_seqs, '{}');
END $$;

-- Letters in: one call, one transaction, one round trip.
--
-- SET enable_… = off: PostgreSQL plans these functions once, perhaps while the table is empty, and they must use the
-- indexes when it is not.

-- Keep letters. Return those that were not kept because they are duplicates: their number and the id that is kept.
CREATE OR REPLACE FUNCTION "redrive".outbox_put(
    p_call bigint, p_again boolean, p_ids uuid[], p_queues text[], p_kinds text[], p_payloads bytea[],
    p_content_types text[], p_keys text[], p_idempotency_keys text[], p_priorities smallint[], p_delays bigint[],
    p_dues bigint[], p_policies text[], p_generations bigint[], p_origins text[], p_handlers text[],
    p_tenants text[], p_extras bytea[], p_odds boolean[], p_wide boolean[], p_rich jsonb, p_now bigint
) RETURNS TABLE (place bigint, kept text) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := coalesce("redrive".outbox_at(p_now), clock_timestamp());
    v_token bigint;
    v_ordered text[];
    v_limited text[];
    v_dead bigint[];
    v_seqs bigint[];  -- a place for every draft; a place tells which of them are kept, because ids may repeat
    v_kept bigint;
    v_name text;
    v_meant jsonb;  -- the duplicates of this call: see outbox_wait
BEGIN
    PERFORM "redrive".outbox_durable();
    SELECT array_agg(name) FILTER (WHERE ordered), array_agg(name ORDER BY name) FILTER (WHERE max_size IS NOT NULL)
      INTO v_ordered, v_limited FROM "redrive".outbox_queues WHERE name = ANY (p_queues);
    IF p_rich IS NOT NULL THEN
        SELECT array_agg(r.n) INTO v_dead FROM jsonb_to_recordset(p_rich) AS r (n bigint, failure jsonb, retry boolean)
         WHERE r.failure IS NOT NULL AND r.retry IS NOT TRUE;
    END IF;
    IF v_ordered IS NOT NULL THEN
        PERFORM "redrive".outbox_lock_arrivals(p_queues, p_keys);
    END IF;
    IF v_limited IS NOT NULL THEN  -- one call after the other: each counts what the calls before it have put
        PERFORM pg_advisory_xact_lock(hashtextextended(l.name, 17)) FROM unnest(v_limited) AS l (name);
        PERFORM "redrive".outbox_refuse_overflow(p_ids, p_queues, p_kinds, p_idempotency_keys, p_wide, v_dead);
    END IF;
    v_token := nextval('"redrive".outbox_token');
    v_seqs := ARRAY(SELECT nextval('"redrive".outbox_seq') FROM generate_series(1, cardinality(p_ids)));
    WITH kept AS (
        INSERT INTO "redrive".outbox (
            seq, token, act, due_at, occurred_at, cycle_at, updated_at, generation, held, priority, lane, odd, queue_wide, id,
            queue, event_type, key, idempotency_key, source, target, workspace_id, policy, content_type, payload, extras, why)
        SELECT d.seq, v_token, p_call, coalesce("redrive".outbox_at(d.due), v_now + coalesce(d.delay, 0) * interval '1 microsecond'),
               v_now, v_now, v_now, d.generation, (d.lane > 0)::integer, coalesce(d.priority, 1), d.lane,
               coalesce(d.odd, false), coalesce(d.wide, false), d.id, d.queue,
               d.kind, d.key, d.idempotency_key, d.origin, d.handler, d.tenant, d.policy,
               coalesce(d.content_type, 'application/json'), d.payload,
               d.extras, 'enqueued'
          FROM (SELECT u.*, CASE WHEN v_ordered IS NOT NULL AND u.key IS NOT NULL AND u.queue = ANY (v_ordered)
                                      AND (v_dead IS NULL OR u.n <> ALL (v_dead)) THEN 3 ELSE 0 END AS lane
                  FROM unnest(v_seqs, p_ids, p_queues, p_kinds, p_payloads, p_content_types, p_keys, p_idempotency_keys,
                              p_priorities, p_delays, p_dues, p_policies, p_generations, p_origins, p_handlers,
                              p_tenants, p_extras, p_odds, p_wide)
                       WITH ORDINALITY AS u (seq, id, queue, kind, payload, content_type, key, idempotency_key, priority,
                                             delay, due, policy, generation, origin, handler, tenant, extras, odd, wide,
                                             n)
                 ORDER BY u.n) AS d
        ON CONFLICT DO NOTHING RETURNING queue, event_type),
    counted AS (
        INSERT INTO "redrive".outbox_deltas (queue, kind, status, n)
        SELECT k.queue, k.event_type, s.status, k.n
          FROM (SELECT queue, event_type, count(*) AS n FROM kept GROUP BY 1, 2) AS k
         CROSS JOIN (VALUES ('enqueued'), ('pending')) AS s (status))
    SELECT count(*) INTO v_kept FROM kept;
    IF p_rich IS NOT NULL AND v_kept > 0 THEN  -- after the insert: a duplicate is one whatever it would wait for
        SELECT jsonb_object_agg(p_ids[d.n], jsonb_build_array(d.n, d.kept)) INTO v_meant FROM "redrive".outbox_duplicates(
            p_call, p_again, p_ids, p_queues, p_kinds, p_idempotency_keys, p_wide, v_seqs) AS d;
        PERFORM "redrive".outbox_wait(p_rich, v_seqs, v_token, coalesce(v_meant, '{}'), false);
        PERFORM "redrive".outbox_enrich(p_rich, v_seqs, v_now);
    END IF;
    IF v_ordered IS NOT NULL THEN
        FOREACH v_name IN ARRAY v_ordered LOOP
            PERFORM "redrive".outbox_place_free(v_name, p_keys);
        END LOOP;
    END IF;
    IF v_kept < cardinality(p_ids) THEN
        RETURN QUERY SELECT d.n, d.kept FROM "redrive".outbox_duplicates(
            p_call, p_again, p_ids, p_queues, p_kinds, p_idempotency_keys, p_wide, v_seqs) AS d;
    END IF;
END $$;

-- Raise RD507 if one of these queues has no room for those of these drafts that are new. Dead ones need no room.
CREATE OR REPLACE FUNCTION "redrive".outbox_refuse_overflow(
    p_ids uuid[], p_queues text[], p_kinds text[], p_idempotency_keys text[], p_wide boolean[], p_dead bigint[]
) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE v_full record;
BEGIN
    SELECT q.name, q.max_size INTO v_full
      FROM (SELECT d.queue, count(DISTINCT coalesce(
                       CASE WHEN d.wide THEN '' ELSE d.kind END || E'\x1f' || d.idempotency_key, d.id::text)) AS n
              FROM unnest(p_ids, p_queues, p_kinds, p_idempotency_keys, p_wide)
                   WITH ORDINALITY AS d (id, queue, kind, idempotency_key, wide, n)
             WHERE (p_dead IS NULL OR d.n <> ALL (p_dead))
               AND NOT EXISTS (SELECT 1 FROM "redrive".outbox AS o WHERE o.id = d.id)
               AND NOT EXISTS (SELECT 1 FROM "redrive".outbox AS o
                                WHERE o.queue = d.queue AND o.event_type = d.kind
                                  AND o.idempotency_key = d.idempotency_key)
               AND NOT EXISTS (SELECT 1 FROM "redrive".outbox AS o
                                WHERE d.wide AND o.queue_wide AND o.queue = d.queue
                                  AND o.idempotency_key = d.idempotency_key)
             GROUP BY d.queue) AS fresh
      JOIN "redrive".outbox_queues AS q ON q.name = fresh.queue
     WHERE q.max_size IS NOT NULL
       AND "redrive".outbox_counted(q.name, '{pending,in_flight}') + fresh.n > q.max_size LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'queue % is full', v_full.name
            USING ERRCODE = 'RD507', DETAIL = jsonb_build_array(v_full.name, v_full.max_size)::text;
    END IF;
END $$;

-- The few drafts that failed elsewhere: dead at once, or (retry) pending. Each is looked up by its place (LATERAL … LIMIT 1): after most letters were removed
-- the planner takes the table for empty, and would go through it once for each of them.
CREATE OR REPLACE FUNCTION "redrive".outbox_enrich(p_rich jsonb, p_seqs bigint[], p_now timestamptz)
RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = on SET enable_mergejoin = off SET jit = off
AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM jsonb_to_recordset(p_rich) AS r (failure jsonb) WHERE r.failure IS NOT NULL) THEN
        RETURN;
    END IF;
    UPDATE "redrive".outbox AS o SET attempts = r.attempts  -- first: it stands in the line of the attempt log
      FROM jsonb_to_recordset(p_rich) AS r (n bigint, attempts integer, retry boolean)
     WHERE r.retry AND o.seq = p_seqs[r.n] AND o.seq = ANY (p_seqs);
    PERFORM "redrive".outbox_fail(
        (SELECT jsonb_agg(r.failure || jsonb_build_object('ref', o.seq, 'token', o.token))
           FROM jsonb_to_recordset(p_rich) AS r (n bigint, failure jsonb)
          CROSS JOIN LATERAL (SELECT n.seq, n.token FROM "redrive".outbox AS n WHERE n.seq = p_seqs[r.n] LIMIT 1) AS o
          WHERE r.failure IS NOT NULL), 0, p_now, 'pending');
    -- The draft says how often it was tried, and when it failed.
    UPDATE "redrive".outbox AS o
       SET attempts = r.attempts, failed_at = CASE WHEN r.retry IS NOT TRUE THEN coalesce(r.failed, o.failed_at) END,
           first_failed_at = coalesce(r.first_failed, r.failed, o.first_failed_at)
      FROM (SELECT p_seqs[d.n] AS seq, d.attempts, d.retry,
                   timestamptz 'epoch' + d.failed_us * interval '1 microsecond' AS failed,
                   timestamptz 'epoch' + d.first_failed_us * interval '1 microsecond' AS first_failed
              FROM jsonb_to_recordset(p_rich)
                AS d (n bigint, failure jsonb, attempts integer, retry boolean, failed_us bigint, first_failed_us bigint)
             WHERE d.failure IS NOT NULL AND d.failure <> 'null'::jsonb) AS r
     WHERE o.seq = r.seq AND o.seq = ANY (p_seqs) AND o.status || '' IN ('failed', 'pending');
END $$;

-- The drafts that were not kept at their place in p_seqs, and what is kept instead. Retention may have removed that
-- between the conflict and this look. Then nothing is kept, and the caller asks again (serialization failure).
CREATE OR REPLACE FUNCTION "redrive".outbox_duplicates(
    p_call bigint, p_again boolean, p_ids uuid[], p_queues text[], p_kinds text[], p_idempotency_keys text[],
    p_wide boolean[], p_seqs bigint[]
) RETURNS TABLE (n bigint, kept text) LANGUAGE plpgsql
AS $$
BEGIN
    FOR n, kept IN
        -- A later draft of the call may be kept under the id of one whose key was taken.
        SELECT d.n, coalesce(CASE WHEN same.seq < d.seq THEN same.id END, alike.id, akin.id, same.id)::text
          FROM (SELECT u.*, row_number() OVER (PARTITION BY u.id ORDER BY u.n) AS nth
                  FROM unnest(p_seqs, p_ids, p_queues, p_kinds, p_idempotency_keys, p_wide)
                       WITH ORDINALITY AS u (seq, id, queue, kind, idempotency_key, wide, n)) AS d
          LEFT JOIN "redrive".outbox AS mine ON mine.seq = d.seq
          LEFT JOIN "redrive".outbox AS same ON same.id = d.id
          LEFT JOIN "redrive".outbox AS alike ON alike.queue = d.queue AND alike.event_type = d.kind
                                            AND alike.idempotency_key = d.idempotency_key
          LEFT JOIN "redrive".outbox AS akin ON d.wide AND akin.queue_wide AND akin.queue = d.queue
                                           AND akin.idempotency_key = d.idempotency_key
         WHERE mine.seq IS NULL AND NOT (p_again AND d.nth = 1 AND same.act IS NOT DISTINCT FROM p_call)
    LOOP
        IF kept IS NULL THEN
            RAISE EXCEPTION 'the letter kept under the same key was removed meanwhile' USING ERRCODE = '40001';
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

-- Claiming: taking due letters, in one call with settling the last ones.

-- Settle and claim in one transaction. Returns a row per claim, and for every settlement whose claim no longer held a row
-- with the negative place and nothing else. A p_call that comes again (p_again) gets the answer of the first time: what it
-- settled counts as settled, and what it claimed is returned.
CREATE OR REPLACE FUNCTION "redrive".outbox_exchange(
    p_call bigint, p_again boolean, p_keyed boolean, p_refs bigint[], p_tokens bigint[], p_moves jsonb,
    p_wants jsonb, p_lease double precision, p_worker text, p_shares integer[], p_whole boolean, p_now bigint,
    p_lease_now bigint
) RETURNS SETOF "redrive".outbox_claimed LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    v_now timestamptz := coalesce("redrive".outbox_at(p_now), clock_timestamp());
    v_lease timestamptz := coalesce(
        "redrive".outbox_at(p_lease_now) + p_lease * interval '1 second', "redrive".outbox_lease_end(p_lease));
    v_refs bigint[] := p_refs;
    v_held bigint[] := '{}';
    v_refused "redrive".outbox_claimed;
    v_token bigint;
    v_limit integer;
    v_found integer;
    v_shares integer[] := p_shares;
    w record;
BEGIN
    PERFORM "redrive".outbox_durable();
    PERFORM pg_advisory_xact_lock(p_call);  -- the first try, whose connection broke, may still run
    IF p_moves IS NOT NULL THEN
        v_refs := v_refs || ARRAY(SELECT m.ref FROM jsonb_to_recordset(p_moves) AS m (ref bigint));
    END IF;
    IF p_keyed THEN
        PERFORM "redrive".outbox_lock_lanes(v_refs);
    END IF;
    IF cardinality(p_refs) > 0 THEN
        v_held := "redrive".outbox_deliver(p_refs, p_tokens, p_call, v_now);
    END IF;
    IF p_moves IS NOT NULL THEN
        v_held := v_held || ARRAY(SELECT "redrive".outbox_fail(p_moves, p_call, v_now, 'in_flight'));
    END IF;
    IF cardinality(v_held) < cardinality(v_refs) THEN
        FOR v_refused.seq IN
            SELECT -r.seq FROM (SELECT unnest(v_refs) AS seq EXCEPT ALL SELECT unnest(v_held)) AS r
             WHERE NOT (p_again AND EXISTS (
                 SELECT 1 FROM "redrive".outbox AS o WHERE o.seq = r.seq AND o.act = p_call))
        LOOP
            RETURN NEXT v_refused;
        END LOOP;
    END IF;
    IF p_again THEN
        RETURN QUERY SELECT ("redrive".outbox_claimed_of(o)).* FROM "redrive".outbox AS o
             WHERE o.status = 'in_flight' AND o.worker = p_worker AND o.act = -p_call ORDER BY o.priority, o.due_at, o.seq;
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    v_token := nextval('"redrive".outbox_token');
    FOR w IN SELECT * FROM jsonb_to_recordset(p_wants) AS x (
        queue text, kinds text[], most integer, generation bigint, sinces bigint[])
    LOOP
        v_limit := "redrive".outbox_allowed(w.queue, w.most, v_now);
        CONTINUE WHEN v_limit <= 0;
        RETURN QUERY SELECT * FROM "redrive".outbox_take(
            w.queue, w.kinds, w.sinces, w.generation, v_limit, v_shares, p_worker, p_call, v_token, v_now, v_lease);
        GET DIAGNOSTICS v_found = ROW_COUNT;
        IF p_whole AND v_found < v_limit AND num_nonnulls(VARIADIC w.sinces) > 0 THEN
            RETURN QUERY SELECT * FROM "redrive".outbox_take(
                w.queue, w.kinds, array_fill(NULL::bigint, ARRAY[cardinality(w.sinces)]), w.generation,
                v_limit - v_found, v_shares, p_worker, p_call, v_token, v_now, v_lease);
            v_limit := v_found;
            GET DIAGNOSTICS v_found = ROW_COUNT;
            v_found := v_found + v_limit;
        END IF;
        IF v_found > 0 THEN
            PERFORM "redrive".outbox_spend(w.queue, v_found, v_now);
            v_found := v_found % cardinality(v_shares);
            v_shares := v_shares[v_found + 1:] || v_shares[:v_found];
        END IF;
    END LOOP;
END $$;

-- How many letters the queue's shared settings let a claim have now. Places what arrived in an ordered queue.
CREATE OR REPLACE FUNCTION "redrive".outbox_allowed(p_queue text, p_limit integer, p_now timestamptz)
RETURNS integer LANGUAGE plpgsql
AS $$
DECLARE
    q "redrive".outbox_queues;
    v_limit bigint := p_limit;
BEGIN
    SELECT * INTO q FROM "redrive".outbox_queues WHERE name = p_queue;
    IF NOT FOUND THEN
        RETURN v_limit;
    END IF;
    IF q.rate IS NOT NULL OR q.max_in_flight IS NOT NULL THEN  -- one claim after the other
        SELECT * INTO q FROM "redrive".outbox_queues WHERE name = p_queue FOR UPDATE;
    END IF;
    IF q.rate IS NOT NULL AND q.allowance_at > p_now THEN  -- the server's clock was set back: go on from there
        UPDATE "redrive".outbox_queues SET allowance_at = p_now WHERE name = p_queue RETURNING * INTO q;
    END IF;
    IF q.paused THEN
        RETURN 0;
    END IF;
    IF q.max_in_flight IS NOT NULL THEN
        v_limit := least(v_limit, q.max_in_flight - "redrive".outbox_counted(p_queue, '{in_flight}'));
    END IF;
    IF q.rate IS NOT NULL THEN
        v_limit := least(v_limit, floor("redrive".outbox_allowance(q, p_now) + 1e-9)::bigint);
    END IF;
    IF q.ordered THEN
        PERFORM "redrive".outbox_place_free(p_queue, NULL);
    END IF;
    RETURN v_limit;
END $$;

-- The token bucket of the queue's rate: how many letters may begin now. It holds a second's worth, and one at least.
CREATE OR REPLACE FUNCTION "redrive".outbox_allowance(q "redrive".outbox_queues, p_now timestamptz)
RETURNS double precision LANGUAGE sql STABLE
AS $$
    SELECT least(greatest(1, q.rate),
                 q.allowance + greatest(0, date_part('epoch', p_now - q.allowance_at)) * q.rate)
$$;

-- Take claimed letters out of the token bucket.
CREATE OR REPLACE FUNCTION "redrive".outbox_spend(p_queue text, p_count integer, p_now timestamptz) RETURNS void LANGUAGE sql
AS $$
    UPDATE "redrive".outbox_queues AS q
       SET allowance = "redrive".outbox_allowance(q, p_now) - p_count, allowance_at = p_now
     WHERE q.name = p_queue AND q.rate IS NOT NULL
$$;

-- How many letters of each line (a kind and a priority) a claim gets. p_shares deals the letters to the priorities; a share
-- whose priority has nothing left goes to the highest one that has. Kinds go by due time.
CREATE OR REPLACE FUNCTION "redrive".outbox_shares(
    p_queue text, p_kinds text[], p_priorities smallint[], p_sinces timestamptz[], p_generation bigint,
    p_limit integer, p_shares integer[], p_now timestamptz, p_token bigint
) RETURNS bigint[] LANGUAGE plpgsql
AS $$
DECLARE
    v_high integer[];
    v_medium integer[];
    v_low integer[];
    v_there integer[];
    v_taken integer[] := '{0,0,0}';
    v_share integer;
BEGIN
    SELECT coalesce(array_agg(c.line ORDER BY c.due_at, c.seq) FILTER (WHERE c.priority = 0), '{}'),
           coalesce(array_agg(c.line ORDER BY c.due_at, c.seq) FILTER (WHERE c.priority = 1), '{}'),
           coalesce(array_agg(c.line ORDER BY c.due_at, c.seq) FILTER (WHERE c.priority = 2), '{}')
      INTO v_high, v_medium, v_low
      FROM (SELECT l.line, l.priority, due.due_at, due.seq
              FROM unnest(p_kinds, p_priorities, p_sinces) WITH ORDINALITY AS l (kind, priority, since, line)
             CROSS JOIN LATERAL (
                   SELECT o.due_at, o.seq FROM "redrive".outbox AS o
                    WHERE o.status = 'pending' AND o.held = 0 AND o.queue = p_queue AND o.event_type = l.kind
                      AND o.priority = l.priority AND o.due_at >= l.since AND o.due_at <= p_now
                      AND (o.generation IS NULL OR p_generation IS NULL OR o.generation = p_generation)
                      AND o.token < p_token
                    ORDER BY o.due_at, o.seq LIMIT p_limit) AS due) AS c;
    v_there := ARRAY[cardinality(v_high), cardinality(v_medium), cardinality(v_low)];
    FOR n IN 0 .. least(p_limit, v_there[1] + v_there[2] + v_there[3]) - 1 LOOP
        v_share := p_shares[n % cardinality(p_shares) + 1] + 1;
        IF v_taken[v_share] >= v_there[v_share] THEN
            v_share := CASE WHEN v_taken[1] < v_there[1] THEN 1 WHEN v_taken[2] < v_there[2] THEN 2 ELSE 3 END;
        END IF;
        v_taken[v_share] := v_taken[v_share] + 1;
    END LOOP;
    RETURN ARRAY(
        SELECT count(t.line) FROM generate_series(1, cardinality(p_kinds)) AS every (line)
          LEFT JOIN unnest(v_high[:v_taken[1]] || v_medium[:v_taken[2]] || v_low[:v_taken[3]]) AS t (line)
            ON t.line = every.line GROUP BY every.line ORDER BY every.line);
END $$;

-- Claim up to p_limit due letters of one queue, in any order: the worker sorts them. p_sinces holds, for each kind, where
-- to begin in its high, medium and low line (NULL: at the start), so that a claim does not walk over the dead tuples of
-- letters claimed before. Letters that became due in the last two seconds are always looked at.
CREATE OR REPLACE FUNCTION "redrive".outbox_take(
    p_queue text, p_kinds text[], p_sinces bigint[], p_generation bigint, p_limit integer, p_shares integer[],
    p_worker text, p_call bigint, p_token bigint, p_now timestamptz, p_lease timestamptz
) RETURNS SETOF "redrive".outbox_claimed LANGUAGE plpgsql
AS $$
DECLARE
    v_kinds text[];
    v_priorities smallint[];
    v_sinces timestamptz[];
    v_counts bigint[];
    v_now bigint := "redrive".outbox_us(p_now);
    v_rows tid[];
    v_failed boolean;
BEGIN
    SELECT array_agg(l.kind ORDER BY l.n), array_agg(l.priority ORDER BY l.n), array_agg(l.since ORDER BY l.n)
      INTO v_kinds, v_priorities, v_sinces
      FROM (SELECT u.n, p_kinds[(u.n - 1) / 3 + 1] AS kind, ((u.n - 1) % 3)::smallint AS priority,
                   CASE WHEN u.since IS NULL THEN '-infinity'
                        ELSE least("redrive".outbox_at(u.since), p_now - interval '2 seconds') END AS since
              FROM unnest(p_sinces) WITH ORDINALITY AS u (since, n)) AS l
     CROSS JOIN LATERAL (  -- LIMIT keeps the planner from reading a whole line to see whether it is empty
           SELECT 1 FROM "redrive".outbox AS o
            WHERE o.status = 'pending' AND o.held = 0 AND o.queue = p_queue AND o.event_type = l.kind
              AND o.priority = l.priority AND o.due_at >= l.since AND o.due_at <= p_now
            ORDER BY o.due_at, o.seq LIMIT 1) AS one;
    IF v_kinds IS NULL THEN
        RETURN;
    END IF;
    v_counts := CASE WHEN cardinality(v_kinds) = 1 THEN ARRAY[p_limit] ELSE "redrive".outbox_shares(
        p_queue, v_kinds, v_priorities, v_sinces, p_generation, p_limit, p_shares, p_now, p_token) END;
    FOR n IN 1 .. cardinality(v_kinds) LOOP
        SELECT array_agg(d.ctid), bool_or(d.category IS NOT NULL OR d.applied_policy IS NOT NULL)
          INTO v_rows, v_failed
          FROM (SELECT o.ctid, o.category, o.applied_policy FROM "redrive".outbox AS o
                 WHERE o.status = 'pending' AND o.held = 0 AND o.queue = p_queue AND o.event_type = v_kinds[n]
                   AND o.priority = v_priorities[n] AND o.due_at >= v_sinces[n] AND o.due_at <= p_now
                   AND (o.generation IS NULL OR p_generation IS NULL OR o.generation = p_generation)
                   AND o.token < p_token
                 ORDER BY o.due_at, o.seq LIMIT v_counts[n] FOR NO KEY UPDATE SKIP LOCKED) AS d;
        CONTINUE WHEN v_rows IS NULL;
        IF v_failed THEN  -- letters that wait for their retry are counted by their failure
            INSERT INTO "redrive".outbox_deltas (queue, kind, status, category, policy, n)
            SELECT p_queue, v_kinds[n], 'pending', coalesce(o.category, ''), coalesce(o.applied_policy, ''), -count(*)
              FROM "redrive".outbox AS o WHERE o.ctid = ANY (v_rows) GROUP BY 4, 5
            UNION ALL SELECT p_queue, v_kinds[n], 'in_flight', '', '', cardinality(v_rows);
        ELSE
            INSERT INTO "redrive".outbox_deltas (queue, kind, status, n)
            VALUES (p_queue, v_kinds[n], 'pending', -cardinality(v_rows)),
                   (p_queue, v_kinds[n], 'in_flight', cardinality(v_rows));
        END IF;
        RETURN QUERY
        UPDATE "redrive".outbox AS o
           SET status = 'in_flight', attempts = o.attempts + 1, token = p_token, act = -p_call, lease_until = p_lease,
               worker = p_worker, updated_at = p_now
         WHERE o.ctid = ANY (v_rows)  -- they are locked: no other call can move them
        RETURNING o.seq, o.id::text, o.queue, o.event_type, o.payload, o.content_type, o.key, o.idempotency_key,
               o.priority, CASE WHEN o.due_at <> o.occurred_at THEN "redrive".outbox_us(o.due_at) END,
               o.attempts, o.losses, o.policy, o.generation, o.source, o.target, o.workspace_id, o.cycles,
               CASE WHEN o.cycle_at <> o.occurred_at THEN "redrive".outbox_us(o.cycle_at) END,
               "redrive".outbox_us(o.occurred_at), v_now, o.payload_version, o.token,
               o.attempts > 1 OR o.cycles > 0 OR o.losses > 0 OR o.extras IS NOT NULL OR o.odd
                   OR o.queue_wide OR o.why IS DISTINCT FROM 'enqueued',
               o.category, o.error_type, o.last_error, o.fingerprint, o.why, "redrive".outbox_us(o.first_failed_at),
               "redrive".outbox_us(o.failed_at), o.applied_policy, o.release, o.plan, o.held,
               CASE WHEN o.queue_wide THEN 'queue' ELSE 'kind' END, o.odd, o.extras, o.tries::text, CASE WHEN o.cycles > 0 THEN o.failure_history::text END;
    END LOOP;
END $$;

-- A letter in the form in which a claim returns it.
CREATE OR REPLACE FUNCTION "redrive".outbox_claimed_of(o "redrive".outbox) RETURNS "redrive".outbox_claimed LANGUAGE sql STABLE
AS $$
    SELECT o.seq, o.id::text, o.queue, o.event_type, o.payload, o.content_type, o.key, o.idempotency_key, o.priority,
           "redrive".outbox_us(o.due_at), o.attempts, o.losses, o.policy, o.generation, o.source, o.target,
           o.workspace_id, o.cycles, "redrive".outbox_us(o.cycle_at), "redrive".outbox_us(o.occurred_at),
           "redrive".outbox_us(o.updated_at), o.payload_version, o.token, true, o.category, o.error_type, o.last_error,
           o.fingerprint, o.why, "redrive".outbox_us(o.first_failed_at), "redrive".outbox_us(o.failed_at),
           o.applied_policy, o.release, o.plan, o.held, CASE WHEN o.queue_wide THEN 'queue' ELSE 'kind' END, o.odd, o.extras,
           o.tries::text, o.failure_history::text
$$;

-- The operator's acts, many rows at a time.
--
-- The caller holds the lanes and the rows, has checked that the verb fits, and writes the audit entry.

-- Start a new cycle of failed letters; the ended one goes to failure_history.
CREATE OR REPLACE FUNCTION "redrive".outbox_replay_rows(
    p_seqs bigint[], p_generation bigint, p_by text, p_reason text, p_plan text, p_odd boolean, p_now timestamptz
) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE v_token bigint := nextval('"redrive".outbox_token');
BEGIN
    INSERT INTO "redrive".outbox_deltas
    SELECT queue, event_type, 'failed', coalesce(category, ''), coalesce(applied_policy, ''), coalesce(error_type, ''),
           coalesce(fingerprint, ''), -count(*) FROM "redrive".outbox WHERE seq = ANY (p_seqs) GROUP BY 1, 2, 4, 5, 6, 7
    UNION ALL
    SELECT queue, event_type, 'pending', '', '', '', '', count(*) FROM "redrive".outbox
     WHERE seq = ANY (p_seqs) GROUP BY 1, 2;
    UPDATE "redrive".outbox AS o
       SET status = 'pending', token = v_token, act = 0, updated_at = p_now, due_at = p_now, cycle_at = p_now,
           attempts = 0, losses = 0, cycles = o.cycles + 1, why = 'replayed', category = NULL, error_type = NULL,
           last_error = NULL, fingerprint = NULL, first_failed_at = NULL, failed_at = NULL, tries = NULL,
           applied_policy = NULL, plan = nullif(p_plan, ''), generation = coalesce(p_generation, o.generation),
           odd = o.odd OR p_odd,
           failure_history =
               CASE WHEN jsonb_typeof(o.failure_history) <> 'array' THEN '[]'  -- not written by redrive
                    WHEN jsonb_array_length(o.failure_history) >= 20 THEN o.failure_history - 0
                    ELSE o.failure_history END
               || jsonb_strip_nulls(jsonb_build_object(
                   'attempts', o.attempts, 'losses', nullif(o.losses, 0), 'error_type', nullif(o.error_type, ''),
                   'last_error', nullif(o.last_error, ''), 'category', nullif(o.category, ''),
                   'fingerprint', nullif(o.fingerprint, ''), 'why', nullif(o.why, ''),
                   'first_failed_at', "redrive".outbox_iso(o.first_failed_at),
                   'failed_at', "redrive".outbox_iso(o.failed_at),
                   'tries', CASE WHEN jsonb_typeof(o.tries) = 'array' THEN o.tries END, 'generation', o.generation,
                   'release', o.release, 'replayed_at', "redrive".outbox_iso(p_now), 'replayed_by', nullif(p_by, ''),
                   'reason', nullif(p_reason, ''), 'plan', nullif(p_plan, '')))
     WHERE o.seq = ANY (p_seqs);
    PERFORM "redrive".outbox_line_up(p_seqs);
END $$;

-- Archive failed letters, or cancel pending ones.
CREATE OR REPLACE FUNCTION "redrive".outbox_archive_rows(
    p_seqs bigint[], p_by text, p_plan text, p_odd boolean, p_now timestamptz
) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE
    v_token bigint := nextval('"redrive".outbox_token');
    v_firsts bigint[] := ARRAY(
        SELECT seq FROM "redrive".outbox WHERE seq = ANY (p_seqs) AND status = 'pending' AND lane = 1);
BEGIN
    PERFORM "redrive".outbox_count_out(p_seqs, 'archived');
    UPDATE "redrive".outbox AS o
       SET status = 'archived', archived_from = o.status, deleted_at = p_now, token = v_token, act = 0,
           updated_at = p_now, why = 'archived by ' || p_by, held = o.held - (o.lane > 1)::integer,
           lane = least(o.lane, 1::smallint), plan = nullif(p_plan, ''), odd = o.odd OR p_odd
     WHERE o.seq = ANY (p_seqs);
    PERFORM "redrive".outbox_advance(v_firsts);
END $$;

-- Bring archived letters back to what they were.
CREATE OR REPLACE FUNCTION "redrive".outbox_restore_rows(
    p_seqs bigint[], p_by text, p_plan text, p_odd boolean, p_now timestamptz
) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE v_token bigint := nextval('"redrive".outbox_token');
BEGIN
    INSERT INTO "redrive".outbox_deltas (queue, kind, status, n)
    SELECT queue, event_type, 'archived', -count(*) FROM "redrive".outbox WHERE seq = ANY (p_seqs) GROUP BY 1, 2;
    UPDATE "redrive".outbox AS o
       SET status = o.archived_from, archived_from = NULL, deleted_at = NULL, token = v_token, act = 0,
           updated_at = p_now, why = 'restored by ' || p_by, plan = nullif(p_plan, ''), odd = o.odd OR p_odd
     WHERE o.seq = ANY (p_seqs);
    INSERT INTO "redrive".outbox_deltas SELECT t.* FROM "redrive".outbox_traits(p_seqs) AS t;
    PERFORM "redrive".outbox_line_up(ARRAY(
        SELECT seq FROM "redrive".outbox WHERE seq = ANY (p_seqs) AND status = 'pending'));
END $$;

-- Remove letters.
CREATE OR REPLACE FUNCTION "redrive".outbox_purge_rows(p_seqs bigint[]) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM "redrive".outbox_count_out(p_seqs, 'purged');
    PERFORM "redrive".outbox_leave_names(p_seqs);
    PERFORM "redrive".outbox_let_go(ARRAY(  -- a letter of an open transaction may wait for it: it must not find it missing
        SELECT seq FROM "redrive".outbox WHERE seq = ANY (p_seqs) AND status = 'delivered'));
    DELETE FROM "redrive".outbox WHERE seq = ANY (p_seqs);
    DELETE FROM "redrive".outbox_waits WHERE seq = ANY (p_seqs);
END $$;

-- A letter that failed again elsewhere, and one letter that a person wants to run now.

-- Let a pending letter learn of a newer failure; its attempts and its due time stay. The caller holds its row.
CREATE OR REPLACE FUNCTION "redrive".outbox_newer_failure(p_seq bigint, p_move jsonb, p_now bigint) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE
    v_now timestamptz := coalesce("redrive".outbox_at(p_now), clock_timestamp());
    v_token bigint := nextval('"redrive".outbox_token');
BEGIN
    INSERT INTO "redrive".outbox_deltas
    SELECT t.queue, t.kind, t.status, t.category, t.policy, t.error_type, t.fingerprint, -t.n
      FROM "redrive".outbox_traits(ARRAY[p_seq]) AS t;
    UPDATE "redrive".outbox AS o
       SET token = v_token, act = 0, updated_at = v_now, why = m.why, category = m.category, error_type = m.error_type,
           last_error = m.error, fingerprint = m.fingerprint, first_failed_at = coalesce(o.first_failed_at, v_now),
           release = coalesce(m.release, o.release), odd = o.odd OR m.odd,
           tries = "redrive".outbox_log(o.tries, m.try)
                   || (m.try || jsonb_build_object('attempt', o.attempts, 'at', "redrive".outbox_iso(v_now)))
      FROM jsonb_to_record(p_move) AS m (
           why text, category text, error_type text, error text, fingerprint text, release text, odd boolean, try jsonb)
     WHERE o.seq = p_seq;
    INSERT INTO "redrive".outbox_deltas SELECT t.* FROM "redrive".outbox_traits(ARRAY[p_seq]) AS t;
END $$;

-- Let a dead letter begin its next cycle with a newer failure: due as the draft says, or dead again. The caller holds its
-- lane and its row.
CREATE OR REPLACE FUNCTION "redrive".outbox_fail_again(
    p_seq bigint, p_rich jsonb, p_reason text, p_delay bigint, p_due bigint, p_now bigint
) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE v_now timestamptz := coalesce("redrive".outbox_at(p_now), clock_timestamp());
BEGIN
    PERFORM "redrive".outbox_replay_rows(ARRAY[p_seq], NULL, '', p_reason, '', false, v_now);
    PERFORM "redrive".outbox_enrich(p_rich, ARRAY[p_seq], v_now);
    UPDATE "redrive".outbox
       SET due_at = coalesce("redrive".outbox_at(p_due), v_now + p_delay * interval '1 microsecond')
     WHERE seq = p_seq;
END $$;

-- Claim one pending letter, due or not.
CREATE OR REPLACE FUNCTION "redrive".outbox_take_one(
    p_id uuid, p_lease double precision, p_worker text, p_now bigint, p_lease_now bigint
) RETURNS SETOF "redrive".outbox_claimed LANGUAGE plpgsql
AS $$
DECLARE
    v_now timestamptz := coalesce("redrive".outbox_at(p_now), clock_timestamp());
    v_lease timestamptz := coalesce(
        "redrive".outbox_at(p_lease_now) + p_lease * interval '1 second', "redrive".outbox_lease_end(p_lease));
    v_token bigint;
    v_seq bigint;
BEGIN
    PERFORM "redrive".outbox_durable();
    SELECT o.seq INTO v_seq FROM "redrive".outbox AS o
     WHERE o.id = p_id AND o.status || '' = 'pending' AND o.held = 0 FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    v_token := nextval('"redrive".outbox_token');  -- under the lock: a letter's numbers only grow
    PERFORM "redrive".outbox_count_out(ARRAY[v_seq], 'in_flight');
    UPDATE "redrive".outbox AS o
       SET status = 'in_flight', attempts = o.attempts + 1, token = v_token, act = 0, lease_until = v_lease,
           worker = p_worker, updated_at = v_now
     WHERE o.seq = v_seq;
    RETURN QUERY SELECT ("redrive".outbox_claimed_of(o)).* FROM "redrive".outbox AS o WHERE o.seq = v_seq;
END $$;

-- Retention: removing, a page at a time, what is past its time.

-- Look at the next p_limit letters and remove those past their time, in seconds (NULL: never); return how many. Only one
-- caller at a time does so: others return at once.
CREATE OR REPLACE FUNCTION "redrive".outbox_retain(
    p_delivered double precision, p_archived double precision, p_failed double precision, p_limit integer, p_now bigint
) RETURNS integer LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_now timestamptz := coalesce("redrive".outbox_at(p_now), clock_timestamp());
    v_last bigint;
    v_seen integer;
    v_over bigint[];
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('"redrive".outbox_retain', 3)) THEN
        RETURN 0;
    END IF;
    SELECT max(s.seq), count(*), array_agg(s.seq) FILTER (WHERE s.updated_at <= v_now - CASE s.status
               WHEN 'delivered' THEN p_delivered WHEN 'archived' THEN p_archived WHEN 'failed' THEN p_failed
               END * interval '1 second')
      INTO v_last, v_seen, v_over
      FROM (SELECT seq, status, updated_at FROM "redrive".outbox
             WHERE seq > (SELECT retained FROM "redrive".outbox_meta) ORDER BY seq LIMIT p_limit) AS s;
    UPDATE "redrive".outbox_meta SET retained = CASE WHEN v_seen = p_limit THEN v_last ELSE 0 END;
    v_over := ARRAY(SELECT o.seq FROM "redrive".outbox AS o  -- looked at again, now that it is locked
                     WHERE o.seq = ANY (v_over) AND o.updated_at <= v_now - CASE o.status
                           WHEN 'delivered' THEN p_delivered WHEN 'archived' THEN p_archived
                           WHEN 'failed' THEN p_failed END * interval '1 second' FOR UPDATE SKIP LOCKED);
    IF cardinality(v_over) > 0 THEN
        PERFORM "redrive".outbox_purge_rows(v_over);
    END IF;
    PERFORM "redrive".outbox_forget_groups(p_limit, v_now);
    PERFORM "redrive".outbox_forget_names(p_limit);
    DELETE FROM "redrive".outbox_calls WHERE at < now() - interval '1 hour';
    RETURN cardinality(v_over);
END $$;

-- Of the next p_limit groups remove those that no failed or archived letter belongs to and that no letter joined for a
-- day. A letter that joins one meanwhile updates its row, and then it stays.
CREATE OR REPLACE FUNCTION "redrive".outbox_forget_groups(p_limit integer, p_now timestamptz) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE
    v_page text[] := ARRAY(
        SELECT fingerprint FROM "redrive".outbox_groups
         WHERE fingerprint > (SELECT groups_retained FROM "redrive".outbox_meta) ORDER BY fingerprint LIMIT p_limit);
BEGIN
    DELETE FROM "redrive".outbox_groups AS g
     WHERE g.fingerprint = ANY (v_page) AND g.last_seen_at <= p_now - interval '1 day'
       AND NOT EXISTS (SELECT 1 FROM "redrive".outbox AS o WHERE o.fingerprint = g.fingerprint AND o.status = 'failed')
       AND NOT EXISTS (SELECT 1 FROM "redrive".outbox AS o WHERE o.fingerprint = g.fingerprint AND o.status = 'archived');
    UPDATE "redrive".outbox_meta
       SET groups_retained = CASE WHEN cardinality(v_page) = p_limit THEN v_page[p_limit] ELSE '' END;
END $$;

-- Whether a letter with this idempotency key (or, without one, this id) is kept, in any of these queues and kinds.
CREATE OR REPLACE FUNCTION "redrive".outbox_has_key(p_key text, p_queues text[], p_kinds text[]) RETURNS boolean LANGUAGE sql STABLE
AS $$
    SELECT EXISTS (
        SELECT 1 FROM unnest(p_queues, p_kinds) AS p (queue, kind) CROSS JOIN LATERAL (
               SELECT 1 FROM "redrive".outbox AS o
                WHERE o.queue = p.queue AND o.event_type = p.kind AND o.idempotency_key = p_key LIMIT 1) AS one)
        OR EXISTS (
        SELECT 1 FROM "redrive".outbox AS o
         WHERE o.id = CASE WHEN p_key ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN p_key::uuid END)
$$;

-- Remove some keys that were handled more than p_kept seconds ago and that no kept letter has; return how many.
CREATE OR REPLACE FUNCTION "redrive".outbox_retain_handled(p_kept double precision, p_limit integer, p_now bigint)
RETURNS integer LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_before timestamptz := coalesce("redrive".outbox_at(p_now), clock_timestamp()) - p_kept * interval '1 second';
    v_queues text[];
    v_kinds text[];
    v_limit integer;
    v_page "redrive".event_handled[];
    v_removed integer;
    v_keys text[];
BEGIN
    IF p_kept IS NULL OR NOT pg_try_advisory_xact_lock(hashtextextended('"redrive".outbox_handled_cursor', 3)) THEN
        RETURN 0;
    END IF;
    SELECT array_agg(queue), array_agg(kind) INTO v_queues, v_kinds FROM (
        SELECT queue, kind FROM "redrive".outbox_tallies WHERE status = 'enqueued'
        UNION SELECT queue, kind FROM "redrive".outbox_deltas WHERE status = 'enqueued') AS all_kinds;
    v_limit := least(p_limit, greatest(10, 20000 / coalesce(cardinality(v_queues), 1)));  -- each key is looked up in each
    v_page := ARRAY(
        SELECT h FROM "redrive".event_handled AS h, "redrive".outbox_handled_cursor AS b
         WHERE (h.handler_name, h.idempotency_key) > (b.handler_name, b.idempotency_key)
         ORDER BY h.handler_name, h.idempotency_key LIMIT v_limit);
    WITH removed AS (
        DELETE FROM "redrive".event_handled AS h USING unnest(v_page) AS p
         WHERE h.handler_name = p.handler_name AND h.idempotency_key = p.idempotency_key AND h.handled_at <= v_before
           AND NOT "redrive".outbox_has_key(h.idempotency_key, v_queues, v_kinds) RETURNING h.idempotency_key)
    SELECT count(*), array_agg(idempotency_key) INTO v_removed, v_keys FROM removed;
    PERFORM "redrive".outbox_note_left(v_keys);
    UPDATE "redrive".outbox_handled_cursor
       SET handler_name = CASE WHEN cardinality(v_page) = v_limit THEN v_page[v_limit].handler_name ELSE '' END,
           idempotency_key = CASE WHEN cardinality(v_page) = v_limit THEN v_page[v_limit].idempotency_key ELSE '' END;
    RETURN v_removed;
END $$;

-- ---------------------------------------------------------------------- long names

-- A long name stands in a column as its beginning, the character \x1a, and its digest; outbox_names holds the whole. A name
-- is removed once no letter and no handled key has it. That is looked up two hours after the last letter that had it was
-- removed, because workers remember for an hour that a name is kept; both are measured by the clock of leases.

-- Note that something which had these texts is removed; those that are no long names are passed over.
CREATE OR REPLACE FUNCTION "redrive".outbox_note_left(p_held text[]) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE
    v_digests text[] := ARRAY(
        SELECT DISTINCT substring(h.held FROM E'\x1a(L[0-9a-f]{64})$') FROM unnest(p_held) AS h (held)
         WHERE strpos(h.held, E'\x1aL') > 0);
BEGIN
    IF cardinality(v_digests) = 0 THEN
        RETURN;
    END IF;
    PERFORM 1 FROM "redrive".outbox_names WHERE digest = ANY (v_digests) ORDER BY digest FOR NO KEY UPDATE;
    UPDATE "redrive".outbox_names SET left_us = (SELECT lease_us FROM "redrive".outbox_clock)
     WHERE digest = ANY (v_digests);
END $$;

-- Note the long names in the columns that a sender fills: one letter with each of them is about to be removed. Names of
-- queues, kinds, workers and errors are few, stand in counts and histories too, and stay.
CREATE OR REPLACE FUNCTION "redrive".outbox_leave_names(p_seqs bigint[]) RETURNS void LANGUAGE sql
AS $$
    SELECT "redrive".outbox_note_left(array_agg(t.held))
      FROM "redrive".outbox AS o
     CROSS JOIN LATERAL unnest(ARRAY[
           o.key, o.idempotency_key, o.source, o.target, o.workspace_id, o.policy, o.content_type]) AS t (held)
     WHERE o.seq = ANY (p_seqs) AND o.odd AND strpos(t.held, E'\x1aL') > 0
$$;

-- Of up to p_limit names that were noted remove those that are not used any more. The others are noted again when the next
-- letter with them is removed. A transaction that uses one holds its row (FOR KEY SHARE), and then it is passed over.
CREATE OR REPLACE FUNCTION "redrive".outbox_forget_names(p_limit integer) RETURNS integer LANGUAGE plpgsql
AS $$
DECLARE
    v_before bigint := (SELECT lease_us FROM "redrive".outbox_clock) - 7200000000;
    v_digests text[] := ARRAY(
        SELECT digest FROM "redrive".outbox_names WHERE left_us < v_before AND kept_us < v_before
         ORDER BY left_us LIMIT p_limit FOR UPDATE SKIP LOCKED);
    v_removed integer;
BEGIN
    IF cardinality(v_digests) = 0 THEN
        RETURN 0;
    END IF;
    -- Two statements: the second sees the letters of every transaction that had held one of these names.
    DELETE FROM "redrive".outbox_names AS n
     WHERE n.digest = ANY (v_digests) AND NOT "redrive".outbox_uses_name(n.digest);
    GET DIAGNOSTICS v_removed = ROW_COUNT;
    UPDATE "redrive".outbox_names SET left_us = NULL WHERE digest = ANY (v_digests);
    RETURN v_removed;
END $$;

-- Whether a letter, a handled key or a count has the long name with this digest.
CREATE OR REPLACE FUNCTION "redrive".outbox_uses_name(p_digest text) RETURNS boolean LANGUAGE sql STABLE
SET enable_seqscan = off
AS $$
    SELECT EXISTS (
        SELECT 1 FROM "redrive".outbox AS o
         WHERE o.odd AND ARRAY[
               right(o.key, 65), right(o.idempotency_key, 65), right(o.source, 65), right(o.target, 65),
               right(o.workspace_id, 65), right(o.policy, 65), right(o.content_type, 65), right(o.queue, 65),
               right(o.event_type, 65), right(o.error_type, 65), right(o.fingerprint, 65), right(o.worker, 65)
               ] @> ARRAY[p_digest])
        OR EXISTS (
        SELECT 1 FROM "redrive".event_handled AS h
         WHERE strpos(h.idempotency_key, E'\x1aL') > 0 AND right(h.idempotency_key, 65) = p_digest)
        OR EXISTS (
        SELECT 1 FROM "redrive".outbox_queues AS q WHERE right(q.name, 65) = p_digest)
        OR EXISTS (
        SELECT 1 FROM "redrive".outbox_tallies AS t WHERE p_digest IN (
               right(t.queue, 65), right(t.kind, 65), right(t.error_type, 65), right(t.fingerprint, 65)))
        OR EXISTS (
        SELECT 1 FROM "redrive".outbox_deltas AS t WHERE p_digest IN (
               right(t.queue, 65), right(t.kind, 65), right(t.error_type, 65), right(t.fingerprint, 65)))
        OR EXISTS (
        SELECT 1 FROM "redrive".outbox_groups AS g WHERE p_digest IN (right(g.fingerprint, 65), right(g.error_type, 65)))
$$;

-- Letters in a transaction of the user's own.

-- Keep one letter in the caller's transaction; return NULL, or the id that is kept instead if it is a duplicate. Takes no
-- lock that a worker waits for: the next claim places the letter of an ordered queue. p_meant: see outbox_wait.
CREATE OR REPLACE FUNCTION "redrive".outbox_accept(
    p_id text, p_queue text, p_kind text, p_payload bytea, p_content_type text, p_key text, p_idempotency_key text,
    p_priority integer, p_delay bigint, p_due bigint, p_policy text, p_generation bigint, p_origin text,
    p_handler text, p_tenant text, p_extras bytea, p_odd boolean, p_wide boolean, p_rich text, p_names text,
    p_notify boolean, p_meant jsonb DEFAULT '{}'
) RETURNS text LANGUAGE plpgsql
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_id uuid := p_id;
    v_lane smallint := 0;
    v_held integer := 0;
    v_ordered boolean;
    v_max_size bigint;
    v_kept text;
    v_seq bigint;
    v_token bigint;
BEGIN
    SELECT ordered, max_size INTO v_ordered, v_max_size FROM "redrive".outbox_queues WHERE name = p_queue;
    IF v_max_size IS NOT NULL THEN
        PERFORM "redrive".outbox_refuse_overflow(
            ARRAY[v_id], ARRAY[p_queue], ARRAY[p_kind], ARRAY[p_idempotency_key], ARRAY[p_wide], NULL);
    END IF;
    IF v_ordered AND p_key IS NOT NULL THEN
        PERFORM "redrive".outbox_lock_arrivals(ARRAY[p_queue], ARRAY[p_key]);
        v_lane := 3;
        v_held := 1;
    END IF;
    LOOP  -- again if the letter that was in its place has been removed meanwhile
        INSERT INTO "redrive".outbox (
            token, due_at, occurred_at, cycle_at, updated_at, generation, held, priority, lane, odd, queue_wide, id, queue,
            event_type, key, idempotency_key, source, target, workspace_id, policy, content_type, payload, extras, why)
        VALUES (
            nextval('"redrive".outbox_token'),
            CASE WHEN p_due IS NOT NULL THEN "redrive".outbox_at(p_due)
                 WHEN p_delay IS NOT NULL THEN v_now + p_delay * interval '1 microsecond' ELSE v_now END,
            v_now, v_now, v_now, p_generation, v_held, p_priority, v_lane, p_odd, p_wide, v_id, p_queue, p_kind, p_key,
            p_idempotency_key, p_origin, p_handler, p_tenant, p_policy, p_content_type, p_payload, p_extras, 'enqueued')
        ON CONFLICT DO NOTHING RETURNING seq, token INTO v_seq, v_token;
        EXIT WHEN FOUND;
        v_kept := coalesce(
            (SELECT id::text FROM "redrive".outbox WHERE id = v_id),
            (SELECT id::text FROM "redrive".outbox WHERE queue = p_queue AND event_type = p_kind
                AND idempotency_key = p_idempotency_key),
            (SELECT id::text FROM "redrive".outbox WHERE p_wide AND queue_wide AND queue = p_queue
                AND idempotency_key = p_idempotency_key));
        IF v_kept IS NOT NULL THEN
            RETURN v_kept;
        END IF;
    END LOOP;
    INSERT INTO "redrive".outbox_deltas (queue, kind, status, n)
    VALUES (p_queue, p_kind, 'enqueued', 1), (p_queue, p_kind, 'pending', 1);
    IF p_rich IS NOT NULL THEN
        PERFORM "redrive".outbox_wait(p_rich::jsonb, ARRAY[v_seq], v_token, p_meant, true);
        PERFORM "redrive".outbox_enrich(p_rich::jsonb, ARRAY[v_seq], v_now);
    END IF;
    IF p_names IS NOT NULL THEN
        PERFORM "redrive".outbox_keep_names(p_names::jsonb);
    END IF;
    IF p_notify THEN
        PERFORM pg_notify('outbox_default', '');
    END IF;
    RETURN NULL;
END $$;

-- Keep long names with the letter that has them, in a transaction that may stay open. It holds their rows, so that they
-- stay until it ends, but only FOR KEY SHARE, so that two such transactions do not block each other.
CREATE OR REPLACE FUNCTION "redrive".outbox_keep_names(p_names jsonb) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    LOOP
        INSERT INTO "redrive".outbox_names (digest, name, kept_us)
        SELECT n.key, n.value, c.lease_us FROM jsonb_each_text(p_names) AS n, "redrive".outbox_clock AS c ORDER BY 1
        ON CONFLICT DO NOTHING;
        PERFORM 1 FROM "redrive".outbox_names WHERE digest IN (SELECT jsonb_object_keys(p_names)) FOR KEY SHARE;
        EXIT WHEN (SELECT count(*) FROM "redrive".outbox_names WHERE digest IN (SELECT jsonb_object_keys(p_names)))
                  = (SELECT count(*) FROM jsonb_object_keys(p_names));  -- again if one was removed meanwhile
    END LOOP;
END $$;

-- Keep many letters in the caller's transaction, in their order; for each return what outbox_accept returns. Their keys
-- are locked first and in one order, so that two callers with the same keys cannot deadlock. A letter that waits for a
-- draft of this call which is a duplicate waits for what is kept, as in outbox_put.
CREATE OR REPLACE FUNCTION "redrive".outbox_accept_many(
    p_ids text[], p_queues text[], p_kinds text[], p_payloads bytea[], p_content_types text[], p_keys text[],
    p_idempotency_keys text[], p_priorities integer[], p_delays bigint[], p_dues bigint[], p_policies text[],
    p_generations bigint[], p_origins text[], p_handlers text[], p_tenants text[], p_extras bytea[],
    p_odds boolean[], p_wide boolean[], p_rich text[], p_names text[], p_notify boolean
) RETURNS SETOF text LANGUAGE plpgsql
AS $$
DECLARE
    d record;
    v_kept text;
    v_meant jsonb := '{}';
BEGIN
    PERFORM "redrive".outbox_lock_arrivals(array_agg(u.queue), array_agg(u.key))
       FROM unnest(p_queues, p_keys) AS u (queue, key)
       JOIN "redrive".outbox_queues AS q ON q.name = u.queue AND q.ordered WHERE u.key IS NOT NULL;
    FOR d IN
        SELECT * FROM unnest(
            p_ids, p_queues, p_kinds, p_payloads, p_content_types, p_keys, p_idempotency_keys,
            p_priorities, p_delays, p_dues, p_policies, p_generations, p_origins, p_handlers, p_tenants,
            p_extras, p_odds, p_wide, p_rich, p_names
        ) AS u (
            id, queue, kind, payload, content_type, key, idempotency_key, priority, delay, due, policy,
            generation, origin, handler, tenant, extras, odd, wide, rich, names)
    LOOP
        v_kept := "redrive".outbox_accept(
            d.id, d.queue, d.kind, d.payload, d.content_type, d.key, d.idempotency_key, d.priority,
            d.delay, d.due, d.policy, d.generation, d.origin, d.handler, d.tenant, d.extras, d.odd, d.wide,
            d.rich, d.names, false, v_meant);
        IF v_kept IS NOT NULL THEN
            v_meant := v_meant || jsonb_build_object(d.id, jsonb_build_array(0, v_kept));  -- 0: before every draft to come
        END IF;
        RETURN NEXT v_kept;
    END LOOP;
    IF p_notify THEN
        PERFORM pg_notify('outbox_default', '');
    END IF;
END $$;

-- Events with several handlers.

-- Give each due event without a target to its subscribers: a letter for each, and the event is delivered, in one
-- transaction. An event whose last subscriber leaves meanwhile stays. One caller at a time, so that letters of a key
-- follow the order of their events. Returns a row per kind; one row of zeros when there was nothing to do, and no row when
-- there are no subscriptions.
CREATE OR REPLACE FUNCTION "redrive".outbox_broadcast(p_limit integer, p_now bigint)
RETURNS TABLE (queue text, kind text, events bigint, letters bigint) LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := coalesce("redrive".outbox_at(p_now), clock_timestamp());
    v_token bigint;
    v_seqs bigint[] := '{}';
    v_lines record;
BEGIN
    IF NOT EXISTS (SELECT 1 FROM "redrive".subscription) THEN
        RETURN;
    END IF;
    IF NOT EXISTS (SELECT 1 FROM "redrive".outbox_events_waiting()) THEN
        RETURN QUERY SELECT '', '', 0::bigint, 0::bigint;
        RETURN;
    END IF;
    -- Wait for a call that is under way: a caller that hears of nothing to do takes it that all was done.
    PERFORM pg_advisory_xact_lock(hashtextextended('"redrive".outbox_broadcast', 3));
    PERFORM "redrive".outbox_lock_room();
    FOR v_lines IN SELECT l.queue, l.kind, l.ordered FROM "redrive".outbox_events_waiting() AS l LOOP
        IF v_lines.ordered THEN
            PERFORM "redrive".outbox_place_all(ARRAY[v_lines.queue]);
        END IF;
        v_seqs := v_seqs || "redrive".outbox_due_events(v_lines.queue, v_lines.kind, p_limit, v_now);
    END LOOP;
    IF cardinality(v_seqs) > 0 THEN
        PERFORM "redrive".outbox_lock_lanes(v_seqs);
        v_seqs := "redrive".outbox_with_room("redrive".outbox_unhindered(ARRAY(
            SELECT o.seq FROM "redrive".outbox AS o
             WHERE o.seq = ANY (v_seqs) AND o.status = 'pending' AND o.held = 0 AND o.target IS NULL
               FOR NO KEY UPDATE SKIP LOCKED)));
    END IF;
    IF cardinality(v_seqs) = 0 THEN
        RETURN QUERY SELECT '', '', 0::bigint, 0::bigint;
        RETURN;
    END IF;
    v_token := nextval('"redrive".outbox_token');
    RETURN QUERY
    WITH children AS (
        INSERT INTO "redrive".outbox (
            token, due_at, occurred_at, cycle_at, updated_at, event_version, generation, held, priority, lane, odd, id,
            queue, event_type, key, idempotency_key, source, target, workspace_id, channel, trace_context, policy,
            content_type, payload, extras, why)
        SELECT v_token, v_now, v_now, v_now, v_now, e.event_version, e.generation, (e.lane > 0)::integer, e.priority,
               e.lane, e.odd, gen_random_uuid(), e.to_queue, e.handler_name, e.key,
               coalesce(e.idempotency_key, e.id::text), 'event:' || e.id, e.handler_name, e.workspace_id, e.channel,
               e.trace_context, e.policy, e.content_type, e.payload, e.extras, 'enqueued'
          FROM (SELECT o.event_version, o.generation, o.priority, o.odd, o.id, o.key, o.idempotency_key,
                       o.workspace_id, o.channel, o.trace_context, o.policy, o.content_type, o.payload, o.extras,
                       s.queue AS to_queue, s.handler_name,
                       CASE WHEN q.ordered AND o.key IS NOT NULL THEN 3 ELSE 0 END AS lane
                  FROM "redrive".outbox AS o
                  JOIN "redrive".subscription AS s ON s.event_type = o.event_type
                  LEFT JOIN "redrive".outbox_queues AS q ON q.name = s.queue
                 WHERE o.seq = ANY (v_seqs) ORDER BY o.due_at, o.seq, s.handler_name) AS e
        ON CONFLICT DO NOTHING RETURNING queue, event_type),
    spread AS (
        UPDATE "redrive".outbox AS o
           SET status = 'delivered', token = v_token, act = 0, attempts = o.attempts + 1, updated_at = v_now,
               why = 'broadcast'
         WHERE o.seq = ANY (v_seqs)
           AND o.event_type IN (SELECT s.event_type FROM "redrive".subscription AS s)  -- as the children see them
        RETURNING o.queue, o.event_type, coalesce(o.category, '') AS category, coalesce(o.applied_policy, '') AS policy),
    told AS (
        SELECT s.queue, s.event_type AS kind, count(*) AS events, 0::bigint AS letters FROM spread AS s GROUP BY 1, 2
        UNION ALL
        SELECT c.queue, c.event_type, 0, count(*) FROM children AS c GROUP BY 1, 2),
    counted AS (
        INSERT INTO "redrive".outbox_deltas (queue, kind, status, category, policy, n)
        SELECT t.queue, t.kind, s.status, '', '', s.n
          FROM told AS t CROSS JOIN LATERAL (
               VALUES ('pending', t.letters), ('delivered', t.events), ('enqueued', t.letters)) AS s (status, n)
         WHERE s.n <> 0
        UNION ALL
        SELECT s.queue, s.event_type, 'pending', s.category, s.policy, -count(*) FROM spread AS s GROUP BY 1, 2, 4, 5)
    SELECT * FROM told;
    IF NOT FOUND THEN
        RETURN QUERY SELECT '', '', 0::bigint, 0::bigint;
    END IF;
    v_seqs := ARRAY(SELECT o.seq FROM "redrive".outbox AS o WHERE o.seq = ANY (v_seqs) AND o.status = 'delivered');
    PERFORM "redrive".outbox_let_go(v_seqs);
    PERFORM "redrive".outbox_advance(v_seqs);
END $$;

-- The queues and kinds in which events with subscribers wait; no paused queue, and none while a subscriber's is full.
CREATE OR REPLACE FUNCTION "redrive".outbox_events_waiting() RETURNS TABLE (queue text, kind text, ordered boolean)
LANGUAGE sql STABLE
AS $$
    SELECT l.queue, l.kind, coalesce(q.ordered, false)
      FROM (SELECT t.queue, t.kind
              FROM (SELECT queue, kind, n FROM "redrive".outbox_tallies WHERE status = 'pending'
                    UNION ALL SELECT queue, kind, n FROM "redrive".outbox_deltas WHERE status = 'pending') AS t
             WHERE t.kind IN (SELECT event_type FROM "redrive".subscription) GROUP BY 1, 2 HAVING sum(t.n) > 0) AS l
      LEFT JOIN "redrive".outbox_queues AS q ON q.name = l.queue
     WHERE NOT coalesce(q.paused, false) AND NOT EXISTS (
           SELECT 1 FROM "redrive".subscription AS s JOIN "redrive".outbox_queues AS f ON f.name = s.queue
            WHERE s.event_type = l.kind AND f.max_size IS NOT NULL
              AND "redrive".outbox_counted(f.name, '{pending,in_flight}') >= f.max_size)
$$;

-- The places of events that are due, up to p_limit of each priority.
CREATE OR REPLACE FUNCTION "redrive".outbox_due_events(p_queue text, p_kind text, p_limit integer, p_now timestamptz)
RETURNS bigint[] LANGUAGE sql STABLE
AS $$
    SELECT ARRAY(
        SELECT due.seq FROM (VALUES (0::smallint), (1::smallint), (2::smallint)) AS p (priority)
         CROSS JOIN LATERAL (
               SELECT o.seq FROM "redrive".outbox AS o
                WHERE o.status = 'pending' AND o.held = 0 AND o.queue = p_queue AND o.event_type = p_kind
                  AND o.priority = p.priority AND o.due_at <= p_now AND o.target IS NULL
                ORDER BY o.due_at, o.seq LIMIT p_limit) AS due)
$$;

-- These events, without those whose key an open transaction is enqueueing in a subscriber's ordered queue right now: no
-- worker waits for a user's transaction, and they come next time.
CREATE OR REPLACE FUNCTION "redrive".outbox_unhindered(p_seqs bigint[]) RETURNS bigint[] LANGUAGE sql
AS $$
    WITH wanted AS MATERIALIZED (
        SELECT o.seq, o.key, s.queue FROM "redrive".outbox AS o
          JOIN "redrive".subscription AS s ON s.event_type = o.event_type
          JOIN "redrive".outbox_queues AS q ON q.name = s.queue AND q.ordered
         WHERE o.seq = ANY (p_seqs) AND o.key IS NOT NULL),
    names AS MATERIALIZED (SELECT DISTINCT key, queue FROM wanted),
    busy AS MATERIALIZED (
        SELECT key, queue FROM names
         WHERE NOT pg_try_advisory_xact_lock(hashtextextended(key, hashtextextended(queue, 11))))
    SELECT ARRAY(SELECT seq FROM unnest(p_seqs) AS s (seq)
                  WHERE seq NOT IN (SELECT w.seq FROM wanted AS w JOIN busy AS b ON b.key = w.key AND b.queue = w.queue))
$$;

-- Count and fill subscribers' queues that have a max_size one call after the other, as outbox_put does.
CREATE OR REPLACE FUNCTION "redrive".outbox_lock_room() RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(l.name, 17)) FROM (
        SELECT q.name FROM "redrive".outbox_queues AS q
         WHERE q.max_size IS NOT NULL AND q.name IN (SELECT queue FROM "redrive".subscription)
         ORDER BY q.name OFFSET 0) AS l;
END $$;

-- These events, without those for whose letters a subscriber's queue has no room; they come when it has. An event with
-- more subscribers in one queue than the queue's max_size comes when the queue is empty: it would never come otherwise.
CREATE OR REPLACE FUNCTION "redrive".outbox_with_room(p_seqs bigint[]) RETURNS bigint[] LANGUAGE sql
AS $$
    WITH rooms AS MATERIALIZED (
        SELECT q.name, q.max_size, q.max_size - "redrive".outbox_counted(q.name, '{pending,in_flight}') AS room
          FROM "redrive".outbox_queues AS q
         WHERE q.max_size IS NOT NULL AND q.name IN (SELECT queue FROM "redrive".subscription)),
    letters AS MATERIALIZED (
        SELECT o.seq, r.room,
               row_number() OVER (PARTITION BY s.queue ORDER BY o.due_at, o.seq, s.handler_name) AS nth,
               r.room = r.max_size AND dense_rank() OVER (PARTITION BY s.queue ORDER BY o.due_at, o.seq) = 1 AS first
          FROM "redrive".outbox AS o
          JOIN "redrive".subscription AS s ON s.event_type = o.event_type
          JOIN rooms AS r ON r.name = s.queue
         WHERE o.seq = ANY (p_seqs))
    SELECT ARRAY(SELECT seq FROM unnest(p_seqs) AS e (seq)
                  WHERE seq NOT IN (SELECT l.seq FROM letters AS l WHERE l.nth > l.room AND NOT l.first))
$$;

-- For people who work in SQL, in any language: enqueue in your own transaction, look, replay.

-- The payload as JSON; NULL if it is no JSON, or holds what jsonb cannot (such as \u0000).
CREATE OR REPLACE FUNCTION "redrive".outbox_json(payload bytea) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE STRICT
AS $$
BEGIN
    RETURN convert_from(payload, 'UTF8')::jsonb;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$;

-- The outbox with its payloads as JSON. The table itself keeps them as the bytes that came in.
CREATE OR REPLACE VIEW "redrive".outbox_events AS
SELECT id, event_type, event_version, occurred_at, source, target, channel, generation, workspace_id,
       "redrive".outbox_json(payload) AS payload, idempotency_key, trace_context, status, attempts, last_error,
       first_failed_at, failure_history, deleted_at, queue, key, priority, due_at, lease_until, worker, failed_at,
       category, error_type, fingerprint, why, updated_at
  FROM "redrive".outbox;

-- For producers that can insert and cannot call a function: an insert into the view enqueues a letter. A column that
-- the producer leaves out has the default of outbox_enqueue; RETURNING gives the letter that is kept.
CREATE OR REPLACE FUNCTION "redrive".outbox_write_event() RETURNS trigger LANGUAGE plpgsql
AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN  -- a change that is not counted would make the counts wrong
        RAISE EXCEPTION 'cannot % an event: its row is redrive''s', lower(TG_OP)
            USING ERRCODE = 'feature_not_supported', HINT = 'Use outbox_replay(), or the command redrive.';
    END IF;
    IF coalesce(NEW.status, 'pending') <> 'pending' OR coalesce(NEW.attempts, 0) <> 0 OR num_nonnulls(
           NEW.last_error, NEW.first_failed_at, NEW.failed_at, NEW.deleted_at, NEW.lease_until, NEW.worker,
           NEW.category, NEW.error_type, NEW.fingerprint) > 0 THEN
        RAISE EXCEPTION 'cannot insert event % with a past: an event begins as pending', NEW.event_type
            USING ERRCODE = 'check_violation', HINT = 'Leave status, attempts and everything about failures out.';
    END IF;
    NEW.id := "redrive".outbox_enqueue(
        p_event_type => NEW.event_type, p_payload => NEW.payload, p_queue => coalesce(NEW.queue, 'default'),
        p_id => NEW.id, p_idempotency_key => NEW.idempotency_key, p_key => NEW.key,
        p_priority => coalesce(NEW.priority, 1), p_source => NEW.source, p_target => NEW.target,
        p_delay => greatest(coalesce(NEW.due_at - clock_timestamp(), '0'), '0'), p_generation => NEW.generation,
        p_workspace_id => NEW.workspace_id, p_channel => coalesce(NEW.channel, 'outbox_default'),
        p_event_version => coalesce(NEW.event_version, 1), p_trace_context => NEW.trace_context,
        p_occurred_at => NEW.occurred_at);
    SELECT * INTO NEW FROM "redrive".outbox_events WHERE id = NEW.id;  -- for RETURNING
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER outbox_write_event INSTEAD OF INSERT OR UPDATE OR DELETE ON "redrive".outbox_events
    FOR EACH ROW EXECUTE FUNCTION "redrive".outbox_write_event();

-- Enqueue a letter in the caller's own transaction; return its id, or that of the letter already kept under its
-- idempotency key. p_notify wakes workers at the commit (it takes a lock that all commits with NOTIFY share).
CREATE OR REPLACE FUNCTION "redrive".outbox_enqueue(
    p_event_type text, p_payload jsonb, p_queue text DEFAULT 'default', p_id uuid DEFAULT NULL,
    p_idempotency_key text DEFAULT NULL, p_key text DEFAULT NULL, p_priority integer DEFAULT 1,
    p_delay interval DEFAULT '0', p_source text DEFAULT NULL, p_target text DEFAULT NULL,
    p_generation bigint DEFAULT NULL, p_workspace_id text DEFAULT NULL, p_channel text DEFAULT 'outbox_default',
    p_event_version integer DEFAULT 1, p_trace_context text DEFAULT NULL, p_body bytea DEFAULT NULL,
    p_content_type text DEFAULT 'application/json', p_notify boolean DEFAULT true,
    p_occurred_at timestamptz DEFAULT NULL
) RETURNS uuid LANGUAGE plpgsql
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_due timestamptz;
    v_id uuid := coalesce(p_id, gen_random_uuid());
    v_kept uuid;
    q "redrive".outbox_queues;
BEGIN
    IF p_priority NOT IN (0, 1, 2) THEN
        RAISE EXCEPTION 'priority % is none of 0 (high), 1 (medium) and 2 (low)', p_priority;
    END IF;
    v_due := v_now + CASE WHEN coalesce(p_delay, '0') BETWEEN '-2000 years' AND '8000 years' THEN coalesce(p_delay, '0') END;
    IF coalesce(v_due > '9999-12-31 23:59:59.999999+00', true) THEN
        RAISE EXCEPTION 'cannot enqueue a letter with the delay %: it would be due beyond the years 1 to 9999; give a shorter one',
            p_delay USING ERRCODE = '22008';
    END IF;
    SELECT * INTO q FROM "redrive".outbox_queues WHERE name = p_queue;
    IF q.max_size IS NOT NULL THEN
        PERFORM "redrive".outbox_refuse_overflow(
            ARRAY[v_id], ARRAY[p_queue], ARRAY[p_event_type], ARRAY[p_idempotency_key], NULL, NULL);
    END IF;
    IF q.ordered AND p_key IS NOT NULL THEN
        PERFORM "redrive".outbox_lock_arrivals(ARRAY[p_queue], ARRAY[p_key]);
    END IF;
    LOOP  -- again if the letter that was in its place has been removed meanwhile
        INSERT INTO "redrive".outbox (
            token, due_at, occurred_at, cycle_at, updated_at, generation, event_version, priority, held, lane, id, queue,
            event_type, key, idempotency_key, source, target, workspace_id, channel, trace_context, content_type, payload,
            why)
        VALUES (
            nextval('"redrive".outbox_token'), v_due, coalesce(p_occurred_at, v_now), v_now, v_now, p_generation, p_event_version,
            p_priority, (coalesce(q.ordered, false) AND p_key IS NOT NULL)::integer,
            CASE WHEN q.ordered AND p_key IS NOT NULL THEN 3 ELSE 0 END, v_id, p_queue, p_event_type, p_key,
            p_idempotency_key, p_source, p_target, p_workspace_id, p_channel, p_trace_context, p_content_type,
            coalesce(p_body, convert_to(p_payload::text, 'UTF8')), 'enqueued')
        ON CONFLICT DO NOTHING;
        EXIT WHEN FOUND;
        v_kept := coalesce(
            (SELECT id FROM "redrive".outbox WHERE id = v_id),
            (SELECT id FROM "redrive".outbox WHERE queue = p_queue AND event_type = p_event_type
                AND idempotency_key = p_idempotency_key));
        IF v_kept IS NOT NULL THEN
            RETURN v_kept;
        END IF;
    END LOOP;
    INSERT INTO "redrive".outbox_deltas (queue, kind, status, n)
    VALUES (p_queue, p_event_type, 'enqueued', 1), (p_queue, p_event_type, 'pending', 1);
    IF p_notify THEN
        PERFORM pg_notify(p_channel, '');
    END IF;
    RETURN v_id;
END $$;

-- Give a failed letter another cycle, now: the ended cycle goes to failure_history; the letter keeps its id and its key.
CREATE OR REPLACE FUNCTION "redrive".outbox_replay(
    event_id uuid, p_new_generation bigint, p_replayed_by text, p_reason text DEFAULT ''
) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE
    v_seq bigint := (SELECT seq FROM "redrive".outbox WHERE id = event_id);
    v_status text;
    v_channel text;
BEGIN
    PERFORM "redrive".outbox_lock_lanes(ARRAY[v_seq]);
    SELECT status, channel INTO v_status, v_channel FROM "redrive".outbox WHERE seq = v_seq FOR NO KEY UPDATE;
    IF v_status IS NULL THEN
        RAISE EXCEPTION 'no letter has the id %', event_id USING ERRCODE = 'RD404', DETAIL = event_id::text;
    END IF;
    IF v_status <> 'failed' THEN
        RAISE EXCEPTION 'cannot replay letter %: it is %, and only a letter that is failed can be replayed',
            event_id, v_status USING ERRCODE = 'RD409', DETAIL = v_status;
    END IF;
    PERFORM "redrive".outbox_replay_rows(
        ARRAY[v_seq], p_new_generation, p_replayed_by, p_reason, '', false, clock_timestamp());
    INSERT INTO "redrive".outbox_audit (at, by, verb, target, count, reason)
    VALUES (clock_timestamp(), p_replayed_by, 'replay', event_id::text, 1, p_reason);
    PERFORM pg_notify(v_channel, '');
END $$;

-- Searching the texts of errors, quickly where the server has the extension pg_trgm.

-- Return the statements that make the missing indexes. Run each by itself and outside a transaction, because letters go on
-- moving while they are built. Returns none if there is nothing to do, if another session is building one right now, or
-- without the extension or the right to create it: then a search looks at every dead letter's text. May be called any
-- number of times; an index whose building was interrupted is dropped and made again.
CREATE OR REPLACE FUNCTION "redrive".outbox_missing_indexes() RETURNS SETOF text LANGUAGE plpgsql
AS $$
DECLARE
    v_there text[] := ARRAY(
        SELECT c.relname FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
         WHERE i.indrelid = '"redrive".outbox'::regclass AND i.indisvalid);
    v_where text;
BEGIN
    IF v_there @> '{outbox_failed_error,outbox_failed_folded}'
        OR EXISTS (SELECT 1 FROM pg_stat_progress_create_index WHERE relid = '"redrive".outbox'::regclass) THEN
        RETURN;
    END IF;
    BEGIN
        IF NOT EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'pg_trgm') THEN
            CREATE EXTENSION pg_trgm;
        END IF;
    EXCEPTION WHEN OTHERS THEN  -- not installed on this server, or not ours to create
        RETURN;
    END;
    SELECT n.nspname INTO v_where FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace
     WHERE e.extname = 'pg_trgm';
    RETURN QUERY
    SELECT 'DROP INDEX CONCURRENTLY ' || i.indexrelid::regclass FROM pg_index AS i
      JOIN pg_class AS c ON c.oid = i.indexrelid
     WHERE i.indrelid = '"redrive".outbox'::regclass AND NOT i.indisvalid
       AND c.relname IN ('outbox_failed_error', 'outbox_failed_folded');
    IF 'outbox_failed_error' <> ALL (v_there) THEN
        RETURN NEXT 'CREATE INDEX CONCURRENTLY outbox_failed_error ON "redrive".outbox USING gin (last_error '
            || quote_ident(v_where) || '.gin_trgm_ops) WHERE status = ''failed''';
    END IF;
    IF 'outbox_failed_folded' <> ALL (v_there) THEN
        -- The few texts with a character beyond ASCII that has an ASCII letter as its lower case.
        RETURN NEXT 'CREATE INDEX CONCURRENTLY outbox_failed_folded ON "redrive".outbox (seq) '
            'WHERE status = ''failed'' AND last_error ~ U&''[\0130\212A]''';
    END IF;
END $$;

-- A schema that is just being made has no other users yet: it gets these indexes at once.
DO $build$
DECLARE v_statement text;
BEGIN
    IF (SELECT version FROM "redrive".outbox_meta) = 0 THEN
        FOR v_statement IN SELECT * FROM "redrive".outbox_missing_indexes() LOOP
            EXECUTE replace(v_statement, ' INDEX CONCURRENTLY ', ' INDEX ');
        END LOOP;
    END IF;
END $build$;

UPDATE "redrive".outbox_meta SET version = 1, functions = '9ccd9b9517e2151c881fe24e9eae85787d5dd677f94ddfde131f38b02f386cfe';
COMMIT;
