package canal

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/go-mysql-org/go-mysql/client"

	"github.com/towpath/towpath/checkpoint"
)

// open is called on the connection before the dump is asked for. Who the server
// is and what it has is read here, on the connection that will be streamed:
// behind a proxy or a moved address any other may be another server's.
func (c *connection) open(conn *client.Conn) error {
	c.err = c.prepare(conn)
	return c.err
}

func (c *connection) prepare(conn *client.Conn) error {
	from := c.start.Position
	for _, set := range []string{
		// The dump's own limit for a reader that does not read, and for idling.
		fmt.Sprintf("SET SESSION net_write_timeout = %d, SESSION net_read_timeout = %d, SESSION wait_timeout = %d", netWriteTimeout, netWriteTimeout, 24*3600),
	} {
		if _, err := conn.Execute(set); err != nil {
			return c.failed("set up the stream's session", err)
		}
	}
	identity, err := c.variables(conn, checkpoint.IdentityQuery)
	if err != nil {
		return err
	}
	flavor, server, err := checkpoint.Identity(identity)
	if err != nil {
		return err
	}
	if flavor != from.Flavor {
		return &GapError{Kind: GapOtherServer, From: from, Detail: fmt.Sprintf("the position is of a %s server, this one is %s", from.Flavor, flavor)}
	}
	if err := c.checkServerID(conn, identity["server_id"]); err != nil {
		return err
	}
	has, err := c.variables(conn, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('log_bin', 'gtid_mode', 'binlog_storage_engine')")
	if err != nil {
		return err
	}
	switch {
	case has["log_bin"] != "ON":
		return ErrBinlogOff
	case has["binlog_storage_engine"] != "":
		return ErrEngine
	case c.byGTID && flavor == checkpoint.MySQL && has["gtid_mode"] != "ON":
		return errNoGTID
	}
	same := server == from.Server
	if !same && !c.byGTID {
		return &GapError{Kind: GapOtherServer, From: from, Detail: fmt.Sprintf("the position is of server %s, this one is %s", from.Server, server)}
	}
	if same {
		if err := c.checkFile(conn); err != nil {
			return err
		}
	}
	executed, err := c.checkGTIDs(conn, flavor, same)
	if err != nil {
		return err
	}
	c.session = Session{Server: server, Flavor: flavor, Version: identity["version"], GTID: c.byGTID, ConnectionID: conn.GetConnectionID()}
	c.begin(executed)
	if c.source.options.Opened != nil {
		return c.source.options.Opened(c.session)
	}
	return nil
}

// begin makes the reader.
func (c *connection) begin(executed checkpoint.GTIDSet) {
	s, from := c.source, c.start.Position
	f := newFilter(s.options.Tables, s.options.Existing)
	rows := newRowReader(from.Flavor, f, c.start.Shapes, c.loadShape)
	r := newReader(from.Flavor, from, c.session.Server, f, rows, c.emit)
	r.skip = c.start.Skip
	r.group.received = spool{limit: s.options.TransactionBytes, dir: s.options.SpoolDir}
	r.byGTID = c.byGTID
	// A set that began empty on a server that has executed something would
	// never be whole: better none at all.
	r.nameless = from.GTIDs.IsZero() && !executed.IsZero()
	c.reader = r
}

// checkServerID sees to it that no replica is thrown out: servers take a second
// one of the same server_id for the first one come back.
func (c *connection) checkServerID(conn *client.Conn, own string) error {
	if own == strconv.FormatUint(uint64(c.source.serverID), 10) {
		return fmt.Errorf("source.server_id %s is the server's own: %w", own, ErrServerID)
	}
	if c.source.options.ServerID != 0 || c.source.registered {
		return nil // who has it is an earlier leader of ours, or an earlier connection: it is to be thrown out
	}
	replicas, err := conn.Execute(replicasQuery(conn.GetServerVersion()))
	if err = classify(err, c.start.Position); errors.Is(err, ErrPrivilege) {
		return nil // MariaDB asks for more than a replica needs; a clash by chance is unlikely
	}
	if err != nil {
		return fmt.Errorf("list replicas: %w", err)
	}
	for i := range replicas.RowNumber() {
		if id, err := replicas.GetUint(i, 0); err == nil && id == uint64(c.source.serverID) {
			return errTakenID
		}
	}
	c.source.registered = true
	return nil
}

// checkFile finds a position that is not in this server's binlog any more, or
// not yet. Where the file is gone a position with GTIDs may still be good.
func (c *connection) checkFile(conn *client.Conn) error {
	from := c.start.Position
	if from.File == "" {
		return nil
	}
	logs, err := conn.Execute("SHOW BINARY LOGS")
	if err != nil {
		return c.failed("list binary logs", err)
	}
	gap := func(kind GapKind, detail string) error { return &GapError{Kind: kind, From: from, Detail: detail} }
	first, last := "", ""
	for i := range logs.RowNumber() {
		file, err := logs.GetString(i, 0)
		if err != nil {
			return fmt.Errorf("list binary logs: %w", err)
		}
		if i == 0 {
			first = file
		}
		last = file
		if file != from.File {
			continue
		}
		size, err := logs.GetUint(i, 1)
		if err != nil {
			return fmt.Errorf("list binary logs: %w", err)
		}
		if size < from.Offset {
			return gap(GapAhead, fmt.Sprintf("%s has only %d bytes", file, size))
		}
		return nil
	}
	if checkpoint.CompareFiles(from.File, last) > 0 {
		return gap(GapAhead, fmt.Sprintf("the server's last file is %s", last))
	}
	if !c.byGTID {
		return gap(GapPurged, fmt.Sprintf("the server's first file is %s", first))
	}
	return nil
}

// checkGTIDs finds a position with groups that the server does not have, or
// before groups that it no longer has. It returns what the server has executed.
func (c *connection) checkGTIDs(conn *client.Conn, flavor checkpoint.Flavor, same bool) (checkpoint.GTIDSet, error) {
	query := "SELECT @@GLOBAL.gtid_executed, @@GLOBAL.gtid_purged"
	if flavor == checkpoint.MariaDB {
		query = "SELECT @@GLOBAL.gtid_binlog_pos, ''"
	}
	var none checkpoint.GTIDSet
	r, err := conn.Execute(query)
	if err != nil {
		return none, c.failed("read executed GTIDs", err)
	}
	var sets [2]checkpoint.GTIDSet
	for i := range sets {
		text, err := r.GetString(0, i)
		if err != nil {
			return none, fmt.Errorf("read executed GTIDs: %w", err)
		}
		if sets[i], err = checkpoint.ParseGTIDSet(flavor, text); err != nil {
			return none, fmt.Errorf("read executed GTIDs: %w", err)
		}
	}
	executed, purged := sets[0], sets[1]
	from := c.start.Position
	if !c.byGTID || flavor == checkpoint.MariaDB {
		return executed, nil // MariaDB checks by itself: only it can find a GTID in its history
	}
	if !executed.Contains(from.GTIDs) {
		kind := GapAhead
		if !same {
			kind = GapOtherServer
		}
		return none, &GapError{Kind: kind, From: from, Detail: "the server never executed " + from.GTIDs.Subtract(executed).String()}
	}
	if !from.GTIDs.Contains(purged) {
		return none, &GapError{Kind: GapPurged, From: from, Detail: "the server has purged " + purged.Subtract(from.GTIDs).String()}
	}
	return executed, nil
}

// variables runs a query of two columns, name and value.
func (c *connection) variables(conn *client.Conn, query string) (map[string]string, error) {
	r, err := conn.Execute(query)
	if err != nil {
		return nil, c.failed("read server variables", err)
	}
	vars := map[string]string{}
	for i := range r.RowNumber() {
		name, err1 := r.GetString(i, 0)
		value, err2 := r.GetString(i, 1)
		if err1 != nil || err2 != nil {
			return nil, fmt.Errorf("read server variables: unexpected answer")
		}
		vars[name] = value
	}
	return vars, nil
}

func (c *connection) failed(what string, err error) error {
	return fmt.Errorf("%s: %w", what, classify(err, c.start.Position))
}
