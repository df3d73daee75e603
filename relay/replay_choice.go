package relay

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/configs"
)

// choose writes the replay's conditions.
func (r *replayer) choose(w *where, c *configs.Table, m *mapping) error {
	switch {
	case len(r.Keys) > 0:
		var args []any
		for _, key := range r.Keys {
			args = append(args, m.keyValues(string(append(make([]byte, 4), key...)))...)
		}
		w.add(writeGroup{mapping: m}.where(len(r.Keys)), args...)
	case len(r.IDs) > 0:
		if err := m.withIDs(w, c, r.IDs); err != nil {
			return err
		}
	}
	if !r.Since.IsZero() || !r.Until.IsZero() {
		name := r.By
		if name == "" {
			name = c.Publish.Timestamp
		}
		if name == "" {
			return errors.New("a time range needs a column: give --by COLUMN, or configure publish.timestamp")
		}
		i, err := columnIndex(m.shape, name)
		if err != nil {
			return err
		}
		column := m.shape.Columns[i]
		if timeArgument(column, time.Time{}) == nil {
			return fmt.Errorf("column %s is of type %s, which has no time", column.Name, column.Type)
		}
		if !r.Since.IsZero() {
			w.add(canal.Quote(column.Name)+" >= ?", timeArgument(column, r.Since))
		}
		if !r.Until.IsZero() {
			w.add(canal.Quote(column.Name)+" < ?", timeArgument(column, r.Until))
		}
	}
	for name, values := range r.Where {
		i, err := columnIndex(m.shape, name)
		if err != nil {
			return err
		}
		column := m.shape.Columns[i]
		if exact(column) == "" {
			return fmt.Errorf("rows cannot be chosen by column %s of type %s", column.Name, column.Type)
		}
		var list []configs.Value
		for _, v := range values {
			list = append(list, configs.Value{Text: v})
		}
		w.in(column, list)
	}
	return nil
}

// withIDs finds rows by their message ids, which takes an id that is one column.
func (m *mapping) withIDs(w *where, c *configs.Table, ids []string) error {
	name, format, lone := c.Columns.ID.Lone()
	if !lone {
		return errors.New("columns.id is more than one column: choose rows by time or by --where")
	}
	i, err := columnIndex(m.shape, name)
	if err != nil {
		return err
	}
	column := m.shape.Columns[i]
	var args []any
	for _, id := range ids {
		if value, ok := columnValue(id, format); ok {
			args = append(args, keyColumn{binary: column.Binary, integer: column.Integer}.argument(value))
		}
	}
	if len(args) == 0 {
		w.add("FALSE")
		return nil
	}
	w.add(fmt.Sprintf("%s IN (%s?)", canal.Quote(column.Name), strings.Repeat("?, ", len(args)-1)), args...)
	return nil
}

// columnValue is the value of a column that is rendered as text in a format,
// false for a text that no value is rendered as.
func columnValue(text string, format configs.Format) (string, bool) {
	switch format {
	case configs.FormatHex:
		b, err := hex.DecodeString(text)
		return string(b), err == nil
	case configs.FormatBase64:
		b, err := base64.StdEncoding.DecodeString(text)
		return string(b), err == nil
	case configs.FormatUUID, configs.FormatUUIDSwapped:
		u, err := uuid.Parse(text)
		if format == configs.FormatUUIDSwapped {
			u = uuid.UUID{u[6], u[7], u[4], u[5], u[0], u[1], u[2], u[3], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]}
		}
		return string(u[:]), err == nil
	}
	return text, true
}
