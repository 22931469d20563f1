-- Retention: removing, a page at a time, what is past its time.

-- Look at the next p_limit letters and remove those past their time, in seconds (NULL: never); return how many. Only one
-- caller at a time does so: others return at once.
CREATE OR REPLACE FUNCTION {schema}.outbox_retain(
    p_delivered double precision, p_archived double precision, p_failed double precision, p_limit integer, p_now bigint
) RETURNS integer LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_now timestamptz := coalesce({schema}.outbox_at(p_now), clock_timestamp());
    v_last bigint;
    v_seen integer;
    v_over bigint[];
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('{schema}.outbox_retain', 3)) THEN
        RETURN 0;
    END IF;
    SELECT max(s.seq), count(*), array_agg(s.seq) FILTER (WHERE s.updated_at <= v_now - CASE s.status
               WHEN 'delivered' THEN p_delivered WHEN 'archived' THEN p_archived WHEN 'failed' THEN p_failed
               END * interval '1 second')
      INTO v_last, v_seen, v_over
      FROM (SELECT seq, status, updated_at FROM {schema}.outbox
             WHERE seq > (SELECT retained FROM {schema}.outbox_meta) ORDER BY seq LIMIT p_limit) AS s;
    UPDATE {schema}.outbox_meta SET retained = CASE WHEN v_seen = p_limit THEN v_last ELSE 0 END;
    v_over := ARRAY(SELECT o.seq FROM {schema}.outbox AS o  -- looked at again, now that it is locked
                     WHERE o.seq = ANY (v_over) AND o.updated_at <= v_now - CASE o.status
                           WHEN 'delivered' THEN p_delivered WHEN 'archived' THEN p_archived
                           WHEN 'failed' THEN p_failed END * interval '1 second'
                       AND (o.status = 'delivered' OR NOT EXISTS (SELECT 1 FROM {schema}.outbox_awaited(ARRAY[o.seq])))
                       FOR UPDATE SKIP LOCKED);
    IF cardinality(v_over) > 0 THEN
        PERFORM {schema}.outbox_purge_rows(v_over);
    END IF;
    PERFORM {schema}.outbox_forget_groups(p_limit, v_now);
    PERFORM {schema}.outbox_forget_names(p_limit);
    DELETE FROM {schema}.outbox_calls WHERE at < now() - interval '1 hour';
    RETURN cardinality(v_over);
END $$;

-- Of the next p_limit groups remove those that no failed or archived letter belongs to and that no letter joined for a
-- day. A letter that joins one meanwhile updates its row, and then it stays.
CREATE OR REPLACE FUNCTION {schema}.outbox_forget_groups(p_limit integer, p_now timestamptz) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE
    v_page text[] := ARRAY(
        SELECT fingerprint FROM {schema}.outbox_groups
         WHERE fingerprint > (SELECT groups_retained FROM {schema}.outbox_meta) ORDER BY fingerprint LIMIT p_limit);
BEGIN
    DELETE FROM {schema}.outbox_groups AS g
     WHERE g.fingerprint = ANY (v_page) AND g.last_seen_at <= p_now - interval '1 day'
       AND NOT EXISTS (SELECT 1 FROM {schema}.outbox AS o WHERE o.fingerprint = g.fingerprint AND o.status = 'failed')
       AND NOT EXISTS (SELECT 1 FROM {schema}.outbox AS o WHERE o.fingerprint = g.fingerprint AND o.status = 'archived');
    UPDATE {schema}.outbox_meta
       SET groups_retained = CASE WHEN cardinality(v_page) = p_limit THEN v_page[p_limit] ELSE '' END;
END $$;

-- Whether a letter with this idempotency key (or, without one, this id) is kept, in any of these queues and kinds.
CREATE OR REPLACE FUNCTION {schema}.outbox_has_key(p_key text, p_queues text[], p_kinds text[]) RETURNS boolean LANGUAGE sql STABLE
AS $$
    SELECT EXISTS (
        SELECT 1 FROM unnest(p_queues, p_kinds) AS p (queue, kind) CROSS JOIN LATERAL (
               SELECT 1 FROM {schema}.outbox AS o
                WHERE o.queue = p.queue AND o.event_type = p.kind AND o.idempotency_key = p_key LIMIT 1) AS one)
        OR EXISTS (
        SELECT 1 FROM {schema}.outbox AS o
         WHERE o.id = CASE WHEN p_key ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN p_key::uuid END)
$$;

-- Remove some keys that were handled more than p_kept seconds ago and that no kept letter has; return how many.
CREATE OR REPLACE FUNCTION {schema}.outbox_retain_handled(p_kept double precision, p_limit integer, p_now bigint)
RETURNS integer LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_before timestamptz := coalesce({schema}.outbox_at(p_now), clock_timestamp()) - p_kept * interval '1 second';
    v_queues text[];
    v_kinds text[];
    v_limit integer;
    v_page {schema}.event_handled[];
    v_removed integer;
    v_keys text[];
BEGIN
    IF p_kept IS NULL OR NOT pg_try_advisory_xact_lock(hashtextextended('{schema}.outbox_handled_cursor', 3)) THEN
        RETURN 0;
    END IF;
    SELECT array_agg(queue), array_agg(kind) INTO v_queues, v_kinds FROM (
        SELECT queue, kind FROM {schema}.outbox_tallies WHERE status = 'enqueued'
        UNION SELECT queue, kind FROM {schema}.outbox_deltas WHERE status = 'enqueued') AS all_kinds;
    v_limit := least(p_limit, greatest(10, 20000 / coalesce(cardinality(v_queues), 1)));  -- each key is looked up in each
    v_page := ARRAY(
        SELECT h FROM {schema}.event_handled AS h, {schema}.outbox_handled_cursor AS b
         WHERE (h.handler_name, h.idempotency_key) > (b.handler_name, b.idempotency_key)
         ORDER BY h.handler_name, h.idempotency_key LIMIT v_limit);
    WITH removed AS (
        DELETE FROM {schema}.event_handled AS h USING unnest(v_page) AS p
         WHERE h.handler_name = p.handler_name AND h.idempotency_key = p.idempotency_key AND h.handled_at <= v_before
           AND NOT {schema}.outbox_has_key(h.idempotency_key, v_queues, v_kinds) RETURNING h.idempotency_key)
    SELECT count(*), array_agg(idempotency_key) INTO v_removed, v_keys FROM removed;
    PERFORM {schema}.outbox_note_left(v_keys);
    UPDATE {schema}.outbox_handled_cursor
       SET handler_name = CASE WHEN cardinality(v_page) = v_limit THEN v_page[v_limit].handler_name ELSE '' END,
           idempotency_key = CASE WHEN cardinality(v_page) = v_limit THEN v_page[v_limit].idempotency_key ELSE '' END;
    RETURN v_removed;
END $$;

-- ---------------------------------------------------------------------- long names

-- A long name stands in a column as its beginning, the character \x1a, and its digest; outbox_names holds the whole. A name
-- is removed once no letter and no handled key has it. That is looked up two hours after the last letter that had it was
-- removed, because workers remember for an hour that a name is kept; both are measured by the clock of leases.

-- Note that something which had these texts is removed; those that are no long names are passed over.
CREATE OR REPLACE FUNCTION {schema}.outbox_note_left(p_held text[]) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE
    v_digests text[] := ARRAY(
        SELECT DISTINCT substring(h.held FROM E'\x1a(L[0-9a-f]{64})$') FROM unnest(p_held) AS h (held)
         WHERE strpos(h.held, E'\x1aL') > 0);
BEGIN
    IF cardinality(v_digests) = 0 THEN
        RETURN;
    END IF;
    PERFORM 1 FROM {schema}.outbox_names WHERE digest = ANY (v_digests) ORDER BY digest FOR NO KEY UPDATE;
    UPDATE {schema}.outbox_names SET left_us = (SELECT lease_us FROM {schema}.outbox_clock)
     WHERE digest = ANY (v_digests);
END $$;

-- Note the long names in the columns that a sender fills: one letter with each of them is about to be removed. Names of
-- queues, kinds, workers and errors are few, stand in counts and histories too, and stay.
CREATE OR REPLACE FUNCTION {schema}.outbox_leave_names(p_seqs bigint[]) RETURNS void LANGUAGE sql
AS $$
    SELECT {schema}.outbox_note_left(array_agg(t.held))
      FROM {schema}.outbox AS o
     CROSS JOIN LATERAL unnest(ARRAY[
           o.key, o.idempotency_key, o.source, o.target, o.workspace_id, o.policy, o.content_type]) AS t (held)
     WHERE o.seq = ANY (p_seqs) AND o.odd AND strpos(t.held, E'\x1aL') > 0
$$;

-- Of up to p_limit names that were noted remove those that are not used any more. The others are noted again when the next
-- letter with them is removed. A transaction that uses one holds its row (FOR KEY SHARE), and then it is passed over.
CREATE OR REPLACE FUNCTION {schema}.outbox_forget_names(p_limit integer) RETURNS integer LANGUAGE plpgsql
AS $$
DECLARE
    v_before bigint := (SELECT lease_us FROM {schema}.outbox_clock) - 7200000000;
    v_digests text[] := ARRAY(
        SELECT digest FROM {schema}.outbox_names WHERE left_us < v_before AND kept_us < v_before
         ORDER BY left_us LIMIT p_limit FOR UPDATE SKIP LOCKED);
    v_removed integer;
BEGIN
    IF cardinality(v_digests) = 0 THEN
        RETURN 0;
    END IF;
    -- Two statements: the second sees the letters of every transaction that had held one of these names.
    DELETE FROM {schema}.outbox_names AS n
     WHERE n.digest = ANY (v_digests) AND NOT {schema}.outbox_uses_name(n.digest);
    GET DIAGNOSTICS v_removed = ROW_COUNT;
    UPDATE {schema}.outbox_names SET left_us = NULL WHERE digest = ANY (v_digests);
    RETURN v_removed;
END $$;

-- Whether a letter, a handled key or a count has the long name with this digest.
CREATE OR REPLACE FUNCTION {schema}.outbox_uses_name(p_digest text) RETURNS boolean LANGUAGE sql STABLE
SET enable_seqscan = off
AS $$
    SELECT EXISTS (
        SELECT 1 FROM {schema}.outbox AS o
         WHERE o.odd AND ARRAY[
               right(o.key, 65), right(o.idempotency_key, 65), right(o.source, 65), right(o.target, 65),
               right(o.workspace_id, 65), right(o.policy, 65), right(o.content_type, 65), right(o.queue, 65),
               right(o.event_type, 65), right(o.error_type, 65), right(o.fingerprint, 65), right(o.worker, 65)
               ] @> ARRAY[p_digest])
        OR EXISTS (
        SELECT 1 FROM {schema}.event_handled AS h
         WHERE strpos(h.idempotency_key, E'\x1aL') > 0 AND right(h.idempotency_key, 65) = p_digest)
        OR EXISTS (
        SELECT 1 FROM {schema}.outbox_queues AS q WHERE right(q.name, 65) = p_digest)
        OR EXISTS (
        SELECT 1 FROM {schema}.outbox_tallies AS t WHERE p_digest IN (
               right(t.queue, 65), right(t.kind, 65), right(t.error_type, 65), right(t.fingerprint, 65)))
        OR EXISTS (
        SELECT 1 FROM {schema}.outbox_deltas AS t WHERE p_digest IN (
               right(t.queue, 65), right(t.kind, 65), right(t.error_type, 65), right(t.fingerprint, 65)))
        OR EXISTS (
        SELECT 1 FROM {schema}.outbox_groups AS g WHERE p_digest IN (right(g.fingerprint, 65), right(g.error_type, 65)))
$$;
