-- Retention: removing, a page at a time, what is past its time.

-- Look at the next *p_limit* letters and remove those past their time, in seconds (NULL: never).
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
        RETURN 0;  -- somebody else holds the broom
    END IF;
    SELECT max(s.seq), count(*), array_agg(s.seq) FILTER (WHERE s.updated_at <= v_now - CASE s.status
               WHEN 'delivered' THEN p_delivered WHEN 'archived' THEN p_archived WHEN 'failed' THEN p_failed
               END * interval '1 second')
      INTO v_last, v_seen, v_over
      FROM (SELECT seq, status, updated_at FROM {schema}.outbox
             WHERE seq > (SELECT broom FROM {schema}.outbox_meta) ORDER BY seq LIMIT p_limit) AS s;
    UPDATE {schema}.outbox_meta SET broom = CASE WHEN v_seen = p_limit THEN v_last ELSE 0 END;
    v_over := ARRAY(SELECT o.seq FROM {schema}.outbox AS o  -- looked at again under its lock
                     WHERE o.seq = ANY (v_over) AND o.updated_at <= v_now - CASE o.status
                           WHEN 'delivered' THEN p_delivered WHEN 'archived' THEN p_archived
                           WHEN 'failed' THEN p_failed END * interval '1 second' FOR UPDATE SKIP LOCKED);
    IF cardinality(v_over) > 0 THEN
        PERFORM {schema}.outbox_purge_rows(v_over);
    END IF;
    PERFORM {schema}.outbox_forget_groups(p_limit, v_now);
    DELETE FROM {schema}.outbox_calls WHERE at < now() - interval '1 hour';
    RETURN cardinality(v_over);
END $$;

-- Of the next *p_limit* groups forget those that no failed or archived letter belongs to and that were not seen
-- for a day. Whoever fails with one meanwhile makes it seen, under its lock, and it stays.
CREATE OR REPLACE FUNCTION {schema}.outbox_forget_groups(p_limit integer, p_now timestamptz) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE
    v_page text[] := ARRAY(
        SELECT fingerprint FROM {schema}.outbox_groups
         WHERE fingerprint > (SELECT groups_broom FROM {schema}.outbox_meta) ORDER BY fingerprint LIMIT p_limit);
BEGIN
    DELETE FROM {schema}.outbox_groups AS g
     WHERE g.fingerprint = ANY (v_page) AND g.last_seen_at <= p_now - interval '1 day'
       AND NOT EXISTS (SELECT 1 FROM {schema}.outbox AS o WHERE o.fingerprint = g.fingerprint AND o.status = 'failed')
       AND NOT EXISTS (SELECT 1 FROM {schema}.outbox AS o WHERE o.fingerprint = g.fingerprint AND o.status = 'archived');
    UPDATE {schema}.outbox_meta
       SET groups_broom = CASE WHEN cardinality(v_page) = p_limit THEN v_page[p_limit] ELSE '' END;
END $$;

-- Whether a letter with this key (or, without one, this id) is kept, in whichever queue and of whichever kind.
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

-- Forget some keys that were handled more than p_kept seconds ago and of which no letter is kept any more.
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
BEGIN
    IF p_kept IS NULL OR NOT pg_try_advisory_xact_lock(hashtextextended('{schema}.outbox_handled_broom', 3)) THEN
        RETURN 0;
    END IF;
    SELECT array_agg(queue), array_agg(kind) INTO v_queues, v_kinds FROM (
        SELECT queue, kind FROM {schema}.outbox_tallies WHERE status = 'enqueued'
        UNION SELECT queue, kind FROM {schema}.outbox_deltas WHERE status = 'enqueued') AS all_kinds;
    v_limit := least(p_limit, greatest(10, 20000 / coalesce(cardinality(v_queues), 1)));  -- each key is looked up in each
    v_page := ARRAY(
        SELECT h FROM {schema}.event_handled AS h, {schema}.outbox_handled_broom AS b
         WHERE (h.handler_name, h.idempotency_key) > (b.handler_name, b.idempotency_key)
         ORDER BY h.handler_name, h.idempotency_key LIMIT v_limit);
    DELETE FROM {schema}.event_handled AS h USING unnest(v_page) AS p
     WHERE h.handler_name = p.handler_name AND h.idempotency_key = p.idempotency_key AND h.handled_at <= v_before
       AND NOT {schema}.outbox_has_key(h.idempotency_key, v_queues, v_kinds);
    GET DIAGNOSTICS v_removed = ROW_COUNT;
    UPDATE {schema}.outbox_handled_broom
       SET handler_name = CASE WHEN cardinality(v_page) = v_limit THEN v_page[v_limit].handler_name ELSE '' END,
           idempotency_key = CASE WHEN cardinality(v_page) = v_limit THEN v_page[v_limit].idempotency_key ELSE '' END;
    RETURN v_removed;
END $$;
