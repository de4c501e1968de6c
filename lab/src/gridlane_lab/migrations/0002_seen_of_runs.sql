-- What the emulator and the servers have seen of a run.
ALTER TABLE run
    ADD COLUMN wire_bytes bigint, ADD COLUMN dropped_packets bigint, ADD COLUMN connections integer,
    ADD COLUMN ip_version integer;
ALTER TABLE source_share ADD COLUMN connections integer;
