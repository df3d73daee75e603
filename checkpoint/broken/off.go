//go:build !broken

package broken

// See on.go.
const (
	SaveBeforeConfirm = false
	IgnoreReturns     = false
	PublishAtPrepare  = false
	SkipFence         = false
	SkipTerm          = false
)
