-- Order per key.
--
-- A letter of an ordered queue arrives in lane 3. Its enqueuer holds the key's arrival lock until it commits, so that
-- places follow the order of commits. Then the letter is placed: first of its key (lane 1), or behind another (lane 2).
-- Only the first can be claimed. A call that changes a lane holds the lane's lock, in a short transaction. Enqueuers
-- never take that lock, so that a user's open transaction blocks no worker.

-- Lock keys for letters that arrive, until the end of the transaction; in one order, so that two callers cannot deadlock.
CREATE OR REPLACE FUNCTION {schema}.outbox_lock_arrivals(p_queues text[], p_keys text[]) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(name) FROM (
        SELECT DISTINCT hashtextextended(k, hashtextextended(q, 11)) AS name
          FROM unnest(p_queues, p_keys) AS l (q, k) WHERE k IS NOT NULL ORDER BY 1 OFFSET 0) AS names;
END $$;

-- Lock the lanes of these letters; in one order, so that two callers cannot deadlock.
CREATE OR REPLACE FUNCTION {schema}.outbox_lock_lanes(p_seqs bigint[]) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(name) FROM (
        SELECT DISTINCT hashtextextended(o.key, hashtextextended(o.queue, 7)) AS name
          FROM {schema}.outbox AS o JOIN {schema}.outbox_queues AS q ON q.name = o.queue
         WHERE o.seq = ANY (p_seqs) AND o.key IS NOT NULL AND q.ordered ORDER BY 1 OFFSET 0) AS names;
END $$;

-- Place letters that arrived; the caller holds their lanes.
CREATE OR REPLACE FUNCTION {schema}.outbox_place_rows(p_seqs bigint[]) RETURNS void LANGUAGE sql
AS $$
    UPDATE {schema}.outbox AS o
       SET lane = CASE WHEN p.first THEN 1 ELSE 2 END, held = o.held - p.first::integer
      FROM (SELECT a.seq, row_number() OVER (PARTITION BY a.queue, a.key ORDER BY a.seq) = 1 AND NOT EXISTS (
                       SELECT 1 FROM {schema}.outbox AS b
                        WHERE b.queue = a.queue AND b.key = a.key AND b.lane > 0 AND b.lane < 3
                          AND b.status IN ('pending', 'in_flight')) AS first
              FROM {schema}.outbox AS a WHERE a.seq = ANY (p_seqs) AND a.lane = 3) AS p
     WHERE o.seq = p.seq
$$;

-- Place what arrived in these queues. Waits for calls that hold one of the lanes; takes the locks in one order.
CREATE OR REPLACE FUNCTION {schema}.outbox_place_all(p_queues text[]) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE v_seqs bigint[];
BEGIN
    SELECT array_agg(seq) INTO v_seqs FROM {schema}.outbox WHERE lane = 3 AND queue = ANY (p_queues);
    IF v_seqs IS NOT NULL THEN
        PERFORM {schema}.outbox_lock_lanes(v_seqs);
        PERFORM {schema}.outbox_place_rows(v_seqs);
    END IF;
END $$;

-- Place what arrived in a queue, of the given keys or (NULL) of all, in lanes that no other call holds right now. A call
-- that puts or claims may hold letters and other lanes, so two that waited for each other's lane would deadlock. The next
-- claim, or a worker that looks what is left to do, places the rest.
CREATE OR REPLACE FUNCTION {schema}.outbox_place_free(p_queue text, p_keys text[]) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE v_seqs bigint[];
BEGIN
    SELECT array_agg(u.seq) INTO v_seqs
      FROM (SELECT k.seqs FROM (
                   SELECT key, array_agg(seq) AS seqs FROM {schema}.outbox
                    WHERE lane = 3 AND queue = p_queue AND (p_keys IS NULL OR key = ANY (p_keys))
                    GROUP BY key OFFSET 0) AS k
             WHERE pg_try_advisory_xact_lock(hashtextextended(k.key, hashtextextended(p_queue, 7))) OFFSET 0) AS free
     CROSS JOIN LATERAL unnest(free.seqs) AS u (seq);
    IF v_seqs IS NOT NULL THEN
        PERFORM {schema}.outbox_place_rows(v_seqs);
    END IF;
END $$;

-- Let the oldest letter of each of these letters' lanes go first: the one before it has come to rest.
CREATE OR REPLACE FUNCTION {schema}.outbox_advance(p_seqs bigint[]) RETURNS void LANGUAGE sql
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

-- Put the lanes of these letters in order again, the oldest first; one that is in flight stays first. The caller holds
-- the rows of these letters and their lanes, but a claim takes the first of a lane without the lane's lock.
CREATE OR REPLACE FUNCTION {schema}.outbox_line_up(p_seqs bigint[]) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    -- They come back from rest, where no lane held them: only letters that they wait for hold them now.
    UPDATE {schema}.outbox AS o SET lane = r.lane, held = r.held
      FROM (SELECT n.seq, coalesce(q.ordered, false)::integer AS lane,
                   (SELECT count(*) FROM {schema}.outbox_waits AS w WHERE w.seq = n.seq) AS held
              FROM {schema}.outbox AS n LEFT JOIN {schema}.outbox_queues AS q ON q.name = n.queue
             WHERE n.seq = ANY (p_seqs) AND n.key IS NOT NULL) AS r
     WHERE o.seq = r.seq AND (o.lane <> r.lane OR o.held <> r.held);
    -- A claim that takes one of these right now did not see that it must wait: wait for its end, then look.
    PERFORM 1 FROM {schema}.outbox AS n
       JOIN (SELECT DISTINCT queue, key FROM {schema}.outbox
              WHERE seq = ANY (p_seqs) AND lane > 0 AND key IS NOT NULL) AS l ON n.queue = l.queue AND n.key = l.key
      WHERE n.lane > 0 AND n.lane < 2 AND n.status IN ('pending', 'in_flight') ORDER BY n.seq FOR NO KEY UPDATE OF n;
    UPDATE {schema}.outbox AS o SET lane = w.wanted, held = o.held + w.wanted - o.lane
      FROM (SELECT n.seq, CASE WHEN row_number() OVER (
                       PARTITION BY n.queue, n.key ORDER BY n.status = 'pending', n.seq) = 1 THEN 1 ELSE 2 END AS wanted
              FROM (SELECT DISTINCT queue, key FROM {schema}.outbox
                     WHERE seq = ANY (p_seqs) AND lane > 0 AND key IS NOT NULL) AS l
              JOIN {schema}.outbox AS n ON n.queue = l.queue AND n.key = l.key AND n.lane > 0 AND n.lane < 3
               AND n.status IN ('pending', 'in_flight')) AS w
     WHERE o.seq = w.seq AND o.lane <> w.wanted;
END $$;

-- Let a queue keep order from now on, or no longer.
CREATE OR REPLACE FUNCTION {schema}.outbox_order(p_queue text, p_ordered boolean) RETURNS void LANGUAGE plpgsql
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
