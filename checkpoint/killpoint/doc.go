// Package killpoint names the points at which the end of a process is worst, so
// that the torture (cmd/torture) can end one exactly there, as kill -9 does. A
// program that is built with the tag killpoints and gets SIGUSR1 dies at the
// point that the file in TOWPATH_KILL_FILE names, when it passes there next. In
// any other program nothing of it is left.
package killpoint

// The points.
const (
	BeforeSend   = "before a send"   // rows are committed and read, and no lane has them
	AfterConfirm = "after a confirm" // the broker has a message, and nothing says so yet
	BeforeSave   = "before a save"   // row state and position are written, and not committed
	AfterSave    = "after a save"    // they are committed, and the loop does not know
)
