package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
)

// RequestReplay asks for sent rows to be sent again under their own ids. Its
// args are [ReplayArgs], its result is a [ReplayResult].
const RequestReplay = "replay"

// ReplayArgs name rows of one mark table.
type ReplayArgs struct {
	Schema string   `json:"schema"`
	Table  string   `json:"table"`
	IDs    []string `json:"ids"`  // message ids, for the audit
	Keys   [][]byte `json:"keys"` // row keys without the table's number
}

// ReplayResult says what became of them.
type ReplayResult struct {
	Rows  int64 `json:"rows"`  // that were asked for
	Again int64 `json:"again"` // that are unsent again, and so on their way; the others no longer have the status sent
}

// replayPage is how many rows one transaction changes.
const replayPage = 100

// replay makes sent rows unsent again: from there they go the way of every
// unsent row, through a crash as well. Only the relay's own status is taken
// back: a row that the application has moved on, or withdrawn, stays as it is
// (P10). Begun again by another leader it may send a row once more.
func (d *dispatcher) replay(ctx context.Context, r checkpoint.Request) (any, error) {
	var args ReplayArgs
	if err := json.Unmarshal(r.Args, &args); err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	name := canal.TableName{Schema: args.Schema, Name: args.Table}
	t := d.leader.tables.find(name)
	if t == nil {
		return nil, fmt.Errorf("table %s is not in the leader's configuration", name)
	}
	if t.config.AfterPublish != configs.Mark {
		return nil, fmt.Errorf("table %s has no status: its rows cannot be made unsent again", name)
	}
	m, _, err := newCurrent(d.leader.db, d.leader.server, d.leader.tables).mapping(ctx, t)
	if err != nil {
		return nil, err
	}
	var result ReplayResult
	for keys := args.Keys; len(keys) > 0; {
		page := keys[:min(len(keys), replayPage)]
		keys = keys[len(page):]
		if err := d.replayRows(ctx, t, m, page, &result); err != nil {
			return result, err
		}
		if err := d.progress(ctx, r, uint64(result.Rows), uint64(len(args.Keys))); err != nil {
			return result, err
		}
	}
	return result, nil
}

func (d *dispatcher) replayRows(ctx context.Context, t *table, m *mapping, keys [][]byte, result *ReplayResult) error {
	st := t.config.Status
	status := canal.Quote(st.Column)
	args := []any{string(st.Pending), string(st.Sent)}
	for _, key := range keys {
		args = append(args, m.keyValues(t.ref(key))...)
	}
	statement := fmt.Sprintf("UPDATE %s SET %s=? WHERE %[2]s=? AND (%s)", t.name.Quote(), status, writeGroup{table: t, mapping: m}.where(len(keys)))
	var again int64
	err := d.write(ctx, func(ctx context.Context, tx *checkpoint.Tx) error {
		done, err := tx.Exec(ctx, statement, args...)
		if err != nil {
			return err
		}
		again, err = done.RowsAffected()
		return err
	})
	if isLockWait(err) {
		err = fmt.Errorf("the application holds one of the rows locked, repeat the command: %w", err)
	}
	if err != nil {
		return fmt.Errorf("make rows of %s unsent again: %w", t.name, err)
	}
	result.Rows += int64(len(keys))
	result.Again += again
	return nil
}

// ReplayArgs name rows for a [RequestReplay]; archived ones are left out. The
// two lists go together, as Rows gave them.
func (s *Sent) ReplayArgs(ids, keys []string) ReplayArgs {
	a := ReplayArgs{Schema: s.table.name.Schema, Table: s.table.name.Name}
	for i, key := range keys {
		if strings.HasPrefix(key, s.table.ref([]byte{})) {
			a.IDs, a.Keys = append(a.IDs, ids[i]), append(a.Keys, keyOf(key))
		}
	}
	return a
}

// CheckReplay says why missing rows could not be sent again.
func (s *Sent) CheckReplay() error {
	if s.table.config.AfterPublish != configs.Mark {
		return errors.New("only rows of a table with after_publish: mark can be made unsent again")
	}
	return nil
}
