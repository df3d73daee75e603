package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/towpath/towpath/checkpoint/killpoint"
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
	onLeader                // the process of the relay that leads
	onSource                // its way to the database
	onBroker                // its way to the broker
	onDatabase              // the server as a whole
	onRabbit
	onTable  // the injection's table in the broker
	onTables // all tables in the broker
	onNobody // whatever else happens
)

var faults = []*fault{
	{"relay: kill -9", onRelay, killRelay},
	{"relay: SIGSTOP", onRelay, freezeRelay},
	{"relay: SIGTERM", onRelay, stopRelay},
	{"relay: dies before a send", onLeader, dieAt(killpoint.BeforeSend)},
	{"relay: dies after a confirm", onLeader, dieAt(killpoint.AfterConfirm)},
	{"relay: dies before a save", onLeader, dieAt(killpoint.BeforeSave)},
	{"relay: dies after a save", onLeader, dieAt(killpoint.AfterSave)},
	{"database: kill -9", onDatabase, killDatabase},
	{"database: kill the dump", onNobody, killDump},
	{"database: kill all sessions", onNobody, killSessions},
	{"database: kill one session", onNobody, killSession},
	{"database: kill the lock's session", onNobody, killLock},
	{"database: flush logs", onNobody, flushLogs},
	{"database: purge logs", onNobody, purgeLogs},
	{"database: read-only", onDatabase, readOnly},
	{"database: alter a table", onDatabase, alterTable},
	{"database: swap a table", onDatabase, swapTable},
	{"broker: kill -9", onRabbit, killBroker},
	{"broker: pause", onRabbit, pauseBroker},
	{"broker: memory alarm", onRabbit, raiseAlarm},
	{"broker: disk alarm", onRabbit, raiseDiskAlarm},
	{"broker: close connections", onNobody, closeConnections},
	{"broker: unbind", onTable, unbind},
	{"broker: queue full", onTable, fillQueue},
	{"broker: delete a queue", onTable, deleteQueue},
	{"broker: delete the exchange", onTables, deleteExchange},
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
		if (i.lead || i.fault.on == onLeader) && r.leading.Load() {
			i.relay = r.number
		}
	}
}

func (t *torture) target(i *injection) *relay { return t.stage.relays[i.relay] }

// lock takes hold of what a fault is on.
func (t *torture) lock(i *injection) (release func()) {
	var m *sync.Mutex
	switch i.fault.on {
	case onRelay, onLeader:
		m = &t.target(i).busy
	case onSource, onBroker:
		m = t.wires[lineOf{i.relay, i.fault.on}]
	case onTable:
		m = t.tables[i.table]
	case onDatabase, onRabbit:
		m = t.servers[i.fault.on]
	case onTables:
		for _, table := range tables { // always in this order
			t.tables[table].Lock()
		}
		return func() {
			for _, table := range tables {
				t.tables[table].Unlock()
			}
		}
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
