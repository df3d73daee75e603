-- Version 2: which processes run a stream.

-- Processes that lead the stream or stand by. Each one keeps its own row fresh, and removes it when it stops.
CREATE TABLE IF NOT EXISTS {schema}.member (
  stream       VARCHAR(64)  NOT NULL,
  holder       VARCHAR(255) NOT NULL,             -- as in lease: unique per start of a process
  version      VARCHAR(64)  NOT NULL,             -- of the program
  config_hash  VARCHAR(64)  NOT NULL,             -- members that differ run with different configurations
  http_address VARCHAR(255) NOT NULL DEFAULT '',  -- of its HTTP side, as it knows it
  started_at   DATETIME(6)  NOT NULL,
  seen_at      DATETIME(6)  NOT NULL,
  PRIMARY KEY (stream, holder)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
