package relay

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/towpath/towpath/checkpoint"
)

// settled checks what must hold when everything is over.
func (w *world) settled(with trouble) {
	for id, f := range w.rows {
		r := w.parked[id]
		state := checkpoint.ParkedState("")
		if r != nil {
			state = r.row.State
		}
		if f.accepted > 0 && state == checkpoint.ParkedFailed {
			w.t.Errorf("%s was delivered and counts as failed", id)
		}
		if f.accepted == 0 && r == nil && f.status == "pending" && with.operate == 0 {
			w.t.Errorf("%s was lost (P2)", id)
		}
		if !f.bad && state == checkpoint.ParkedFailed {
			w.t.Errorf("%s failed in an outage (P8)", id)
		}
	}
	if w.saved < uint64(len(w.groups))-1 {
		w.t.Errorf("saved %d after the drain, want at least %d", w.saved, len(w.groups)-1)
	}
}

func histories(t *testing.T, seeds uint64, with trouble) {
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, seed, with)
			for with.kill > 0 && w.chance(with.kill) {
				if err := w.live(with, time.Duration(1+w.some(1500))*time.Millisecond); errors.Is(err, errDrained) {
					break
				}
			}
			if err := w.live(with, 0); !errors.Is(err, errDrained) {
				t.Fatalf("ended with %v", err)
			}
			w.settled(with)
			if t.Failed() {
				t.Logf("seed %d, %+v", seed, with)
			}
		})
		if t.Failed() {
			return
		}
	}
}

func TestARowOfAHealthyBrokerIsConfirmed(t *testing.T) { histories(t, 30, trouble{lock: 0.05}) }

func TestAnOutageOfDestinationsFailsNothing(t *testing.T) {
	histories(t, 80, trouble{outages: 5, lock: 0.05})
}

func TestRowsThatAreNeverTakenFailAndStopNoOtherKey(t *testing.T) {
	histories(t, 80, trouble{bad: 0.05, lock: 0.05})
}

func TestWhatIsWithdrawnOrDiscardedDoesNotComeBackAfterAnyCrash(t *testing.T) {
	histories(t, 150, trouble{outages: 3, bad: 0.05, lock: 0.05, withdraw: 0.5, operate: 0.2, kill: 0.8})
}

func TestRelaysThatDieAtAnyMomentLoseNothing(t *testing.T) {
	histories(t, 150, trouble{outages: 3, bad: 0.03, lock: 0.05, kill: 0.8})
}
