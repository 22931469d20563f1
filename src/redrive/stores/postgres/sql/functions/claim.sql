-- Claiming: taking due letters, in one call with settling the last ones.

-- Settle and claim in one transaction. Returns a row per claim, and for every settlement whose claim was lost a row with
-- the negative seq and nothing else. A p_call that comes again (p_again) gets the answer of the first time: what it
-- settled counts as settled, and what it claimed is returned.
CREATE OR REPLACE FUNCTION {schema}.outbox_exchange(
    p_call bigint, p_again boolean, p_keyed boolean, p_refs bigint[], p_tokens bigint[], p_moves jsonb,
    p_wants jsonb, p_lease double precision, p_worker text, p_shares integer[], p_whole boolean, p_now bigint,
    p_lease_now bigint
) RETURNS SETOF {schema}.outbox_claimed LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    v_now timestamptz := coalesce({schema}.outbox_at(p_now), clock_timestamp());
    v_lease timestamptz := coalesce(
        {schema}.outbox_at(p_lease_now) + p_lease * interval '1 second', {schema}.outbox_lease_end(p_lease));
    v_refs bigint[] := p_refs;
    v_held bigint[] := '{}';
    v_refused {schema}.outbox_claimed;
    v_token bigint;
    v_limit integer;
    v_found integer;
    v_shares integer[] := p_shares;
    w record;
BEGIN
    PERFORM {schema}.outbox_durable();
    PERFORM pg_advisory_xact_lock(p_call);  -- the first try, whose connection broke, may still run
    IF p_moves IS NOT NULL THEN
        v_refs := v_refs || ARRAY(SELECT m.ref FROM jsonb_to_recordset(p_moves) AS m (ref bigint));
    END IF;
    IF p_keyed THEN
        PERFORM {schema}.outbox_lock_lanes(v_refs);
    END IF;
    IF cardinality(p_refs) > 0 THEN
        v_held := {schema}.outbox_deliver(p_refs, p_tokens, p_call, v_now);
    END IF;
    IF p_moves IS NOT NULL THEN
        v_held := v_held || ARRAY(SELECT {schema}.outbox_fail(p_moves, p_call, v_now, 'in_flight'));
    END IF;
    IF cardinality(v_held) < cardinality(v_refs) THEN
        FOR v_refused.seq IN
            SELECT -r.seq FROM (SELECT unnest(v_refs) AS seq EXCEPT ALL SELECT unnest(v_held)) AS r
             WHERE NOT (p_again AND EXISTS (
                 SELECT 1 FROM {schema}.outbox AS o WHERE o.seq = r.seq AND o.act = p_call))
        LOOP
            RETURN NEXT v_refused;
        END LOOP;
    END IF;
    IF p_again THEN
        RETURN QUERY SELECT ({schema}.outbox_claimed_of(o)).* FROM {schema}.outbox AS o
             WHERE o.status = 'in_flight' AND o.worker = p_worker AND o.act = -p_call ORDER BY o.priority, o.due_at, o.seq;
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    v_token := nextval('{schema}.outbox_token');
    FOR w IN SELECT * FROM jsonb_to_recordset(p_wants) AS x (
        queue text, kinds text[], most integer, generation bigint, sinces bigint[])
    LOOP
        v_limit := {schema}.outbox_allowed(w.queue, w.most, v_now);
        CONTINUE WHEN v_limit <= 0;
        RETURN QUERY SELECT * FROM {schema}.outbox_take(
            w.queue, w.kinds, w.sinces, w.generation, v_limit, v_shares, p_worker, p_call, v_token, v_now, v_lease);
        GET DIAGNOSTICS v_found = ROW_COUNT;
        IF p_whole AND v_found < v_limit AND num_nonnulls(VARIADIC w.sinces) > 0 THEN
            RETURN QUERY SELECT * FROM {schema}.outbox_take(
                w.queue, w.kinds, array_fill(NULL::bigint, ARRAY[cardinality(w.sinces)]), w.generation,
                v_limit - v_found, v_shares, p_worker, p_call, v_token, v_now, v_lease);
            v_limit := v_found;
            GET DIAGNOSTICS v_found = ROW_COUNT;
            v_found := v_found + v_limit;
        END IF;
        IF v_found > 0 THEN
            PERFORM {schema}.outbox_spend(w.queue, v_found, v_now);
            v_found := v_found % cardinality(v_shares);
            v_shares := v_shares[v_found + 1:] || v_shares[:v_found];
        END IF;
    END LOOP;
END $$;

-- How many letters the queue's shared settings let a claim have now. Places what arrived in an ordered queue.
CREATE OR REPLACE FUNCTION {schema}.outbox_allowed(p_queue text, p_limit integer, p_now timestamptz)
RETURNS integer LANGUAGE plpgsql
AS $$
DECLARE
    q {schema}.outbox_queues;
    v_limit bigint := p_limit;
BEGIN
    SELECT * INTO q FROM {schema}.outbox_queues WHERE name = p_queue;
    IF NOT FOUND THEN
        RETURN v_limit;
    END IF;
    IF q.rate IS NOT NULL OR q.max_in_flight IS NOT NULL THEN  -- one claim after the other
        SELECT * INTO q FROM {schema}.outbox_queues WHERE name = p_queue FOR UPDATE;
    END IF;
    IF q.rate IS NOT NULL AND q.allowance_at > p_now THEN  -- the server's clock was set back: go on from there
        UPDATE {schema}.outbox_queues SET allowance_at = p_now WHERE name = p_queue RETURNING * INTO q;
    END IF;
    IF q.paused THEN
        RETURN 0;
    END IF;
    IF q.max_in_flight IS NOT NULL THEN
        v_limit := least(v_limit, q.max_in_flight - {schema}.outbox_counted(p_queue, '{in_flight}'));
    END IF;
    IF q.rate IS NOT NULL THEN
        v_limit := least(v_limit, floor({schema}.outbox_allowance(q, p_now) + 1e-9)::bigint);
    END IF;
    IF q.ordered THEN
        PERFORM {schema}.outbox_place_free(p_queue, NULL);
    END IF;
    RETURN v_limit;
END $$;

-- The token bucket of the queue's rate: how many letters may begin now. It holds a second's worth, and one at least.
CREATE OR REPLACE FUNCTION {schema}.outbox_allowance(q {schema}.outbox_queues, p_now timestamptz)
RETURNS double precision LANGUAGE sql STABLE
AS $$
    SELECT least(greatest(1, q.rate),
                 q.allowance + greatest(0, date_part('epoch', p_now - q.allowance_at)) * q.rate)
$$;

-- Take claimed letters out of the token bucket.
CREATE OR REPLACE FUNCTION {schema}.outbox_spend(p_queue text, p_count integer, p_now timestamptz) RETURNS void LANGUAGE sql
AS $$
    UPDATE {schema}.outbox_queues AS q
       SET allowance = {schema}.outbox_allowance(q, p_now) - p_count, allowance_at = p_now
     WHERE q.name = p_queue AND q.rate IS NOT NULL
$$;

-- How many letters of each line (a kind and a priority) a claim gets. p_shares deals the letters to the priorities; a share
-- whose priority has nothing left goes to the highest one that has. Kinds go by due time.
CREATE OR REPLACE FUNCTION {schema}.outbox_shares(
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
                   SELECT o.due_at, o.seq FROM {schema}.outbox AS o
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
CREATE OR REPLACE FUNCTION {schema}.outbox_take(
    p_queue text, p_kinds text[], p_sinces bigint[], p_generation bigint, p_limit integer, p_shares integer[],
    p_worker text, p_call bigint, p_token bigint, p_now timestamptz, p_lease timestamptz
) RETURNS SETOF {schema}.outbox_claimed LANGUAGE plpgsql
AS $$
DECLARE
    v_kinds text[];
    v_priorities smallint[];
    v_sinces timestamptz[];
    v_counts bigint[];
    v_now bigint := {schema}.outbox_us(p_now);
    v_rows tid[];
    v_failed boolean;
BEGIN
    SELECT array_agg(l.kind ORDER BY l.n), array_agg(l.priority ORDER BY l.n), array_agg(l.since ORDER BY l.n)
      INTO v_kinds, v_priorities, v_sinces
      FROM (SELECT u.n, p_kinds[(u.n - 1) / 3 + 1] AS kind, ((u.n - 1) % 3)::smallint AS priority,
                   CASE WHEN u.since IS NULL THEN '-infinity'
                        ELSE least({schema}.outbox_at(u.since), p_now - interval '2 seconds') END AS since
              FROM unnest(p_sinces) WITH ORDINALITY AS u (since, n)) AS l
     CROSS JOIN LATERAL (  -- LIMIT keeps the planner from reading a whole line to see whether it is empty
           SELECT 1 FROM {schema}.outbox AS o
            WHERE o.status = 'pending' AND o.held = 0 AND o.queue = p_queue AND o.event_type = l.kind
              AND o.priority = l.priority AND o.due_at >= l.since AND o.due_at <= p_now
            ORDER BY o.due_at, o.seq LIMIT 1) AS one;
    IF v_kinds IS NULL THEN
        RETURN;
    END IF;
    v_counts := CASE WHEN cardinality(v_kinds) = 1 THEN ARRAY[p_limit] ELSE {schema}.outbox_shares(
        p_queue, v_kinds, v_priorities, v_sinces, p_generation, p_limit, p_shares, p_now, p_token) END;
    FOR n IN 1 .. cardinality(v_kinds) LOOP
        SELECT array_agg(d.ctid), bool_or(d.category IS NOT NULL OR d.applied_policy IS NOT NULL)
          INTO v_rows, v_failed
          FROM (SELECT o.ctid, o.category, o.applied_policy FROM {schema}.outbox AS o
                 WHERE o.status = 'pending' AND o.held = 0 AND o.queue = p_queue AND o.event_type = v_kinds[n]
                   AND o.priority = v_priorities[n] AND o.due_at >= v_sinces[n] AND o.due_at <= p_now
                   AND (o.generation IS NULL OR p_generation IS NULL OR o.generation = p_generation)
                   AND o.token < p_token
                 ORDER BY o.due_at, o.seq LIMIT v_counts[n] FOR NO KEY UPDATE SKIP LOCKED) AS d;
        CONTINUE WHEN v_rows IS NULL;
        IF v_failed THEN  -- letters that wait for their retry are counted by their failure
            INSERT INTO {schema}.outbox_deltas (queue, kind, status, category, policy, n)
            SELECT p_queue, v_kinds[n], 'pending', coalesce(o.category, ''), coalesce(o.applied_policy, ''), -count(*)
              FROM {schema}.outbox AS o WHERE o.ctid = ANY (v_rows) GROUP BY 4, 5
            UNION ALL SELECT p_queue, v_kinds[n], 'in_flight', '', '', cardinality(v_rows);
        ELSE
            INSERT INTO {schema}.outbox_deltas (queue, kind, status, n)
            VALUES (p_queue, v_kinds[n], 'pending', -cardinality(v_rows)),
                   (p_queue, v_kinds[n], 'in_flight', cardinality(v_rows));
        END IF;
        RETURN QUERY
        UPDATE {schema}.outbox AS o
           SET status = 'in_flight', attempts = o.attempts + 1, token = p_token, act = -p_call, lease_until = p_lease,
               worker = p_worker, updated_at = p_now
         WHERE o.ctid = ANY (v_rows)  -- they are locked: no other call can move them
        RETURNING o.seq, o.id::text, o.queue, o.event_type, o.payload, o.content_type, o.key, o.idempotency_key,
               o.priority, CASE WHEN o.due_at <> o.occurred_at THEN {schema}.outbox_us(o.due_at) END,
               o.attempts, o.losses, o.policy, o.generation, o.source, o.target, o.workspace_id, o.cycles,
               CASE WHEN o.cycle_at <> o.occurred_at THEN {schema}.outbox_us(o.cycle_at) END,
               {schema}.outbox_us(o.occurred_at), v_now, o.payload_version, o.token,
               o.attempts > 1 OR o.cycles > 0 OR o.losses > 0 OR o.extras IS NOT NULL OR o.odd
                   OR o.queue_wide OR o.why IS DISTINCT FROM '{why_enqueued}',
               o.category, o.error_type, o.last_error, o.fingerprint, o.why, {schema}.outbox_us(o.first_failed_at),
               {schema}.outbox_us(o.failed_at), o.applied_policy, o.release, o.plan, o.held,
               CASE WHEN o.queue_wide THEN 'queue' ELSE 'kind' END, o.odd, o.extras, o.tries::text, CASE WHEN o.cycles > 0 THEN o.failure_history::text END;
    END LOOP;
END $$;

-- A letter in the form in which a claim returns it.
CREATE OR REPLACE FUNCTION {schema}.outbox_claimed_of(o {schema}.outbox) RETURNS {schema}.outbox_claimed LANGUAGE sql STABLE
AS $$
    SELECT o.seq, o.id::text, o.queue, o.event_type, o.payload, o.content_type, o.key, o.idempotency_key, o.priority,
           {schema}.outbox_us(o.due_at), o.attempts, o.losses, o.policy, o.generation, o.source, o.target,
           o.workspace_id, o.cycles, {schema}.outbox_us(o.cycle_at), {schema}.outbox_us(o.occurred_at),
           {schema}.outbox_us(o.updated_at), o.payload_version, o.token, true, o.category, o.error_type, o.last_error,
           o.fingerprint, o.why, {schema}.outbox_us(o.first_failed_at), {schema}.outbox_us(o.failed_at),
           o.applied_policy, o.release, o.plan, o.held, CASE WHEN o.queue_wide THEN 'queue' ELSE 'kind' END, o.odd, o.extras,
           o.tries::text, o.failure_history::text
$$;
