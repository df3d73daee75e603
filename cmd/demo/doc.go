// Command demo shows Towpath at work on real servers of its own: a shop that
// commits orders with outbox rows, two relays of which one leads, a broker, and
// a consumer. It keeps an exact account of every row, and lets one break things.
//
// One goroutine, the loop in demo.go, owns all that is known; shop, consumer,
// relays and actions hand it notes. It leaves nothing behind: no process, no
// folder, no terminal mode.
package main
