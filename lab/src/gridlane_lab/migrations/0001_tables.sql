-- The tables of a run, in a schema of their own. Columns follow the dataclasses of gridlane_lab.record; a later version
-- adds columns in a later migration and changes nothing here.
CREATE TABLE experiment (
    experiment_id text PRIMARY KEY, scenario text NOT NULL, size text NOT NULL, scenario_sha256 text NOT NULL,
    question text NOT NULL, seed bigint NOT NULL, started_utc timestamptz NOT NULL, lab_version text NOT NULL,
    git_commit text, git_is_dirty boolean, operator_note text NOT NULL, schema integer NOT NULL
);

CREATE TABLE environment (
    environment_id text PRIMARY KEY, experiment_id text NOT NULL REFERENCES experiment ON DELETE CASCADE,
    recorded_utc timestamptz NOT NULL, host text NOT NULL, kernel text NOT NULL, cpu_model text NOT NULL,
    logical_cpus integer NOT NULL, memory_bytes bigint NOT NULL, governor text, clock_source text, emulator text,
    congestion_controls text[] NOT NULL, sysctls_json jsonb NOT NULL, programs_json jsonb NOT NULL,
    container_images text[] NOT NULL, time_sync_offset_s double precision
);

CREATE TABLE run (
    run_id text PRIMARY KEY, experiment_id text NOT NULL REFERENCES experiment ON DELETE CASCADE,
    environment_id text NOT NULL, block integer NOT NULL, order_in_block integer NOT NULL, cell_key text NOT NULL,
    variant_json jsonb NOT NULL, tool text NOT NULL, driver text NOT NULL, backend text NOT NULL,
    network_key text NOT NULL, started_utc timestamptz NOT NULL, status text NOT NULL, reason text NOT NULL,
    command text NOT NULL, wall_s double precision, bound_s double precision, capacity_bits_per_s double precision,
    round_trip_s double precision, client_cpu_s double precision, server_cpu_s double precision,
    emulator_cpu_s double precision, client_memory_bytes bigint, server_memory_bytes bigint,
    busy_ratio double precision, stolen_ratio double precision, interface_bytes bigint, file_system_bytes bigint,
    congestion_controls text[] NOT NULL, raw text NOT NULL
);
CREATE INDEX run_of_experiment ON run (experiment_id, cell_key, block);

CREATE TABLE path_check (
    path_check_id text PRIMARY KEY, experiment_id text NOT NULL REFERENCES experiment ON DELETE CASCADE, run_id text,
    network_key text NOT NULL, moment text NOT NULL, sender text NOT NULL, receiver text NOT NULL,
    requested_round_trip_s double precision, round_trip_p5_s double precision, round_trip_p50_s double precision,
    round_trip_p99_s double precision, requested_rate_bits_per_s double precision, rate_bits_per_s double precision,
    payload_rate_bits_per_s double precision, requested_loss_ratio double precision, loss_ratio double precision,
    queue_bytes bigint, dropped_packets bigint, unaccounted_drops bigint, lateness_p99_s double precision,
    headroom_ratio double precision, verdict text NOT NULL, reason text NOT NULL
);

CREATE TABLE transfer (
    transfer_id text PRIMARY KEY, run_id text NOT NULL REFERENCES run ON DELETE CASCADE, kind text NOT NULL,
    protocol text NOT NULL, number integer NOT NULL, status text NOT NULL, sources text[] NOT NULL,
    destination text NOT NULL, source_site text, target_site text, file_size_bytes bigint, bytes_requested bigint,
    bytes_moved bigint, bytes_verified bigint, verified_by text NOT NULL, streams integer, sources_used integer,
    connections integer, attempt integer NOT NULL, exit_code integer, error_scope text, error_phase text,
    error_code text, http_status integer, is_retryable boolean, error text NOT NULL, retries integer,
    reconnects integer, requests bigint, events_read bigint, events_requested bigint, wait_s double precision,
    queued_ns bigint, started_ns bigint, connected_ns bigint, authorised_ns bigint, opened_ns bigint,
    first_byte_ns bigint, last_byte_ns bigint, verified_ns bigint, closed_ns bigint, clock_id text NOT NULL,
    prepare_s double precision, transfer_s double precision, verify_s double precision,
    compare_s double precision, total_s double precision,
    goodput_bits_per_s double precision, total_rate_bits_per_s double precision, overhead_ratio double precision,
    client_cpu_s double precision
);
CREATE INDEX transfer_of_run ON transfer (run_id);

CREATE TABLE source_share (
    transfer_id text NOT NULL REFERENCES transfer ON DELETE CASCADE, source text NOT NULL, bytes_moved bigint NOT NULL,
    wasted_bytes bigint, requests bigint, first_use_s double precision, last_use_s double precision,
    PRIMARY KEY (transfer_id, source)
);

CREATE TABLE sample (
    run_id text NOT NULL REFERENCES run ON DELETE CASCADE, subject text NOT NULL, t_s double precision NOT NULL,
    interval_s double precision NOT NULL, bytes_moved bigint, cwnd_bytes bigint, round_trip_s double precision,
    retransmits bigint, in_flight_bytes bigint, delivery_rate_bits_per_s double precision,
    cpu_user_s double precision, cpu_system_s double precision, rss_bytes bigint, queue_bytes bigint,
    transfers_active integer, is_omitted boolean NOT NULL,
    PRIMARY KEY (run_id, subject, t_s)
);

CREATE TABLE claim (
    claim text NOT NULL, experiment_id text NOT NULL REFERENCES experiment ON DELETE CASCADE, statement text NOT NULL,
    kind text NOT NULL, response text NOT NULL, estimate double precision, low double precision,
    high double precision, least double precision, most double precision, blocks integer NOT NULL,
    rows bigint NOT NULL, failed_rows bigint NOT NULL, p_value double precision, p_value_holm double precision,
    effect_cliffs_delta double precision, verdict text NOT NULL, reason text NOT NULL, query_json jsonb NOT NULL,
    PRIMARY KEY (experiment_id, claim)
);
