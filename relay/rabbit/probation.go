package rabbit

import amqp "github.com/rabbitmq/amqp091-go"

// When a message ends its channel (or the connection), the broker does not say
// which one it was. All that were in flight are then on probation: each goes
// alone, until one that dies alone is convicted and settles, and those that
// pass are acquitted with all that share what the failure was about.

// verdict returns how a message settles that alone caused the reply code.
// False: the code is nothing a message causes.
func verdict(code int) (Result, bool) {
	switch code {
	case amqp.NotFound, amqp.AccessRefused:
		return Refused, true
	case amqp.PreconditionFailed, amqp.ContentTooLarge, amqp.FrameError, amqp.SyntaxError, amqp.NotImplemented:
		return Poison, true
	}
	return 0, false
}

// convict deals with a channel or connection that the broker ended with a reply
// code that a message causes, and reports whether it was such a code.
func (f *flight) convict(code int, reason string) bool {
	result, guilty := verdict(code)
	if !guilty || f.inFlight() == 0 {
		return false
	}
	if f.inFlight() > 1 {
		f.suspect(uint16(code))
		return true
	}
	e := &f.entries[f.head]
	f.settle(e, result, code, reason)
	if result == Refused {
		if len(f.refused) == maxRefused {
			clear(f.refused)
		}
		f.refused[about(uint16(code), e.msg)] = uint16(code)
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
	if n > 1 || e.risk == 0 {
		f.suspect(riskUnknown)
		return
	}
	if e.strikes++; e.strikes >= maxStrikes {
		f.settle(e, Unknown, code, "connections end whenever it is sent alone: "+reason)
		f.compact()
	}
}

// suspect puts all in flight on probation.
func (f *flight) suspect(code uint16) {
	for i := f.head; i < f.sent; i++ {
		f.entries[i].risk = code
	}
}

// acquit ends the probation of whatever the answer to e clears.
func (f *flight) acquit(e *entry) {
	if e.risk == 0 {
		return
	}
	risk, clears := e.risk, about(e.risk, e.msg)
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
