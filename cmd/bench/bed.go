package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/towpath/towpath/cmd/internal/program"
	"github.com/towpath/towpath/deploy/lab"
)

// bed is what the benchmarks of one run share: servers, and the relay's program.
type bed struct {
	progress io.Writer
	dir      string
	binary   string
	kind     lab.Kind
	mysql    *lab.MySQLServer
	rabbit   *lab.RabbitServer
}

// makeBed starts the servers. Whatever came of it, close ends it.
func makeBed(ctx context.Context, database lab.Kind, out io.Writer) (b *bed, err error) {
	b = &bed{progress: out, kind: database}
	if b.dir, err = os.MkdirTemp("", "towpath-bench-"); err != nil {
		return b, err
	}
	if b.binary, err = program.Build(ctx, b.dir); err != nil {
		return b, err
	}
	if b.mysql, err = lab.StartMySQL(ctx, lab.MySQLOptions{Kind: database, GTID: true, RowMetadata: "FULL", Args: []string{"--skip-name-resolve"}}); err != nil {
		return b, err
	}
	b.rabbit, err = lab.StartRabbit(ctx, lab.RabbitOptions{Kind: lab.Rabbit43})
	return b, err
}

func (b *bed) close() {
	if b.mysql != nil {
		_ = b.mysql.Close()
	}
	if b.rabbit != nil {
		_ = b.rabbit.Close()
	}
	_ = os.RemoveAll(b.dir)
}

// usage is what a process has taken so far.
type usage struct {
	cpu  time.Duration
	peak float64 // resident, MiB
}

// used reads a process's usage; zero when there is no such process.
func used(pid int) (u usage) {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for l := range strings.Lines(string(status)) {
		if rest, found := strings.CutPrefix(l, "VmHWM:"); found {
			kib, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			u.peak = kib / 1024
		}
	}
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ") // behind the name, which may hold anything
	if f := strings.Fields(rest); len(f) > 12 {
		user, _ := strconv.ParseInt(f[11], 10, 64)
		system, _ := strconv.ParseInt(f[12], 10, 64)
		u.cpu = time.Duration(user+system) * (time.Second / ticksPerSecond)
	}
	u.cpu = max(u.cpu, threads(pid))
	return u
}

// threads is the CPU time of a process's threads, finer than its own, but
// without the threads that have ended.
func threads(pid int) (cpu time.Duration) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, task := range tasks {
		text, _ := os.ReadFile(task)
		running, _, _ := strings.Cut(string(text), " ")
		ns, _ := strconv.ParseInt(running, 10, 64)
		cpu += time.Duration(ns)
	}
	return cpu
}

// ticksPerSecond is the unit of /proc/PID/stat, the same on every Linux that Go runs on.
const ticksPerSecond = 100

// await looks again and again until something holds, or an error says why it never will.
func await(ctx context.Context, what string, every time.Duration, holds func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if ok, err := holds(); err != nil || ok {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, ctx.Err())
		case <-tick.C:
		}
	}
}

// confirming is a connection with a channel in confirm mode.
func confirming(url string) (*amqp.Connection, *amqp.Channel, error) {
	conn, err := amqp.Dial(url)
	if err != nil {
		return nil, nil, err
	}
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return conn, ch, nil
}
