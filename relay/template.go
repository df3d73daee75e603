package relay

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/configs"
)

// template is a configured template compiled for one shape of a table: its
// columns are indexes, its names are text. It is immutable.
type template struct {
	parts []templatePart
}

type templatePart struct {
	text   string
	column int // index into the row; used when text is ""
	format configs.Format
}

// compileTemplate resolves the template's columns against the shape. The error
// names what the configuration has to change.
func compileTemplate(t configs.Template, shape *canal.Table) (template, error) {
	var out template
	for _, p := range t.Parts {
		part := templatePart{text: p.Text, format: p.Format}
		switch {
		case p.Builtin == configs.BuiltinSchema:
			part.text = shape.Schema
		case p.Builtin == configs.BuiltinTable:
			part.text = shape.Name
		case p.Column != "":
			i, err := columnIndex(shape, p.Column)
			if err != nil {
				return template{}, fmt.Errorf("%q: %w", t.Source, err)
			}
			if shape.Columns[i].Binary && p.Format == "" {
				return template{}, fmt.Errorf("%q: column %s is binary: write {%s:uuid}, {%[2]s:uuid_swapped}, {%[2]s:hex} or {%[2]s:base64}",
					t.Source, p.Column, p.Column)
			}
			part.column = i
		}
		out.parts = append(out.parts, part)
	}
	return out, nil
}

// columnIndex finds a column by name; as on the servers, letter case does not count.
func columnIndex(shape *canal.Table, name string) (int, error) {
	for i := range shape.Columns {
		if strings.EqualFold(shape.Columns[i].Name, name) {
			return i, nil
		}
	}
	return 0, fmt.Errorf("table %s has no column %s: correct the name in the configuration", shape, name)
}

// containsFold says whether a list of column names has one.
func containsFold(names []string, name string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
}

// append renders the template; null says that a column in it is NULL, and then
// dst is returned as it was.
func (t template) append(dst []byte, row *canal.Row) (out []byte, null bool, err error) {
	start := len(dst)
	for i := range t.parts {
		p := &t.parts[i]
		if p.text != "" {
			dst = append(dst, p.text...)
			continue
		}
		value := row.Values[p.column]
		if value == nil {
			return dst[:start], true, nil
		}
		if dst, err = appendFormatted(dst, value, p.format); err != nil {
			return dst[:start], false, fmt.Errorf("column %s: %w", row.Table.Columns[p.column].Name, err)
		}
	}
	return dst, false, nil
}

func appendFormatted(dst, value []byte, format configs.Format) ([]byte, error) {
	switch format {
	case configs.FormatHex:
		return hex.AppendEncode(dst, value), nil
	case configs.FormatBase64:
		return base64.StdEncoding.AppendEncode(dst, value), nil
	case configs.FormatUUID, configs.FormatUUIDSwapped:
		if len(value) != 16 {
			return dst, fmt.Errorf("a UUID has 16 bytes, this value has %d", len(value))
		}
		if format == configs.FormatUUIDSwapped {
			// UUID_TO_BIN(x, 1) stores time-high and time-mid before time-low.
			v := value
			value = []byte{v[4], v[5], v[6], v[7], v[2], v[3], v[0], v[1],
				v[8], v[9], v[10], v[11], v[12], v[13], v[14], v[15]}
		}
		for i, end := range [...]int{4, 6, 8, 10, 16} {
			if i > 0 {
				dst = append(dst, '-')
			}
			dst = hex.AppendEncode(dst, value[[...]int{0, 4, 6, 8, 10}[i]:end])
		}
		return dst, nil
	}
	return append(dst, value...), nil
}

// lone returns the index of the column that is the whole template, unformatted.
func (t template) lone() (int, bool) {
	if len(t.parts) == 1 && t.parts[0].text == "" && t.parts[0].format == "" {
		return t.parts[0].column, true
	}
	return 0, false
}
