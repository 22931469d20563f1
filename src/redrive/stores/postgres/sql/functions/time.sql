-- Instants, the clock of leases, and what makes a transaction durable.

CREATE OR REPLACE FUNCTION {schema}.outbox_at(us bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT to_timestamp(us::double precision / 1e6) $$;

CREATE OR REPLACE FUNCTION {schema}.outbox_us(at timestamptz) RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE
AS $$  -- instants beyond the years 1 to 9999 are shown as their end, because Python's datetime knows no others
    SELECT CASE WHEN at > '9999-12-31 23:59:59.999999+00' THEN 253402300799999999
                WHEN at < '0001-01-01 00:00:00+00' THEN -62135596800000000
                ELSE round(date_part('epoch', at) * 1e6)::bigint END
$$;

-- An instant inside a JSON document: fixed-width UTC, which casts to timestamptz and sorts as text.
CREATE OR REPLACE FUNCTION {schema}.outbox_iso(at timestamptz) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') $$;

-- Make this transaction's commit wait for the disk, even if the server, the database or the role is set otherwise. A
-- setting that also waits for a standby stays. Holds until the end of the transaction, behind a pooler too.
CREATE OR REPLACE FUNCTION {schema}.outbox_durable() RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $$;

-- Move the clock of leases on, and return it. It adds up what workers measure with clocks that never jump: a worker that
-- saw it at p_seen, and finds it there p_passed microseconds later, adds these. So it never goes faster than time, it goes
-- on as long as one worker sweeps, and it does not notice when the server's wall clock is set or a standby with another
-- clock takes over. No call waits for it: one that finds it locked leaves it to the call that has the lock.
CREATE OR REPLACE FUNCTION {schema}.outbox_tick(p_seen bigint, p_passed bigint) RETURNS TABLE (lease_us bigint, moved boolean)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    PERFORM 1 FROM {schema}.outbox_clock WHERE one AND lease_us = p_seen AND p_passed > 0 FOR NO KEY UPDATE SKIP LOCKED;
    IF FOUND THEN
        RETURN QUERY UPDATE {schema}.outbox_clock SET lease_us = lease_us + p_passed, wall_at = clock_timestamp()
                      WHERE one RETURNING lease_us, true;
    ELSE
        RETURN QUERY SELECT lease_us, false FROM {schema}.outbox_clock WHERE one;
    END IF;
END $$;

-- When a lease of p_lease seconds ends that begins now. The wall clock says how long ago the last tick was; a third of the
-- lease bounds what it may say, because workers tick at least three times in a lease.
CREATE OR REPLACE FUNCTION {schema}.outbox_lease_end(p_lease double precision) RETURNS timestamptz LANGUAGE sql STABLE
AS $$
    SELECT {schema}.outbox_at(lease_us) + p_lease * interval '1 second'
           + least(greatest(clock_timestamp() - wall_at, '0'), p_lease / 3 * interval '1 second')
      FROM {schema}.outbox_clock WHERE one
$$;
