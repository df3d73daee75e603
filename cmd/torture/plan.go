package main

import (
	"math/rand/v2"
	"time"
)

// injection is one fault at a time of the schedule.
type injection struct {
	at    time.Duration
	fault *fault
	relay int           // when it concerns one, and none leads or the leader is not meant
	lead  bool          // the relay that leads then
	table *table        // when it concerns one
	hold  time.Duration // how long it lasts, where it lasts
	size  int           // of what it cuts off, where it cuts
}

// plan is the schedule of a seed: every fault once before any comes again, one
// or several at a time.
func plan(seed uint64, duration time.Duration, faults []*fault) []injection {
	random := rand.New(rand.NewPCG(seed, 0))
	var bag []int
	next := func() *fault {
		if len(bag) == 0 {
			bag = random.Perm(len(faults))
		}
		f := faults[bag[0]]
		bag = bag[1:]
		return f
	}
	var injections []injection
	for at := 2 * time.Second; at < duration; at += time.Duration(1000+random.IntN(2000)) * time.Millisecond {
		n := 1
		switch random.IntN(10) {
		case 0:
			n = 3
		case 1, 2:
			n = 2
		}
		for range n {
			injections = append(injections, injection{
				at:    at + time.Duration(random.IntN(400))*time.Millisecond,
				fault: next(),
				relay: random.IntN(relayCount),
				lead:  random.IntN(10) < 7,
				table: tables[random.IntN(len(tables)-1)],
				hold:  time.Duration(300+random.IntN(4500)) * time.Millisecond,
				size:  1 + random.IntN(60_000),
			})
		}
		if random.IntN(4) == 0 { // let all come to rest
			at += 8 * time.Second
		}
	}
	return injections
}
