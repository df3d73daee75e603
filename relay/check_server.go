package relay

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
)

// checkServer looks at the settings without which the binlog cannot be relied on.
func checkServer(fs *findings, s *canal.Server) {
	if !s.Binlog {
		fs.fail("binlog", "set log_bin in the server's configuration and restart it", "the server writes no binary log")
		return
	}
	if s.Engine != "" {
		fs.fail("binlog", "unset binlog_storage_engine", "the server keeps its binary log in a storage engine, which cannot be read")
	}
	if s.Format != "ROW" {
		fs.fail("binlog_format", globally(s, "binlog_format = 'ROW'")+"; then reconnect the applications' pools",
			"it is %s: rows that statements write do not show in the binary log", s.Format)
	}
	if s.ServerID == 0 {
		fs.fail("server_id", globally(s, "server_id = 1"), "the server's own is 0: it refuses every replica, and a relay is one")
	}
	if s.RowImage != "FULL" {
		fs.warn("binlog_row_image", globally(s, "binlog_row_image = 'FULL'"), "it is %s: every row has to be read again by its primary key", s.RowImage)
	}
	if s.RowMetadata != "FULL" {
		fs.warn("binlog_row_metadata", globally(s, "binlog_row_metadata = 'FULL'"),
			"it is %s: after a schema change while the relay is down, old rows may not be told apart by column name", s.RowMetadata)
	}
	if s.SyncBinlog != 1 || s.FlushLog != 1 {
		fs.warn("durability", globally(s, "sync_binlog = 1, innodb_flush_log_at_trx_commit = 1"),
			"sync_binlog is %d and innodb_flush_log_at_trx_commit is %d: a crash of the server can take back what was sent already", s.SyncBinlog, s.FlushLog)
	}
	if s.Flavor == checkpoint.MySQL && !s.OrderCommits {
		fs.warn("binlog_order_commits", globally(s, "binlog_order_commits = ON"), "it is OFF: transactions may become visible in another order than that of the binary log")
	}
	fs.ok("source", "%s %s, GTID %s, binary log at %s:%d", s.Flavor, s.Version, strings.ToLower(s.GTIDMode), s.Position.File, s.Position.Offset)
}

// globally is the statement that sets variables for now and, where the server
// can, for its next start. MariaDB wants them in its configuration as well.
func globally(s *canal.Server, assignments string) string {
	if s.Flavor == checkpoint.MariaDB {
		return "SET GLOBAL " + assignments + "; and the same in the server's configuration"
	}
	return "SET PERSIST " + strings.ReplaceAll(assignments, ", ", ", PERSIST ")
}

// checkPrimary looks at what a running relay bears, or finds out by itself.
func checkPrimary(ctx context.Context, fs *findings, c *configs.Config, db *sql.DB, s *canal.Server) {
	if !s.Binlog {
		return
	}
	if s.ReadOnly {
		fs.fail("read_only", "name the primary in source.address", "the server is read-only: the relay can save neither its position nor the state of a row")
	}
	if s.Flavor == checkpoint.MySQL && s.GTIDMode != "ON" {
		fs.warn("gtid_mode", "raise gtid_mode step by step to ON (OFF_PERMISSIVE, ON_PERMISSIVE, ON), enforce_gtid_consistency first",
			"it is %s: after a failover the position cannot be continued on the new primary, and the tables are swept", s.GTIDMode)
	}
	checkFilters(fs, c, s)
	checkServerID(fs, c, s)
	if s.Retention > 0 && s.Retention < minRetention {
		fs.warn("retention", globally(s, retentionVariable(s)), "binary logs are kept for %s: a relay that was down for longer has to sweep its tables, and keep tables halt",
			time.Duration(s.Retention)*time.Second)
	}
	checkSessions(ctx, fs, db, s)
}

// minRetention is a weekend, in seconds.
const minRetention = 3 * 24 * 3600

func retentionVariable(s *canal.Server) string {
	if s.Flavor == checkpoint.MariaDB {
		return "expire_logs_days = 7"
	}
	return "binlog_expire_logs_seconds = 604800"
}

// checkFilters finds schemas that the server leaves out of its binlog.
func checkFilters(fs *findings, c *configs.Config, s *canal.Server) {
	if len(s.DoDB)+len(s.IgnoreDB) == 0 {
		return
	}
	hidden := false
	for i := range c.Tables {
		for _, p := range c.Tables[i].Tables {
			matched := func(schema string) bool { return configs.Pattern{Schema: p.Schema, Table: "t"}.Matches(schema, "t") }
			if slices.ContainsFunc(s.IgnoreDB, matched) || len(s.DoDB) > 0 && !slices.ContainsFunc(s.DoDB, matched) {
				hidden = true
				fs.fail("binlog filter", "take the schema out of binlog_ignore_db, or add it to binlog_do_db, and restart the server",
					"the server does not write the rows of %s to its binary log (binlog_do_db %q, binlog_ignore_db %q)", p, s.DoDB, s.IgnoreDB)
			}
		}
	}
	if !hidden {
		fs.warn("binlog filter", "remove binlog_do_db and binlog_ignore_db", "the server leaves schemas out of its binary log: rows that are written by way of another default schema may be missing")
	}
}

// checkServerID finds a replica that would throw the relay out, or be thrown out by it.
func checkServerID(fs *findings, c *configs.Config, s *canal.Server) {
	id := c.Source.ServerID
	switch i := slices.IndexFunc(s.Replicas, func(r canal.Replica) bool { return r.ServerID == id }); {
	case id == 0:
		fs.ok("server_id", "the relay chooses one that no replica has")
	case id == s.ServerID:
		fs.fail("server_id", "set source.server_id to 0, or to a number of its own", "source.server_id %d is the server's own: it refuses such a replica", id)
	case i >= 0 && s.Replicas[i].Host == canal.ReplicaHost:
		fs.ok("server_id", "%d is in use by a relay, which must be one of this stream", id)
	case i >= 0:
		fs.fail("server_id", "set source.server_id to 0, or to a number of its own",
			"source.server_id %d is that of a replica (%s): the two would throw each other out again and again", id, s.Replicas[i].Host)
	default:
		fs.ok("server_id", "no replica has %d", id)
	}
}

// checkSessions finds sessions that write in another format than the server's.
func checkSessions(ctx context.Context, fs *findings, db *sql.DB, s *canal.Server) {
	sessions, known, err := canal.OtherFormats(ctx, db)
	switch {
	case err != nil:
		fs.warn("sessions", "", "%v", err)
	case !known && s.Flavor == checkpoint.MariaDB:
		fs.ok("sessions", "not seen: MariaDB does not tell another session's binlog_format")
	case !known:
		fs.ok("sessions", "not seen: the binlog_format of other sessions takes performance_schema and SELECT on its tables variables_by_thread and threads")
	default:
		for _, account := range slices.Sorted(maps.Keys(sessions)) {
			fs.warn("sessions", "let the application not set binlog_format, and reconnect its pool",
				"%d sessions of %s have another binlog_format: what they write does not show row by row, and costs a sweep each time", sessions[account], account)
		}
		if len(sessions) == 0 {
			fs.ok("sessions", "all write in row format")
		}
	}
}

// checkState looks at the state tables, and at how far the saved position is
// from what the server still has.
func checkState(ctx context.Context, fs *findings, c *configs.Config, db *sql.DB, s *canal.Server, a *account) {
	store, err := checkpoint.Open(ctx, db, c.State.Schema)
	if err != nil {
		fs.fail("state", "towpath init", "%v", err)
		return
	}
	fs.ok("state", "tables in schema %s", c.State.Schema)
	a.checkState(ctx, fs, c.State.Schema)
	saved, age, err := store.SavedPosition(ctx, c.Name)
	if err != nil {
		fs.fail("position", "", "%v", err)
		return
	}
	if saved.IsZero() {
		fs.ok("position", "none is saved: the stream starts as tables.start says")
		return
	}
	checkDistance(fs, saved, age, s)
}

func checkDistance(fs *findings, saved checkpoint.Position, age time.Duration, s *canal.Server) {
	const remedy = "nothing: the next start sweeps mark and delete tables; a stream with keep tables halts, and resume continues it"
	age = age.Round(time.Second)
	switch {
	case saved.Server != s.Identity && (saved.GTIDs.IsZero() || s.Position.GTIDs.IsZero()):
		fs.warn("position", remedy, "the saved position %s is another server's, and without GTIDs it cannot be continued here", saved)
		return
	case saved.Server != s.Identity:
		fs.ok("position", "saved %s ago on another server; it is continued by GTID", age)
		return
	case len(s.Logs) > 0 && checkpoint.CompareFiles(saved.File, s.Logs[0].Name) < 0:
		fs.warn("position", remedy, "the saved position %s was purged: the oldest binary log is %s", saved, s.Logs[0].Name)
		return
	}
	var behind uint64
	for _, l := range s.Logs {
		if checkpoint.CompareFiles(l.Name, saved.File) >= 0 {
			behind += l.Size
		}
	}
	behind -= min(behind, saved.Offset)
	text := fmt.Sprintf("saved %s ago, %d bytes behind the end of the binary log", age, behind)
	if keep := time.Duration(s.Retention) * time.Second; keep > 0 && age > keep/2 {
		fs.warn("position", "run the relay, or keep binary logs for longer: "+globally(s, retentionVariable(s)),
			"%s: more than half of the %s for which binary logs are kept", text, keep)
		return
	}
	fs.ok("position", "%s", text)
}
