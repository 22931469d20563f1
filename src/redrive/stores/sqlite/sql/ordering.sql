-- Lanes and waits. A lane is the unfinished letters of one key; lane 1 is its first, lane 2 stands behind it.

-- name: busy
SELECT 1 FROM letters WHERE queue = ? AND key = ? AND lane > 0 AND status IN ('pending', 'in_flight') LIMIT 1

-- name: first
SELECT id FROM letters WHERE queue = ? AND key = ? AND lane = 1 AND status IN ('pending', 'in_flight')
 ORDER BY seq LIMIT 1

-- name: oldest
SELECT seq FROM letters WHERE queue = ? AND key = ? AND lane > 0 AND status IN ('pending', 'in_flight')
 ORDER BY seq LIMIT 1

-- name: go_first
UPDATE letters SET lane = 1, held = held - 1 WHERE seq = ? AND lane = 2

-- name: lane
SELECT seq, lane, status FROM letters
 WHERE queue = ? AND key = ? AND lane > 0 AND status IN ('pending', 'in_flight') ORDER BY status = 'pending', seq

-- name: stand
UPDATE letters SET lane = ?1, held = held + ?1 - lane WHERE seq = ?2

-- name: come_back
UPDATE letters SET held = (SELECT count(*) FROM waits WHERE waits.seq = letters.seq) WHERE seq = ?

-- name: wait_for
INSERT INTO waits (on_seq, seq, failure) VALUES (?, ?, ?)

-- name: any_waits
SELECT 1 FROM waits LIMIT 1

-- name: waiting
SELECT seq FROM waits WHERE on_seq IN carray(?)

-- name: let_go
UPDATE letters SET held = held - 1 WHERE seq = ?

-- name: forget_waits
DELETE FROM waits WHERE on_seq IN carray(?)

-- name: runs_after_dead
-- "failure > 0" lets SQLite use the partial index.
SELECT w.on_seq, w.seq FROM waits AS w JOIN letters AS b ON b.seq = w.seq LEFT JOIN letters AS o ON o.seq = w.on_seq
 WHERE w.failure > 0 AND w.failure = 1 AND coalesce(o.status, 'archived') IN ('failed', 'archived')
   AND (?2 IS NULL OR b.queue = ?2) LIMIT ?1

-- name: wait_no_longer
DELETE FROM waits WHERE on_seq = ? AND seq = ?

-- name: fails_after_dead
SELECT DISTINCT b.id FROM waits AS w JOIN letters AS b ON b.seq = w.seq LEFT JOIN letters AS o ON o.seq = w.on_seq
 WHERE w.failure > 0 AND w.failure = 2 AND coalesce(o.status, 'archived') IN ('failed', 'archived')
   AND b.status = 'pending' AND b.lane < 2 AND (?2 IS NULL OR b.queue = ?2) LIMIT ?1

-- name: dependents
SELECT b.id FROM letters AS a JOIN waits ON waits.on_seq = a.seq JOIN letters AS b ON b.seq = waits.seq
 WHERE a.id = ? AND b.status IN ('pending', 'failed') ORDER BY b.seq

-- name: awaited_by
SELECT b.id FROM waits JOIN letters AS b ON b.seq = waits.seq
 WHERE waits.on_seq = ? AND b.status IN ('pending', 'failed') ORDER BY b.seq LIMIT 1

-- name: order
UPDATE letters SET lane = 1
 WHERE queue = ? AND key IS NOT NULL AND lane = 0 AND status IN ('pending', 'in_flight')

-- name: order_behind
UPDATE letters SET lane = 2, held = held + 1
 WHERE queue = ?1 AND lane = 1 AND status = 'pending'
   AND EXISTS (SELECT 1 FROM letters AS other
                WHERE other.queue = ?1 AND other.key = letters.key AND other.lane > 0
                  AND other.status IN ('pending', 'in_flight')
                  AND (other.status = 'in_flight' OR other.seq < letters.seq))

-- name: let_go_behind
UPDATE letters SET held = held - 1 WHERE queue = ? AND lane = 2

-- name: disorder
UPDATE letters SET lane = 0 WHERE queue = ? AND lane > 0
