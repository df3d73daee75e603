package configs

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// scalar is a single value with the environment filled in.
type scalar struct {
	text     string
	tag      string // of YAML, as !!str
	shown    string // for messages: as it stands in the file, before ${NAME}
	line     int
	expanded bool // text came in part from the environment
}

// scalar reads a single value; what it reports never repeats a value that
// came from the environment.
func (d *decoder) scalar(path string, n *yaml.Node) (scalar, bool) {
	n = resolve(n)
	if source, found := braces(n); found {
		d.problem(path, n.Line, "is a YAML mapping, not text", fmt.Sprintf("quote it: %q", source))
		return scalar{}, false
	}
	if n.Kind != yaml.ScalarNode {
		d.problem(path, n.Line, "is "+kindOf(n)+", not a single value", "write one value")
		return scalar{}, false
	}
	s := scalar{text: n.Value, tag: n.ShortTag(), shown: n.Value, line: n.Line}
	if s.tag != "!!str" {
		return s, true
	}
	text, message, remedy := expand(n.Value, d.lookup)
	if message != "" {
		d.problem(path, n.Line, message, remedy)
		return scalar{}, false
	}
	s.text, s.expanded = text, text != n.Value
	return s, true
}

// str reads text. A number or a date that is meant as text must be quoted, so
// that 007 and 1e3 stay what they are.
func (d *decoder) str(path string, n *yaml.Node) (scalar, bool) {
	s, ok := d.scalar(path, n)
	if ok && s.tag != "!!str" {
		d.problem(path, s.line, "is "+kindOf(n)+", not text", "put the value in quotes")
		return scalar{}, false
	}
	return s, ok
}

var variable = regexp.MustCompile(`\$(?:\$|\{([A-Za-z_][A-Za-z0-9_]*)(:-[^}]*)?\}|)`)

// expand fills in ${NAME} and ${NAME:-default}; $$ is $. What is filled in is
// not looked at again.
func expand(s string, lookup func(string) (string, bool)) (text, message, remedy string) {
	text = variable.ReplaceAllStringFunc(s, func(m string) string {
		if m == "$$" {
			return "$"
		}
		parts := variable.FindStringSubmatch(m)
		name, fallback := parts[1], parts[2]
		if name == "" {
			message, remedy = "has a $ that begins no variable", "write ${NAME} or ${NAME:-default}, or $$ for a $"
			return ""
		}
		if value, set := lookup(name); set {
			return value
		}
		if fallback == "" {
			message = "names the environment variable " + name + ", which is not set"
			remedy = "set it, or write ${" + name + ":-default}"
		}
		return strings.TrimPrefix(fallback, ":-")
	})
	return text, message, remedy
}

// wrong reports a value by what stands in the file.
func (d *decoder) wrong(path string, s scalar, message, remedy string) {
	shown := []rune(s.shown)
	if len(shown) > maxShown {
		shown = append(shown[:maxShown:maxShown], '…')
	}
	d.problem(path, s.line, strconv.Quote(string(shown))+" "+message, remedy)
}

// maxShown bounds the characters of a value in a message.
const maxShown = 80

func (d *decoder) text(to *string, checks ...check) setter {
	return func(path string, n *yaml.Node) {
		s, ok := d.str(path, n)
		if !ok {
			return
		}
		if s.text == "" {
			delete(d.lines, path) // an empty text is a key without a value
			return
		}
		for _, c := range checks {
			if message, remedy := c(s.text); message != "" {
				d.wrong(path, s, message, remedy)
				return
			}
		}
		*to = s.text
	}
}

func (d *decoder) bool(to *bool) setter {
	return func(path string, n *yaml.Node) {
		s, ok := d.scalar(path, n)
		if !ok {
			return
		}
		if s.tag != "!!bool" && !s.expanded || s.text != "true" && s.text != "false" {
			d.wrong(path, s, "is neither true nor false", "write true or false, without quotes")
			return
		}
		*to = s.text == "true"
	}
}

// integer reads a whole number from least to most.
func integer[T int | uint32](d *decoder, to *T, least, most T) setter {
	return func(path string, n *yaml.Node) {
		s, ok := d.scalar(path, n)
		if !ok {
			return
		}
		remedy := fmt.Sprintf("write a whole number from %d to %d", least, most)
		v, err := strconv.ParseInt(s.text, 10, 64)
		switch {
		case s.tag != "!!int" && !s.expanded || !isDecimal(s.text):
			if errors.Is(err, strconv.ErrRange) {
				d.wrong(path, s, "is out of range", remedy)
				return
			}
			d.wrong(path, s, "is not a whole number", remedy)
		case v < int64(least) || v > int64(most):
			d.wrong(path, s, "is out of range", remedy)
		default:
			*to = T(v)
		}
	}
}

// float reads a number from least to most.
func (d *decoder) float(to *float64, least, most float64) setter {
	return func(path string, n *yaml.Node) {
		s, ok := d.scalar(path, n)
		if !ok {
			return
		}
		v, err := strconv.ParseFloat(s.text, 64)
		number := s.tag == "!!int" || s.tag == "!!float" || s.expanded
		if !number || err != nil || math.IsNaN(v) || v < least || v > most {
			d.wrong(path, s, "is not a number in range", fmt.Sprintf("write a number from %g to %g", least, most))
			return
		}
		*to = v
	}
}

// duration reads a duration from least to most, in whole units.
func (d *decoder) duration(to *time.Duration, least, most, unit time.Duration) setter {
	return func(path string, n *yaml.Node) {
		s, ok := d.scalar(path, n)
		if !ok {
			return
		}
		v, message, remedy := parseDuration(s.text)
		if message != "" {
			d.wrong(path, s, message, remedy)
			return
		}
		if v < least || v > most {
			d.wrong(path, s, "is out of range", fmt.Sprintf("write a duration from %v to %v", least, most))
			return
		}
		if v%unit != 0 {
			d.wrong(path, s, "is not in whole seconds", "round it; the servers count this one in seconds")
			return
		}
		*to = v
	}
}

// size reads bytes from least to most.
func (d *decoder) size(to *int64, least, most int64) setter {
	return func(path string, n *yaml.Node) {
		s, ok := d.scalar(path, n)
		if !ok {
			return
		}
		v, message, remedy := parseSize(s.text)
		if message == "" && (v < least || v > most) {
			message, remedy = "is out of range", fmt.Sprintf("write a size from %s to %s", formatSize(least), formatSize(most))
		}
		if message != "" {
			d.wrong(path, s, message, remedy)
			return
		}
		*to = v
	}
}

// oneOf reads one of a few words.
func oneOf[T ~string](d *decoder, to *T, words ...T) setter {
	return func(path string, n *yaml.Node) {
		s, ok := d.str(path, n)
		if !ok {
			return
		}
		all := make([]string, len(words))
		for i, w := range words {
			if all[i] = string(w); s.text == all[i] {
				*to = w
				return
			}
		}
		d.wrong(path, s, "is not known here", "write "+strings.Join(all[:len(all)-1], ", ")+" or "+all[len(all)-1])
	}
}

// secret and secretFile read the two ways to give a secret. No message of
// theirs shows a value.
func (d *decoder) secret(to *Secret) setter {
	return func(path string, n *yaml.Node) {
		if n = resolve(n); n.Kind != yaml.ScalarNode {
			d.problem(path, n.Line, "is "+kindOf(n)+", not text", "put the value in quotes")
		} else if s, ok := d.str(path, n); ok && s.text != "" {
			to.value = &s.text
		} else if ok {
			delete(d.lines, path) // an empty secret protects nothing: it is not given
		}
	}
}

func (d *decoder) secretFile(to *Secret) setter { return d.text(&to.file) }

// status reads a status value, where a number is the text that SELECT shows.
func (d *decoder) status(to *StatusValue) setter {
	return func(path string, n *yaml.Node) {
		s, ok := d.sqlValue(path, n)
		if !ok {
			return
		}
		if message, remedy := checkStatus(s.text); message != "" {
			d.wrong(path, s, message, remedy)
			return
		}
		*to = StatusValue(s.text)
	}
}

// sqlValue reads text, or a whole number that is written as SELECT shows it.
func (d *decoder) sqlValue(path string, n *yaml.Node) (scalar, bool) {
	s, ok := d.scalar(path, n)
	if !ok || s.tag == "!!str" || s.tag == "!!int" && isDecimal(s.text) {
		return s, ok
	}
	if s.tag == "!!null" {
		d.problem(path, s.line, "is empty", "write a value")
		return scalar{}, false
	}
	d.problem(path, s.line, "is "+kindOf(n)+", which SQL may show otherwise", "write it in quotes, as SELECT shows it; a boolean is 0 or 1")
	return scalar{}, false
}

// template reads a template by parse, which is ParseTemplate or ParseColumn.
func (d *decoder) template(to *Template, parse func(string) (Template, error)) setter {
	return func(path string, n *yaml.Node) {
		if s, ok := d.str(path, n); ok {
			d.parseTemplate(to, path, s, parse)
		}
	}
}

// numeric reads a template that may also stand as a plain number.
func (d *decoder) numeric(to *Template) setter {
	return func(path string, n *yaml.Node) {
		if s, ok := d.sqlValue(path, n); ok {
			d.parseTemplate(to, path, s, ParseTemplate)
		}
	}
}

func (d *decoder) parseTemplate(to *Template, path string, s scalar, parse func(string) (Template, error)) {
	t, err := parse(s.text)
	var fault *TemplateError
	if errors.As(err, &fault) {
		message := fault.Message
		if s.expanded {
			// The message may quote what the environment held.
			message = "is not a template once the environment is filled in"
		}
		d.wrong(path, s, fmt.Sprintf("at character %d: %s", fault.Pos, message), fault.Remedy)
		return
	}
	*to = t
}
