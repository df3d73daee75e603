package relay

import "fmt"

// haltError stops the stream until a person acts: the stream keeps its lease,
// closes its lanes, and says what continues it.
type haltError struct {
	reason string // short and of a fixed set: the label of towpath_halted
	err    error
}

func (e *haltError) Error() string { return fmt.Sprintf("halted (%s): %v", e.reason, e.err) }
func (e *haltError) Unwrap() error { return e.err }
