package configs

import (
	"fmt"
	"strconv"
	"strings"
)

// tableRules checks one entry of tables, whose keys stand under path.
func (d *decoder) tableRules(path string, t *Table, stateSchema string) {
	if !d.fine(path) {
		return
	}
	d.require(path+".table", "write schema.table")
	for _, p := range t.Tables {
		if p.Schema == stateSchema {
			d.fault(path+".table", "lies in the schema of the relay's own tables", "keep the outbox in a schema of its own, or name another in state.schema")
		}
	}
	d.require(path+".columns.id", "name the column with the message id: unique, and the same for ever")
	d.require(path+".columns.body", "name the column with the message's body")
	d.require(path+".publish.exchange", `name the exchange; "" is the default exchange, where the routing key names a queue`)
	d.require(path+".publish.routing_key", `write a routing key, as "{event_type}", or "" for an exchange that needs none`)
	d.require(path+".after_publish", "write mark, delete or keep: what becomes of a row that was sent")
	d.publishRules(path+".publish", &t.Publish)
	d.filterRules(path+".where", t.Where)
	d.retryRules(path+".retry", t.Retry)
	d.ownColumns(path, t)
	switch t.AfterPublish {
	case Mark:
		d.lifeCycleRules(path+".status", t.Status)
		d.retentionRules(path, t)
	case Delete:
		d.markOnly(path, Delete)
	case Keep:
		d.markOnly(path, Keep)
		d.require(path+".start", "write start: now (what commits from now on) or start: all (every row that is there, first)")
		if t.OnGap == GapSweep {
			d.fault(path+".on_gap", "is sweep, but the rows of a keep table do not show which were sent", "write on_gap: halt, or remove it")
		}
	}
	switch {
	case t.AfterPublish == Keep && t.Start == StartTable:
		d.fault(path+".start", "is table, but the rows of a keep table do not show which were sent", "write start: now or start: all")
	case (t.AfterPublish == Mark || t.AfterPublish == Delete) && t.Start == StartAll:
		d.fault(path+".start", "is all, which is for keep tables alone", "write start: table (the unsent rows, first) or start: now")
	}
}

// AMQP 0-9-1 carries these names in short strings.
const (
	maxExchange    = 127
	maxShortString = 255
)

func (d *decoder) publishRules(path string, p *Publish) {
	for _, named := range p.templates() {
		most := maxShortString
		if named.key == "exchange" {
			most = maxExchange
		}
		if text, _ := named.literal(); len(text) > most {
			d.fault(join(path, named.key), fmt.Sprintf("has %d bytes of text, and AMQP takes %d", len(text), most), "shorten it")
		}
	}
	exchange, routingKey := join(path, "exchange"), join(path, "routing_key")
	if d.given(exchange) && d.given(routingKey) && p.Exchange.Empty() && p.RoutingKey.Empty() && d.fine(exchange, routingKey) {
		d.fault(routingKey, "is empty with the default exchange", "write the name of the queue, or name an exchange")
	}
	d.wholeNumber(join(path, "priority"), p.Priority, 8)
	d.wholeNumber(join(path, "expiration"), p.Expiration, 32)
	for _, h := range p.Headers {
		at := join(path, "headers."+h.Name)
		switch {
		case h.Name == "" || len(h.Name) > maxShortString:
			d.fault(at, "has a name that is empty or longer than 255 bytes", "choose another name")
		case strings.EqualFold(h.Name, "CC") || strings.EqualFold(h.Name, "BCC"):
			d.fault(at, "is taken by RabbitMQ as further routing keys", "choose another name")
		}
	}
}

// wholeNumber refuses a literal that is no unsigned number of so many bits.
func (d *decoder) wholeNumber(path string, t Template, bits int) {
	text, whole := t.literal()
	if t.Empty() || !whole {
		return
	}
	if _, err := strconv.ParseUint(text, 10, bits); err != nil {
		d.fault(path, "is not a number in range", fmt.Sprintf("write a whole number from 0 to %d, or a template as {column}", uint64(1)<<bits-1))
	}
}

func (d *decoder) filterRules(path string, filters []Filter) {
	var seen columnSet
	for _, f := range filters {
		at := join(path, f.Column)
		if seen.has(f.Column) {
			d.fault(at, "is given twice, as a column's letter case does not count", "keep one")
		}
		seen.add(f.Column)
		if !d.given(at+".in") && !d.given(at+".not") && d.fine(at) {
			d.fault(at, "lets every row pass", "write {in: [value]} or {not: [value]}")
		}
	}
}

func (d *decoder) retryRules(path string, r Retry) {
	base, most := path+".base", path+".max"
	if r.Base <= r.Max || !d.fine(base, most) {
		return
	}
	at := most
	if !d.given(at) {
		at = base
	}
	d.fault(at, fmt.Sprintf("makes retry.base, %v, longer than retry.max, %v", r.Base, r.Max), "write a base of at most max")
}

// ownColumns keeps P5: what is published does not depend on a column that the
// relay or a former poller writes, so each publish of a row has the same bytes.
func (d *decoder) ownColumns(path string, t *Table) {
	written := columnSet{t.Writes()}
	for _, u := range t.uses() {
		if written.has(u.column) {
			d.fault(join(path, u.key), fmt.Sprintf("uses the column %s, which the relay writes", u.column), "use a column that does not change once the row is there")
		}
	}
}

// lifeCycleRules checks the status of a mark table.
func (d *decoder) lifeCycleRules(path string, s Status) {
	d.require(path+".column", "after_publish: mark sets a row's status; name its column")
	d.require(path+".pending", "write the status of a row that is to be sent, as PENDING or 0")
	d.require(path+".sent", "write the status of a row that was sent, as SENT or 1")
	processing, lockedUntil := path+".processing", path+".locked_until"
	switch {
	case d.given(processing) && !d.given(lockedUntil):
		d.fault(processing, "is given without locked_until", "name the column that tells when a claim has run out")
	case !d.given(processing) && d.given(lockedUntil):
		d.fault(lockedUntil, "is given without processing", "write the status of a row that a poller has claimed, or remove it")
	}
	d.distinct(path, "value", statusValues(s))
	d.distinct(path, "column", []keyed{
		{"column", s.Column}, {"locked_until", s.LockedUntil}, {"sent_at", s.SentAt},
		{"attempts", s.Attempts}, {"next_attempt_at", s.NextAttemptAt}, {"last_error", s.LastError},
	})
}

// keyed is a name or value with the key that gives it; empty: not given.
type keyed struct{ key, text string }

func statusValues(s Status) []keyed {
	values := []keyed{
		{"pending", string(s.Pending)}, {"sent", string(s.Sent)},
		{"failed", string(s.Failed)}, {"processing", string(s.Processing)},
	}
	for _, w := range s.Withdrawn {
		values = append(values, keyed{"withdrawn", string(w)})
	}
	return values
}

// distinct refuses a text that is given twice. Letter case does not tell two
// apart, as it does not in the servers' usual collations.
func (d *decoder) distinct(path, what string, all []keyed) {
	for i, later := range all {
		for _, earlier := range all[:i] {
			if later.text != "" && strings.EqualFold(later.text, earlier.text) {
				d.fault(join(path, later.key), fmt.Sprintf("is the same %s as %s", what, earlier.key), "write one that differs in more than letter case")
			}
		}
	}
}

// markOnly refuses the keys that have a meaning for mark tables alone.
func (d *decoder) markOnly(path string, after AfterPublish) {
	for _, key := range []string{"status", "retention"} {
		if d.given(join(path, key)) {
			d.fault(join(path, key), fmt.Sprintf("is not used with after_publish: %s", after), "remove it, or write after_publish: mark")
		}
	}
}

func (d *decoder) retentionRules(path string, t *Table) {
	retention := path + ".retention"
	if !d.given(retention) {
		return
	}
	d.require(retention+".sent_for", "write how long a row stays after it was sent, as 168h")
	if !d.given(path + ".status.sent_at") {
		d.fault(retention, "needs status.sent_at, or nothing shows when a row was sent", "name the column for the time of sending")
	}
	single := len(t.Tables) == 1 && t.Tables[0].Literal()
	if d.given(retention+".archive_to") && !single && d.fine(path+".table") {
		d.fault(retention+".archive_to", "would take the rows of several tables", "give each table an entry of its own, or remove archive_to")
	}
}
