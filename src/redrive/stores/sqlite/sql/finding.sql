-- Reads for operators. {all} are the columns of a whole letter.

-- name: get
SELECT {all} FROM letters WHERE id = ?

-- name: standing
SELECT seq, due_us, queue, key, lane FROM letters WHERE id = ? AND status = 'pending'

-- name: waits
SELECT count(*) FROM waits WHERE seq = ?

-- name: waited_for
SELECT letters.id, letters.status FROM waits LEFT JOIN letters ON letters.seq = waits.on_seq
 WHERE waits.seq = ? ORDER BY letters.id LIMIT ?

-- name: tallies
SELECT queue, kind, status, category, policy, error_type, fingerprint, n FROM tallies WHERE n <> 0

-- name: tallies_of
SELECT queue, kind, status, category, policy, error_type, fingerprint, n FROM tallies WHERE n <> 0 AND status = ?

-- name: group
SELECT error_type, title, first_seen_us, last_seen_us FROM groups WHERE fingerprint = ?

-- name: oldest_failed
SELECT {all} FROM letters WHERE dead = 1 ORDER BY failed_us, seq LIMIT 1

-- name: histories
-- The condition `cycles > 0` stands twice, because it is what makes the partial index fit.
SELECT coalesce((SELECT max(cycles) FROM letters WHERE cycles > 0), 0),
       (SELECT count(*) FROM letters WHERE cycles > ? AND cycles > 0)
