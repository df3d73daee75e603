package configs

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// The functions here are the keys of a file: each names the keys of one
// mapping, where their values go, and the bounds of a value alone.

const (
	ms   = time.Millisecond
	sec  = time.Second
	hour = time.Hour
	ns   = time.Nanosecond
)

func (d *decoder) config(c *Config) setter {
	return d.mapping(
		field{"name", d.text(&c.Name, checkLabel)},
		field{"source", d.source(&c.Source)},
		field{"state", d.mapping(field{"schema", d.text(&c.State.Schema, checkIdentifier)})},
		field{"broker", d.broker(&c.Broker)},
		field{"checkpoint", d.mapping(
			field{"every", d.duration(&c.Checkpoint.Every, 10*ms, 60*sec, ns)},
			field{"idle", d.duration(&c.Checkpoint.Idle, 1*sec, 1*hour, ns)},
		)},
		field{"lease", d.mapping(
			// A renewal comes every third of it, and may wait a second for a lock.
			field{"ttl", d.duration(&c.Lease.TTL, 3*sec, 600*sec, sec)},
			field{"fast_takeover", d.bool(&c.Lease.FastTakeover)},
			field{"yield_after", d.duration(&c.Lease.YieldAfter, 2*sec, 24*hour, ns)},
		)},
		field{"drain_timeout", d.duration(&c.DrainTimeout, 100*ms, 600*sec, ns)},
		field{"http", d.mapping(
			field{"listen", d.text(&c.HTTP.Listen, checkListen)},
			field{"token", d.secret(&c.HTTP.Token)},
			field{"token_file", d.secretFile(&c.HTTP.Token)},
		)},
		field{"log", d.mapping(
			field{"level", oneOf(d, &c.Log.Level, LogDebug, LogInfo, LogWarn, LogError)},
			field{"format", oneOf(d, &c.Log.Format, LogJSON, LogConsole)},
		)},
		field{"tables", d.tables(&c.Tables)},
	)
}

func (d *decoder) source(s *Source) setter {
	return d.mapping(
		field{"address", d.text(&s.Address, checkHostPort)},
		field{"socket", d.text(&s.Socket, checkAbsolute)},
		field{"user", d.text(&s.User)},
		field{"password", d.secret(&s.Password)},
		field{"password_file", d.secretFile(&s.Password)},
		field{"server_id", integer(d, &s.ServerID, 0, math.MaxUint32)},
		field{"tls", d.mapping(
			field{"mode", oneOf(d, &s.TLS.Mode, TLSDisabled, TLSPreferred, TLSRequired, TLSVerify)},
			field{"ca", d.text(&s.TLS.CA)},
			field{"cert", d.text(&s.TLS.Cert)},
			field{"key", d.text(&s.TLS.Key)},
			field{"server_name", d.text(&s.TLS.ServerName)},
		)},
		field{"transaction_bytes", d.size(&s.TransactionBytes, 64*kib, gib)},
		field{"spool_dir", d.text(&s.SpoolDir)},
	)
}

func (d *decoder) broker(b *Broker) setter {
	return d.mapping(
		field{"urls", d.list(d.url(&b.URLs))},
		field{"user", d.text(&b.User)},
		field{"password", d.secret(&b.Password)},
		field{"password_file", d.secretFile(&b.Password)},
		field{"tls", d.mapping(
			field{"ca", d.text(&b.TLS.CA)},
			field{"cert", d.text(&b.TLS.Cert)},
			field{"key", d.text(&b.TLS.Key)},
			field{"server_name", d.text(&b.TLS.ServerName)},
		)},
		field{"connections", integer(d, &b.Connections, 1, 64)},
		field{"in_flight", integer(d, &b.InFlight, 2, 10_000)},
		field{"in_flight_bytes", d.size(&b.InFlightBytes, kib, gib)},
		field{"max_message_size", d.size(&b.MaxMessageSize, kib, 512*mib)},
		field{"heartbeat", d.duration(&b.Heartbeat, 1*sec, 60*sec, sec)},
		field{"confirm_timeout", d.duration(&b.ConfirmTimeout, 1*sec, 1*hour, ns)},
	)
}

// url appends one address. No message of it shows the address, which may hold
// a password.
func (d *decoder) url(to *[]BrokerURL) setter {
	return func(path string, n *yaml.Node) {
		s, ok := d.str(path, n)
		if !ok {
			return
		}
		u, message, remedy := parseBrokerURL(s.text)
		if message != "" {
			d.problem(path, s.line, message, remedy)
			return
		}
		*to = append(*to, u)
	}
}

func (d *decoder) tables(to *[]Table) setter {
	return func(path string, n *yaml.Node) {
		seq := resolve(n)
		if seq.Kind != yaml.SequenceNode {
			d.problem(path, n.Line, "is "+kindOf(n)+", not a list", "begin each table with a dash: - table: shop.outbox_event")
			return
		}
		*to = make([]Table, len(seq.Content))
		for i, element := range seq.Content {
			(*to)[i] = defaultTable()
			child := fmt.Sprintf("%s[%d]", path, i)
			d.lines[child] = element.Line
			d.table(&(*to)[i])(child, element)
			(*to)[i].settle()
		}
	}
}

func (d *decoder) table(t *Table) setter {
	return d.mapping(
		field{"table", d.list(d.pattern(&t.Tables))},
		field{"name", d.text(&t.Name, checkLabel)},
		field{"columns", d.mapping(
			field{"id", d.template(&t.Columns.ID, ParseColumn)},
			field{"key", d.template(&t.Columns.Key, ParseColumn)},
			field{"body", d.text(&t.Columns.Body, checkIdentifier)},
		)},
		field{"publish", d.publish(&t.Publish)},
		field{"where", d.each(d.filter(&t.Where))},
		field{"start", oneOf(d, &t.Start, StartTable, StartNow, StartAll)},
		field{"ordering", oneOf(d, &t.Ordering, OrderStrict, OrderFast, OrderNone)},
		field{"after_publish", oneOf(d, &t.AfterPublish, Mark, Delete, Keep)},
		field{"status", d.lifeCycle(&t.Status)},
		field{"deliver_at", d.text(&t.DeliverAt, checkIdentifier)},
		field{"retry", d.mapping(
			field{"base", d.duration(&t.Retry.Base, 100*ms, 24*hour, ns)},
			field{"factor", d.float(&t.Retry.Factor, 1, 100)},
			field{"max", d.duration(&t.Retry.Max, 100*ms, 168*hour, ns)},
			field{"attempts", integer(d, &t.Retry.Attempts, 1, 1000)},
			field{"jitter", d.float(&t.Retry.Jitter, 0, 1)},
		)},
		field{"max_parked", integer(d, &t.MaxParked, 1, 10_000_000)},
		field{"fallback", d.mapping(
			field{"every", d.duration(&t.Fallback.Every, 100*ms, 24*hour, ns)},
			field{"batch", integer(d, &t.Fallback.Batch, 1, 10_000)},
		)},
		field{"on_gap", oneOf(d, &t.OnGap, GapSweep, GapHalt)},
		field{"retention", d.mapping(
			field{"sent_for", d.duration(&t.Retention.SentFor, 1*sec, 87_600*hour, ns)},
			field{"archive_to", d.literalPattern(&t.Retention.ArchiveTo)},
		)},
	)
}

func (d *decoder) publish(p *Publish) setter {
	return d.mapping(
		field{"exchange", d.template(&p.Exchange, ParseTemplate)},
		field{"routing_key", d.template(&p.RoutingKey, ParseTemplate)},
		field{"type", d.template(&p.Type, ParseTemplate)},
		field{"content_type", d.template(&p.ContentType, ParseTemplate)},
		field{"correlation_id", d.template(&p.CorrelationID, ParseTemplate)},
		field{"reply_to", d.template(&p.ReplyTo, ParseTemplate)},
		field{"app_id", d.template(&p.AppID, ParseTemplate)},
		field{"priority", d.numeric(&p.Priority)},
		field{"expiration", d.numeric(&p.Expiration)},
		field{"headers", d.headers(&p.Headers)},
		field{"headers_from", d.text(&p.HeadersFrom, checkIdentifier)},
		field{"timestamp", d.text(&p.Timestamp, checkIdentifier)},
		field{"persistent", d.bool(&p.Persistent)},
		field{"mandatory", d.bool(&p.Mandatory)},
	)
}

func (d *decoder) lifeCycle(s *Status) setter {
	withdrawn := func(path string, n *yaml.Node) {
		var v StatusValue
		if d.status(&v)(path, n); v != "" {
			s.Withdrawn = append(s.Withdrawn, v)
		}
	}
	return d.mapping(
		field{"column", d.text(&s.Column, checkIdentifier)},
		field{"pending", d.status(&s.Pending)},
		field{"sent", d.status(&s.Sent)},
		field{"failed", d.status(&s.Failed)},
		field{"withdrawn", d.list(withdrawn)},
		field{"processing", d.status(&s.Processing)},
		field{"locked_until", d.text(&s.LockedUntil, checkIdentifier)},
		field{"sent_at", d.text(&s.SentAt, checkIdentifier)},
		field{"attempts", d.text(&s.Attempts, checkIdentifier)},
		field{"next_attempt_at", d.text(&s.NextAttemptAt, checkIdentifier)},
		field{"last_error", d.text(&s.LastError, checkIdentifier)},
	)
}

// headers reads the named headers, sorted so that equal files are equal.
func (d *decoder) headers(to *[]Header) setter {
	read := d.each(func(name, path string, n *yaml.Node) {
		h := Header{Name: name}
		d.template(&h.Value, ParseTemplate)(path, n)
		*to = append(*to, h)
	})
	return func(path string, n *yaml.Node) {
		read(path, n)
		slices.SortFunc(*to, func(a, b Header) int { return strings.Compare(a.Name, b.Name) })
	}
}

// filter reads the values of one column of where.
func (d *decoder) filter(to *[]Filter) func(column, path string, n *yaml.Node) {
	return func(column, path string, n *yaml.Node) {
		if message, remedy := checkIdentifier(column); message != "" {
			d.problem(path, d.lines[path], message, remedy)
			return
		}
		f := Filter{Column: column}
		d.mapping(
			field{"in", d.list(d.value(&f.In))},
			field{"not", d.list(d.value(&f.Not))},
		)(path, n)
		*to = append(*to, f)
	}
}

// value appends one value of a filter, or NULL.
func (d *decoder) value(to *[]Value) setter {
	return func(path string, n *yaml.Node) {
		if isNull(n) {
			*to = append(*to, Value{Null: true})
		} else if s, ok := d.sqlValue(path, n); ok {
			*to = append(*to, Value{Text: s.text})
		}
	}
}

func (d *decoder) pattern(to *[]Pattern) setter {
	return func(path string, n *yaml.Node) {
		s, ok := d.str(path, n)
		if !ok {
			return
		}
		p, message, remedy := parsePattern(s.text)
		if message != "" {
			d.wrong(path, s, message, remedy)
			return
		}
		*to = append(*to, p)
	}
}

func (d *decoder) literalPattern(to *Pattern) setter {
	return func(path string, n *yaml.Node) {
		var all []Pattern
		d.pattern(&all)(path, n)
		if len(all) == 1 && !all[0].Literal() {
			d.problem(path, n.Line, "names more than one table", "write the name of one table")
		} else if len(all) == 1 {
			*to = all[0]
		}
	}
}
