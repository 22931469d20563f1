-- What all workers share. {queue} are the columns of a queue.

-- name: declare
-- Under another rate the allowance starts afresh.
INSERT INTO queues (name, ordered, max_size, rate, max_in_flight, allowance, allowance_at) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET ordered = excluded.ordered, max_size = excluded.max_size, rate = excluded.rate,
    max_in_flight = excluded.max_in_flight, allowance = iif(rate IS excluded.rate, allowance, excluded.allowance),
    allowance_at = iif(rate IS excluded.rate, allowance_at, excluded.allowance_at)

-- name: used
SELECT DISTINCT queue FROM tallies WHERE status = 'enqueued'

-- name: queues
SELECT {queue} FROM queues

-- name: pause
INSERT INTO queues (name, paused, paused_by, reason) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET paused = excluded.paused, paused_by = excluded.paused_by, reason = excluded.reason

-- name: workers
SELECT name, kinds, coalesce(n, 0), seen_us, lease >= ? FROM workers LEFT JOIN (
    SELECT worker, count(*) AS n FROM letters CROSS JOIN holders USING (token)
     WHERE status = 'in_flight' GROUP BY worker
) ON worker = name ORDER BY name

-- name: breakers
SELECT name, value FROM shared_state WHERE room = 'breaker'

-- name: read
SELECT value FROM shared_state WHERE room = ? AND name = ?

-- name: write
INSERT OR REPLACE INTO shared_state VALUES (?, ?, ?)

-- name: handled
INSERT OR IGNORE INTO event_handled VALUES (?, ?, ?)

-- name: audit
SELECT seq, at_us, by, verb, target, count, reason FROM audit ORDER BY seq DESC LIMIT ?
