package relay

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/configs"
)

// where gathers conditions.
type where struct {
	terms []string
	args  []any
}

func (w *where) add(term string, args ...any) {
	w.terms, w.args = append(w.terms, term), append(w.args, args...)
}

// exact is the column as bytes that equal what SELECT shows, "" for a type of
// which SQL cannot say that with certainty: the caller compares it alone.
func exact(c canal.Column) string {
	switch c.Type {
	case "char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set":
		return "CAST(CONVERT(" + canal.Quote(c.Name) + " USING utf8mb4) AS BINARY)"
	case "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob":
		return canal.Quote(c.Name)
	}
	if c.Integer {
		return "CAST(" + canal.Quote(c.Name) + " AS CHAR)"
	}
	return ""
}

// in finds rows with one of the values. The plain comparison is for the index,
// the exact one for what the plain one takes for equal.
func (w *where) in(c canal.Column, values []configs.Value) {
	name, bytes := canal.Quote(c.Name), exact(c)
	if bytes == "" {
		return
	}
	args, null := texts(values)
	var terms []string
	if null {
		terms = append(terms, name+" IS NULL")
	}
	if len(args) > 0 {
		marks := strings.Repeat("?, ", len(args)-1) + "?"
		both := fmt.Sprintf("%s IN (%s) AND %s IN (%s)", name, marks, bytes, marks)
		if c.Integer {
			numbers := make([]any, len(args))
			for i, v := range args {
				numbers[i] = keyColumn{integer: true}.argument(v.(string))
			}
			args = append(numbers, args...)
		} else {
			args = append(args, args...)
		}
		terms = append(terms, both)
	}
	w.add("("+strings.Join(terms, " OR ")+")", args...)
}

// notIn leaves out rows with one of the values.
func (w *where) notIn(c canal.Column, values []configs.Value) {
	name, bytes := canal.Quote(c.Name), exact(c)
	if bytes == "" {
		return
	}
	args, null := texts(values)
	if null {
		w.add(name + " IS NOT NULL")
	}
	if len(args) > 0 {
		w.add(fmt.Sprintf("(%s IS NULL OR %s NOT IN (%s?))", name, bytes, strings.Repeat("?, ", len(args)-1)), args...)
	}
}

// texts is the values without NULL, and whether NULL was among them.
func texts(values []configs.Value) (args []any, null bool) {
	for _, v := range values {
		if v.Null {
			null = true
		} else {
			args = append(args, v.Text)
		}
	}
	return args, null
}

// before finds rows whose time in the column has come.
func (w *where) before(c canal.Column, now time.Time, orNull bool) {
	arg := timeArgument(c, now)
	if arg == nil {
		return
	}
	term := canal.Quote(c.Name) + " <= ?"
	if orNull {
		term = "(" + canal.Quote(c.Name) + " IS NULL OR " + term + ")"
	}
	w.add(term, arg)
}

// timeArgument is a time in the form that the column is compared with, nil for
// a type that SQL does not order by time.
func timeArgument(c canal.Column, at time.Time) any {
	switch {
	case c.Type == "datetime" || c.Type == "timestamp" || c.Type == "date":
		return at.UTC().Format("2006-01-02 15:04:05.000000")
	case c.Integer:
		return at.Unix()
	}
	return nil
}

// after is the condition that continues behind a row key, in key order.
func (m *mapping) after(ref string) (string, []any) { return m.beyond(ref, ">") }

// upTo is the condition of the rows up to a row key.
func (m *mapping) upTo(ref string) (string, []any) {
	term, args := m.beyond(ref, ">")
	return "NOT (" + term + ")", args
}

// beyond compares a row key column by column: servers use an index for that
// form, and not for one of tuples.
func (m *mapping) beyond(ref string, operator string) (string, []any) {
	values := m.keyValues(ref)
	var alternatives []string
	var args []any
	for i := range m.rowKey {
		var terms []string
		for j := range i {
			terms = append(terms, canal.Quote(m.rowKey[j].name)+" = "+m.rowKey[j].operand())
			args = append(args, values[j])
		}
		terms = append(terms, canal.Quote(m.rowKey[i].name)+" "+operator+" "+m.rowKey[i].operand())
		args = append(args, values[i])
		alternatives = append(alternatives, strings.Join(terms, " AND "))
	}
	if len(alternatives) == 1 {
		return alternatives[0], args
	}
	first := canal.Quote(m.rowKey[0].name) + " >= " + m.rowKey[0].operand()
	return first + " AND (" + strings.Join(alternatives, " OR ") + ")", append([]any{values[0]}, args...)
}

// pageable says why rows cannot be read page by page in key order, nil when
// they can: SQL must compare a key as it orders it.
func (m *mapping) pageable() error {
	if len(m.rowKey) == 0 {
		return fmt.Errorf("it has no primary key, and no id that is one column, to read it page by page")
	}
	for _, k := range m.rowKey {
		if slices.Contains([]string{"enum", "set", "float", "double", "bit", "json"}, k.kind) {
			return fmt.Errorf("its key has the column %s of type %s, by which it cannot be read page by page", k.name, k.kind)
		}
	}
	return nil
}
