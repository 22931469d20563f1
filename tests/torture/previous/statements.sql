-- What a worker of schema 6 sent, word for word. Never edited: it stands for releases that cannot be changed any more.

-- name: put
SELECT place, kept FROM redrive.outbox_put($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)

-- name: exchange
SELECT * FROM redrive.outbox_exchange($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)

-- name: extend
WITH moment AS (
    SELECT coalesce(redrive.outbox_at($7), clock_timestamp()) AS now,
           coalesce(redrive.outbox_at($8), redrive.outbox_at($7), clock_timestamp()) + $9 * interval '1 second' AS until),
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
SELECT seq, token FROM renewed WHERE $6::boolean

-- name: expired
SELECT seq, id::text AS id, queue, event_type, payload, content_type, key, idempotency_key, priority,
redrive.outbox_us(due_at), attempts, losses, policy, generation, source, target, workspace_id, cycles,
redrive.outbox_us(cycle_at), redrive.outbox_us(occurred_at), redrive.outbox_us(updated_at), payload_version,
status, token, worker, category, error_type, last_error, fingerprint, why, redrive.outbox_us(first_failed_at),
redrive.outbox_us(failed_at), applied_policy, release, held, odd, extras, tries::text, failure_history::text FROM redrive.outbox
 WHERE status = 'in_flight' AND lease_until < coalesce(redrive.outbox_at($1), clock_timestamp())
 ORDER BY lease_until LIMIT $2

-- name: next_due
SELECT redrive.outbox_us(min(due.due_at)) - coalesce($3, redrive.outbox_us(clock_timestamp()))
  FROM unnest($1::text[], $2::text[]) AS w (queue, kind)
 CROSS JOIN (VALUES (0::smallint), (1::smallint), (2::smallint)) AS p (priority)
 CROSS JOIN LATERAL (
       SELECT due_at FROM redrive.outbox AS o
        WHERE o.status = 'pending' AND o.held = 0 AND o.queue = w.queue AND o.event_type = w.kind
          AND o.priority = p.priority ORDER BY o.due_at, o.seq LIMIT 1) AS due
 WHERE NOT EXISTS (SELECT 1 FROM redrive.outbox_queues AS q WHERE q.name = w.queue AND q.paused)

-- name: in_flight
SELECT coalesce(sum(n), 0)::bigint FROM (
    SELECT queue, kind, status, n FROM redrive.outbox_tallies
    UNION ALL SELECT queue, kind, status, n FROM redrive.outbox_deltas) AS t
  JOIN unnest($1::text[], $2::text[]) AS w (queue, kind) ON t.queue = w.queue AND t.kind = w.kind
 WHERE t.status = 'in_flight'

-- name: place_arrivals
SELECT redrive.outbox_place(q.name, NULL) FROM redrive.outbox_queues AS q WHERE q.name = ANY ($1::text[]) AND q.ordered

-- name: fold
SELECT redrive.outbox_fold($1)

-- name: notify
SELECT pg_notify($1, $2)

-- name: declare
INSERT INTO redrive.outbox_queues (name, ordered, max_size, rate, max_in_flight, allowance, allowance_at)
VALUES ($1, $2, $3, $4::double precision, $5, greatest(1, coalesce($4::double precision, 0)), coalesce(redrive.outbox_at($6), clock_timestamp()))
ON CONFLICT (name) DO UPDATE SET ordered = excluded.ordered, max_size = excluded.max_size, rate = excluded.rate,
    max_in_flight = excluded.max_in_flight
