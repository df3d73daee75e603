package configs

import (
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// maxSteps bounds the keys and mappings that aliases and merge keys can
// multiply a file into, and maxMerges how deep merge keys may lead.
const (
	maxSteps  = 10_000
	maxMerges = 16
)

// pair is one key of a mapping with its value, after merging.
type pair struct {
	key   string
	line  int
	value *yaml.Node
}

// resolve follows an alias to what it stands for.
func resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool {
	n = resolve(n)
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

// kindOf names a node for a person.
func kindOf(n *yaml.Node) string {
	switch n = resolve(n); n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!str":
		return "text"
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "true or false"
	case "!!null":
		return "empty"
	case "!!timestamp":
		return "a date"
	}
	return "of a tag of its own" // which one may be a password that begins with !
}

// braces returns the source of a template that YAML took for a mapping because
// nobody quoted it, as {tenant_id} or {event_id: uuid}.
func braces(n *yaml.Node) (source string, found bool) {
	n = resolve(n)
	if n.Kind != yaml.MappingNode || n.Style&yaml.FlowStyle == 0 || len(n.Content) != 2 {
		return "", false
	}
	key, value := n.Content[0], n.Content[1]
	if key.Kind != yaml.ScalarNode || value.Kind != yaml.ScalarNode {
		return "", false
	}
	source = "{" + key.Value + "}"
	if value.Value != "" {
		source = "{" + key.Value + ":" + value.Value + "}"
	}
	_, err := ParseTemplate(source)
	return source, err == nil
}

// pairs lists the keys of a mapping: its own first, then those it merges in and
// does not have. It reports a node that is no mapping, and keys given twice.
func (d *decoder) pairs(path string, n *yaml.Node) []pair {
	return d.mergedPairs(path, n, nil)
}

// mergedPairs is pairs inside the mappings of within, which hold this one by
// their merge keys.
func (d *decoder) mergedPairs(path string, n *yaml.Node, within []*yaml.Node) []pair {
	n = resolve(n)
	switch {
	case n.Kind != yaml.MappingNode:
		d.problem(path, n.Line, "is "+kindOf(n)+", not a mapping", "write its keys below it, indented, one a line")
		return nil
	case slices.Contains(within, n) || len(within) > maxMerges:
		d.problem(path, n.Line, "merges itself, or mappings too deep", "remove a merge key <<")
		return nil
	case !d.step(n.Line):
		return nil
	}
	var own, merged []pair
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := resolve(n.Content[i]), n.Content[i+1]
		line := n.Content[i].Line
		if !d.step(line) {
			return nil
		}
		if key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" && key.ShortTag() != "!!merge" {
			d.problem(path, line, "has a key that is "+kindOf(key)+", not text", "write the key in quotes")
			continue
		}
		if first, twice := seen[key.Value]; twice {
			d.problem(join(path, key.Value), line, fmt.Sprintf("is given twice, first in line %d", first), "keep one")
			continue
		}
		seen[key.Value] = line
		if key.ShortTag() == "!!merge" {
			merged = d.mergeSources(path, value, append(slices.Clone(within), n))
		} else {
			own = append(own, pair{key.Value, line, value})
		}
	}
	for _, m := range merged {
		if _, has := seen[m.key]; !has {
			own = append(own, m)
			seen[m.key] = m.line
		}
	}
	return own
}

// mergeSources lists the keys behind <<, which is a mapping or a list of them,
// the earlier ones first.
func (d *decoder) mergeSources(path string, n *yaml.Node, within []*yaml.Node) []pair {
	sources := []*yaml.Node{n}
	if list := resolve(n); list.Kind == yaml.SequenceNode {
		sources = list.Content
	}
	var all []pair
	for _, source := range sources {
		all = append(all, d.mergedPairs(join(path, "<<"), source, within)...)
	}
	return all
}

// step counts towards maxSteps, and is false once they are used up; reported once.
func (d *decoder) step(line int) bool {
	d.steps++
	if d.steps == maxSteps+1 {
		d.problem("", line, fmt.Sprintf("has more than %d keys, aliases counted", maxSteps), "use fewer keys, aliases and merge keys")
	}
	return d.steps <= maxSteps
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// nearest returns the known key that was probably meant, or "".
func nearest(key string, known []string) string {
	best, least := "", 3
	for _, k := range known {
		d := distance(strings.ToLower(key), k)
		if strings.ReplaceAll(strings.ToLower(key), "-", "_") == k {
			d = 0
		}
		if d < least && d < len(k) {
			best, least = k, d
		}
	}
	return best
}

// distance counts the insertions, deletions and replacements between two words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
