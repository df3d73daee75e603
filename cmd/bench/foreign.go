package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/towpath/towpath/cmd/internal/program"
	"github.com/towpath/towpath/deploy/lab"
)

// foreign measures what a relay takes for binlog traffic that is not its own.
type foreign struct {
	megabytes, rounds int
}

func newForeign() (*cobra.Command, measure) {
	m := &foreign{}
	c := &cobra.Command{Use: "foreign", Short: "CPU for binlog traffic of other tables, against mysqlbinlog --raw"}
	f := c.Flags()
	f.IntVar(&m.megabytes, "megabytes", 400, "of rows of another table")
	f.IntVar(&m.rounds, "rounds", 3, "pairs to measure")
	return c, m
}

// reading is one way through the traffic.
type reading struct{ cpu, took float64 } // microseconds, seconds

func (m *foreign) run(ctx context.Context, b *bed) (table, error) {
	tool, err := dumpTool()
	if err != nil {
		return table{}, err
	}
	s, err := b.lay(ctx, usual)
	defer s.remove()
	if err != nil {
		return table{}, err
	}
	file, groups, err := m.fill(ctx, s)
	if err != nil {
		return table{}, err
	}
	var position string
	if err := s.db.QueryRowContext(ctx, "SELECT position FROM "+s.schema+"_state.checkpoint").Scan(&position); err != nil {
		return table{}, err
	}
	var ours, raw []reading
	for round := range m.rounds {
		if err := inTurns(round,
			func() error { return m.relay(ctx, s, position, &ours) },
			func() error { return m.fetch(ctx, s, tool, file, &raw) }); err != nil {
			return table{}, err
		}
		progress(b, "foreign, round %d of %d: towpath %.2f s, mysqlbinlog %.2f s", round+1, m.rounds, ours[round].took, raw[round].took)
	}
	return table{
		Title: fmt.Sprintf("%d MB of rows of another table in %d transactions, and one row of ours behind them", m.megabytes, groups),
		Note: "other: mysqlbinlog --read-from-remote-server --raw, which writes the same bytes to a file and looks into none.\n" +
			"Both are whole processes; the relay's connections and its lease are in its figures.",
		Rows: []line{
			pair("CPU a transaction", "us", ours, raw, func(r reading) float64 { return r.cpu / float64(groups) }, "<= 1"),
			pair("time on the whole", "s", ours, raw, func(r reading) float64 { return r.took }, ""),
		},
	}, nil
}

// fill commits the traffic into a binlog file of its own, and one outbox row
// behind it. The relay's saved position is before it.
func (m *foreign) fill(ctx context.Context, s *stream) (file string, groups int, err error) {
	beside, err := s.aside(ctx)
	if err != nil {
		return "", 0, err
	}
	defer beside.db.Close()
	if _, err := s.db.ExecContext(ctx, "FLUSH BINARY LOGS"); err != nil {
		return "", 0, err
	}
	if file, err = lastLog(ctx, s); err != nil {
		return "", 0, err
	}
	rows := m.megabytes * 1_000_000 / s.size
	progress(s.bed, "foreign: committing %d rows of another table", rows)
	if err := beside.commit(ctx, rows); err != nil {
		return "", 0, err
	}
	s.last = beside.last + 1
	return file, (rows + 99) / 100, s.insert(ctx, s.db, 0, s.last, s.last)
}

// lastLog is the name of the binlog file that is written to.
func lastLog(ctx context.Context, s *stream) (name string, err error) {
	rows, err := s.db.QueryContext(ctx, "SHOW BINARY LOGS")
	if err != nil {
		return "", err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return "", err
	}
	into := make([]any, len(columns))
	for n := range into {
		into[n] = new(any)
	}
	into[0] = &name
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return "", err
		}
	}
	return name, rows.Err()
}

// relay reads from the position to the outbox row behind the traffic.
func (m *foreign) relay(ctx context.Context, s *stream, position string, to *[]reading) error {
	if _, err := s.db.ExecContext(ctx, "UPDATE "+s.schema+"_state.checkpoint SET position = ?", position); err != nil {
		return err
	}
	began := time.Now()
	r, err := s.launch(s.config, s.http)
	if err != nil {
		return err
	}
	defer r.Kill()
	if err := await(ctx, "the row behind the traffic is sent", 20*time.Millisecond, func() (bool, error) {
		if err := r.alive(); err != nil {
			return false, err
		}
		metrics, err := program.ReadMetrics(ctx, r.http)
		return err == nil && metrics.Sum(`towpath_rows_total{end="confirmed"`) >= 1, nil
	}); err != nil {
		return err
	}
	took := time.Since(began)
	if err := r.stop(); err != nil {
		return err
	}
	cpu := r.State().UserTime() + r.State().SystemTime()
	*to = append(*to, reading{float64(cpu.Microseconds()), took.Seconds()})
	return s.expect(ctx, 1)
}

// fetch lets mysqlbinlog copy the file with the traffic.
func (m *foreign) fetch(ctx context.Context, s *stream, tool, file string, to *[]reading) error {
	dir, err := os.MkdirTemp(s.dir, "raw-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	host, port, err := net.SplitHostPort(s.mysql.Addr())
	if err != nil {
		return err
	}
	began := time.Now()
	c := exec.CommandContext(ctx, tool, "--no-defaults", "--read-from-remote-server", "--raw", "--to-last-log", "--host="+host, "--port="+port,
		"--user="+s.mysql.RootUser(), "--result-file="+dir+"/", file)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("mysqlbinlog: %w: %s", err, strings.TrimSpace(string(out)))
	}
	cpu := c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	*to = append(*to, reading{float64(cpu.Microseconds()), time.Since(began).Seconds()})
	return nil
}

// dumpTool finds mysqlbinlog, on PATH or in the lab.
func dumpTool() (string, error) {
	if path, err := exec.LookPath("mysqlbinlog"); err == nil {
		return path, nil
	}
	cache, err := lab.CacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, string(lab.MySQL97), "usr", "bin", "mysqlbinlog")
	if _, err := os.Stat(path); err != nil {
		return "", errors.New("find mysqlbinlog: it is neither on PATH nor in the lab; run make lab-setup")
	}
	return path, nil
}
