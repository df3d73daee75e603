package checkpoint

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"strings"
	"time"
)

// ParkedState is where a parked row stands.
type ParkedState string

// The states. All but the first two are ends.
const (
	ParkedWaiting   ParkedState = "waiting"   // is tried again
	ParkedFailed    ParkedState = "failed"    // is not tried again before a person says so
	ParkedSent      ParkedState = "sent"      // the broker has it
	ParkedDiscarded ParkedState = "discarded" // a person gave it up
	ParkedWithdrawn ParkedState = "withdrawn" // the application gave it up
	ParkedGone      ParkedState = "gone"      // the application deleted it
	ParkedFiltered  ParkedState = "filtered"  // the configuration leaves it out by now
)

// Ended says whether nothing more will happen to the row.
func (s ParkedState) Ended() bool { return s != ParkedWaiting && s != ParkedFailed }

// RowKey finds a row of an outbox table: by the encoded values of its key.
type RowKey struct {
	Schema, Name string
	Key          []byte
}

func (k RowKey) args(stream string) []any {
	hash := sha256.Sum256(k.Key)
	return []any{stream, k.Schema, k.Name, hash[:]}
}

// Parked is a refused row as it is kept until it is sent or given up.
type Parked struct {
	RowKey
	Sequence   uint64 // order of parking, over all rows and terms of the stream
	Label      string // of the table's configuration
	Ordering   []byte // ordering key, nil: unordered
	Place      Place
	MessageID  string
	Exchange   string
	RoutingKey string
	Size       int64  // about what the row takes in memory, bytes
	Image      []byte // encoded row of a keep table, nil where the row is read by its key
	Attempt
}

// Place is a row's number in the window of the leader that parked it. The zero
// value is that of a row which the saved position has passed, or which did not
// come from the stream: the stream will not read it again.
type Place struct {
	Number uint64
	Ahead  bool // the saved position has not passed the row
}

// Attempt is what is known of the last attempt at a parked row, and of the next.
type Attempt struct {
	State    ParkedState
	Class    string
	Code     int // AMQP reply code, 0 without one
	Reason   string
	Refusals int           // how often the broker refused it
	Attempts int           // how many of those count
	ByItself bool          // the row is due by itself after Wait
	Wait     time.Duration // from now
}

// parkedRows is how many rows one statement takes.
const parkedRows = 100

// Park makes rows durable as parked, or records what has become of parked
// ones: a row that is parked already keeps its place, its order, its first
// failure and its image. An end is final.
func (t *Tx) Park(ctx context.Context, rows []Parked) error {
	for len(rows) > 0 {
		n := batch(rows)
		if err := t.park(ctx, rows[:n]); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// batch is how many of rows one statement takes: max_allowed_packet may be as
// low as 1 MiB, beyond the image of a row that was written under it.
func batch(rows []Parked) int {
	n, bytes := 0, 0
	for n < len(rows) && n < parkedRows {
		bytes += len(rows[n].Image) + len(rows[n].Key) + len(rows[n].Ordering)
		if n > 0 && bytes > 256<<10 {
			break
		}
		n++
	}
	return n
}

func (t *Tx) park(ctx context.Context, rows []Parked) error {
	const tuple = `(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, ?)`
	args := make([]any, 0, len(rows)*21)
	for i := range rows {
		p := &rows[i]
		hash := sha256.Sum256(p.Key)
		var wait any
		if p.ByItself {
			wait = max(0, p.Wait.Microseconds())
		}
		args = append(args, t.fence.Stream, p.Sequence, p.Label, p.Schema, p.Name, p.Key, hash[:], p.Ordering,
			sql.NullInt64{Int64: int64(p.Place.Number), Valid: p.Place.Ahead},
			sql.NullString{String: cut(p.MessageID, 255), Valid: p.MessageID != ""}, cut(p.Exchange, 255), cut(p.RoutingKey, 255), p.Size,
			p.Class, p.Code, cut(p.Reason, 1024), p.State, p.Refusals, p.Attempts, wait, p.Image)
	}
	// The ends are final, whatever comes late: what an operator discarded must
	// not wait again. state is assigned last: assignments see those before them.
	_, err := t.Exec(ctx, t.store.sql(`INSERT INTO {schema}.parked (stream, sequence, label, schema_name, table_name, primary_key, primary_hash,
		ordering_key, place, message_id, exchange, routing_key, size, class, code, reason, state, refusals, attempts,
		first_failed_at, last_failed_at, next_attempt_at, image) VALUES `+strings.Repeat(tuple+", ", len(rows)-1)+tuple+`
		ON DUPLICATE KEY UPDATE message_id=VALUES(message_id), exchange=VALUES(exchange), routing_key=VALUES(routing_key),
		class=VALUES(class), code=VALUES(code), reason=VALUES(reason),
		last_failed_at=IF(VALUES(refusals)>refusals, VALUES(last_failed_at), last_failed_at),
		refusals=VALUES(refusals), attempts=VALUES(attempts), next_attempt_at=VALUES(next_attempt_at),
		state=IF(state IN ('waiting', 'failed'), VALUES(state), state)`), args...)
	if err != nil {
		return fmt.Errorf("park %d rows, the first of %s.%s: %w", len(rows), rows[0].Schema, rows[0].Name, err)
	}
	return nil
}

// EndParked records the end of a parked row.
func (t *Tx) EndParked(ctx context.Context, k RowKey, end ParkedState) error {
	_, err := t.Exec(ctx, t.store.sql(`UPDATE {schema}.parked SET state=?, next_attempt_at=NULL
		WHERE stream=? AND schema_name=? AND table_name=? AND primary_hash=? AND state IN ('waiting', 'failed')`),
		append([]any{end}, k.args(t.fence.Stream)...)...)
	if err != nil {
		return fmt.Errorf("end a parked row of %s.%s: %w", k.Schema, k.Name, err)
	}
	return nil
}

// PassParked records that the saved position has passed all rows with a
// sequence above since whose place is below a number; with earlier also all up
// to since.
func (t *Tx) PassParked(ctx context.Context, since, below uint64, earlier bool) error {
	_, err := t.Exec(ctx, t.store.sql(`UPDATE {schema}.parked SET place=NULL
		WHERE stream=? AND place IS NOT NULL AND (sequence>? AND place<? OR ? AND sequence<=?)`),
		t.fence.Stream, since, below, earlier, since)
	if err != nil {
		return fmt.Errorf("record which parked rows the position has passed: %w", err)
	}
	return nil
}

// ForgetParked removes a row that has ended: if the saved position has passed
// it, or always.
func (t *Tx) ForgetParked(ctx context.Context, k RowKey, always bool) error {
	_, err := t.Exec(ctx, t.store.sql(`DELETE FROM {schema}.parked
		WHERE stream=? AND schema_name=? AND table_name=? AND primary_hash=? AND (place IS NULL OR ?) AND state NOT IN ('waiting', 'failed')`),
		append(k.args(t.fence.Stream), always)...)
	if err != nil {
		return fmt.Errorf("remove an ended parked row of %s.%s: %w", k.Schema, k.Name, err)
	}
	return nil
}

const parkedColumns = `sequence, label, schema_name, table_name, primary_key, ordering_key, place, message_id, exchange, routing_key, size,
	class, code, reason, state, refusals, attempts, next_attempt_at IS NOT NULL, COALESCE(TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), next_attempt_at), 0)`

func (p *Parked) scan(into ...any) []any {
	return append([]any{&p.Sequence, &p.Label, &p.Schema, &p.Name, &p.Key, &p.Ordering, (*placeNumber)(&p.Place), (*textOrNull)(&p.MessageID),
		&p.Exchange, &p.RoutingKey, &p.Size, &p.Class, &p.Code, &p.Reason, &p.State, &p.Refusals, &p.Attempts, &p.ByItself, (*microseconds)(&p.Wait)}, into...)
}

// placeNumber scans a place's number, whose NULL says that the row was passed.
type placeNumber Place

func (p *placeNumber) Scan(v any) error {
	var n sql.Null[uint64]
	err := n.Scan(v)
	p.Number, p.Ahead = n.V, n.Valid
	return err
}

// textOrNull scans NULL as "".
type textOrNull string

func (s *textOrNull) Scan(v any) error {
	var n sql.NullString
	err := n.Scan(v)
	*s = textOrNull(n.String)
	return err
}

type microseconds time.Duration

func (m *microseconds) Scan(v any) error {
	var n sql.NullInt64
	err := n.Scan(v)
	*m = microseconds(time.Duration(n.Int64) * time.Microsecond)
	return err
}

// Parked reads the next rows in the order of parking, without their images:
// those behind a sequence, at most limit.
func (s *Store) Parked(ctx context.Context, stream string, after uint64, limit int) ([]Parked, error) {
	rows, err := s.db.QueryContext(ctx, s.sql("SELECT "+parkedColumns+" FROM {schema}.parked WHERE stream=? AND sequence>? ORDER BY sequence LIMIT ?"),
		stream, after, limit)
	if err != nil {
		return nil, fmt.Errorf("read parked rows: %w", err)
	}
	defer rows.Close()
	var page []Parked
	for rows.Next() {
		var p Parked
		if err := rows.Scan(p.scan()...); err != nil {
			return nil, fmt.Errorf("read parked rows: %w", err)
		}
		page = append(page, p)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read parked rows: %w", err)
	}
	return page, nil
}

// ParkedImages reads the images of parked rows, by sequence. A row without an
// image is missing from the result.
func (s *Store) ParkedImages(ctx context.Context, stream string, sequences []uint64) (map[uint64][]byte, error) {
	args := []any{stream}
	for _, n := range sequences {
		args = append(args, n)
	}
	rows, err := s.db.QueryContext(ctx, s.sql("SELECT sequence, image FROM {schema}.parked WHERE stream=? AND image IS NOT NULL AND sequence IN (?"+
		strings.Repeat(", ?", len(sequences)-1)+")"), args...)
	if err != nil {
		return nil, fmt.Errorf("read images of parked rows: %w", err)
	}
	defer rows.Close()
	images := make(map[uint64][]byte, len(sequences))
	for rows.Next() {
		var n uint64
		var image []byte
		if err := rows.Scan(&n, &image); err != nil {
			return nil, fmt.Errorf("read images of parked rows: %w", err)
		}
		images[n] = image
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read images of parked rows: %w", err)
	}
	return images, nil
}

// ReviveParked makes a parked row due at once, as if it was never tried.
func (t *Tx) ReviveParked(ctx context.Context, k RowKey) error {
	_, err := t.Exec(ctx, t.store.sql(`UPDATE {schema}.parked SET state='waiting', attempts=0, next_attempt_at=UTC_TIMESTAMP(6)
		WHERE stream=? AND schema_name=? AND table_name=? AND primary_hash=? AND state IN ('waiting', 'failed')`), k.args(t.fence.Stream)...)
	if err != nil {
		return fmt.Errorf("revive a parked row of %s.%s: %w", k.Schema, k.Name, err)
	}
	return nil
}

// cut shortens a text to what its column takes, in characters.
func cut(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n])
	}
	return s
}
