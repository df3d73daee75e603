package configs

import (
	"os"
	"testing"

	"github.com/towpath/towpath/deploy/lab/labtest"
)

func TestMain(m *testing.M) { labtest.Main(m) }

// parse loads a text with the environment of pairs.
func parse(text string, env map[string]string) (*Config, error) {
	return Parse("towpath.yaml", []byte(text), func(name string) (string, bool) {
		v, set := env[name]
		return v, set
	})
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
