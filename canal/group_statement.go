package canal

import (
	"fmt"

	"github.com/go-mysql-org/go-mysql/replication"
)

// query takes a statement: part of a group's frame, a definition, or a write
// that the binlog does not show row by row.
func (r *reader) query(e event) error {
	s, err := parseQuery(e)
	if err != nil {
		return r.halt(HaltUndecodable, "statement makes no sense", nil)
	}
	g := &r.group
	v := s.verb()
	if v == verbBegin {
		g.open, g.bracket = true, true
		return nil
	}
	g.open = true
	switch v {
	case verbCommit:
		return r.end(e, Committed, nil)
	case verbRollback:
		return r.rollback(e)
	case verbSave:
		g.received.save(s.savepoint())
		return nil
	case verbRollbackTo:
		known, err := g.received.rollbackTo(s.savepoint())
		if err == nil && !known {
			return r.halt(HaltUndecodable, "rollback to an unknown savepoint", nil)
		}
		return err
	case verbXAStart:
		g.bracket, g.xa = true, true
		return nil
	case verbXACommit, verbXARollback:
		return r.verdict(e, s, v)
	case verbDefine:
		r.define(s)
	case verbWrite:
		r.write(s)
	}
	if !g.bracket {
		return r.end(e, Committed, nil)
	}
	return nil
}

// verdict takes XA COMMIT and XA ROLLBACK. They are groups of their own, unless
// they end the one that XA START opened (one phase, or never prepared).
func (r *reader) verdict(e event, s statement, v verb) error {
	if r.group.xa && r.group.bracket && !r.group.verdict {
		if v == verbXACommit {
			return r.end(e, Committed, nil)
		}
		return r.rollback(e)
	}
	xid, err := s.xid()
	if err != nil {
		return r.halt(HaltUndecodable, "XA verdict makes no sense", nil)
	}
	if v == verbXACommit {
		return r.end(e, XACommit, xid)
	}
	return r.end(e, XARollback, xid)
}

// define notes the tables whose definition a statement may change.
func (r *reader) define(s statement) {
	for _, t := range r.filter.known() {
		shape, rows := s.defines(t)
		if shape {
			if r.group.shape == nil {
				r.group.shape = map[TableName]bool{}
			}
			r.group.shape[t] = true
		}
		if rows {
			r.sweep(t)
		}
	}
}

// write notes the tables that a statement may have written to. The text is no
// proof that a table was not touched (triggers, functions, views), the list of
// schemas that MySQL adds is; MariaDB tells nothing, so there it is every table.
func (r *reader) write(s statement) {
	schemas, all := s.schemas()
	for _, t := range r.filter.known() {
		touched := all
		for _, schema := range schemas {
			touched = touched || schema == t.Schema
		}
		if touched {
			r.sweep(t)
		}
	}
}

// payload takes MySQL's compressed transaction: the events of a group, whose
// place in the binlog is that of the whole.
func (r *reader) payload(e event) error {
	if r.behind() {
		return r.end(e, Committed, nil)
	}
	err := r.unpack.events(e.body(), func(raw []byte) error {
		inner, err := parseEvent(raw, 0)
		if err != nil {
			return err
		}
		switch inner.kind {
		case replication.TRANSACTION_PAYLOAD_EVENT, replication.ROTATE_EVENT, replication.FORMAT_DESCRIPTION_EVENT:
			return &payloadError{fmt.Sprintf("event of type %d inside", inner.kind)}
		}
		return r.handle(inner)
	})
	if bad, ok := err.(*payloadError); ok {
		return r.halt(HaltUndecodable, bad.Error(), nil)
	}
	if err == errShortEvent {
		return r.halt(HaltUndecodable, "compressed transaction makes no sense", nil)
	}
	return err
}
