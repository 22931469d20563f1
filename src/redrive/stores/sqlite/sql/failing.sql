-- What is kept of a failure in addition to the letter.

-- name: note_group
INSERT INTO groups VALUES (?, ?, ?, ?4, ?4) ON CONFLICT DO UPDATE SET last_seen_us = excluded.last_seen_us

-- name: forget_text
DELETE FROM error_text WHERE rowid IN carray(?)

-- name: keep_text
INSERT INTO error_text (rowid, error) SELECT value, ? FROM carray(?)
