package relay

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
)

// account is who the relay is to the source server.
type account struct {
	db      *sql.DB
	name    string // as GRANT names it: 'name'@'host'
	flavor  checkpoint.Flavor
	version string
}

func openAccount(ctx context.Context, db *sql.DB) (*account, error) {
	a := &account{db: db}
	var current string
	if err := db.QueryRowContext(ctx, "SELECT CURRENT_USER(), VERSION()").Scan(&current, &a.version); err != nil {
		return nil, err
	}
	at := strings.LastIndexByte(current, '@')
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
	a.name = quote(current[:at]) + "@" + quote(current[at+1:])
	a.flavor = checkpoint.MySQL
	if strings.Contains(a.version, "MariaDB") {
		a.flavor = checkpoint.MariaDB
	}
	return a, nil
}

// grant is the statement that gives the account what it lacks.
func (a *account) grant(privileges []string, on string) string {
	return fmt.Sprintf("GRANT %s ON %s TO %s", strings.Join(privileges, ", "), on, a.name)
}

// privileges says what each global one is for.
var globalUse = map[string]string{
	"REPLICATION SLAVE":        "without it the binary log cannot be read",
	"REPLICATION CLIENT":       "without it the end of the binary log and its files cannot be seen",
	"BINLOG MONITOR":           "without it the end of the binary log and its files cannot be seen",
	"XA_RECOVER_ADMIN":         "without it a prepared XA transaction cannot be told from one that was decided while its part of the binary log was purged",
	"REPLICATION MASTER ADMIN": "without it the server's replicas cannot be seen, and a server_id of one could be chosen",
}

// optional are privileges that the relay works without.
var optional = []string{"REPLICATION MASTER ADMIN", "XA_RECOVER_ADMIN"}

func (a *account) checkPrivileges(ctx context.Context, fs *findings) {
	lacks, err := canal.MissingPrivileges(ctx, a.db, a.flavor, a.version)
	if err != nil {
		fs.warn("grants", "", "%v", err)
		return
	}
	for _, p := range lacks {
		report := fs.fail
		if slices.Contains(optional, p) {
			report = fs.warn
		}
		report("grants", a.grant([]string{p}, "*.*"), "%s lacks %s: %s", a.name, p, globalUse[p])
	}
	if len(lacks) == 0 {
		fs.ok("grants", "%s may read the binary log", a.name)
	}
}

func (a *account) checkState(ctx context.Context, fs *findings, schema string) {
	lacks, err := checkpoint.MissingState(ctx, a.db, schema)
	if err != nil {
		fs.fail("grants", "", "%v", err)
	}
	for _, table := range slices.Sorted(maps.Keys(lacks)) {
		fs.fail("grants", a.grant(lacks[table], canal.Quote(schema)+"."+table),
			"%s lacks %s on %s.%s, where the relay keeps its state", a.name, strings.Join(lacks[table], ", "), schema, table)
	}
}

// checkOutbox looks at the privileges on one table and on its archive.
func (a *account) checkOutbox(ctx context.Context, fs *findings, c *configs.Table, name canal.TableName) {
	for _, g := range tableGrants(c, name.Schema, name.Name) {
		lacks, err := g.Missing(ctx, a.db)
		on := canal.TableName{Schema: g.Schema, Name: g.Name}
		if err != nil {
			fs.fail(on.String(), "", "%v", err)
		} else if len(lacks) > 0 {
			fs.fail(on.String(), a.grant(lacks, on.Quote()), "%s lacks %s: a row that was sent could not be marked, removed or read again", a.name, strings.Join(lacks, ", "))
		}
	}
}

// OutboxGrants is what the relay must be granted on the configured tables.
func OutboxGrants(c *configs.Config) (all []checkpoint.OutboxGrant) {
	for i := range c.Tables {
		for _, p := range c.Tables[i].Tables {
			all = append(all, tableGrants(&c.Tables[i], p.Schema, p.Table)...)
		}
	}
	return all
}

// tableGrants is what one table takes, and its archive.
func tableGrants(c *configs.Table, schema, name string) []checkpoint.OutboxGrant {
	all := []checkpoint.OutboxGrant{{Schema: schema, Name: name, Update: c.Writes(),
		Delete: c.AfterPublish == configs.Delete || c.Retention.SentFor > 0}}
	if a := c.Retention.ArchiveTo; a.Table != "" {
		all = append(all, checkpoint.OutboxGrant{Schema: a.Schema, Name: a.Table, Insert: true})
	}
	return all
}
