package rabbit

import (
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// When a message ends its channel, or the connection, the broker does not say
// which one it was. All that it may have been are then on probation, that is,
// have a risk. One that has goes when nothing else is under way that the
// channel has not survived, and nothing follows until it is answered. So when
// the channel dies again the culprit is known; it is convicted and settles.
// Those that pass are acquitted, with all that share what the failure was about.

// verdict returns how a message settles that alone caused the reply code.
// False: the code is nothing that a message causes.
func verdict(code int) (Result, bool) {
	switch code {
	case amqp.NotFound, amqp.AccessRefused:
		return Refused, true
	case amqp.PreconditionFailed, amqp.ContentTooLarge, amqp.FrameError, amqp.SyntaxError, amqp.NotImplemented:
		return Poison, true
	}
	return 0, false
}

// onProbation reports whether e, the next to be sent, has to wait for the sake
// of its own risk or another's.
func (f *flight) onProbation(e *entry) bool {
	last := &f.entries[f.sent-1]
	switch {
	case e.risk == riskUnknown, last.risk == riskUnknown:
		return true // nothing but an answer shows that a session survives it
	case e.risk != 0:
		return f.unclear > 0
	}
	return last.risk != 0 && !last.cleared
}

// wantsBarrier reports whether probation waits for answers that do not come. A
// request on the channel shows as well as they do what the channel survives: it
// is dealt with after all that was published before it.
func (f *flight) wantsBarrier(now time.Duration) bool {
	if f.unclear == 0 || now-f.entries[f.sent-1].sent < patience {
		return false
	}
	last := f.entries[f.sent-1].risk
	return last > riskUnknown || f.sent < len(f.entries) && f.entries[f.sent].risk > riskUnknown && last == 0
}

// survived says that the channel has dealt with everything in flight.
func (f *flight) survived() {
	f.unclear = 0
	for i := f.head; i < f.sent; i++ {
		e := &f.entries[i]
		e.cleared = true
		if e.risk > riskUnknown {
			f.acquit(e)
		}
	}
}

// convict deals with a channel or connection that the broker ended with a reply
// code that a message causes, and reports whether it was such a code.
func (f *flight) convict(code int, reason string) bool {
	result, guilty := verdict(code)
	if !guilty || f.unclear == 0 {
		return false
	}
	if f.unclear > 1 {
		f.suspect(uint16(code))
		return true
	}
	for i := f.head; i < f.sent; i++ {
		e := &f.entries[i]
		if e.cleared {
			continue
		}
		f.settle(e, result, code, reason)
		if result == Refused {
			if len(f.refused) == maxRefused {
				clear(f.refused)
			}
			f.refused[about(uint16(code), e.msg)] = uint16(code)
		}
	}
	f.compact()
	return true
}

// died deals with a session that ended for any other reason. A message that is
// alone in flight time after time may be the reason; unknown is all that can be
// said of it, and lets the others pass (P9).
func (f *flight) died(code int, reason string) {
	n := f.inFlight()
	if n == 0 {
		return
	}
	if f.answers == 0 {
		f.silent++
	}
	if f.silent < maxSilent {
		return
	}
	e := &f.entries[f.head]
	if n > 1 || e.risk != riskUnknown {
		f.suspect(riskUnknown)
		return
	}
	if e.strikes++; e.strikes >= maxStrikes {
		f.settle(e, Unknown, code, "connections end whenever it is sent alone: "+reason)
		f.compact()
	}
}

// suspect puts all in flight on probation that the channel has not survived.
func (f *flight) suspect(code uint16) {
	for i := f.head; i < f.sent; i++ {
		if e := &f.entries[i]; !e.cleared || code == riskUnknown {
			e.risk = code
		}
	}
}

// acquit ends the probation of e, and of whatever else that clears.
func (f *flight) acquit(e *entry) {
	if e.risk == 0 {
		return
	}
	risk, clears := e.risk, about(e.risk, e.msg)
	e.risk = 0
	delete(f.refused, clears)
	if risk != amqp.NotFound && risk != amqp.AccessRefused {
		return
	}
	for i := f.head; i < len(f.entries); i++ {
		if other := &f.entries[i]; other.risk == risk && about(risk, other.msg) == clears {
			other.risk = 0
		}
	}
}

// riskOf returns the code with which the message's destination refused last.
func (f *flight) riskOf(m *Message) uint16 {
	if code := f.refused[destination{exchange: m.Exchange}]; code != 0 {
		return code
	}
	return f.refused[m.destination()]
}

// about returns what a refusal concerns: a missing exchange all of its messages,
// a missing permission perhaps only one routing key of a topic exchange.
func about(code uint16, m *Message) destination {
	if code == amqp.NotFound {
		return destination{exchange: m.Exchange}
	}
	return m.destination()
}
