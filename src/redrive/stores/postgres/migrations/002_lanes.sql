-- What the other functions share: instants, counts, and letters that wait for other letters.
--
-- A letter of an ordered queue arrives in lane 3 (its enqueuer holds the key's arrival lock until its
-- commit, so places follow the order of commits) and is then placed: first of its key, or behind.
-- Only the first can be claimed. Whoever changes a lane holds the lane's lock, in a short transaction;
-- enqueuers never take it, so a user's open transaction keeps no worker waiting.

CREATE FUNCTION {schema}.outbox_at(us bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT to_timestamp(us::double precision / 1e6) $$;

CREATE FUNCTION {schema}.outbox_us(at timestamptz) RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE
AS $$  -- what lies beyond the years 1 to 9999 is shown as their end: others know no later instant
    SELECT CASE WHEN at > '9999-12-31 23:59:59.999999+00' THEN 253402300799999999
                WHEN at < '0001-01-01 00:00:00+00' THEN -62135596800000000
                ELSE round(date_part('epoch', at) * 1e6)::bigint END
$$;

-- An instant inside a JSON document: fixed-width UTC, which casts to timestamptz and sorts as text.
CREATE FUNCTION {schema}.outbox_iso(at timestamptz) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') $$;

-- What this transaction writes is on disk when its commit returns, whatever the server, the database or the role has
-- set; one that waits for a standby is left as it is. Holds until the end of the transaction, behind a pooler too.
CREATE FUNCTION {schema}.outbox_durable() RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $$;

-- Move the clock of leases on, and return it. It counts what workers measure with clocks of their own, which never jump:
-- whoever saw it at p_seen, and finds it there p_passed microseconds later, adds these. So it never goes faster than
-- time, goes on as long as somebody sweeps, and does not notice when a server's wall clock is set, or another server,
-- with another clock, takes over. Nobody waits for it: whoever finds it locked leaves it to who has the lock.
CREATE FUNCTION {schema}.outbox_tick(p_seen bigint, p_passed bigint) RETURNS TABLE (lease_us bigint, moved boolean)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    PERFORM 1 FROM {schema}.outbox_clock WHERE one AND lease_us = p_seen AND p_passed > 0 FOR NO KEY UPDATE SKIP LOCKED;
    IF FOUND THEN
        RETURN QUERY UPDATE {schema}.outbox_clock SET lease_us = lease_us + p_passed, wall_at = clock_timestamp()
                      WHERE one RETURNING lease_us, true;
    ELSE
        RETURN QUERY SELECT lease_us, false FROM {schema}.outbox_clock WHERE one;
    END IF;
END $$;

-- When a lease of so many seconds ends that begins now. Between two ticks the wall clock tells how long the last one is
-- ago, within bounds: workers tick at least three times in a lease.
CREATE FUNCTION {schema}.outbox_lease_end(p_lease double precision) RETURNS timestamptz LANGUAGE sql STABLE
AS $$
    SELECT {schema}.outbox_at(lease_us) + p_lease * interval '1 second'
           + least(greatest(clock_timestamp() - wall_at, '0'), p_lease / 3 * interval '1 second')
      FROM {schema}.outbox_clock WHERE one
$$;

CREATE FUNCTION {schema}.outbox_counted(p_queue text, p_statuses text[]) RETURNS bigint LANGUAGE sql STABLE
AS $$
    SELECT coalesce(sum(n), 0)::bigint FROM (
        SELECT n FROM {schema}.outbox_tallies WHERE queue = p_queue AND status = ANY (p_statuses)
        UNION ALL
        SELECT n FROM {schema}.outbox_deltas WHERE queue = p_queue AND status = ANY (p_statuses)) AS all_counts
$$;

-- Fold changes into the sums, a batch at a time, one folder at a time; return how many were folded.
CREATE FUNCTION {schema}.outbox_fold(p_limit integer) RETURNS integer LANGUAGE plpgsql
AS $$
DECLARE
    v_folded integer;
    v_empty text[];
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('{schema}.outbox_fold', 3)) THEN
        RETURN 0;
    END IF;
    WITH gone AS (
        DELETE FROM {schema}.outbox_deltas WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM {schema}.outbox_deltas LIMIT p_limit)) RETURNING *),
    summed AS (
        INSERT INTO {schema}.outbox_tallies AS t
        SELECT queue, kind, status, category, policy, error_type, fingerprint, sum(n) FROM gone
         GROUP BY 1, 2, 3, 4, 5, 6, 7 HAVING sum(n) <> 0
        ON CONFLICT (md5(queue || E'\x1f' || kind || E'\x1f' || status || E'\x1f' || category || E'\x1f' || policy
                         || E'\x1f' || error_type || E'\x1f' || fingerprint)) DO UPDATE SET n = t.n + excluded.n
        RETURNING n, status, md5(queue || E'\x1f' || kind || E'\x1f' || status || E'\x1f' || category || E'\x1f' || policy
                                 || E'\x1f' || error_type || E'\x1f' || fingerprint) AS traits)
    SELECT (SELECT count(*) FROM gone),
           (SELECT array_agg(traits) FROM summed WHERE n = 0 AND status NOT IN ('pending', 'in_flight'))
      INTO v_folded, v_empty;
    DELETE FROM {schema}.outbox_tallies  -- found by their traits: there is a row for each distinct error
     WHERE md5(queue || E'\x1f' || kind || E'\x1f' || status || E'\x1f' || category || E'\x1f' || policy
               || E'\x1f' || error_type || E'\x1f' || fingerprint) = ANY (v_empty) AND n = 0;
    RETURN v_folded;
END $$;

-- ---------------------------------------------------------------------- lanes

CREATE FUNCTION {schema}.outbox_lock_arrivals(p_queues text[], p_keys text[]) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(name) FROM (
        SELECT DISTINCT hashtextextended(k, hashtextextended(q, 11)) AS name
          FROM unnest(p_queues, p_keys) AS l (q, k) WHERE k IS NOT NULL ORDER BY 1 OFFSET 0) AS names;
END $$;

-- Lock the lanes of these letters; always in the same order, so that two callers cannot block each other.
CREATE FUNCTION {schema}.outbox_lock_lanes(p_seqs bigint[]) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(name) FROM (
        SELECT DISTINCT hashtextextended(o.key, hashtextextended(o.queue, 7)) AS name
          FROM {schema}.outbox AS o JOIN {schema}.outbox_queues AS q ON q.name = o.queue
         WHERE o.seq = ANY (p_seqs) AND o.key IS NOT NULL AND q.ordered ORDER BY 1 OFFSET 0) AS names;
END $$;

-- Place what arrived in *p_queue*, of the given keys or (NULL) of all.
CREATE FUNCTION {schema}.outbox_place(p_queue text, p_keys text[]) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE v_seqs bigint[];
BEGIN
    SELECT array_agg(seq) INTO v_seqs FROM {schema}.outbox
     WHERE lane = 3 AND queue = p_queue AND (p_keys IS NULL OR key = ANY (p_keys));
    IF v_seqs IS NULL THEN
        RETURN;
    END IF;
    PERFORM {schema}.outbox_lock_lanes(v_seqs);
    UPDATE {schema}.outbox AS o
       SET lane = CASE WHEN p.first THEN 1 ELSE 2 END, held = o.held - p.first::integer
      FROM (SELECT a.seq, row_number() OVER (PARTITION BY a.key ORDER BY a.seq) = 1 AND NOT EXISTS (
                       SELECT 1 FROM {schema}.outbox AS b
                        WHERE b.queue = p_queue AND b.key = a.key AND b.lane > 0 AND b.lane < 3
                          AND b.status IN ('pending', 'in_flight')) AS first
              FROM {schema}.outbox AS a WHERE a.seq = ANY (v_seqs) AND a.lane = 3) AS p
     WHERE o.seq = p.seq;
END $$;

-- Let the oldest letter of each lane go first: the one before it came to rest.
CREATE FUNCTION {schema}.outbox_advance(p_seqs bigint[]) RETURNS void LANGUAGE sql
AS $$
    UPDATE {schema}.outbox AS o SET lane = 1, held = o.held - 1
      FROM (SELECT DISTINCT queue, key FROM {schema}.outbox
             WHERE seq = ANY (p_seqs) AND lane > 0 AND key IS NOT NULL) AS l
     CROSS JOIN LATERAL (
           SELECT seq FROM {schema}.outbox AS n
            WHERE n.queue = l.queue AND n.key = l.key AND n.lane > 0 AND n.lane < 3
              AND n.status IN ('pending', 'in_flight') ORDER BY n.seq LIMIT 1) AS head
     WHERE o.seq = head.seq AND o.lane = 2
$$;

-- Put the lanes of these letters in order again, the oldest first; one that is under way stays first.
CREATE FUNCTION {schema}.outbox_line_up(p_seqs bigint[]) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    UPDATE {schema}.outbox AS o SET lane = 1
      FROM {schema}.outbox_queues AS q
     WHERE o.seq = ANY (p_seqs) AND q.name = o.queue AND q.ordered AND o.key IS NOT NULL AND o.lane = 0;
    UPDATE {schema}.outbox AS o SET lane = w.wanted, held = o.held + w.wanted - o.lane
      FROM (SELECT n.seq, CASE WHEN row_number() OVER (
                       PARTITION BY n.queue, n.key ORDER BY n.status = 'pending', n.seq) = 1 THEN 1 ELSE 2 END AS wanted
              FROM (SELECT DISTINCT queue, key FROM {schema}.outbox
                     WHERE seq = ANY (p_seqs) AND lane > 0 AND key IS NOT NULL) AS l
              JOIN {schema}.outbox AS n ON n.queue = l.queue AND n.key = l.key AND n.lane > 0 AND n.lane < 3
               AND n.status IN ('pending', 'in_flight')) AS w
     WHERE o.seq = w.seq AND o.lane <> w.wanted;
END $$;

-- Let go those who waited for these letters, which were delivered.
CREATE FUNCTION {schema}.outbox_let_go(p_seqs bigint[]) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM {schema}.outbox_waits) THEN
        RETURN;
    END IF;
    WITH over AS (DELETE FROM {schema}.outbox_waits WHERE on_seq = ANY (p_seqs) RETURNING seq)
    UPDATE {schema}.outbox AS o SET held = o.held - w.n
      FROM (SELECT seq, count(*) AS n FROM over GROUP BY seq) AS w WHERE o.seq = w.seq;
END $$;

-- The queue keeps order from now on, or no longer.
CREATE FUNCTION {schema}.outbox_order(p_queue text, p_ordered boolean) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    IF NOT p_ordered THEN
        UPDATE {schema}.outbox SET lane = 0, held = held - (lane > 1)::integer WHERE queue = p_queue AND lane > 0;
        RETURN;
    END IF;
    UPDATE {schema}.outbox SET lane = 1
     WHERE queue = p_queue AND key IS NOT NULL AND lane = 0 AND status IN ('pending', 'in_flight');
    PERFORM {schema}.outbox_line_up(ARRAY(
        SELECT seq FROM {schema}.outbox WHERE queue = p_queue AND lane = 1 AND status IN ('pending', 'in_flight')));
END $$;
