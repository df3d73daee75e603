package canal

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/towpath/towpath/checkpoint"
)

// MissingPrivileges names what the account behind q lacks of the global
// privileges that reading the binlog takes, by trying what needs them where
// that has no effect, so that roles count as they work.
func MissingPrivileges(ctx context.Context, q Querier, flavor checkpoint.Flavor, version string) (missing []string, err error) {
	try := func(privilege, query string) {
		if err != nil {
			return
		}
		e := records(ctx, q, query, func(func(string) string) error { return nil })
		var my *mysql.MySQLError
		switch {
		case errors.As(e, &my) && (my.Number == errNeedsPrivilege || my.Number == errXAPrivilege):
			missing = append(missing, privilege)
		case e != nil:
			err = fmt.Errorf("try the privilege %s: %w", privilege, e)
		}
	}
	if flavor == checkpoint.MySQL {
		try("REPLICATION CLIENT", statusQuery(version))
		try("REPLICATION SLAVE", replicasQuery(version))
		try("XA_RECOVER_ADMIN", "XA RECOVER")
		return missing, err
	}
	try("BINLOG MONITOR", statusQuery(version))
	try("REPLICATION MASTER ADMIN", replicasQuery(version))
	if err != nil {
		return nil, err
	}
	// Only a dump itself would try this one.
	granted, err := globalGrants(ctx, q)
	if err == nil && !strings.Contains(granted, "REPLICATION SLAVE,") && !strings.Contains(granted, "ALL PRIVILEGES,") {
		missing = append(missing, "REPLICATION SLAVE")
	}
	return missing, err
}

// Numbers of the servers' refusals.
const (
	errNeedsPrivilege = 1227
	errXAPrivilege    = 1401 // XA RECOVER
)

// globalGrants lists the account's privileges on *.*, each with a comma behind.
func globalGrants(ctx context.Context, q Querier) (string, error) {
	rows, err := q.QueryContext(ctx, "SHOW GRANTS")
	if err != nil {
		return "", fmt.Errorf("read the account's grants: %w", err)
	}
	defer rows.Close()
	var all strings.Builder
	for rows.Next() {
		var grant string
		if err := rows.Scan(&grant); err != nil {
			return "", fmt.Errorf("read the account's grants: %w", err)
		}
		if privileges, _, global := strings.Cut(strings.TrimPrefix(grant, "GRANT "), " ON *.* TO "); global {
			all.WriteString(privileges + ",")
		}
	}
	return all.String(), rows.Err()
}

// OtherFormats counts the sessions, by account, whose own binlog_format is not
// ROW: what they write does not show row by row. known is false where the
// server or the account's rights do not tell.
func OtherFormats(ctx context.Context, q Querier) (sessions map[string]int, known bool, err error) {
	sessions = map[string]int{}
	err = records(ctx, q, `SELECT t.PROCESSLIST_USER AS u, t.PROCESSLIST_HOST AS h, v.VARIABLE_VALUE AS f
		FROM performance_schema.variables_by_thread v JOIN performance_schema.threads t USING (THREAD_ID)
		WHERE v.VARIABLE_NAME = 'binlog_format' AND v.VARIABLE_VALUE <> 'ROW' AND t.PROCESSLIST_USER IS NOT NULL`,
		func(get func(string) string) error {
			sessions[fmt.Sprintf("%s@%s (%s)", get("u"), get("h"), get("f"))]++
			return nil
		})
	var my *mysql.MySQLError
	if errors.As(err, &my) { // no such table, or no right to it
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("look at the sessions' binlog_format: %w", err)
	}
	if len(sessions) > 0 {
		return sessions, true, nil
	}
	// An empty answer also comes from a performance schema that is off.
	on := false
	err = records(ctx, q, "SELECT COUNT(*) AS n FROM performance_schema.variables_by_thread WHERE VARIABLE_NAME = 'binlog_format'",
		func(get func(string) string) error { on = get("n") != "0"; return nil })
	return sessions, on, err
}
