-- The operator's writes. {all} are the columns of a whole letter, {lean} and {edited} those that an act must know.

-- name: read
SELECT {all}, lane, held, archived_from FROM letters WHERE id = ?

-- name: read_by_key
SELECT {all}, lane, held, archived_from FROM letters WHERE queue = ? AND kind = ? AND idempotency_key = ?

-- name: newer_error
UPDATE letters SET last_error = ? WHERE seq = ?

-- name: renew
UPDATE letters SET policy = ?, extras = ? WHERE seq = ?

-- name: held
SELECT seq, held FROM letters WHERE seq IN carray(?) AND status = 'pending' AND held > 0

-- name: join_lane
UPDATE letters SET lane = 1 WHERE seq = ? AND lane = 0

-- name: read_lean
SELECT {lean} FROM letters WHERE seq = ?

-- name: remove_letter
DELETE FROM letters WHERE seq = ?

-- name: remove_body
DELETE FROM bodies WHERE seq = ?

-- name: remove_error_text
DELETE FROM error_text WHERE rowid = ?

-- name: remove_waits
DELETE FROM waits WHERE seq = ?

-- name: read_edited
SELECT {edited} FROM letters WHERE id = ?

-- name: keep_body
INSERT INTO bodies VALUES (?, ?)
