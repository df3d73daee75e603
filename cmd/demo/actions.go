package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"
)

// press does what a key stands for.
func (d *demo) press(key byte) {
	switch key {
	case 'q', 'Q', ctrlC, ctrlD:
		d.forced, d.asked = d.asked, true
	case 'k', 'K':
		d.killLeader()
	case 'b', 'B':
		d.act("restart the broker", d.restartBroker)
	case 'p', 'P':
		d.purge()
	}
}

const (
	ctrlC = 3
	ctrlD = 4
)

// act carries out an action beside the loop; one at a time, while the shop is open.
func (d *demo) act(what string, do func(context.Context) error) {
	if d.busy != "" || d.phase != "" {
		return
	}
	d.busy = what
	d.helpers.Go(func() {
		ctx, cancel := context.WithTimeout(d.playing, 3*time.Minute)
		defer cancel()
		err := do(ctx)
		d.note(func(d *demo) {
			d.busy, d.freed = "", time.Now()
			if err != nil {
				d.failure = fmt.Errorf("%s: %w", what, err)
			}
		})
	})
}

// pauseBetween is how long what was stopped stays away.
const pauseBetween = 2 * time.Second

func (d *demo) restartBroker(ctx context.Context) error {
	tell := func(state, text string) {
		d.note(func(d *demo) {
			d.broker = state
			d.happened("broker: %s", text)
		})
	}
	tell("stopped", "stopping")
	if err := d.rabbit.Stop(ctx); err != nil {
		return err
	}
	tell("stopped", "stopped, for a moment")
	if err := pause(ctx, pauseBetween); err != nil {
		return err
	}
	tell("starting", "starting")
	if err := d.rabbit.Start(ctx); err != nil {
		return err
	}
	tell("up", "up again")
	d.note(func(d *demo) { d.restarts++ })
	return nil
}

func pause(ctx context.Context, t time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(t):
		return nil
	}
}

// purge kills both relays, and removes the binlog files that they have not
// read to the end before they start again.
func (d *demo) purge() {
	if d.busy != "" || d.phase != "" {
		return
	}
	for _, r := range d.relays {
		r.wanted = false
		if r.process != nil {
			r.kill()
		}
	}
	d.happened("both relays killed with -9; the shop goes on")
	d.act("purge the binlog", func(ctx context.Context) error {
		if err := pause(ctx, pauseBetween); err != nil {
			return err
		}
		file, err := purgeBinlog(ctx, d.mysql.RootDB())
		if err != nil {
			return err
		}
		d.note(func(d *demo) {
			d.happened("binlog purged up to %s: what was committed meanwhile is gone from it", file)
			d.purges++
			for _, r := range d.relays {
				if r.wanted = true; r.process == nil {
					d.startRelay(r)
				}
			}
		})
		return nil
	})
}

// purgeBinlog removes all binlog files but a new one, which it returns. A file
// that a dump still reads stays a little longer.
func purgeBinlog(ctx context.Context, db *sql.DB) (string, error) {
	if _, err := db.ExecContext(ctx, "FLUSH BINARY LOGS"); err != nil {
		return "", err
	}
	files, err := binlogFiles(ctx, db)
	if err != nil {
		return "", err
	}
	last := files[len(files)-1]
	for range 50 {
		if _, err := db.ExecContext(ctx, "PURGE BINARY LOGS TO '"+last+"'"); err != nil {
			return "", err
		}
		if files, err = binlogFiles(ctx, db); err != nil || files[0] == last {
			return last, err
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return "", err
		}
	}
	return "", errors.New("a session keeps reading the old files")
}

func binlogFiles(ctx context.Context, db *sql.DB) ([]string, error) {
	rows, err := db.QueryContext(ctx, "SHOW BINARY LOGS")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	var files []string
	for rows.Next() {
		var name string
		into := make([]any, len(columns))
		for i := range into {
			into[i] = new(sql.RawBytes)
		}
		into[0] = &name
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		files = append(files, name)
	}
	return files, rows.Err()
}

func (d *demo) killLeader() {
	for _, r := range d.relays {
		if r.process != nil && r.seen.leading && d.phase == "" {
			r.kill()
			d.kills++
			d.deposed = r
			d.happened("%s, which leads, killed with -9", r.name)
			return
		}
	}
}

func (d *demo) startRelays() error {
	for i := range 2 {
		port, err := freePort()
		if err != nil {
			return err
		}
		r := &relay{name: "relay " + strconv.Itoa(i+1), binary: d.binary, config: d.config, address: "127.0.0.1:" + port, note: d.note, helpers: &d.helpers}
		d.relays = append(d.relays, r)
		if err := r.start(); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) startRelay(r *relay) {
	if err := r.start(); err != nil {
		d.failure = err
	}
}

// ended notes that a relay's process is gone, and starts it again.
func (d *demo) ended(r *relay, how *os.ProcessState) {
	r.confirmed += r.seen.confirmed
	r.process, r.seen = nil, figuresOf{}
	if !r.wanted {
		return
	}
	if r.killed.IsZero() || time.Since(r.killed) > 10*time.Second {
		d.failure = fmt.Errorf("%s ended by itself: %s; it said last: %s", r.name, how, r.said)
		return
	}
	d.helpers.Go(func() {
		if pause(d.playing, pauseBetween) != nil {
			return
		}
		d.note(func(d *demo) {
			if r.wanted && r.process == nil {
				d.startRelay(r)
			}
		})
	})
}

// logged notes a line of a relay's log.
func (d *demo) logged(r *relay, l logLine, at time.Time) {
	if l.String() != r.said { // lanes say the same one after the other
		r.said = l.String()
		d.happenedAt(at, "%s: %s", r.name, l)
	}
	if l.Message != "publishing" {
		return
	}
	if d.deposed != nil && d.deposed != r {
		d.happenedAt(at, "%s publishes %.2f s after the kill", r.name, at.Sub(d.deposed.killed).Seconds())
		d.deposed = nil
	}
}

func (d *demo) leads() bool {
	for _, r := range d.relays {
		if r.publishing() {
			return true
		}
	}
	return false
}

func (d *demo) relaysDown() bool {
	for _, r := range d.relays {
		if r.process != nil {
			return false
		}
	}
	return true
}

// killRelays ends what still runs when the demo gives up.
func (d *demo) killRelays() {
	for _, r := range d.relays {
		r.wanted = false
		if r.process != nil {
			r.process.Signal(syscall.SIGKILL)
		}
	}
}

// freePort finds a port that nobody listens on, below the ephemeral range.
func freePort() (string, error) {
	const first, span = 18000, 1500
	start := rand.IntN(span)
	for i := range span {
		port := strconv.Itoa(first + (start+i)%span)
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			return port, l.Close()
		}
	}
	return "", errors.New("no free port between 18000 and 19500")
}
