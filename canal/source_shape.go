package canal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/towpath/towpath/checkpoint"
)

// definitionWait is how long a shape may wait for a running ALTER.
const definitionWait = time.Minute

const noSuchTable = 1146

// loadShape reads a table's shape as it is now, and finds out whether it was
// the same at a place of the stream: the binlog from there to now must hold no
// statement that may have changed it. Without that an old row could be read
// with a new order of columns (P5).
func (c *connection) loadShape(name TableName, since checkpoint.Mark) (*Shape, bool, error) {
	ctx, cancel := context.WithTimeout(c.ctx, definitionWait)
	defer cancel()
	shape, now, err := c.lockedShape(ctx, name)
	if err != nil {
		return nil, false, err
	}
	from := checkpoint.Position{
		Flavor: c.session.Flavor, Server: c.session.Server,
		File: since.File, Offset: since.Offset, Created: since.Created,
	}
	if from.Reached(now.File, now.Offset) {
		return shape, true, nil
	}
	changed, err := c.source.changes(c.ctx, name, Start{Position: from, Skip: c.start.Skip}, now)
	if err != nil {
		return nil, false, fmt.Errorf("look for changes of %s from %s on: %w", name, from, err)
	}
	return shape, !changed, nil
}

// lockedShape reads the shape and a position that it is surely of: while the
// table is in use by an open transaction no statement can change it, and what
// changed it before is in the binlog.
func (c *connection) lockedShape(ctx context.Context, name TableName) (*Shape, checkpoint.Position, error) {
	none := checkpoint.Position{}
	tx, err := c.source.options.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return nil, none, fmt.Errorf("read definition of %s: %w", name, err)
	}
	defer tx.Rollback()
	rows, err := tx.QueryContext(ctx, fmt.Sprintf("SELECT 1 FROM %s.%s LIMIT 0", quoteName(name.Schema), quoteName(name.Name)))
	var my *mysql.MySQLError
	if errors.As(err, &my) && my.Number == noSuchTable {
		return nil, none, ErrNoTable
	}
	if err != nil {
		return nil, none, fmt.Errorf("lock definition of %s: %w", name, err)
	}
	if err := rows.Close(); err != nil {
		return nil, none, fmt.Errorf("lock definition of %s: %w", name, err)
	}
	shape, err := LoadShape(ctx, tx, name)
	if err != nil {
		return nil, none, err
	}
	now, err := CurrentPosition(ctx, tx)
	if err != nil {
		return nil, none, err
	}
	if now.Server != c.session.Server {
		return nil, none, fmt.Errorf("read definition of %s: SQL reaches server %s, the stream is of %s", name, now.Server, c.session.Server)
	}
	return shape, now, nil
}

func quoteName(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

var errScanned = errors.New("scanned")

// changes reads the binlog between two places, on a connection of its own, for
// statements that may change a table's definition.
func (s *Source) changes(ctx context.Context, name TableName, from Start, to checkpoint.Position) (bool, error) {
	o := s.options
	o.Tables = func(TableName) (Interest, bool) { return Interest{}, false }
	o.Existing, o.ServerID, o.Opened = []TableName{name}, 0, nil
	scan := NewSource(o)
	scan.dial, scan.heartbeat, scan.silence = s.dial, s.heartbeat, s.silence
	changed := false
	at := from.Position
	err := scan.Stream(ctx, from, func(b Batch) error {
		if changed = len(b.Shape) > 0; changed {
			return errScanned
		}
		if at.Advance(*b.End); at.Reached(to.File, to.Offset) {
			return errScanned
		}
		return nil
	})
	if !errors.Is(err, errScanned) {
		return false, err
	}
	return changed, nil
}
