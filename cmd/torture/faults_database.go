package main

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

func killDatabase(ctx context.Context, t *torture, i *injection) error {
	if err := t.stage.mysql.Kill(); err != nil {
		return err
	}
	pause(ctx, i.hold/2)
	return t.restarted(i, t.stage.mysql.Start)
}

func killDump(ctx context.Context, t *torture, i *injection) error {
	return t.killSessions(ctx, i, "command LIKE 'Binlog Dump%'")
}

func killSessions(ctx context.Context, t *torture, i *injection) error {
	return t.killSessions(ctx, i, "user NOT IN ('root', 'system user', 'event_scheduler')")
}

func (t *torture) killSessions(ctx context.Context, i *injection, which string) error {
	ids, err := t.sessions(ctx, which)
	for n := 0; err != nil && n < 5; n++ { // MySQL fails when it cannot show a statement that is under way
		ids, err = t.sessions(ctx, which)
	}
	if err != nil {
		return err
	}
	t.ledger.watch(i.fault.name, nil)
	for _, id := range ids {
		if _, err := t.admin.ExecContext(ctx, fmt.Sprintf("KILL %d", id)); err != nil && !isNumber(err, errNoSuchThread) {
			return err
		}
	}
	return nil
}

// killSession ends one session of the relays, whichever it is.
func killSession(ctx context.Context, t *torture, i *injection) error {
	ids, err := t.sessions(ctx, "user = '"+t.stage.account.Name+"' AND command NOT LIKE 'Binlog Dump%'")
	if err != nil || len(ids) == 0 {
		return errors.Join(err, errors.New("no relay has a session"))
	}
	t.ledger.watch(i.fault.name, nil)
	_, err = t.admin.ExecContext(ctx, fmt.Sprintf("KILL %d", ids[i.size%len(ids)]))
	return err
}

// killLock ends the session that holds the leader's lock: a standby takes over
// at once, while the old leader's other sessions are well.
func killLock(ctx context.Context, t *torture, i *injection) error {
	sum := sha256.Sum256([]byte(t.stage.state + "\x00torture"))
	var id sql.NullInt64
	if err := t.admin.QueryRowContext(ctx, "SELECT IS_USED_LOCK(?)", "towpath.lease."+hex.EncodeToString(sum[:16])).Scan(&id); err != nil {
		return err
	}
	if !id.Valid {
		return errors.New("nobody holds the lock")
	}
	t.ledger.watch(i.fault.name, nil)
	_, err := t.admin.ExecContext(ctx, fmt.Sprintf("KILL %d", id.Int64))
	return err
}

func (t *torture) sessions(ctx context.Context, which string) (ids []int64, err error) {
	rows, err := t.admin.QueryContext(ctx, "SELECT id FROM information_schema.processlist WHERE "+which)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

const errNoSuchThread = 1094

func flushLogs(ctx context.Context, t *torture, i *injection) error {
	_, err := t.admin.ExecContext(ctx, "FLUSH BINARY LOGS")
	return err
}

// purgeLogs removes what the saved position has passed: the position itself
// stays readable, so nothing may be swept.
func purgeLogs(ctx context.Context, t *torture, i *injection) error {
	if _, err := t.admin.ExecContext(ctx, "FLUSH BINARY LOGS"); err != nil {
		return err
	}
	pause(ctx, 2*time.Second)
	var file string
	if err := t.admin.QueryRowContext(ctx, fmt.Sprintf("SELECT JSON_UNQUOTE(JSON_EXTRACT(position, '$.file')) FROM %s.checkpoint", t.stage.state)).Scan(&file); err != nil {
		return err
	}
	_, err := t.admin.ExecContext(ctx, "PURGE BINARY LOGS TO '"+file+"'")
	return err
}

func readOnly(ctx context.Context, t *torture, i *injection) error {
	variable := "super_read_only"
	off := "SET GLOBAL super_read_only = OFF, GLOBAL read_only = OFF"
	if t.stage.options.source.IsMariaDB() {
		variable, off = "read_only", "SET GLOBAL read_only = OFF"
	}
	_, err := t.admin.ExecContext(ctx, "SET GLOBAL "+variable+" = ON")
	if err == nil {
		pause(ctx, i.hold)
	}
	for n := 0; ; n++ {
		_, e := t.admin.ExecContext(context.WithoutCancel(ctx), off)
		if e == nil {
			break
		}
		if n == 100 {
			t.abort(fmt.Errorf("end read-only mode: %w", e))
			return e
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.ledger.watch(i.fault.name, nil)
	return err
}

// alterTable adds a column in front of all others, or drops it again. It waits
// for transactions that wrote to the table, but not for long.
func alterTable(ctx context.Context, t *torture, i *injection) error {
	if !i.table.alters {
		i.table = tables[3+i.size%5]
	}
	change := "ADD COLUMN extra INT NULL FIRST"
	if t.altered[i.table] {
		change = "DROP COLUMN extra"
	}
	for n := 0; ; n++ {
		_, err := t.admin.ExecContext(ctx, "ALTER TABLE "+t.stage.schema+"."+i.table.name+" "+change)
		if err == nil {
			break
		}
		if !isNumber(err, errLockWait) || n == 5 {
			return err
		}
		pause(ctx, time.Second)
	}
	t.altered[i.table] = !t.altered[i.table]
	t.ledger.watch(i.fault.name, i.table)
	return nil
}

const errLockWait = 1205

// swapTable puts a copy in a table's place, as tools for schema changes do: rows
// are copied while nobody writes, and the swap comes before whoever waits.
func swapTable(ctx context.Context, t *torture, i *injection) error {
	if !i.table.alters {
		i.table = tables[3+i.size%5]
	}
	name := t.stage.schema + "." + i.table.name
	conn, err := t.admin.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() {
		_ = conn.Raw(func(any) error { return errBroken }) // its locks end with it
		_ = conn.Close()
	}()
	exec := func(statement string) error {
		_, err := conn.ExecContext(ctx, statement)
		return err
	}
	swapped := make(chan error, 1)
	for _, step := range []func() error{
		func() error { return exec(fmt.Sprintf("DROP TABLE IF EXISTS %s_new, %[1]s_old", name)) },
		func() error { return exec(fmt.Sprintf("CREATE TABLE %s_new LIKE %[1]s", name)) },
		func() error { return exec(fmt.Sprintf("LOCK TABLES %s WRITE, %[1]s_new WRITE", name)) }, // fails while an XA transaction is open
		func() error { return exec(fmt.Sprintf("INSERT INTO %s_new SELECT * FROM %[1]s", name)) },
		func() error {
			go func() {
				_, err := t.admin.ExecContext(ctx, fmt.Sprintf("RENAME TABLE %s TO %[1]s_old, %[1]s_new TO %[1]s", name))
				swapped <- err
			}()
			return t.awaitWaiting(ctx, "RENAME TABLE "+name, swapped)
		},
		func() error { return exec("UNLOCK TABLES") },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	if err := <-swapped; err != nil {
		return err
	}
	t.ledger.watch(i.fault.name, i.table)
	_, err = t.admin.ExecContext(ctx, fmt.Sprintf("DROP TABLE IF EXISTS %s_old", name))
	return err
}

// awaitWaiting waits until a statement waits for a lock, or has ended.
func (t *torture) awaitWaiting(ctx context.Context, statement string, ended chan error) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		ids, err := t.sessions(ctx, "info LIKE '"+statement+"%' AND state = 'Waiting for table metadata lock'")
		if err == nil && len(ids) > 0 { // MySQL fails when it cannot show some statement that is under way
			return nil
		}
		select {
		case err := <-ended:
			return errors.Join(err, errors.New("the swap did not wait for the copy"))
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
