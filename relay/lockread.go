package relay

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"

	"github.com/towpath/towpath/canal"
)

// Locking reads by key. A plain SELECT right after a row's event may not see
// the row: the binlog is written before the engine commits. A locking one waits
// for that commit. It also waits for an application that holds the row for
// long: after the session's lock wait (1 s) the rows that are free are read past
// the others, and those others as they were committed last (P9).

// tryLocked runs read with a share lock, and when somebody holds rows for long,
// past their locks. skipped says that rows may be missing from the second read.
func (c *current) tryLocked(read func(lock string) error) (skipped bool, err error) {
	lock := canal.ShareLock(c.server.Flavor)
	err = read(lock)
	if !isLockWait(err) {
		return false, err
	}
	return true, read(lock + " SKIP LOCKED")
}

func isLockWait(err error) bool {
	var server *mysql.MySQLError
	return errors.As(err, &server) && (server.Number == 1205 || server.Number == 3572)
}

// statuses reads the status of rows by key under a lock.
func (c *current) statuses(ctx context.Context, t *table, refs []string) (statuses, error) {
	var s statuses
	m, _, err := c.mapping(ctx, t)
	if err != nil {
		return s, err
	}
	g := writeGroup{table: t, mapping: m}
	asked := func(refs []string, lock string) error {
		writes := make([]write, len(refs))
		for i, ref := range refs {
			writes[i].ref = ref
		}
		found, err := g.query(ctx, c.db.QueryContext, g.statusStatement(len(writes))+" "+lock, writes, nil)
		if err != nil {
			return fmt.Errorf("read rows of %s by key: %w", t.name, err)
		}
		if s.now == nil {
			s.now = found
			return nil
		}
		for ref, status := range found {
			s.now[ref] = status
		}
		return nil
	}
	skipped, err := c.tryLocked(func(lock string) error { return asked(refs, lock) })
	if err == nil && skipped {
		s.unseen, err = c.unseen(refs, func(ref string) bool { _, there := s.now[ref]; return there }, asked)
	}
	if err != nil {
		c.forget(t)
	}
	return s, err
}

// unseen reads the rows that a read past locks has left out: as they are
// committed, and those that are not, one by one. It returns the rows that are
// locked and not committed.
func (c *current) unseen(refs []string, there func(string) bool, read func(refs []string, lock string) error) (map[string]bool, error) {
	missing := func() (rest []string) {
		for _, ref := range refs {
			if !there(ref) {
				rest = append(rest, ref)
			}
		}
		return rest
	}
	rest := missing()
	if len(rest) == 0 {
		return nil, nil
	}
	if err := read(rest, ""); err != nil {
		return nil, err
	}
	unseen := map[string]bool{}
	for _, ref := range missing() {
		err := read([]string{ref}, canal.ShareLock(c.server.Flavor)+" NOWAIT")
		switch {
		case isLockWait(err):
			unseen[ref] = true
		case err != nil:
			return nil, err
		}
	}
	return unseen, nil
}

// locked reads whole rows by key under a lock: those that are there, and those
// that are locked and not committed.
func (c *current) locked(ctx context.Context, t *table, refs []string) (rows map[string]*canal.Row, unseen map[string]bool, err error) {
	rows = map[string]*canal.Row{}
	read := func(refs []string, lock string) error {
		found, _, err := c.rows(ctx, t, refs, lock)
		for ref, row := range found {
			rows[ref] = row
		}
		return err
	}
	skipped, err := c.tryLocked(func(lock string) error { return read(refs, lock) })
	if err == nil && skipped {
		unseen, err = c.unseen(refs, func(ref string) bool { return rows[ref] != nil }, read)
	}
	return rows, unseen, err
}
