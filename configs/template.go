package configs

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Template is text with columns in it, parsed once. The zero Template is empty.
type Template struct {
	Source string `json:"-"` // as it was written
	Parts  []Part // in order; no two texts side by side, no empty text
}

// Part is one piece of a template: exactly one of Text, Column and Builtin is
// set. Format goes with Column.
type Part struct {
	Text    string  `json:",omitempty"`
	Column  string  `json:",omitempty"`
	Format  Format  `json:",omitempty"`
	Builtin Builtin `json:",omitempty"`
}

// Format renders a column; without one it renders as SELECT shows it, and a
// binary column needs one.
type Format string

const (
	FormatUUID        Format = "uuid"         // 16 bytes as a UUID
	FormatUUIDSwapped Format = "uuid_swapped" // 16 bytes of UUID_TO_BIN(x, 1) as a UUID
	FormatHex         Format = "hex"          // lower case
	FormatBase64      Format = "base64"       // standard alphabet, padded
)

// Builtin is a name of the matched table in a template.
type Builtin string

const (
	BuiltinSchema Builtin = "@schema"
	BuiltinTable  Builtin = "@table"
)

// Empty tells that the template renders nothing.
func (t Template) Empty() bool { return len(t.Parts) == 0 }

// String returns the template as it was written.
func (t Template) String() string { return t.Source }

// Columns lists the columns that the template uses, each once.
func (t Template) Columns() []string {
	var c columnSet
	for _, p := range t.Parts {
		c.add(p.Column)
	}
	return c.names
}

// Lone returns the column and format of a template that is one column and
// nothing else.
func (t Template) Lone() (column string, format Format, ok bool) {
	if len(t.Parts) != 1 || t.Parts[0].Column == "" {
		return "", "", false
	}
	return t.Parts[0].Column, t.Parts[0].Format, true
}

// literal returns the template's text without its columns and names, and
// whether that is all there is.
func (t Template) literal() (text string, whole bool) {
	whole = true
	for _, p := range t.Parts {
		text += p.Text
		whole = whole && p.Text != ""
	}
	return text, whole
}

// TemplateError is a fault in a template.
type TemplateError struct {
	Pos     int // character, from 1
	Message string
	Remedy  string
}

func (e *TemplateError) Error() string {
	return fmt.Sprintf("at character %d: %s; %s", e.Pos, e.Message, e.Remedy)
}

// ParseTemplate reads text with {column}, {column:format}, {@schema} and
// {@table} in it; {{ and }} stand for one brace. A fault is a *TemplateError.
func ParseTemplate(source string) (Template, error) {
	t := Template{Source: source}
	var text strings.Builder
	flush := func() {
		if text.Len() > 0 {
			t.Parts = append(t.Parts, Part{Text: text.String()})
			text.Reset()
		}
	}
	for at := 0; at < len(source); {
		rest := source[at:]
		switch {
		case strings.HasPrefix(rest, "{{"), strings.HasPrefix(rest, "}}"):
			text.WriteByte(rest[0])
			at += 2
		case rest[0] == '}':
			return Template{}, faultAt(source, at, "a closing brace without an opening one", "write }} for a brace")
		case rest[0] == '{':
			name, _, closed := strings.Cut(rest[1:], "}")
			if !closed {
				return Template{}, faultAt(source, at, "an opening brace that nothing closes", "write {column}, or {{ for a brace")
			}
			part, message, remedy := parsePart(name)
			if message != "" {
				return Template{}, faultAt(source, at, message, remedy)
			}
			flush()
			t.Parts = append(t.Parts, part)
			at += len(name) + 2
		default:
			r, size := utf8.DecodeRuneInString(rest)
			if r == utf8.RuneError && size <= 1 {
				return Template{}, faultAt(source, at, "a byte that is not UTF-8", "save the text as UTF-8")
			}
			text.WriteString(rest[:size])
			at += size
		}
	}
	flush()
	return t, nil
}

// ParseColumn reads a template where a name without braces is a column, as the
// keys columns.id and columns.key take it. A fault is a *TemplateError.
func ParseColumn(source string) (Template, error) {
	if message, _ := checkIdentifier(source); message == "" {
		return Template{Source: source, Parts: []Part{{Column: source}}}, nil
	}
	t, err := ParseTemplate(source)
	if err != nil {
		return Template{}, err
	}
	if _, whole := t.literal(); whole {
		return Template{}, faultAt(source, 0, "text without a column", "write the name of a column, or a template as {column} or {column:uuid}")
	}
	return t, nil
}

// parsePart reads what stands between two braces.
func parsePart(inside string) (part Part, message, remedy string) {
	if strings.HasPrefix(inside, "@") {
		b := Builtin(inside)
		if b != BuiltinSchema && b != BuiltinTable {
			return Part{}, fmt.Sprintf("{%s} is not known", inside), "write {@schema} or {@table}"
		}
		return Part{Builtin: b}, "", ""
	}
	column, format, formatted := strings.Cut(inside, ":")
	if message, _ := checkIdentifier(column); message != "" {
		return Part{}, fmt.Sprintf("{%s} does not name a column", inside), "write {column} or {column:format}, or {{ and }} for braces"
	}
	switch f := Format(format); {
	case !formatted:
		return Part{Column: column}, "", ""
	case f == FormatUUID || f == FormatUUIDSwapped || f == FormatHex || f == FormatBase64:
		return Part{Column: column, Format: f}, "", ""
	}
	return Part{}, fmt.Sprintf("%q is not a format", format), "write uuid, uuid_swapped, hex or base64"
}

func faultAt(source string, at int, message, remedy string) error {
	return &TemplateError{Pos: utf8.RuneCountInString(source[:at]) + 1, Message: message, Remedy: remedy}
}
