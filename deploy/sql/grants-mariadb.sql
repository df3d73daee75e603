-- The least privileges for deploy/compose/towpath.yaml on MariaDB, as `towpath grants --mariadb` prints them
-- for the tables of deploy/sql/state.sql and deploy/sql/outbox_event.sql in schema shop. Print your own for your tables.
GRANT REPLICATION SLAVE, BINLOG MONITOR, REPLICATION MASTER ADMIN ON *.* TO 'towpath'@'%';
GRANT SELECT ON `towpath`.version TO 'towpath'@'%';
GRANT SELECT, INSERT, UPDATE ON `towpath`.lease TO 'towpath'@'%';
GRANT SELECT, INSERT, UPDATE ON `towpath`.checkpoint TO 'towpath'@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON `towpath`.checkpoint_table TO 'towpath'@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON `towpath`.parked TO 'towpath'@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON `towpath`.xa TO 'towpath'@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON `towpath`.request TO 'towpath'@'%';
GRANT SELECT, INSERT ON `towpath`.audit TO 'towpath'@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON `towpath`.member TO 'towpath'@'%';
GRANT SELECT, UPDATE (`status`, `sent_at`, `attempts`, `next_attempt_at`, `last_error`) ON `shop`.`outbox_event` TO 'towpath'@'%';
