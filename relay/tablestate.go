package relay

import (
	"encoding/json"
	"fmt"

	"github.com/towpath/towpath/checkpoint"
)

// tableState is what the checkpoint keeps of a table beside its shape: how it
// began, and a sweep that is not finished. A resumed sweep goes on from Cursor.
type tableState struct {
	Version int `json:"version"`
	// From is where the table began: rows of groups up to here are the sweep's,
	// or nobody's, and not the stream's.
	From *checkpoint.Position `json:"from,omitempty"`
	// Floor is the last row key that was there when a table began with start:
	// now: the fallback leaves the rows up to it alone.
	Floor []byte      `json:"floor,omitempty"`
	Sweep *sweepState `json:"sweep,omitempty"`
}

// sweepState is a sweep under way. Keys are refs without the table's number,
// which differs from start to start.
type sweepState struct {
	Cause  string `json:"cause"`            // start, gap, resend
	Cursor []byte `json:"cursor,omitempty"` // up to here all is settled
	Until  []byte `json:"until,omitempty"`  // the last key; what came behind it is the stream's
	Since  string `json:"since,omitempty"`  // resend: rows with at least this publish.timestamp
	Found  int    `json:"found"`
	Sent   int    `json:"sent"`
}

const tableStateVersion = 1

func parseTableState(data []byte) (tableState, error) {
	s := tableState{Version: tableStateVersion}
	if data == nil {
		return s, nil
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("read a table's saved state: %w", err)
	}
	if s.Version != tableStateVersion {
		return s, fmt.Errorf("read a table's saved state: version %d is not known to this program (it knows %d)", s.Version, tableStateVersion)
	}
	return s, nil
}

// json is what parseTableState reads; nil when there is nothing to keep.
func (s tableState) json() (json.RawMessage, error) {
	if s.From == nil && s.Floor == nil && s.Sweep == nil {
		return nil, nil
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("save a table's state: %w", err)
	}
	return text, nil
}

// ref gives a saved key the table's number of this process.
func (t *table) ref(key []byte) string {
	if key == nil {
		return ""
	}
	n := t.number
	return string([]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}) + string(key)
}

// keyOf is a ref as it is saved.
func keyOf(ref string) []byte {
	if ref == "" {
		return nil
	}
	return []byte(ref[4:])
}
