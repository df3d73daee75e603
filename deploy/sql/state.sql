-- Towpath's own tables, as `towpath init --print` prints them for the schema towpath.
-- Run as an account with CREATE; towpath init does the same, and upgrades.
CREATE DATABASE IF NOT EXISTS `towpath` DEFAULT CHARACTER SET utf8mb4;

-- Versions of the state tables that were applied here.
CREATE TABLE IF NOT EXISTS `towpath`.version (
  version    INT UNSIGNED NOT NULL,
  applied_at DATETIME(6)  NOT NULL,
  PRIMARY KEY (version)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Towpath's state tables, version 1. All times are UTC as the server's clock has them.

-- Who relays a stream. Every write of a leader locks its row, by term and holder, as the last act before COMMIT.
CREATE TABLE IF NOT EXISTS `towpath`.lease (
  stream         VARCHAR(64)     NOT NULL,
  term           BIGINT UNSIGNED NOT NULL,             -- grows by one with each leadership
  holder         VARCHAR(255)    NOT NULL,             -- unique per start of a process; '' when resigned
  acquired_at    DATETIME(6)     NOT NULL,
  renewed_at     DATETIME(6)     NOT NULL,
  expires_at     DATETIME(6)     NOT NULL,
  locked_on      VARCHAR(255)    NOT NULL DEFAULT '',  -- identity of the server on which the holder also holds GET_LOCK
  broker_cluster VARCHAR(255)    NOT NULL DEFAULT '',  -- where the last holder took its fences, and how many
  broker_vhost   VARCHAR(255)    NOT NULL DEFAULT '',
  broker_lanes   INT UNSIGNED    NOT NULL DEFAULT 0,
  PRIMARY KEY (stream)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Up to where everything is settled.
CREATE TABLE IF NOT EXISTS `towpath`.checkpoint (
  stream   VARCHAR(64)     NOT NULL,
  term     BIGINT UNSIGNED NOT NULL,  -- that saved it
  saved_at DATETIME(6)     NOT NULL,
  position MEDIUMTEXT      NOT NULL,  -- JSON: flavor, server, file, offset, creation stamp, GTIDs, last GTID
  PRIMARY KEY (stream)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The tables that the position covers. A configured table that is missing here is new.
CREATE TABLE IF NOT EXISTS `towpath`.checkpoint_table (
  stream      VARCHAR(64) NOT NULL,
  schema_name VARCHAR(64) NOT NULL,
  table_name  VARCHAR(64) NOT NULL,
  added_at    DATETIME(6) NOT NULL,
  shape       MEDIUMTEXT  NULL,  -- JSON: the table's columns at the position
  sweep       MEDIUMTEXT  NULL,  -- JSON: a sweep under way and its cursor
  PRIMARY KEY (stream, schema_name, table_name)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Rows that were refused, or wait behind one of their key, or are due later. An ended one stays until the position has passed its row.
CREATE TABLE IF NOT EXISTS `towpath`.parked (
  id              BIGINT UNSIGNED   NOT NULL AUTO_INCREMENT,
  stream          VARCHAR(64)       NOT NULL,
  sequence        BIGINT UNSIGNED   NOT NULL,            -- order of parking, growing over all terms: term << 40 and a count
  label           VARCHAR(255)      NOT NULL,            -- name of the table's configuration
  schema_name     VARCHAR(64)       NOT NULL,
  table_name      VARCHAR(64)       NOT NULL,
  primary_key     MEDIUMBLOB        NOT NULL,            -- encoded
  primary_hash    BINARY(32)        NOT NULL,            -- SHA-256 of primary_key: a key may be longer than an index takes
  ordering_key    MEDIUMBLOB        NULL,                -- NULL: unordered
  place           BIGINT UNSIGNED   NULL,                -- in the window of the leader that parked it; NULL: the saved position has passed the row
  message_id      VARCHAR(255)      NULL,
  exchange        VARCHAR(255)      NOT NULL DEFAULT '',
  routing_key     VARCHAR(255)      NOT NULL DEFAULT '',
  size            BIGINT UNSIGNED   NOT NULL,            -- about what the row takes in memory, bytes
  class           VARCHAR(32)       NOT NULL,            -- of the failure
  code            INT               NOT NULL DEFAULT 0,  -- AMQP reply code
  reason          VARCHAR(1024)     NOT NULL DEFAULT '',
  state           VARCHAR(16)       NOT NULL,            -- waiting, failed; ends: sent, discarded, withdrawn, gone, filtered
  refusals        INT UNSIGNED      NOT NULL DEFAULT 0,  -- how often the broker refused it
  attempts        INT UNSIGNED      NOT NULL DEFAULT 0,  -- how many of those count
  first_failed_at DATETIME(6)       NOT NULL,
  last_failed_at  DATETIME(6)       NOT NULL,
  next_attempt_at DATETIME(6)       NULL,                -- NULL: not by itself
  image           LONGBLOB          NULL,                -- the encoded row of a keep table; NULL: read it by primary key
  PRIMARY KEY (id),
  UNIQUE KEY parked_row (stream, schema_name, table_name, primary_hash),
  UNIQUE KEY parked_sequence (stream, sequence),
  KEY parked_state (stream, state, place),
  KEY parked_place (stream, place)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Rows of XA transactions that are prepared and have no verdict yet.
CREATE TABLE IF NOT EXISTS `towpath`.xa (
  stream      VARCHAR(64)     NOT NULL,
  xid         VARBINARY(255)  NOT NULL,
  chunk       INT UNSIGNED    NOT NULL,  -- 0, 1, ... in the order of the rows
  prepared_at DATETIME(6)     NOT NULL,
  mark_file   VARCHAR(255)    NOT NULL,  -- end of the prepare's group in the binlog
  mark_offset BIGINT UNSIGNED NOT NULL,
  row_data    LONGBLOB        NOT NULL,  -- encoded rows
  PRIMARY KEY (stream, xid, chunk)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Commands to the leader.
CREATE TABLE IF NOT EXISTS `towpath`.request (
  id           BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  stream       VARCHAR(64)     NOT NULL,
  kind         VARCHAR(32)     NOT NULL,
  args         MEDIUMTEXT      NOT NULL,            -- JSON
  operator     VARCHAR(255)    NOT NULL,
  reason       VARCHAR(1024)   NOT NULL,
  state        VARCHAR(16)     NOT NULL,            -- new, taken, done, failed, dropped (by the one who asked)
  result       MEDIUMTEXT      NULL,                -- JSON
  term         BIGINT UNSIGNED NOT NULL DEFAULT 0,  -- that took it
  requested_at DATETIME(6)     NOT NULL,
  taken_at     DATETIME(6)     NULL,
  finished_at  DATETIME(6)     NULL,
  PRIMARY KEY (id),
  KEY request_state (stream, state, id)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What was done to a stream, by whom, why, and how it went. Only ever added to.
CREATE TABLE IF NOT EXISTS `towpath`.audit (
  id       BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  stream   VARCHAR(64)     NOT NULL,
  at       DATETIME(6)     NOT NULL,
  term     BIGINT UNSIGNED NOT NULL,
  holder   VARCHAR(255)    NOT NULL,
  action   VARCHAR(64)     NOT NULL,
  operator VARCHAR(255)    NOT NULL DEFAULT '',  -- '' when the relay acted by itself
  reason   VARCHAR(1024)   NOT NULL DEFAULT '',
  detail   MEDIUMTEXT      NOT NULL,             -- JSON
  PRIMARY KEY (id),
  KEY audit_time (stream, at)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

INSERT IGNORE INTO `towpath`.version (version, applied_at) VALUES (1, UTC_TIMESTAMP(6));
-- Version 2: which processes run a stream.

-- Processes that lead the stream or stand by. Each one keeps its own row fresh, and removes it when it stops.
CREATE TABLE IF NOT EXISTS `towpath`.member (
  stream       VARCHAR(64)  NOT NULL,
  holder       VARCHAR(255) NOT NULL,             -- as in lease: unique per start of a process
  version      VARCHAR(64)  NOT NULL,             -- of the program
  config_hash  VARCHAR(64)  NOT NULL,             -- members that differ run with different configurations
  http_address VARCHAR(255) NOT NULL DEFAULT '',  -- of its HTTP side, as it knows it
  started_at   DATETIME(6)  NOT NULL,
  seen_at      DATETIME(6)  NOT NULL,
  PRIMARY KEY (stream, holder)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

INSERT IGNORE INTO `towpath`.version (version, applied_at) VALUES (2, UTC_TIMESTAMP(6));
