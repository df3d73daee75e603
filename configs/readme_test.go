package configs

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The README's tables name every key, no other, and the defaults as the
// complete example states them.
func TestTheReadmeListsEveryKeyWithItsDefault(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## Configuration\n")
	if !found {
		t.Fatal("the README has no section Configuration")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	global, tables, found := strings.Cut(section, "Each entry of `tables`:")
	if !found {
		t.Fatal("the README has no list of the keys of tables")
	}
	listed := map[string]string{}
	for prefix, part := range map[string]string{"": global, "tables.": tables} {
		for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\| ([^|]*) \\|").FindAllStringSubmatch(part, -1) {
			listed[prefix+m[1]] = strings.Trim(m[2], "`")
		}
	}
	known := schemaKeys("")
	for _, key := range known {
		if isSection(key, known) {
			continue
		}
		if _, ok := listed[key]; !ok {
			t.Errorf("the README does not list %s", key)
		}
		delete(listed, key)
	}
	for key := range listed {
		t.Errorf("the README lists %s, which is no key", key)
	}
}

func isSection(key string, known []string) bool {
	for _, k := range known {
		if strings.HasPrefix(k, key+".") {
			return true
		}
	}
	return false
}

func TestTheReadmeStatesTheDefaultsOfTheExample(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("towpath.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, m := range regexp.MustCompile(`(?m)^ *([a-z_]+): \S+ +# \[([0-9][^\] ]*|true|false)\]`).FindAllStringSubmatch(string(example), -1) {
		key, value := m[1], m[2]
		row := regexp.MustCompile("(?m)^\\| `([a-z_]+\\.)*" + key + "` \\| `" + regexp.QuoteMeta(value) + "` \\|")
		checked++
		if !row.Match(readme) {
			t.Errorf("the README does not give %s the default %s", key, value)
		}
	}
	if checked < 20 {
		t.Errorf("checked only %d defaults", checked)
	}
}

// What the README tells a newcomer to write is a configuration that loads.
func TestTheReadmesConfigurationLoads(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1)
	if len(blocks) == 0 {
		t.Fatal("the README has no configuration")
	}
	for _, b := range blocks {
		if _, err := parse(string(b[1]), map[string]string{"TOWPATH_MYSQL_PASSWORD": "a", "TOWPATH_AMQP_PASSWORD": "b"}); err != nil {
			t.Errorf("%v in\n%s", err, b[1])
		}
	}
}
