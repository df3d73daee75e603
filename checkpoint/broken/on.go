//go:build broken

package broken

import "os"

var promise = os.Getenv("TOWPATH_BROKEN")

var (
	SaveBeforeConfirm = promise == "save-before-confirm" // P3: a row is settled as soon as it was read
	IgnoreReturns     = promise == "ignore-returns"      // P2: a confirm alone counts
	PublishAtPrepare  = promise == "publish-at-prepare"  // P1: XA PREPARE counts as commit
	SkipFence         = promise == "skip-fence"          // P4: old connections are not waited for
	SkipTerm          = promise == "skip-term"           // P4: an old leader can write
)
