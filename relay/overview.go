package relay

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
)

// Overview is how a stream stands, from the state tables and the source: what
// anybody with MySQL access can see. Durations are in seconds, by the server's clock.
type Overview struct {
	Stream  string        `json:"stream"`
	Config  string        `json:"config_hash"` // of the one who looks
	Lease   LeaseOverview `json:"lease"`
	Saved   SavedOverview `json:"saved"`
	Parked  []ParkedLine  `json:"parked"`
	Waits   []KeyLine     `json:"waited_for_longest"` // ordering keys
	Tables  []TableLine   `json:"tables"`
	Gap     *GapLine      `json:"last_gap,omitempty"`
	Members []MemberLine  `json:"members"`

	Leader  *Status `json:"leader,omitempty"`        // what it says itself, where it was reached
	NoReply string  `json:"leader_unseen,omitempty"` // why it was not
}

// LeaseOverview is the lease.
type LeaseOverview struct {
	Holder string  `json:"holder"` // empty: nobody leads
	Term   uint64  `json:"term"`
	Left   float64 `json:"left"` // until it expires; negative: since when it has
	Held   bool    `json:"held"`
}

// SavedOverview is the saved position and its place in the server's binlog.
type SavedOverview struct {
	Position *checkpoint.Position `json:"position"` // nil: none was saved yet
	Age      float64              `json:"age"`      // since it was saved
	End      string               `json:"end"`      // of the binlog, as FILE:OFFSET
	Behind   *uint64              `json:"bytes_behind"`
	Oldest   string               `json:"oldest_kept"` // binlog file
	Ahead    *uint64              `json:"bytes_ahead"` // of the beginning of the oldest kept file
	Files    int                  `json:"files_ahead"` // whole files that may be purged before the position's own
	Keeps    uint64               `json:"retention"`   // seconds that the server keeps a file; 0 for ever
	Problem  string               `json:"problem,omitempty"`
}

// ParkedLine is parked rows that are alike.
type ParkedLine struct {
	checkpoint.ParkedCount
	Since float64 `json:"oldest"`
}

// KeyLine is an ordering key that waits.
type KeyLine struct {
	checkpoint.ParkedKey
	For float64 `json:"waited"`
}

// TableLine is one table of the stream.
type TableLine struct {
	Table  string      `json:"table"`
	Unsent *uint64     `json:"unsent"`                // rows that are due by their row state; nil where that cannot be told cheaply
	More   bool        `json:"unsent_more,omitempty"` // and there are more
	Note   string      `json:"note,omitempty"`
	Sweep  *SweepState `json:"sweep,omitempty"` // under way
}

// SweepState is a sweep under way.
type SweepState struct {
	Cause string `json:"cause"`
	Found int    `json:"found"`
	Sent  int    `json:"sent"`
}

// GapLine is the last gap that was found.
type GapLine struct {
	At     string          `json:"at"`
	Detail json.RawMessage `json:"detail"`
}

// MemberLine is a process that runs the stream.
type MemberLine struct {
	Role    string  `json:"role"` // leader, standby, lost
	Holder  string  `json:"holder"`
	Version string  `json:"version"`
	Config  string  `json:"config_hash"`
	HTTP    string  `json:"http"`
	Started string  `json:"started"`
	Seen    float64 `json:"seen"` // ago
}

const (
	longestKeys = 10     // keys listed
	unsentLimit = 100000 // rows counted of one table
)

// Look reads how a stream stands. It takes no lease and changes nothing.
func Look(ctx context.Context, c *configs.Config, db *sql.DB, store *checkpoint.Store) (*Overview, error) {
	o := &Overview{Stream: c.Name, Config: c.Hash(), Parked: []ParkedLine{}, Waits: []KeyLine{}, Tables: []TableLine{}, Members: []MemberLine{}}
	lease, err := store.Lease(ctx, c.Name)
	if err != nil {
		return nil, err
	}
	o.Lease = LeaseOverview{Holder: lease.Holder, Term: lease.Term, Left: lease.Left.Seconds(), Held: lease.Held()}
	for _, step := range []func() error{
		func() error { return o.lookAtMembers(ctx, store, lease) },
		func() error { return o.lookAtPosition(ctx, db, store) },
		func() error { return o.lookAtParked(ctx, store) },
		func() error { return o.lookAtTables(ctx, c, db, store) },
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	gaps, err := store.Audits(ctx, c.Name, checkpoint.AuditFilter{Action: "gap"}, 1)
	if err == nil && len(gaps) == 1 {
		o.Gap = &GapLine{At: gaps[0].At, Detail: gaps[0].Detail}
	}
	return o, err
}

func (o *Overview) lookAtMembers(ctx context.Context, store *checkpoint.Store, lease checkpoint.Lease) error {
	members, err := store.Members(ctx, o.Stream)
	if err != nil {
		return err
	}
	for _, m := range members {
		line := MemberLine{Role: "standby", Holder: m.Holder, Version: m.Version, Config: m.Config, HTTP: m.HTTP, Started: m.Started, Seen: m.Seen.Seconds()}
		switch {
		case lease.Held() && m.Holder == lease.Holder:
			line.Role = "leader"
		case m.Seen > MemberLost:
			line.Role = "lost"
		}
		o.Members = append(o.Members, line)
	}
	return nil
}

func (o *Overview) lookAtPosition(ctx context.Context, db *sql.DB, store *checkpoint.Store) error {
	s := &o.Saved
	position, age, err := store.SavedPosition(ctx, o.Stream)
	if err != nil {
		return err
	}
	server, err := canal.Inspect(ctx, db)
	if err != nil {
		s.Problem = err.Error()
	}
	if len(server.Logs) > 0 {
		s.End, s.Oldest, s.Keeps = fmt.Sprintf("%s:%d", server.Position.File, server.Position.Offset), server.Logs[0].Name, server.Retention
	}
	if position.IsZero() {
		return nil
	}
	s.Position, s.Age = &position, age.Seconds()
	switch {
	case s.Problem != "" || len(server.Logs) == 0:
	case position.Server != server.Identity:
		s.Problem = fmt.Sprintf("the position is of server %s, this is %s", position.Server, server.Identity)
	case checkpoint.CompareFiles(position.File, s.Oldest) < 0:
		s.Problem = "the position's binlog file has been purged"
	default:
		behind := distance(server.Logs, position, server.Position)
		ahead := distance(server.Logs, checkpoint.Position{File: s.Oldest}, position)
		s.Behind, s.Ahead = &behind, &ahead
		for _, f := range server.Logs {
			if checkpoint.CompareFiles(f.Name, position.File) < 0 {
				s.Files++
			}
		}
	}
	return nil
}

func (o *Overview) lookAtParked(ctx context.Context, store *checkpoint.Store) error {
	counts, err := store.ParkedCounts(ctx, o.Stream)
	if err != nil {
		return err
	}
	for _, c := range counts {
		o.Parked = append(o.Parked, ParkedLine{c, c.Oldest.Seconds()})
	}
	keys, err := store.ParkedKeys(ctx, o.Stream, longestKeys)
	for _, k := range keys {
		o.Waits = append(o.Waits, KeyLine{k, k.Since.Seconds()})
	}
	return err
}

func (o *Overview) lookAtTables(ctx context.Context, c *configs.Config, db *sql.DB, store *checkpoint.Store) error {
	names, err := matchedTables(ctx, c, db)
	if err != nil {
		return err
	}
	saved, err := store.Checkpoint(ctx, o.Stream)
	if err != nil {
		return err
	}
	sweeps := map[canal.TableName]*SweepState{}
	for _, t := range saved.Tables {
		if st, err := parseTableState(t.Sweep); err == nil && st.Sweep != nil {
			sweeps[canal.TableName{Schema: t.Schema, Name: t.Name}] = &SweepState{st.Sweep.Cause, st.Sweep.Found, st.Sweep.Sent}
		}
	}
	ts := newTables(c, NewMetrics(prometheus.NewRegistry(), c.Name))
	now := newCurrent(db, canal.Server{Flavor: store.Flavor()}, ts)
	for _, n := range names {
		t := ts.find(n)
		line := TableLine{Table: t.label, Sweep: sweeps[n]}
		if t.writesBack() {
			if err := line.count(ctx, now, t); err != nil {
				line.Note = err.Error()
			}
		} else {
			line.Note = "a keep table: its rows do not show which are unsent"
		}
		o.Tables = append(o.Tables, line)
	}
	return nil
}

// count counts the table's unsent rows, up to a limit and where an index finds them.
func (l *TableLine) count(ctx context.Context, now *current, t *table) error {
	index, err := now.statusIndex(ctx, t)
	if err != nil {
		return err
	}
	if t.marks() && index == "" {
		l.Note = fmt.Sprintf("no index on %s: unsent rows are not counted", t.config.Status.Column)
		return nil
	}
	m, _, err := now.mapping(ctx, t)
	if err != nil {
		return err
	}
	condition, args := m.condition(t.config, forPending, time.Now())
	hint := ""
	if index != "" {
		hint = " FORCE INDEX (" + canal.Quote(index) + ")"
	}
	var n uint64
	query := fmt.Sprintf("SELECT COUNT(*) FROM (SELECT 1 FROM %s%s WHERE %s LIMIT %d) unsent", t.name.Quote(), hint, condition, unsentLimit+1)
	if err := now.db.QueryRowContext(ctx, query, args...).Scan(&n); err != nil {
		return fmt.Errorf("count unsent rows of %s: %w", t.name, err)
	}
	l.More = n > unsentLimit
	n = min(n, unsentLimit)
	l.Unsent = &n
	return nil
}
