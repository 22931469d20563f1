-- Claims. {lean} and {plain} are what a claim reads of each letter, {listed} the columns of a letter without payload.

-- name: candidates
SELECT {lean}, {plain} FROM letters
 WHERE status = 'pending' AND held = 0 AND queue = ? AND kind = ? AND priority = ? AND due_us <= ?
   AND (generation IS NULL OR ?5 IS NULL OR generation = ?5)
 ORDER BY due_us, seq

-- name: one
SELECT {lean}, {plain}, queue FROM letters WHERE id = ? AND status = 'pending' AND held = 0

-- name: one_waiting
SELECT {lean}, {plain}, queue FROM letters WHERE id = ? AND status = 'pending' AND lane < 2

-- name: claim
UPDATE letters SET status = 'in_flight', attempts = attempts + 1, token = ?, lease = ?, updated_us = ?
 WHERE seq IN carray(?)

-- name: hold
INSERT INTO holders VALUES (?, ?)

-- name: forget_holders
DELETE FROM holders WHERE token NOT IN (SELECT token FROM letters WHERE status = 'in_flight')

-- name: spend
UPDATE queues SET allowance = ?, allowance_at = ? WHERE name = ?

-- name: beat
INSERT OR REPLACE INTO workers VALUES (?, ?, ?, ?, ?)

-- name: silent
SELECT name FROM workers WHERE seen_us < ? AND lease < ?

-- name: forget_silent
DELETE FROM workers WHERE seen_us < ? AND lease < ?

-- name: leave
DELETE FROM workers WHERE name = ?

-- name: workers
-- A worker that died before its first heartbeat is known by its claims alone.
SELECT name FROM workers UNION SELECT worker FROM holders

-- name: end_lease
UPDATE workers SET lease = 0 WHERE name = ?

-- name: holds
SELECT 1 FROM holders WHERE worker = ? AND token IN (SELECT token FROM letters WHERE status = 'in_flight')

-- name: renew
UPDATE letters SET lease = ? WHERE seq IN carray(?) AND token = ? AND status = 'in_flight'

-- name: held
SELECT seq FROM letters WHERE seq IN carray(?) AND token = ? AND status = 'in_flight'

-- name: expired
SELECT {listed} FROM letters WHERE status = 'in_flight' AND lease < ? ORDER BY lease LIMIT ?

-- name: expired_or_dead
-- The last names are those of workers that are known to be dead.
SELECT {listed} FROM letters
 WHERE status = 'in_flight' AND (lease < ? OR token IN (SELECT token FROM holders WHERE worker IN ({names})))
 ORDER BY lease LIMIT ?

-- name: paused
SELECT name FROM queues WHERE paused

-- name: next_due
SELECT due_us FROM letters
 WHERE status = 'pending' AND held = 0 AND queue = ? AND kind = ? AND priority = ?
   AND (generation IS NULL OR ?4 IS NULL OR generation = ?4) ORDER BY due_us LIMIT 1

-- name: in_flight
SELECT coalesce(sum(n), 0) FROM tallies WHERE queue = ? AND kind = ? AND status = 'in_flight'
