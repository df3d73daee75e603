package main

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/towpath/towpath/deploy/lab"
)

// fault is one kind of harm. do returns when it is over and healed; an error
// says that it could not be done at that moment, as when it concerns a server
// that another fault has taken down.
type fault struct {
	name string
	on   place
	do   func(context.Context, *torture, *injection) error
}

// place is what a fault takes hold of. Faults of one place come one after another.
type place int

const (
	onRelay    place = iota // the process that the injection names
	onSource                // its way to the database
	onBroker                // its way to the broker
	onDatabase              // the server as a whole
	onRabbit
	onTable  // the injection's table in the broker
	onNobody // whatever else happens
)

var faults = []*fault{
	{"relay: kill -9", onRelay, killRelay},
	{"relay: SIGSTOP", onRelay, freezeRelay},
	{"relay: SIGTERM", onRelay, stopRelay},
	{"database: kill -9", onDatabase, killDatabase},
	{"database: kill the dump", onNobody, killDump},
	{"database: kill all sessions", onNobody, killSessions},
	{"database: kill one session", onNobody, killSession},
	{"database: kill the lock's session", onNobody, killLock},
	{"database: flush logs", onNobody, flushLogs},
	{"database: purge logs", onNobody, purgeLogs},
	{"database: read-only", onDatabase, readOnly},
	{"database: alter a table", onDatabase, alterTable},
	{"broker: kill -9", onRabbit, killBroker},
	{"broker: pause", onRabbit, pauseBroker},
	{"broker: memory alarm", onRabbit, raiseAlarm},
	{"broker: close connections", onNobody, closeConnections},
	{"broker: unbind", onTable, unbind},
	{"broker: queue full", onTable, fillQueue},
	{"source wire: cut", onSource, wire(func(p *lab.Proxy, _ *injection) { p.Cut() })},
	{"source wire: reset", onSource, wire(func(p *lab.Proxy, _ *injection) { p.Reset() })},
	{"source wire: cut off", onSource, wireFault(func(i *injection) lab.Fault { return lab.Fault{CutDownAfter: i.size} })},
	{"source wire: black hole", onSource, wireFault(func(*injection) lab.Fault { return lab.BlackHole })},
	{"source wire: delay", onSource, wireFault(func(i *injection) lab.Fault { return lab.Fault{Delay: i.hold / 30} })},
	{"source wire: trickle", onSource, wireFault(func(*injection) lab.Fault { return lab.Fault{BytesPerSecond: 5000} })},
	{"source wire: refuse", onSource, refuse},
	{"broker wire: cut", onBroker, wire(func(p *lab.Proxy, _ *injection) { p.Cut() })},
	{"broker wire: reset", onBroker, wire(func(p *lab.Proxy, _ *injection) { p.Reset() })},
	{"broker wire: cut off", onBroker, wireFault(func(i *injection) lab.Fault { return lab.Fault{CutUpAfter: i.size} })},
	{"broker wire: lost confirms", onBroker, wireFault(func(*injection) lab.Fault { return lab.Fault{HoldDown: true} })},
	{"broker wire: black hole", onBroker, wireFault(func(*injection) lab.Fault { return lab.BlackHole })},
	{"broker wire: delay", onBroker, wireFault(func(i *injection) lab.Fault { return lab.Fault{Delay: i.hold / 30} })},
	{"broker wire: trickle", onBroker, wireFault(func(*injection) lab.Fault { return lab.Fault{BytesPerSecond: 5000} })},
	{"broker wire: refuse", onBroker, refuse},
	{"broker wire: late and deposed", onBroker, lateAndDeposed},
}

// aim settles which relay an injection means.
func (t *torture) aim(i *injection) {
	for _, r := range t.stage.relays {
		if i.lead && r.leading.Load() {
			i.relay = r.number
		}
	}
}

func (t *torture) target(i *injection) *relay { return t.stage.relays[i.relay] }

// lock takes hold of what a fault is on.
func (t *torture) lock(i *injection) (release func()) {
	var m *sync.Mutex
	switch i.fault.on {
	case onRelay:
		m = &t.target(i).busy
	case onSource, onBroker:
		m = t.wires[lineOf{i.relay, i.fault.on}]
	case onTable:
		m = t.tables[i.table]
	case onDatabase, onRabbit:
		m = t.servers[i.fault.on]
	case onNobody:
		return func() {}
	}
	m.Lock()
	return m.Unlock
}

type lineOf struct {
	relay int
	on    place
}

func killRelay(ctx context.Context, t *torture, i *injection) error {
	r := t.target(i)
	r.kill()
	t.ledger.watch(i.fault.name, nil)
	pause(ctx, i.hold/4)
	return r.start()
}

func freezeRelay(ctx context.Context, t *torture, i *injection) error {
	r := t.target(i)
	r.freeze()
	t.ledger.watch(i.fault.name, nil)
	pause(ctx, 2*i.hold)
	r.thaw()
	return nil
}

func stopRelay(_ context.Context, t *torture, i *injection) error {
	r := t.target(i)
	t.ledger.watch(i.fault.name, nil)
	r.stop()
	return r.start()
}

func killDatabase(ctx context.Context, t *torture, i *injection) error {
	if err := t.stage.mysql.Kill(); err != nil {
		return err
	}
	pause(ctx, i.hold/2)
	return t.restarted(i, t.stage.mysql.Start)
}

func killBroker(ctx context.Context, t *torture, i *injection) error {
	if err := t.stage.rabbit.Kill(); err != nil {
		return err
	}
	pause(ctx, i.hold/2)
	return t.restarted(i, t.stage.rabbit.Start)
}

// restarted starts a server again. One that does not start ends the torture.
func (t *torture) restarted(i *injection, start func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	err := start(ctx)
	if err != nil {
		t.abort(fmt.Errorf("%s: start it again: %w", i.fault.name, err))
	}
	t.ledger.watch(i.fault.name, nil)
	return err
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

func pauseBroker(ctx context.Context, t *torture, i *injection) error {
	if err := t.stage.rabbit.Pause(); err != nil {
		return err
	}
	pause(ctx, i.hold)
	err := t.stage.rabbit.Resume()
	if err != nil {
		t.abort(err)
	}
	t.ledger.watch(i.fault.name, nil)
	return err
}

func raiseAlarm(ctx context.Context, t *torture, i *injection) error {
	if err := t.stage.rabbit.SetMemoryAlarm(ctx, true); err != nil {
		return err
	}
	pause(ctx, i.hold)
	err := t.stage.rabbit.SetMemoryAlarm(context.WithoutCancel(ctx), false)
	if err != nil {
		t.abort(err)
	}
	t.ledger.watch(i.fault.name, nil)
	return err
}

func closeConnections(ctx context.Context, t *torture, i *injection) error {
	t.ledger.watch(i.fault.name, nil)
	return t.stage.rabbit.CloseConnections(ctx, "torture")
}

// unbind takes a table's queue away from its exchange for a while: what is
// published then comes back.
func unbind(ctx context.Context, t *torture, i *injection) error {
	name, key := i.table.label, i.table.binding()
	if err := t.stage.onChannel(func(ch *amqp.Channel) error { return ch.QueueUnbind(name, key, exchange, nil) }); err != nil {
		return err
	}
	pause(ctx, i.hold)
	return t.healed(i, func() error {
		return t.stage.onChannel(func(ch *amqp.Channel) error { return ch.QueueBind(name, key, exchange, false, nil) })
	})
}

// fillQueue makes a table's queue reject what comes while nobody consumes.
func fillQueue(ctx context.Context, t *torture, i *injection) error {
	name := i.table.label
	resume := t.consumers[i.table].stall()
	defer resume()
	policy := []string{"-p", t.stage.vhost.Name, "full-" + name}
	set := append([]string{"set_policy"}, append(policy, "^"+name+"$", `{"max-length":3,"overflow":"reject-publish"}`, "--apply-to", "queues")...)
	_, err := t.stage.rabbit.Ctl(ctx, set...)
	pause(ctx, i.hold)
	return errors.Join(err, t.healed(i, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		list, err := t.stage.rabbit.Ctl(ctx, "list_policies", "-p", t.stage.vhost.Name)
		if err != nil {
			return err
		}
		if !strings.Contains(list, "full-"+name) {
			return nil
		}
		_, err = t.stage.rabbit.Ctl(ctx, append([]string{"clear_policy"}, policy...)...)
		return err
	}))
}

// healed takes back what a fault did to a table's queue, when the broker is
// there again at the latest.
func (t *torture) healed(i *injection, heal func() error) error {
	deadline := time.Now().Add(90 * time.Second)
	for {
		err := heal()
		if err == nil {
			t.ledger.watch(i.fault.name, i.table)
			return nil
		}
		if time.Now().After(deadline) {
			t.abort(fmt.Errorf("end %q: %w", i.fault.name, err))
			return err
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func (t *torture) wire(i *injection) *lab.Proxy {
	if r := t.target(i); i.fault.on == onSource {
		return r.source
	} else {
		return r.broker
	}
}

func wire(do func(*lab.Proxy, *injection)) func(context.Context, *torture, *injection) error {
	return func(_ context.Context, t *torture, i *injection) error {
		do(t.wire(i), i)
		t.ledger.watch(i.fault.name, nil)
		return nil
	}
}

func wireFault(of func(*injection) lab.Fault) func(context.Context, *torture, *injection) error {
	return func(ctx context.Context, t *torture, i *injection) error {
		p := t.wire(i)
		p.Set(of(i))
		pause(ctx, 2*i.hold)
		p.Set(lab.Fault{})
		t.ledger.watch(i.fault.name, nil)
		return nil
	}
}

// lateAndDeposed lets what a relay has sent reach the broker when another relay
// leads: only the fence keeps that from being published behind the other's.
func lateAndDeposed(ctx context.Context, t *torture, i *injection) error {
	p := t.wire(i)
	p.Set(lab.Fault{Delay: 2 * time.Second})
	defer p.Set(lab.Fault{})
	pause(ctx, 300*time.Millisecond)
	err := killLock(ctx, t, i)
	pause(ctx, 3*time.Second)
	return err
}

// refuse ends the connections of a wire and takes no new ones for a while.
func refuse(ctx context.Context, t *torture, i *injection) error {
	p := t.wire(i)
	p.Set(lab.Fault{Refuse: true})
	p.Cut()
	pause(ctx, 2*i.hold)
	p.Set(lab.Fault{})
	t.ledger.watch(i.fault.name, nil)
	return nil
}

// brokenVariable names the promise that a relay built to be broken breaks.
const brokenVariable = "TOWPATH_BROKEN"
