package relay

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
)

// Level grades a finding.
type Level string

// The levels.
const (
	OK   Level = "ok"
	Warn Level = "warn" // it works, with a risk that the text names
	Fail Level = "fail" // it does not work
)

// Finding is one line of a check.
type Finding struct {
	Level  Level  `json:"level"`
	What   string `json:"what"`             // what was looked at
	Text   string `json:"text"`             // what was found, and why it matters
	Remedy string `json:"remedy,omitempty"` // the statement or setting that mends it
}

func (f Finding) String() string {
	s := f.What + ": " + f.Text
	if f.Remedy != "" {
		s += "; " + f.Remedy
	}
	return s
}

// findings gathers what a check finds.
type findings []Finding

func (fs *findings) ok(what, format string, args ...any) {
	*fs = append(*fs, Finding{Level: OK, What: what, Text: fmt.Sprintf(format, args...)})
}

func (fs *findings) warn(what, remedy, format string, args ...any) {
	*fs = append(*fs, Finding{Level: Warn, What: what, Text: fmt.Sprintf(format, args...), Remedy: remedy})
}

func (fs *findings) fail(what, remedy, format string, args ...any) {
	*fs = append(*fs, Finding{Level: Fail, What: what, Text: fmt.Sprintf(format, args...), Remedy: remedy})
}

// CheckSource looks at the source and the configured tables, and changes
// nothing. The error is one of reaching the server.
func CheckSource(ctx context.Context, c *configs.Config, db *sql.DB) ([]Finding, error) {
	server, err := canal.Inspect(ctx, db)
	if err != nil {
		return nil, err
	}
	var fs findings
	checkServer(&fs, &server)
	names, err := matchedTables(ctx, c, db)
	if err != nil {
		return nil, err
	}
	for i := range c.Tables {
		if err := checkTables(ctx, &fs, &c.Tables[i], names, db); err != nil {
			return nil, err
		}
	}
	return fs, nil
}

func checkServer(fs *findings, s *canal.Server) {
	if !s.Binlog {
		fs.fail("binlog", "set log_bin in the server's configuration and restart it", "the server writes no binary log")
		return
	}
	if s.Engine != "" {
		fs.fail("binlog", "unset binlog_storage_engine", "the server keeps its binary log in a storage engine, which cannot be read")
	}
	if s.Format != "ROW" {
		fs.fail("binlog_format", "SET PERSIST binlog_format = 'ROW'; then reconnect the applications' pools",
			"it is %s: rows that statements write do not show in the binary log", s.Format)
	}
	if s.RowImage != "FULL" {
		fs.warn("binlog_row_image", "SET GLOBAL binlog_row_image = 'FULL'", "it is %s: every row has to be read again by its primary key", s.RowImage)
	}
	if s.RowMetadata != "FULL" {
		fs.warn("binlog_row_metadata", "SET GLOBAL binlog_row_metadata = 'FULL'",
			"it is %s: after a schema change while the relay is down, old rows may not be told apart by column name", s.RowMetadata)
	}
	if s.SyncBinlog != 1 || s.FlushLog != 1 {
		fs.warn("durability", "set sync_binlog = 1 and innodb_flush_log_at_trx_commit = 1",
			"sync_binlog is %d and innodb_flush_log_at_trx_commit is %d: a crash of the server can take back what was sent already", s.SyncBinlog, s.FlushLog)
	}
	if s.Flavor == checkpoint.MySQL && !s.OrderCommits {
		fs.warn("binlog_order_commits", "SET GLOBAL binlog_order_commits = ON", "it is OFF: transactions may become visible in another order than that of the binary log")
	}
	fs.ok("source", "%s %s, GTID %s, binary log at %s:%d", s.Flavor, s.Version, strings.ToLower(s.GTIDMode), s.Position.File, s.Position.Offset)
}

// matchedTables lists the tables that exist and that the configuration matches.
func matchedTables(ctx context.Context, c *configs.Config, db *sql.DB) ([]canal.TableName, error) {
	rows, err := db.QueryContext(ctx, `SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES
		WHERE TABLE_TYPE = 'BASE TABLE' AND TABLE_SCHEMA NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')
		ORDER BY TABLE_SCHEMA, TABLE_NAME`)
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	defer rows.Close()
	var names []canal.TableName
	for rows.Next() {
		var n canal.TableName
		if err := rows.Scan(&n.Schema, &n.Name); err != nil {
			return nil, fmt.Errorf("list tables: %w", err)
		}
		for i := range c.Tables {
			if c.Tables[i].Matches(n.Schema, n.Name) {
				names = append(names, n)
				break
			}
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	return names, nil
}

// checkTables looks at the tables that one entry of the configuration matches.
func checkTables(ctx context.Context, fs *findings, c *configs.Table, names []canal.TableName, db *sql.DB) error {
	for _, p := range c.Tables {
		any := false
		for _, n := range names {
			any = any || p.Matches(n.Schema, n.Name)
		}
		switch {
		case any:
		case p.Literal():
			fs.fail(p.String(), "create it, correct the name, or grant SELECT on it", "the table does not exist, or this account may not see it")
		default:
			fs.warn(p.String(), "", "no table matches yet")
		}
	}
	for _, n := range names {
		if !c.Matches(n.Schema, n.Name) {
			continue
		}
		shape, err := canal.LoadShape(ctx, db, n)
		if err != nil {
			return err
		}
		checkTable(fs, c, shape)
	}
	return nil
}

func checkTable(fs *findings, c *configs.Table, shape *canal.Shape) {
	name := shape.Table.String()
	m, err := compileMapping(c, shape.Describe(), 0)
	if err != nil {
		fs.fail(name, "", "%v", err)
		return
	}
	for _, column := range c.Writes() {
		if _, err := columnIndex(m.shape, column); err != nil {
			fs.fail(name, "", "%v", err)
		}
	}
	if !strings.EqualFold(shape.Engine, "InnoDB") {
		fs.warn(name, "ALTER TABLE "+shape.Table.Quote()+" ENGINE=InnoDB", "its engine is %s: a rollback leaves its rows, and they are sent", shape.Engine)
	}
	fs.ok(name, "%d columns, ordering %s, after_publish %s", len(shape.Columns), c.Ordering, c.AfterPublish)
}

// CheckBroker connects to every broker URL and says what answers.
func CheckBroker(ctx context.Context, c *configs.Config) []Finding {
	var fs findings
	all := Broker(c, "towpath/"+c.Name+"/check")
	for i, u := range c.Broker.URLs {
		one := all
		one.URLs = all.URLs[i : i+1]
		probe, err := one.Probe(ctx)
		if err != nil {
			fs.fail(u.String(), "", "%v", err)
			continue
		}
		fs.ok(u.String(), "RabbitMQ %s, cluster %s", probe.Peer().Version, probe.Peer().Cluster)
		probe.Close()
	}
	return fs
}

// OutboxGrants is what the relay must be granted on the configured tables.
func OutboxGrants(c *configs.Config) []checkpoint.OutboxGrant {
	var all []checkpoint.OutboxGrant
	for i := range c.Tables {
		t := &c.Tables[i]
		for _, p := range t.Tables {
			g := checkpoint.OutboxGrant{Schema: p.Schema, Name: p.Table, Update: t.Writes(),
				Delete: t.AfterPublish == configs.Delete || t.Retention.SentFor > 0}
			all = append(all, g)
		}
		if a := t.Retention.ArchiveTo; a.Table != "" {
			all = append(all, checkpoint.OutboxGrant{Schema: a.Schema, Name: a.Table, Insert: true})
		}
	}
	return all
}
