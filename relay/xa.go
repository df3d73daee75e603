package relay

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"reflect"
	"time"

	"github.com/go-sql-driver/mysql"
	"go.uber.org/zap"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
)

// XA transactions. Rows of ours that are prepared are stored before the stream
// passes them (P3), and released at their XA COMMIT, in its place. A name whose
// prepare the stream has passed without rows of ours needs no memory: its
// verdict concerns others. What must be remembered is what the stream cannot
// have seen: the names that were prepared when it began. A verdict on one of
// those says that rows of ours may have been committed unseen.

// xaLedger is what the preparer knows of XA transactions.
type xaLedger struct {
	config  uint64              // fingerprint of the configuration: which columns are stored
	held    map[string]bool     // with stored rows
	unknown map[string]bool     // prepared before the stream began, nobody can tell with which rows
	until   checkpoint.Position // up to here names that were not seen are unknown too; zero: none
	seen    map[string]bool     // prepared before until, and seen
	chunk   int                 // of the group that is being stored
}

// beginName stands among the stored names for the end of the time in which
// names could be prepared and decided while the stream began.
var beginName = []byte{0}

func fingerprint(c *configs.Config) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(c.Hash())) // never fails
	return h.Sum64()
}

// newXALedger reads what is stored.
func newXALedger(ctx context.Context, c *configs.Config, store *checkpoint.Store) (*xaLedger, error) {
	x := &xaLedger{config: fingerprint(c), held: map[string]bool{}, unknown: map[string]bool{}, seen: map[string]bool{}}
	names, err := store.Prepared(ctx, c.Name)
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		rows, _, err := store.PreparedChunk(ctx, c.Name, n.XID, 0)
		switch {
		case err != nil:
			return nil, err
		case string(n.XID) == string(beginName):
			if err := json.Unmarshal(rows, &x.until); err != nil {
				return nil, fmt.Errorf("read where the stream began: %w", err)
			}
		case len(rows) == 0:
			x.unknown[string(n.XID)] = true
		default:
			x.held[string(n.XID)] = true
		}
	}
	return x, nil
}

// prepared finds the XA transactions that are prepared while the stream begins:
// P is read before, so what was prepared before P is either in the list, or was
// decided between P and the end of the binlog after the list.
func (s *start) prepared(ctx context.Context) error {
	l := s.leader
	var err error
	if s.xids, err = canal.PreparedXA(ctx, l.db); err != nil {
		var refused *mysql.MySQLError
		if !errors.As(err, &refused) {
			return err
		}
		if l.tables.keeps() {
			return &haltError{reason: "xa", err: fmt.Errorf("the stream cannot begin without knowing which XA transactions are prepared: grant XA_RECOVER_ADMIN: %w", err)}
		}
		l.log.Warn("prepared XA transactions cannot be listed: rows of those that are prepared now are left to the fallback; grant XA_RECOVER_ADMIN", zap.Error(err))
		return nil
	}
	s.until, err = l.server.CurrentPlace(ctx, l.db)
	return err
}

// holdUnknown remembers names that were prepared before the stream began.
func (s *start) holdUnknown(ctx context.Context, tx *checkpoint.Tx) error {
	if s.until.IsZero() {
		return nil
	}
	place, err := json.Marshal(s.until)
	if err != nil {
		return fmt.Errorf("remember where the stream began: %w", err)
	}
	if err := tx.HoldPrepared(ctx, checkpoint.PreparedRows{XID: beginName, Rows: place}); err != nil {
		return err
	}
	for _, xid := range s.xids {
		if err := tx.HoldPrepared(ctx, checkpoint.PreparedRows{XID: xid, File: s.place.File, Place: s.place.Offset, Rows: []byte{}}); err != nil {
			return err
		}
	}
	return nil
}

// hold stores the rows of a prepared group, or of a part of one.
func (p *preparer) hold(ctx context.Context, b *canal.Batch) error {
	x, name := p.xa, string(b.XID)
	if len(b.Rows) > 0 {
		data := binary.BigEndian.AppendUint64(nil, x.config)
		for i := range b.Rows {
			image := b.Rows[i].AppendImage(nil)
			data = append(binary.AppendUvarint(data, uint64(len(image))), image...)
		}
		err := p.persist(ctx, func(ctx context.Context, tx *checkpoint.Tx) error {
			if x.chunk == 0 { // of an earlier transaction of this name, or reading of this group
				if err := tx.DropPrepared(ctx, b.XID); err != nil {
					return err
				}
			}
			return tx.HoldPrepared(ctx, checkpoint.PreparedRows{XID: b.XID, Chunk: x.chunk, File: p.last.File, Place: p.last.Offset, Rows: data})
		})
		if err != nil {
			return err
		}
		x.chunk++
		x.held[name] = true
		delete(x.unknown, name)
	}
	if b.End == nil {
		return nil
	}
	if x.chunk == 0 {
		if x.unknown[name] || x.held[name] { // the name is used again, without rows of ours
			if err := p.persist(ctx, func(ctx context.Context, tx *checkpoint.Tx) error { return tx.DropPrepared(ctx, b.XID) }); err != nil {
				return err
			}
			delete(x.unknown, name)
			delete(x.held, name)
		}
		if p.beginning() {
			x.seen[name] = true
		}
	}
	x.chunk = 0
	return nil
}

// beginning says whether the group in hand lies in the time in which the
// stream began.
func (p *preparer) beginning() bool {
	return !p.xa.until.IsZero() && p.last.Compare(p.xa.until) < 0
}

// release hands on the rows of an XA COMMIT, chunk by chunk, all but the end of
// the group.
func (p *preparer) release(ctx context.Context, b *canal.Batch, s *step) error {
	x, name := p.xa, string(b.XID)
	switch {
	case x.held[name]:
	case x.unknown[name], p.beginning() && !x.seen[name]:
		if err := p.unknownCommit(b, name); err != nil {
			return err
		}
		s.covers = append(s.covers, cover{xid: b.XID})
		return nil
	default:
		return nil // the stream has seen its prepare, without rows of ours
	}
	s.rows = true
	s.covers = append(s.covers, cover{xid: b.XID})
	for chunk := 0; ; chunk++ {
		var data []byte
		var found bool
		err := p.retry(ctx, "read rows of a prepared transaction", func() (err error) {
			data, found, err = p.store.PreparedChunk(ctx, p.fence.Stream, b.XID, chunk)
			return err
		})
		if err != nil {
			return err
		}
		if !found {
			delete(x.held, name)
			return nil
		}
		rows, err := x.parse(data)
		if err != nil {
			return &haltError{reason: "xa", err: fmt.Errorf("read stored rows of XA transaction %x: %w", b.XID, err)}
		}
		part := step{}
		weight, err := p.mapRows(ctx, rows, b.Time, &part)
		if err != nil {
			return err
		}
		if err := p.out.put(ctx, part, weight); err != nil {
			return err
		}
	}
}

// unknownCommit deals with the commit of a transaction that was prepared before
// the stream began: mark and delete tables show its rows, keep tables do not.
func (p *preparer) unknownCommit(b *canal.Batch, name string) error {
	if p.tables.halting() && !p.passes() {
		gap := &canal.GapError{Kind: canal.GapXA, From: p.last, Detail: fmt.Sprintf(
			"XA transaction %x was prepared before the stream began and is committed at %s:%d", name, b.End.File, b.End.Offset)}
		return &haltError{reason: "gap", gap: gap, mark: b.End, err: fmt.Errorf(
			"%w: it may have written rows of a keep table that nobody has seen; if it has not, or its loss is known: towpath resume --accept-loss", gap)}
	}
	p.log.Warn("an XA transaction from before the stream began was committed: looking for its rows in the tables", zap.Binary("xid", b.XID))
	p.metrics.Gaps.WithLabelValues(string(canal.GapXA)).Inc()
	for _, t := range p.tables.polled() {
		p.dues.note(t, time.Now())
	}
	delete(p.xa.unknown, name)
	return nil
}

// drop forgets what an XA ROLLBACK ends.
func (p *preparer) drop(b *canal.Batch, s *step) {
	if name := string(b.XID); p.xa.held[name] || p.xa.unknown[name] {
		s.covers = append(s.covers, cover{xid: b.XID})
		delete(p.xa.held, name)
		delete(p.xa.unknown, name)
	}
}

// parse reads a stored chunk. Rows that were stored under another configuration
// may lack columns: they are read again by key.
func (x *xaLedger) parse(data []byte) ([]canal.Row, error) {
	if len(data) < 8 {
		return nil, canal.ErrImage
	}
	changed := binary.BigEndian.Uint64(data) != x.config
	data = data[8:]
	var rows []canal.Row
	shapes := map[canal.TableName]*canal.Table{}
	for len(data) > 0 {
		n, size := binary.Uvarint(data)
		if size <= 0 || n > uint64(len(data)-size) {
			return nil, canal.ErrImage
		}
		row, err := canal.ParseImage(data[size : size+int(n)])
		if err != nil {
			return nil, err
		}
		data = data[size+int(n):]
		row.Incomplete = row.Incomplete || changed
		// One shape for all rows of it: a mapping is compiled once per shape.
		if known := shapes[row.Table.TableName]; known != nil && reflect.DeepEqual(known, row.Table) {
			row.Table = known
		}
		shapes[row.Table.TableName] = row.Table
		rows = append(rows, row)
	}
	return rows, nil
}
