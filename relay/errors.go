package relay

import (
	"fmt"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
)

// haltError stops the stream until a person acts: the stream keeps its lease,
// closes its lanes, and says what continues it.
type haltError struct {
	reason string // short and of a fixed set: the label of towpath_halted
	err    error
	mark   *checkpoint.Mark // the place that the stream cannot pass; nil when it is not one place
	gap    *canal.GapError  // the gap that it halted at; nil for none
}

func (e *haltError) Error() string { return fmt.Sprintf("halted (%s): %v", e.reason, e.err) }
func (e *haltError) Unwrap() error { return e.err }
