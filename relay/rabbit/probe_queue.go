package rabbit

import (
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

// SameCluster reports whether two probes have reached one cluster: an exclusive
// queue that one connection holds is locked to the other. Two brokers may bear
// the same cluster name. The name of the queue must be nobody's fence.
func (p *Probe) SameCluster(o *Probe, name string) (same bool, err error) {
	err = p.try("hold the queue "+name, func(ch *amqp.Channel) error {
		if _, err := declareFence(ch, name); err != nil {
			return err
		}
		other := o.MayFence(name)
		code, _ := replyCode(other)
		if same = code == amqp.ResourceLocked; other != nil && !same {
			return other
		}
		_, err := ch.QueueDelete(name, false, false, false)
		return err
	})
	return same, err
}

// Queue is what a broker tells of a queue's declaration. Policies, which can
// set the same limits, it does not tell.
type Queue struct {
	Durable    bool
	AutoDelete bool
	Arguments  map[string]any // as declared: string, int64 or bool
}

// QueueDeclaration reads how an existing queue was declared. Not known: there
// is no such queue, or the permission configure on it is missing.
//
// AMQP has no request for this. But a broker compares a new declaration of an
// existing queue with the old one, and says where they differ. The declaration
// that is sent here holds an argument that no queue can have, so that it can
// never make a queue, and never be equal to one.
func (p *Probe) QueueDeclaration(name string) (q Queue, known bool, err error) {
	q = Queue{Durable: true, Arguments: map[string]any{}}
	// What is asked for, by a value that no queue can have. An argument that was
	// told, or is not there, is asked for no more; when the last one is answered
	// all are known. At most one difference is told at a time.
	asked := map[string]any{"x-message-ttl": int64(-1), "x-expires": int64(-1), "x-max-length": int64(-1), "x-max-length-bytes": int64(-1), "x-overflow": "unknown"}
	for range 64 {
		args := amqp.Table{}
		maps.Copy(args, q.Arguments)
		maps.Copy(args, asked)
		err = p.try("compare the queue "+name, func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(name, q.Durable, q.AutoDelete, false, false, args)
			return err
		})
		if err == nil { // a queue of a type for which the rest does not count
			return q, true, nil
		}
		code, text := replyCode(err)
		if code != amqp.PreconditionFailed {
			if code == amqp.AccessRefused || code == amqp.ResourceLocked {
				err = nil
			}
			return Queue{}, false, err
		}
		d := difference.FindStringSubmatch(text)
		if d == nil { // the values themselves were looked at: there is no such queue
			return Queue{}, false, nil
		}
		q.learn(d[1], d[2]+d[3])
		if _, ok := asked[d[1]]; ok {
			if len(asked) == 1 {
				return q, true, nil
			}
			delete(asked, d[1])
		}
	}
	return Queue{}, false, nil
}

// difference takes the broker's words apart: what differs, and what the queue
// has, by one of two forms.
var difference = regexp.MustCompile(`inequivalent arg '([^']+)' for queue .* but current is (?:none|the value '(.*)' of type '[^']*'|'(.*)')$`)

// learn takes a difference in; value is "" for an argument that the queue has not.
func (q *Queue) learn(name, value string) {
	switch {
	case name == "durable":
		q.Durable = value == "true"
	case name == "auto_delete":
		q.AutoDelete = value == "true"
	case value == "true" || value == "false":
		q.Arguments[name] = value == "true"
	case value != "":
		q.Arguments[name] = value
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			q.Arguments[name] = n
		}
	}
}

// Losing says which properties of the declaration lose messages that the broker
// has confirmed, each with what it does.
func (q Queue) Losing() (reasons []string) {
	if !q.Durable {
		reasons = append(reasons, "it is not durable: a restart of the broker empties it")
	}
	if q.AutoDelete {
		reasons = append(reasons, "it is auto_delete: it goes with its last consumer, and its messages with it")
	}
	for _, l := range []struct{ name, what string }{
		{"x-message-ttl", "messages older than %v ms are dropped"},
		{"x-expires", "unused for %v ms, it goes with its messages"},
		{"x-max-length", "above %v messages the oldest are dropped"},
		{"x-max-length-bytes", "above %v bytes the oldest are dropped"},
	} {
		v, given := q.Arguments[l.name]
		overflow, _ := q.Arguments["x-overflow"].(string)
		if !given || strings.HasPrefix(l.name, "x-max") && strings.HasPrefix(overflow, "reject-publish") {
			continue
		}
		reasons = append(reasons, l.name+": "+fmt.Sprintf(l.what, v))
	}
	return reasons
}
