-- Rows read whole. {all} are the columns of a whole letter.

-- name: body
SELECT body FROM bodies WHERE seq = ?

-- name: whole
SELECT {all} FROM letters WHERE seq IN carray(?)
