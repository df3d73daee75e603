-- The inbox of a consumer: one row for each message that it has processed, with
-- the business change in one transaction. MySQL and MariaDB alike. Load it into
-- the schema that holds what the consumer changes; several consumers may share
-- the table. Times are UTC.
CREATE TABLE towpath_inbox (
  consumer     VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  message_id   VARBINARY(255) NOT NULL COMMENT 'byte for byte, so that no collation takes two ids for one',
  content      BINARY(32)     NOT NULL COMMENT 'SHA-256 of: length of the type in one byte, type, body',
  processed_at DATETIME(6)    NOT NULL,
  PRIMARY KEY (consumer, message_id),
  KEY by_age (consumer, processed_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;
