package rabbit

// Phase is where a lane stands.
type Phase uint8

// The phases, in the order of a session's life.
const (
	Connecting Phase = iota // a session is being opened
	Fenced                  // the fence is held; nothing is published before [Options.Ready] agrees
	Up                      // publishing
	Blocked                 // connected, but an alarm of the broker forbids publishing
	Down                    // the session is over, or could not be opened; it is tried again by itself
)

var phaseNames = [...]string{"connecting", "fenced", "up", "blocked", "down"}

func (p Phase) String() string { return phaseNames[p] }

// State is a lane's phase and what is known about it.
type State struct {
	Phase  Phase
	Reason string // Blocked and Down: why; Connecting: what it waits for, "" while nothing special
	Peer   Peer   // from Fenced to Down: the broker at the other end
}
