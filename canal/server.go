package canal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/towpath/towpath/checkpoint"
)

// Server is what a source server says about itself and its binlog.
type Server struct {
	Identity string // see [checkpoint.Identity]
	Flavor   checkpoint.Flavor
	Version  string
	ServerID uint32

	Binlog          bool   // log_bin
	Engine          string // binlog_storage_engine (MariaDB 12), "" for files, which alone can be read
	Format          string // binlog_format: "ROW" wanted
	RowImage        string // binlog_row_image: "FULL" wanted
	RowMetadata     string // binlog_row_metadata: "FULL" names columns; MariaDB's default is "NO_LOG"
	RowValueOptions string // binlog_row_value_options (MySQL)
	GTIDMode        string // gtid_mode (MySQL); "ON" for MariaDB, which always has GTIDs
	OrderCommits    bool   // binlog_order_commits (MySQL); MariaDB always does
	SyncBinlog      uint64 // sync_binlog: 1 wanted
	FlushLog        uint64 // innodb_flush_log_at_trx_commit: 1 wanted
	MaxPacket       uint64 // max_allowed_packet, bytes
	Retention       uint64 // seconds that binary logs are kept; 0 for ever
	ReadOnly        bool
	DoDB, IgnoreDB  []string // schemas that binlog_do_db and binlog_ignore_db name; rows of others, or of these, are not written

	Position checkpoint.Position // where the binlog ends now; zero with the binlog off
	Logs     []BinaryLog         // oldest first
	Replicas []Replica           // connected ones, if the account may know
}

// BinaryLog is one file of a server's binlog.
type BinaryLog struct {
	Name string
	Size uint64 // bytes
}

// Replica is a connected replica.
type Replica struct {
	ServerID uint32
	Host     string // as it calls itself: [ReplicaHost] for a relay
}

// ReplicaHost is what a relay calls itself among a server's replicas.
const ReplicaHost = "towpath"

// Inspect asks a server all that Server holds. It needs REPLICATION CLIENT, and
// for the replicas REPLICATION SLAVE (MariaDB: REPLICATION MASTER ADMIN). The position's GTIDs may lag behind its
// file and offset by the groups that are just being committed, never the other
// way round; [Source.Stream] goes by both.
func Inspect(ctx context.Context, db *sql.DB) (Server, error) {
	// One session, so that all answers are of one server.
	conn, err := db.Conn(ctx)
	if err != nil {
		return Server{}, fmt.Errorf("inspect source: %w", access(err))
	}
	defer conn.Close()
	s, err := inspect(ctx, conn)
	if err != nil {
		return Server{}, fmt.Errorf("inspect source: %w", access(err))
	}
	return s, nil
}

// inspected lists the variables that inspect reads beside the identity.
const inspected = `SHOW GLOBAL VARIABLES WHERE Variable_name IN ('log_bin', 'binlog_storage_engine', 'binlog_format',
 'binlog_row_image', 'binlog_row_metadata', 'binlog_row_value_options', 'gtid_mode', 'binlog_order_commits', 'sync_binlog',
 'innodb_flush_log_at_trx_commit', 'max_allowed_packet', 'binlog_expire_logs_seconds', 'expire_logs_days', 'read_only')`

func inspect(ctx context.Context, q Querier) (s Server, err error) {
	vars, err := variables(ctx, q, checkpoint.IdentityQuery, inspected)
	if err != nil {
		return s, err
	}
	if s.Flavor, s.Identity, err = checkpoint.Identity(vars); err != nil {
		return s, err
	}
	number := func(name string) uint64 {
		n, _ := strconv.ParseFloat(vars[name], 64) // MariaDB: expire_logs_days has decimals
		return uint64(n)
	}
	on := func(name string) bool { return vars[name] == "ON" || vars[name] == "1" }
	s.Version, s.ServerID = vars["version"], uint32(number("server_id"))
	s.Binlog, s.Engine = on("log_bin"), vars["binlog_storage_engine"]
	s.Format, s.RowImage, s.RowMetadata = vars["binlog_format"], vars["binlog_row_image"], vars["binlog_row_metadata"]
	s.RowValueOptions, s.GTIDMode, s.OrderCommits = vars["binlog_row_value_options"], vars["gtid_mode"], on("binlog_order_commits")
	s.SyncBinlog, s.FlushLog, s.MaxPacket = number("sync_binlog"), number("innodb_flush_log_at_trx_commit"), number("max_allowed_packet")
	s.Retention, s.ReadOnly = max(number("binlog_expire_logs_seconds"), number("expire_logs_days")*86400), on("read_only")
	if s.Flavor == checkpoint.MariaDB {
		s.GTIDMode, s.OrderCommits = "ON", true
	}
	if !s.Binlog || s.Engine != "" {
		return s, nil
	}
	if s.Position, err = currentPosition(ctx, q, s.Flavor, s.Identity, s.Version); err != nil {
		return s, err
	}
	err = records(ctx, q, statusQuery(s.Version), func(get func(string) string) error {
		s.DoDB, s.IgnoreDB = names(get("Binlog_Do_DB")), names(get("Binlog_Ignore_DB"))
		return nil
	})
	if err != nil {
		return s, err
	}
	if s.Logs, err = binaryLogs(ctx, q); err != nil {
		return s, err
	}
	s.Replicas, err = replicas(ctx, q, s.Version)
	if errors.Is(access(err), ErrPrivilege) { // MariaDB asks for more than a replica needs
		err = nil
	}
	return s, err
}

// CurrentPosition reads where the server's binlog ends now. What was committed
// before the call is behind it.
func CurrentPosition(ctx context.Context, q Querier) (checkpoint.Position, error) {
	vars, err := variables(ctx, q, checkpoint.IdentityQuery)
	if err != nil {
		return checkpoint.Position{}, fmt.Errorf("read binlog position: %w", access(err))
	}
	flavor, identity, err := checkpoint.Identity(vars)
	if err != nil {
		return checkpoint.Position{}, err
	}
	p, err := currentPosition(ctx, q, flavor, identity, vars["version"])
	if err != nil {
		return p, fmt.Errorf("read binlog position: %w", access(err))
	}
	return p, nil
}

func currentPosition(ctx context.Context, q Querier, flavor checkpoint.Flavor, identity, version string) (checkpoint.Position, error) {
	p := checkpoint.Position{Flavor: flavor, Server: identity}
	var gtids string
	found := false
	err := records(ctx, q, statusQuery(version), func(get func(string) string) (err error) {
		found = true
		p.File, gtids = get("File"), get("Executed_Gtid_Set")
		p.Offset, err = strconv.ParseUint(get("Position"), 10, 64)
		return err
	})
	if err != nil {
		return p, err
	}
	if !found {
		return p, ErrBinlogOff
	}
	if flavor == checkpoint.MariaDB {
		query := fmt.Sprintf("SELECT BINLOG_GTID_POS('%s', %d) AS pos", p.File, p.Offset)
		if err := records(ctx, q, query, func(get func(string) string) error { gtids = get("pos"); return nil }); err != nil {
			return p, err
		}
	}
	p.GTIDs, err = checkpoint.ParseGTIDSet(flavor, gtids)
	return p, err
}

// BinaryLogs lists the files of the server's binlog, oldest first.
func BinaryLogs(ctx context.Context, q Querier) ([]BinaryLog, error) {
	logs, err := binaryLogs(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("list binary logs: %w", access(err))
	}
	return logs, nil
}

func binaryLogs(ctx context.Context, q Querier) (logs []BinaryLog, err error) {
	err = records(ctx, q, "SHOW BINARY LOGS", func(get func(string) string) error {
		size, err := strconv.ParseUint(get("File_size"), 10, 64)
		logs = append(logs, BinaryLog{Name: get("Log_name"), Size: size})
		return err
	})
	return logs, err
}

// names splits a list of schemas as the server shows it.
func names(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

func replicas(ctx context.Context, q Querier, version string) (all []Replica, err error) {
	err = records(ctx, q, replicasQuery(version), func(get func(string) string) error {
		id, err := strconv.ParseUint(get("Server_Id")+get("Server_id"), 10, 32)
		all = append(all, Replica{uint32(id), get("Host")})
		return err
	})
	return all, err
}

// statusQuery asks for the end of the binlog, in the words of the version.
func statusQuery(version string) string {
	switch {
	case strings.Contains(version, "MariaDB"):
		return "SHOW MASTER STATUS"
	case atLeast(version, 8, 2):
		return "SHOW BINARY LOG STATUS"
	}
	return "SHOW MASTER STATUS"
}

// replicasQuery asks for the connected replicas, in the words of the version.
func replicasQuery(version string) string {
	if !strings.Contains(version, "MariaDB") && atLeast(version, 8, 1) {
		return "SHOW REPLICAS"
	}
	return "SHOW SLAVE HOSTS"
}

func atLeast(version string, major, minor int) bool {
	var a, b int
	if _, err := fmt.Sscanf(version, "%d.%d", &a, &b); err != nil {
		return true // a scheme to come
	}
	return a > major || a == major && b >= minor
}

// variables runs queries of two columns, name and value.
func variables(ctx context.Context, q Querier, queries ...string) (map[string]string, error) {
	vars := map[string]string{}
	for _, query := range queries {
		err := records(ctx, q, query, func(get func(string) string) error {
			vars[get("Variable_name")] = get("Value")
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return vars, nil
}

// records calls f for each record of a query's answer; get gives a column by
// name, "" if there is none.
func records(ctx context.Context, q Querier, query string, f func(get func(string) string) error) error {
	rows, err := q.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return err
	}
	values := make([]sql.NullString, len(names))
	targets := make([]any, len(names))
	for i := range values {
		targets[i] = &values[i]
	}
	get := func(name string) string {
		for i, n := range names {
			if n == name {
				return values[i].String
			}
		}
		return ""
	}
	for rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		if err := f(get); err != nil {
			return err
		}
	}
	return rows.Err()
}

// access gives the driver's errors of rights the types of this package.
func access(err error) error {
	var my *mysql.MySQLError
	if !errors.As(err, &my) {
		return err
	}
	return classifyCode(my.Number, my.Message, err)
}
