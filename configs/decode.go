package configs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// maxFileBytes bounds a configuration file.
const maxFileBytes = mib

// Load reads the file at path, with the process's environment. Faults of the
// configuration are one *Error.
func Load(path string) (*Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("load configuration: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("load configuration: %w", err)
	}
	return Parse(path, data, os.LookupEnv)
}

// Parse reads a configuration from YAML. The name stands for the file in
// errors, and lookup gives the environment. Faults are one *Error.
func Parse(name string, data []byte, lookup func(string) (string, bool)) (*Config, error) {
	d := &decoder{lookup: lookup, lines: map[string]int{}, known: map[Problem]bool{}}
	c := defaults()
	if root := d.document(data); root != nil {
		d.config(&c)("", root)
		if resolve(root).Kind == yaml.MappingNode {
			d.validate(&c)
		}
	}
	if len(d.problems) > 0 {
		err := &Error{File: name, Problems: d.problems}
		err.sort()
		return nil, err
	}
	return &c, nil
}

// decoder matches YAML nodes against the keys of the schema. It goes on after a
// problem, so that all are found.
type decoder struct {
	lookup   func(string) (string, bool)
	lines    map[string]int   // of each key that was given a value
	problems []Problem        // in the order they were found
	known    map[Problem]bool // those in problems
	steps    int              // towards maxSteps
}

// setter reads a node into its place; a null never comes to it.
type setter func(path string, n *yaml.Node)

// field is a key of a mapping.
type field struct {
	key string
	set setter
}

// problem reports a fault; the same fault by another alias is reported once.
func (d *decoder) problem(path string, line int, message, remedy string) {
	p := Problem{Path: path, Line: line, Message: message, Remedy: remedy}
	if !d.known[p] {
		d.known[p] = true
		d.problems = append(d.problems, p)
	}
}

// given tells whether the key stands in the file with a value, be it good or bad.
func (d *decoder) given(path string) bool { return d.lines[path] > 0 }

// document parses the YAML and returns its one root, or nil.
func (d *decoder) document(data []byte) *yaml.Node {
	if len(data) > maxFileBytes {
		d.problem("", 1, "is larger than 1 MiB", "name the configuration file")
		return nil
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(data)))
	var doc, second yaml.Node
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return &yaml.Node{Kind: yaml.MappingNode, Line: 1}
	case err != nil:
		d.malformed(data, err)
		return nil
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		d.problem("", max(second.Line, doc.Line), "is followed by a second document", "put one stream in one file, and remove what follows ---")
		return nil
	}
	root := doc.Content[0]
	if isNull(root) {
		return &yaml.Node{Kind: yaml.MappingNode, Line: 1}
	}
	return root
}

var (
	yamlErrorLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)
	unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
	// unquoted is a template that YAML cannot read, as routing_key: {a}.{b}
	unquoted = regexp.MustCompile(`^\s*(?:- )?([A-Za-z_][\w.-]*):\s+\{@?[\w$-]+(?::\w+)?\}[^\s#,}]`)
)

// malformed reports what the YAML parser could not read. Of its messages, only
// that of an unknown anchor repeats text, which may be a password that begins
// with *.
func (d *decoder) malformed(data []byte, err error) {
	for i, line := range strings.Split(string(data), "\n") {
		if m := unquoted.FindStringSubmatch(line); m != nil {
			d.problem(m[1], i+1, "is a template without quotes", `quote it: "{column}.{column}"`)
		}
	}
	if len(d.problems) > 0 {
		return
	}
	line, message := 1, err.Error()
	if m := yamlErrorLine.FindStringSubmatch(message); m != nil {
		message = m[2]
		if n, err := strconv.Atoi(m[1]); err == nil {
			line = n
		}
	}
	if m := unknownAnchor.FindStringSubmatch(message); m != nil {
		before, _, _ := strings.Cut(string(data), "*"+m[1])
		d.problem("", 1+strings.Count(before, "\n"), "has an alias to an anchor that the file does not have", "put a text that begins with * in quotes, or define the anchor before it")
		return
	}
	d.problem("", line, "is not valid YAML: "+message, "look from this line on: indentation by spaces, quotes, brackets")
}

// mapping reads the keys of a mapping, each once and no others.
func (d *decoder) mapping(fields ...field) setter {
	return func(path string, n *yaml.Node) {
		for _, p := range d.pairs(path, n) {
			d.key(path, p, fields)
		}
	}
}

func (d *decoder) key(path string, p pair, fields []field) {
	child := join(path, p.key)
	names := make([]string, len(fields))
	for i, f := range fields {
		if names[i] = f.key; f.key != p.key {
			continue
		}
		if !isNull(p.value) {
			d.lines[child] = p.line
			f.set(child, p.value)
		}
		return
	}
	if path == "" && strings.HasPrefix(p.key, "x-") {
		return // room for anchors
	}
	remedy := "remove it, or write one of " + strings.Join(names, ", ")
	if near := nearest(p.key, names); near != "" {
		remedy = fmt.Sprintf("did you mean %q?", near)
	}
	d.problem(child, p.line, "is not a key", remedy)
}

// each reads a mapping whose keys are the user's own, as the names of headers.
func (d *decoder) each(read func(key, path string, n *yaml.Node)) setter {
	return func(path string, n *yaml.Node) {
		for _, p := range d.pairs(path, n) {
			child := join(path, p.key)
			d.lines[child] = p.line
			if isNull(p.value) {
				d.problem(child, p.line, "has no value", "write one, or remove the key")
				continue
			}
			read(p.key, child, p.value)
		}
	}
}

// list reads a sequence that is not empty, or one element without the brackets.
func (d *decoder) list(read func(path string, n *yaml.Node)) setter {
	return func(path string, n *yaml.Node) {
		seq := resolve(n)
		if seq.Kind != yaml.SequenceNode {
			read(path, n)
			return
		}
		if len(seq.Content) == 0 {
			d.problem(path, n.Line, "is an empty list", "write at least one element, or remove the key")
		}
		for i, element := range seq.Content {
			if !d.step(element.Line) {
				return
			}
			child := fmt.Sprintf("%s[%d]", path, i)
			d.lines[child] = element.Line
			read(child, element)
		}
	}
}
