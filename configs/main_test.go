package configs

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// parse loads a text with the environment of pairs.
func parse(text string, env map[string]string) (*Config, error) {
	return Parse("towpath.yaml", []byte(text), func(name string) (string, bool) {
		v, set := env[name]
		return v, set
	})
}
