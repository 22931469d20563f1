-- What every write transaction reads and writes. {queue} are the columns of a queue.

-- name: numbers
-- With the schema's number, and a number that changes when another connection has committed.
SELECT token, seq, mark, schema_version, data_version FROM meta, pragma_schema_version, pragma_data_version

-- name: keep_numbers
UPDATE meta SET token = ?, seq = ?, mark = ?

-- name: counted_in_one
SELECT coalesce(sum(n), 0) FROM tallies INDEXED BY tallies_status WHERE queue = ? AND status IN (?)

-- name: counted_in_two
SELECT coalesce(sum(n), 0) FROM tallies INDEXED BY tallies_status WHERE queue = ? AND status IN (?, ?)

-- name: queues
SELECT {queue} FROM queues

-- name: audit
INSERT INTO audit (at_us, by, verb, target, count, reason) VALUES (?, ?, ?, ?, ?, ?)

-- name: count
INSERT INTO tallies VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET n = n + excluded.n

-- name: count_two
INSERT INTO tallies VALUES (?, ?, ?, ?, ?, ?, ?, ?), (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET n = n + excluded.n

-- name: forget_empty
DELETE FROM tallies
 WHERE queue = ? AND kind = ? AND status = ? AND category = ? AND policy = ? AND error_type = ? AND fingerprint = ?
   AND n = 0
