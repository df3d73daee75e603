package checkpoint

import (
	"fmt"
	"strings"
)

// OutboxGrant says what the relay does to one table besides reading it.
type OutboxGrant struct {
	Schema, Name string
	Insert       bool     // an archive
	Delete       bool     // after_publish delete, or retention
	Update       []string // columns of the row state; nil for none
}

// Grants returns the statements that give a user, as 'name'@'host', the least
// privileges with which the relay works. They name the state tables one by
// one, so these must exist: run init first, and grants again after an upgrade.
// To run init itself takes CREATE and ALTER on the schema, INDEX included.
func Grants(flavor Flavor, user, schema string, tables []OutboxGrant) []string {
	to := " TO " + user
	grants := []string{"GRANT " + strings.Join(globalPrivileges[flavor], ", ") + " ON *.*" + to}
	for _, table := range stateTables {
		grants = append(grants, fmt.Sprintf("GRANT %s ON %s.%s%s", table.privileges, quoteName(schema), table.name, to))
	}
	for _, t := range tables {
		grants = append(grants, fmt.Sprintf("GRANT %s ON %s.%s%s", strings.Join(t.privileges(), ", "), quoteName(t.Schema), quoteName(t.Name), to))
	}
	return grants
}

// globalPrivileges: to read the binlog as a replica does; to see its files,
// its end and the server's replicas; and on MySQL to list the XA transactions
// that are prepared, which MariaDB lets everybody.
var globalPrivileges = map[Flavor][]string{
	MySQL:   {"REPLICATION SLAVE", "REPLICATION CLIENT", "XA_RECOVER_ADMIN"},
	MariaDB: {"REPLICATION SLAVE", "BINLOG MONITOR", "REPLICATION MASTER ADMIN"},
}

// stateTables are all state tables, with what a relay and its operator's
// commands do to them. Nobody changes the audit or the version.
var stateTables = []struct{ name, privileges string }{
	{"version", "SELECT"},
	{"lease", "SELECT, INSERT, UPDATE"},
	{"checkpoint", "SELECT, INSERT, UPDATE"},
	{"checkpoint_table", "SELECT, INSERT, UPDATE, DELETE"},
	{"parked", "SELECT, INSERT, UPDATE, DELETE"},
	{"xa", "SELECT, INSERT, UPDATE, DELETE"},
	{"request", "SELECT, INSERT, UPDATE, DELETE"},
	{"audit", "SELECT, INSERT"},
	{"member", "SELECT, INSERT, UPDATE, DELETE"},
}

func (t OutboxGrant) privileges() []string {
	privileges := []string{"SELECT"}
	if t.Insert {
		privileges = append(privileges, "INSERT")
	}
	if len(t.Update) > 0 {
		columns := make([]string, len(t.Update))
		for i, c := range t.Update {
			columns[i] = quoteName(c)
		}
		privileges = append(privileges, "UPDATE ("+strings.Join(columns, ", ")+")")
	}
	if t.Delete {
		privileges = append(privileges, "DELETE")
	}
	return privileges
}
