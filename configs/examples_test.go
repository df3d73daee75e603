package configs

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

func mustLoad(t *testing.T, path string) *Config {
	t.Helper()
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestEveryExampleLoadsWithoutAnEnvironment(t *testing.T) {
	for _, name := range []string{"towpath.example", "towpath.minimal", "bills", "orders", "payments"} {
		t.Run(name, func(t *testing.T) { mustLoad(t, name+".yaml") })
	}
}

func TestTheCompleteExampleNamesEveryKey(t *testing.T) {
	text, err := os.ReadFile("towpath.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var example yaml.Node
	if err := yaml.Unmarshal(text, &example); err != nil {
		t.Fatal(err)
	}
	present := map[string]bool{}
	keysOf(example.Content[0], "", present)
	known := schemaKeys("")
	if len(known) < 100 {
		t.Fatalf("found only %d keys: %v", len(known), known)
	}
	for _, key := range known {
		// Keys that exclude another stand in the comment of the other.
		last := key[strings.LastIndexByte(key, '.')+1:]
		if !present[key] && !strings.Contains(string(text), "or instead, "+last+": ") {
			t.Errorf("the example lacks %s", key)
		}
	}
}

// keysOf collects the paths of all keys, lists without their index.
func keysOf(n *yaml.Node, path string, into map[string]bool) {
	for i, child := range n.Content {
		switch {
		case n.Kind == yaml.SequenceNode:
			keysOf(child, path, into)
		case n.Kind == yaml.MappingNode && i%2 == 1:
			at := join(path, n.Content[i-1].Value)
			into[at] = true
			keysOf(child, at, into)
		}
	}
}

// schemaKeys lists every key below a path. It asks from outside: an unknown key
// is answered with a list of the known ones.
func schemaKeys(path string) []string {
	const unknown = "qqqqqqqqqqqq"
	text := "{" + unknown + ": 1}"
	for _, key := range slices.Backward(strings.Split(path, ".")) {
		switch key {
		case "":
		case "tables":
			text = "{tables: [" + text + "]}"
		default:
			text = "{" + key + ": " + text + "}"
		}
	}
	_, err := parse(text, nil)
	var all []string
	for _, p := range err.(*Error).Problems {
		list, found := strings.CutPrefix(p.Remedy, "remove it, or write one of ")
		if !found || strings.ReplaceAll(p.Path, "[0]", "") != join(path, unknown) {
			continue
		}
		for _, key := range strings.Split(list, ", ") {
			all = append(all, join(path, key))
			all = append(all, schemaKeys(join(path, key))...)
		}
	}
	return all
}

// The example states each default in brackets; they must be those of defaults.go.
func TestTheCompleteExampleStatesTheDefaults(t *testing.T) {
	c := mustLoad(t, "towpath.example.yaml")
	want, table := defaults(), defaultTable()
	c.Source.Address, c.Source.User, c.Source.Password = "", "", Secret{}
	c.Broker.URLs, c.Broker.User, c.Broker.Password = nil, "", Secret{}
	got := c.Tables[0]
	table.settle()
	table.Start, table.OnGap = StartTable, GapSweep
	c.Name, c.Tables = "", nil
	if !reflect.DeepEqual(*c, want) {
		t.Errorf("the example has\n%+v, and the defaults are\n%+v", *c, want)
	}
	for _, part := range [][2]any{
		{got.Publish.Persistent, table.Publish.Persistent}, {got.Publish.Mandatory, table.Publish.Mandatory},
		{got.Ordering, table.Ordering}, {got.Retry, table.Retry}, {got.MaxParked, table.MaxParked},
		{got.Fallback, table.Fallback}, {got.Start, table.Start}, {got.OnGap, table.OnGap},
	} {
		if part[0] != part[1] {
			t.Errorf("the example has %v, and the default is %v", part[0], part[1])
		}
	}
}

// Each value that the example gives and each default that it states in brackets
// are the same, where the default is a value.
func TestTheBracketsOfTheCompleteExampleMatchItsValues(t *testing.T) {
	text, err := os.ReadFile("towpath.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^\s*[a-z_]+: (\S+)\s+# \[([^\] ]+)\]`)
	checked := 0
	for _, m := range line.FindAllStringSubmatch(string(text), -1) {
		if value, stated := m[1], m[2]; stated != "none" {
			checked++
			if value != stated {
				t.Errorf("%s", strings.TrimSpace(m[0]))
			}
		}
	}
	if checked < 20 {
		t.Errorf("checked only %d brackets", checked)
	}
}
