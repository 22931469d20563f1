-- What a worker of schema 1 sends, word for word. Once 0.1.0 is released it is never edited: it stands for a version
-- that cannot be changed any more.

-- name: put
SELECT place, kept FROM redrive.outbox_put($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)

-- name: exchange
SELECT * FROM redrive.outbox_exchange($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)

-- name: extend
WITH moment AS (
    SELECT coalesce(redrive.outbox_at($7), clock_timestamp()) AS now,
           coalesce(redrive.outbox_at($8) + $9 * interval '1 second', redrive.outbox_lease_end($9)) AS until),
beat AS (
    INSERT INTO redrive.outbox_workers (name, kinds, in_flight, seen_at, lease_until)
    SELECT $1, $2, $3, now, until FROM moment
    ON CONFLICT (name) DO UPDATE SET kinds = excluded.kinds, in_flight = excluded.in_flight,
        seen_at = excluded.seen_at, lease_until = excluded.lease_until),
forgotten AS (
    DELETE FROM redrive.outbox_workers WHERE seen_at < (SELECT now FROM moment) - interval '1 hour' AND name <> $1),
renewed AS (
    UPDATE redrive.outbox AS o SET lease_until = (SELECT until FROM moment)
      FROM unnest($4::bigint[], $5::bigint[]) AS c (seq, token)
     WHERE o.seq = c.seq AND o.token = c.token AND o.status || '' = 'in_flight' RETURNING o.seq, o.token)
SELECT 0 AS seq, NULL AS token, lease_us, moved FROM redrive.outbox_tick($10, $11)
UNION ALL SELECT seq, token, NULL, NULL FROM renewed WHERE $6::boolean ORDER BY seq

-- name: tick
-- The clock need not survive a power cut by itself: whoever acts on it writes it to disk with the act.
SELECT lease_us, moved, set_config('synchronous_commit', 'off', true), EXISTS (
           SELECT 1 FROM redrive.outbox AS o
            WHERE o.status = 'in_flight' AND o.lease_until < coalesce(redrive.outbox_at($3), redrive.outbox_at(lease_us))
       ) AS over
  FROM redrive.outbox_tick($1, $2)

-- name: expired
SELECT seq, id::text AS id, queue, event_type, ''::bytea AS payload, content_type, key, idempotency_key, priority,
redrive.outbox_us(due_at), attempts, losses, policy, generation, source, target, workspace_id, cycles,
redrive.outbox_us(cycle_at), redrive.outbox_us(occurred_at), redrive.outbox_us(updated_at), payload_version,
status, token, worker, category, error_type, last_error, fingerprint, why, redrive.outbox_us(first_failed_at),
redrive.outbox_us(failed_at), applied_policy, release, plan, CASE WHEN status = 'pending' THEN held ELSE 0 END,
odd, extras, tries::text, failure_history::text FROM redrive.outbox
 WHERE status = 'in_flight'
   AND lease_until < coalesce(redrive.outbox_at($1), (SELECT redrive.outbox_at(lease_us) FROM redrive.outbox_clock))
 ORDER BY lease_until LIMIT $2

-- name: left
-- One statement, so one snapshot: of two, a letter that is taken back between them would be in neither.
SELECT (SELECT redrive.outbox_us(min(due.due_at)) - coalesce($3, redrive.outbox_us(clock_timestamp()))
          FROM unnest($1::text[], $2::text[]) AS w (queue, kind)
         CROSS JOIN (VALUES (0::smallint), (1::smallint), (2::smallint)) AS p (priority)
         CROSS JOIN LATERAL (
               SELECT due_at FROM redrive.outbox AS o
                WHERE o.status = 'pending' AND o.held = 0 AND o.queue = w.queue AND o.event_type = w.kind
                  AND o.priority = p.priority AND (o.generation IS NULL OR $4::bigint IS NULL OR o.generation = $4)
                ORDER BY o.due_at, o.seq LIMIT 1) AS due
         WHERE NOT EXISTS (SELECT 1 FROM redrive.outbox_queues AS q WHERE q.name = w.queue AND q.paused)) AS due,
       (SELECT coalesce(sum(n), 0)::bigint FROM (
            SELECT queue, kind, status, n FROM redrive.outbox_tallies
            UNION ALL SELECT queue, kind, status, n FROM redrive.outbox_deltas) AS t
          JOIN unnest($1::text[], $2::text[]) AS w (queue, kind) ON t.queue = w.queue AND t.kind = w.kind
         WHERE t.status = 'in_flight') AS in_flight

-- name: place_arrivals
SELECT redrive.outbox_place_all($1)

-- name: make_sure
SELECT redrive.outbox_make_sure()

-- name: fold
SELECT redrive.outbox_fold($1)

-- name: notify
SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)  -- a notice need not survive a power cut

-- name: declare
INSERT INTO redrive.outbox_queues AS q (name, ordered, max_size, rate, max_in_flight, allowance, allowance_at)
VALUES ($1, $2, $3, $4::double precision, $5, greatest(1, coalesce($4::double precision, 0)), coalesce(redrive.outbox_at($6), clock_timestamp()))
ON CONFLICT (name) DO UPDATE SET ordered = excluded.ordered, max_size = excluded.max_size, rate = excluded.rate,
    max_in_flight = excluded.max_in_flight,  -- under another rate the allowance starts afresh
    allowance = CASE WHEN q.rate IS NOT DISTINCT FROM excluded.rate THEN q.allowance ELSE excluded.allowance END,
    allowance_at = CASE WHEN q.rate IS NOT DISTINCT FROM excluded.rate THEN q.allowance_at ELSE excluded.allowance_at END
