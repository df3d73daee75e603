package relay

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/towpath/towpath/canal"
)

// Suggest writes an entry of tables for an outbox table that exists, as YAML,
// from the names and types of its columns, the comment and default of its
// status, and the statuses that its rows have. What it cannot know it guesses,
// and says so in a comment.
func Suggest(ctx context.Context, db *sql.DB, name canal.TableName, exchange string) (string, error) {
	shape, err := canal.LoadShape(ctx, db, name)
	if errors.Is(err, canal.ErrNoTable) {
		return "", fmt.Errorf("suggest a configuration for %s: %w: correct the name, or grant SELECT on it", name, canal.ErrNoTable)
	}
	if err != nil {
		return "", err
	}
	unique, err := uniqueIndexes(ctx, db, name)
	if err != nil {
		return "", err
	}
	s := suggestion{shape: shape, exchange: exchange, taken: map[string]bool{}}
	if err := s.columns(unique); err != nil {
		return "", err
	}
	if s.status = s.pick("status", "state", "event_status", "send_status", "message_status", "publish_status", "outbox_status"); s.status != "" {
		if s.known, s.fallback, err = statusValues(ctx, db, shape, s.status); err != nil {
			return "", err
		}
	}
	return s.yaml(), nil
}

// suggestion gathers what an entry is made of.
type suggestion struct {
	shape    *canal.Shape
	exchange string
	taken    map[string]bool

	id, key, body, kind, group string
	status                     string
	known                      []statusValue
	fallback                   string // the status column's default
}

// pick takes the first column of a list of usual names, compared without case
// and underscores.
func (s *suggestion) pick(names ...string) string {
	for _, name := range names {
		for i := range s.shape.Columns {
			if c := s.shape.Columns[i].Name; !s.taken[c] && bare(c) == bare(name) {
				s.taken[c] = true
				return c
			}
		}
	}
	return ""
}

func bare(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }

// columns finds id, key, body and what a route is made of.
func (s *suggestion) columns(unique [][]string) error {
	alone := func(column string) bool {
		return slices.ContainsFunc(unique, func(u []string) bool { return len(u) == 1 && strings.EqualFold(u[0], column) })
	}
	for _, name := range []string{"event_id", "message_id", "msg_id", "uuid", "guid", "event_uuid", "id"} {
		if c := s.pick(name); c != "" && alone(c) {
			s.id = c
			break
		} else if c != "" {
			delete(s.taken, c)
		}
	}
	if s.id == "" && len(s.shape.Primary) == 1 {
		s.id = s.shape.Primary[0]
		s.taken[s.id] = true
	}
	if s.id == "" {
		return fmt.Errorf("suggest a configuration for %s: no column is unique by itself: add a primary key or a unique message id", s.shape.Table)
	}
	s.body = s.pick("payload", "body", "message_body", "event_data", "data", "content", "message", "event", "json")
	if s.body == "" {
		s.body = s.ofType("json", "longblob", "mediumblob", "blob", "longtext", "mediumtext", "text")
	}
	if s.body == "" {
		return fmt.Errorf("suggest a configuration for %s: no column looks like the body of a message (payload, body, data, or of a JSON, TEXT or BLOB type)", s.shape.Table)
	}
	s.group = s.pick("aggregate_type", "entity_type", "resource_type")
	s.kind = s.pick("event_type", "type", "biz_type", "message_type", "event_name", "event_key", "topic", "name")
	s.key = s.pick("aggregate_id", "entity_id", "partition_key", "message_key", "business_id", "biz_id", "order_id")
	for i := 0; i < len(s.shape.Columns) && s.key == ""; i++ {
		c := s.shape.Columns[i].Name
		other := slices.Contains([]string{"tenantid", "traceid", "correlationid", "requestid", "sessionid", "userid"}, bare(c))
		if strings.HasSuffix(strings.ToLower(c), "_id") && !s.taken[c] && !other {
			s.key, s.taken[c] = c, true
		}
	}
	return nil
}

func (s *suggestion) ofType(types ...string) string {
	for _, t := range types {
		for i := range s.shape.Columns {
			if c := &s.shape.Columns[i]; c.DataType == t && !s.taken[c.Name] {
				s.taken[c.Name] = true
				return c.Name
			}
		}
	}
	return ""
}

// rendered is a column in a template; a binary one needs a format.
func (s *suggestion) rendered(column string) string {
	c, _ := s.shape.Column(column)
	switch {
	case !s.shape.Describe().Columns[slices.IndexFunc(s.shape.Columns, func(o canal.ShapeColumn) bool { return o.Name == c.Name })].Binary:
		return "{" + c.Name + "}"
	case c.Octets == 16:
		return "{" + c.Name + ":uuid}"
	}
	return "{" + c.Name + ":hex}"
}

// template is a rendered column alone, in quotes unless it needs none.
func (s *suggestion) template(column string) string {
	if r := s.rendered(column); r != "{"+column+"}" {
		return `"` + r + `"`
	}
	return column
}

func (s *suggestion) yaml() string {
	var b strings.Builder
	line := func(indent int, format string, args ...any) {
		fmt.Fprintf(&b, "%s%s\n", strings.Repeat(" ", indent), fmt.Sprintf(format, args...))
	}
	line(2, "- table: %s", strings.ReplaceAll(s.shape.Table.String(), "$", "$$"))
	line(4, "columns:")
	id, _ := s.shape.Column(s.id)
	if strings.HasSuffix(id.DataType, "int") {
		line(6, `id: "{@table}-{%s}"   # a number alone is not unique among the messages of several tables`, s.id)
	} else {
		line(6, "id: %s", s.template(s.id))
	}
	if s.key != "" {
		line(6, "key: %s   # rows of one value stay in order", s.template(s.key))
	}
	line(6, "body: %s", s.body)
	s.publish(line)
	if s.status == "" {
		line(4, "after_publish: keep   # no status column was found; delete, if nobody else needs the rows that were sent")
		line(4, "start: now            # all: the rows that are there, first")
	} else {
		s.lifeCycle(line)
	}
	if at := s.pick("deliver_at", "scheduled_at", "available_at", "not_before", "send_after"); at != "" {
		line(4, "deliver_at: %s", at)
	}
	return b.String()
}

func (s *suggestion) publish(line func(int, string, ...any)) {
	line(4, "publish:")
	line(6, "exchange: %s   # it must exist", s.exchange)
	var key []string
	for _, c := range []string{s.group, s.kind} {
		if c != "" {
			key = append(key, s.rendered(c))
		}
	}
	if len(key) == 0 {
		line(6, "routing_key: %s   # no column looks like the type of an event", strings.ReplaceAll(s.shape.Table.Name, "$", "$$"))
	} else {
		line(6, `routing_key: "%s"`, strings.Join(key, "."))
	}
	if s.kind != "" {
		line(6, `type: "%s"`, s.rendered(s.kind))
	}
	if c, _ := s.shape.Column(s.body); c.DataType == "json" || strings.HasSuffix(c.DataType, "text") {
		line(6, "content_type: application/json")
	}
	if c := s.pick("headers", "meta", "metadata"); c != "" {
		line(6, "headers_from: %s", c)
	}
	if c := s.pick("created_at", "create_time", "created_time", "occurred_at", "created", "timestamp"); c != "" {
		if col, _ := s.shape.Column(c); col.DataType == "datetime" || col.DataType == "timestamp" {
			line(6, "timestamp: %s", c)
		}
	}
}

// lifeCycle writes what mark needs.
func (s *suggestion) lifeCycle(line func(int, string, ...any)) {
	locked := s.pick("locked_until", "lease_expires_at", "lock_expires_at", "lease_until", "claimed_until", "lock_until")
	line(4, "after_publish: mark")
	line(4, "status:")
	line(6, "column: %s", s.status)
	value := func(key, fallback string, words ...string) {
		found := s.value(words...)
		switch {
		case found != "":
			line(6, "%s: %s", key, found)
		case fallback != "":
			line(6, "%s: %s   # a guess: no value like it was found", key, fallback)
		}
	}
	pending, sent := s.fallback, "SENT"
	if pending == "" {
		pending = "PENDING"
	}
	if c, _ := s.shape.Column(s.status); strings.HasSuffix(c.DataType, "int") {
		if sent = "1"; pending == "PENDING" {
			pending = "0"
		}
	}
	value("pending", pending, "PENDING", "NEW", "WAITING", "INIT", "INITIAL", "UNSENT", "READY", "TODO", "CREATED", "QUEUED")
	value("sent", sent, "SENT", "PUBLISHED", "DELIVERED", "SUCCESS", "SUCCEEDED", "PROCESSED", "COMPLETED", "DONE")
	value("failed", "", "FAILED", "FAILURE", "ERROR", "DEAD")
	if w := s.value("ABANDONED", "CANCELLED", "CANCELED", "WITHDRAWN", "SKIPPED"); w != "" {
		line(6, "withdrawn: [%s]", w)
	}
	if locked != "" && s.value("PROCESSING", "SENDING", "IN_PROGRESS", "LOCKED", "CLAIMED") != "" {
		value("processing", "", "PROCESSING", "SENDING", "IN_PROGRESS", "LOCKED", "CLAIMED")
		line(6, "locked_until: %s", locked)
	}
	for _, c := range []struct {
		key   string
		names []string
	}{
		{"sent_at", []string{"sent_at", "published_at", "sent_time", "publish_time"}},
		{"attempts", []string{"retry_count", "attempts", "attempt_count", "retries"}},
		{"next_attempt_at", []string{"next_retry_at", "next_attempt_at", "next_retry_time"}},
		{"last_error", []string{"last_error", "error_message", "failure_reason", "error"}},
	} {
		if column := s.pick(c.names...); column != "" {
			line(6, "%s: %s", c.key, column)
		}
	}
}

// value is the known status that means one of the words, "" for none.
func (s *suggestion) value(words ...string) string {
	for _, word := range words {
		for _, v := range s.known {
			if strings.EqualFold(v.meaning, word) && plainStatus.MatchString(v.value) {
				return v.value
			}
		}
	}
	return ""
}

var plainStatus = regexp.MustCompile(`^(?:[A-Za-z][A-Za-z0-9_-]*|0|[1-9][0-9]*)$`)

// statusValue is a value of the status column, and the word that says what it means.
type statusValue struct{ value, meaning string }

var (
	numbered = regexp.MustCompile(`(\d+)\s*[:=-]?\s*(?:is |means )?([A-Za-z_]+)`)
	word     = regexp.MustCompile(`[A-Za-z_]+`)
)

// statusValues finds the values of a status column: those of its ENUM, those in
// its comment, its default, and those of the rows that are there.
func statusValues(ctx context.Context, db *sql.DB, shape *canal.Shape, column string) (all []statusValue, fallback string, err error) {
	c, _ := shape.Column(column)
	names, _ := c.Names()
	for _, n := range names {
		all = append(all, statusValue{n, n})
	}
	var comment string
	var preset sql.NullString
	err = db.QueryRowContext(ctx, "SELECT COLUMN_COMMENT, COLUMN_DEFAULT FROM information_schema.COLUMNS WHERE TABLE_SCHEMA=? AND TABLE_NAME=? AND COLUMN_NAME=?",
		shape.Table.Schema, shape.Table.Name, c.Name).Scan(&comment, &preset)
	if err != nil {
		return nil, "", fmt.Errorf("look at column %s of %s: %w", column, shape.Table, err)
	}
	fallback = strings.Trim(preset.String, "'") // MariaDB shows it in quotes
	if strings.HasSuffix(c.DataType, "int") {
		for _, m := range numbered.FindAllStringSubmatch(comment, -1) {
			all = append(all, statusValue{m[1], m[2]})
		}
	} else {
		for _, m := range word.FindAllString(comment, -1) {
			all = append(all, statusValue{m, m})
		}
	}
	all = append(all, statusValue{fallback, fallback})
	rows, err := db.QueryContext(ctx, fmt.Sprintf("SELECT DISTINCT s FROM (SELECT %s AS s FROM %s LIMIT 10000) AS some LIMIT 50", canal.Quote(c.Name), shape.Table.Quote()))
	if err != nil {
		return nil, "", fmt.Errorf("look at the rows of %s: %w", shape.Table, err)
	}
	defer rows.Close()
	for rows.Next() {
		var v sql.NullString
		if err := rows.Scan(&v); err != nil {
			return nil, "", fmt.Errorf("look at the rows of %s: %w", shape.Table, err)
		}
		all = append(all, statusValue{v.String, v.String})
	}
	return all, fallback, rows.Err()
}
