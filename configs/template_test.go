package configs

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestATemplateIsTextAndColumns(t *testing.T) {
	for source, want := range map[string][]Part{
		"":                                  nil,
		"orders":                            {{Text: "orders"}},
		"{a}":                               {{Column: "a"}},
		"{a:uuid}":                          {{Column: "a", Format: FormatUUID}},
		"{a:uuid_swapped}{b:hex}":           {{Column: "a", Format: FormatUUIDSwapped}, {Column: "b", Format: FormatHex}},
		"x.{a}.y.{b:base64}":                {{Text: "x."}, {Column: "a"}, {Text: ".y."}, {Column: "b", Format: FormatBase64}},
		"{@schema}.{@table}":                {{Builtin: BuiltinSchema}, {Text: "."}, {Builtin: BuiltinTable}},
		"{{}}":                              {{Text: "{}"}},
		"{{{a}}}":                           {{Text: "{"}, {Column: "a"}, {Text: "}"}},
		"{{a}}":                             {{Text: "{a}"}},
		"ä{a-b$c_1}€":                       {{Text: "ä"}, {Column: "a-b$c_1"}, {Text: "€"}},
		"{" + strings.Repeat("a", 64) + "}": {{Column: strings.Repeat("a", 64)}},
	} {
		got, err := ParseTemplate(source)
		if err != nil || !reflect.DeepEqual(got.Parts, want) || got.String() != source {
			t.Errorf("%q: got %+v, %v", source, got, err)
		}
	}
}

func TestABadTemplateIsRefusedAtItsPlace(t *testing.T) {
	for source, pos := range map[string]int{
		"{": 1, "a{": 2, "}": 1, "a}b": 2, "äö}": 3, "{}": 1, "{{{": 3, "}}}": 3, "{a": 1, "{a{b}": 1,
		"{a b}": 1, "{a.b}": 1, "{a:}": 1, "{a:UUID}": 1, "{a:uuid:hex}": 1, "{:uuid}": 1, "{@}": 1, "{@Schema}": 1,
		"{@schema:hex}": 1, "ab\xff": 3, "{a}{\xff}": 4, "{" + strings.Repeat("a", 65) + "}": 1,
	} {
		got, err := ParseTemplate(source)
		var fault *TemplateError
		if !errors.As(err, &fault) || fault.Pos != pos || fault.Message == "" || fault.Remedy == "" {
			t.Errorf("%q: got %+v, %v, want a fault at %d", source, got, err, pos)
		}
	}
}

func TestATemplateErrorSaysPlaceAndRemedy(t *testing.T) {
	_, err := ParseTemplate("ab}")
	if want := "at character 3: a closing brace without an opening one; write }} for a brace"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestANameWithoutBracesIsAColumnForIDAndKey(t *testing.T) {
	for source, want := range map[string][]Part{
		"event_id":   {{Column: "event_id"}},
		"event-id":   {{Column: "event-id"}},
		"{event_id}": {{Column: "event_id"}},
		"x.{a:hex}":  {{Text: "x."}, {Column: "a", Format: FormatHex}},
		"{@table}":   {{Builtin: BuiltinTable}},
	} {
		if got, err := ParseColumn(source); err != nil || !reflect.DeepEqual(got.Parts, want) {
			t.Errorf("%q: got %+v, %v", source, got, err)
		}
	}
	for _, source := range []string{"", "a b", "a.b", "a:uuid", "{{a}}", "{a"} {
		if got, err := ParseColumn(source); err == nil {
			t.Errorf("%q: accepted as %+v", source, got)
		}
	}
}

func TestATemplateKnowsItsColumns(t *testing.T) {
	v := mustTemplate(t, "{a}-{b:hex}-{A}-{@table}-{c}")
	if got := v.Columns(); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("columns %v", got)
	}
	if got := mustTemplate(t, "text").Columns(); len(got) != 0 {
		t.Errorf("columns %v", got)
	}
}

func TestALoneColumnIsToldFromText(t *testing.T) {
	if column, format, ok := mustTemplate(t, "{a:hex}").Lone(); column != "a" || format != FormatHex || !ok {
		t.Errorf("got %q %q %v", column, format, ok)
	}
	for _, source := range []string{"", "a", "{a}{b}", "{a} ", "{@table}"} {
		if column, _, ok := mustTemplate(t, source).Lone(); ok {
			t.Errorf("%q is taken for the column %q", source, column)
		}
	}
}

// write gives a template back as text.
func write(parts []Part) string {
	var b strings.Builder
	for _, p := range parts {
		switch {
		case p.Text != "":
			b.WriteString(strings.NewReplacer("{", "{{", "}", "}}").Replace(p.Text))
		case p.Builtin != "":
			b.WriteString("{" + string(p.Builtin) + "}")
		case p.Format != "":
			b.WriteString("{" + p.Column + ":" + string(p.Format) + "}")
		default:
			b.WriteString("{" + p.Column + "}")
		}
	}
	return b.String()
}

func FuzzParseTemplate(f *testing.F) {
	for _, seed := range []string{"", "orders", "{a}", "x.{a:uuid}.{@table}", "{{{a}}}", "}", "{a:", "ä{\xff", "{{}}{b:base64}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, source string) {
		v, err := ParseTemplate(source)
		if err != nil {
			var fault *TemplateError
			if !errors.As(err, &fault) || fault.Pos < 1 || fault.Pos > len(source) {
				t.Errorf("%q: %v", source, err)
			}
			return
		}
		if got := write(v.Parts); got != source {
			t.Errorf("%q reads as %+v, which is written %q", source, v.Parts, got)
		}
		for i, p := range v.Parts {
			if (p.Text != "") == (p.Column != "" || p.Builtin != "") || i > 0 && p.Text != "" && v.Parts[i-1].Text != "" {
				t.Errorf("%q: part %d of %+v", source, i, v.Parts)
			}
		}
		if column, err := ParseColumn(source); err == nil && len(column.Parts) == 0 {
			t.Errorf("%q is taken for an id", source)
		}
	})
}
