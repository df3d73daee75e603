package configs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

func TestASecretIsNeverPrinted(t *testing.T) {
	const word = "s3cr3t"
	text, err := os.ReadFile("testdata/base.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := parse(strings.Replace(string(text), "amqp://", "amqp://carrier:"+word+"@", 1)+"http: {token: "+word+"}\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.Source.Password.Read(); got != word || err != nil {
		t.Fatalf("read %q, %v", got, err)
	}
	hidden := struct {
		c      *Config
		source Source
		s      Secret
		p      *Secret
		any    any
	}{c, c.Source, c.HTTP.Token, &c.HTTP.Token, c.Broker}
	var shown strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%p", "%T"} {
		for _, value := range []any{*c, c, c.Source, c.Source.Password, &c.Source.Password, c.Broker.URLs, hidden, []Secret{c.HTTP.Token}, map[string]Secret{"a": c.HTTP.Token}} {
			fmt.Fprintf(&shown, verb, value)
		}
	}
	asJSON, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	shown.Write(asJSON)
	var logged bytes.Buffer
	log := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(&logged), zap.DebugLevel))
	log.Info("config", zap.Any("config", c), zap.Any("secret", c.HTTP.Token), zap.Stringer("stringer", c.HTTP.Token), zap.Reflect("hidden", hidden))
	shown.Write(logged.Bytes())
	fmt.Fprint(&shown, c.Hash(), c.HTTP.Token.String(), c.Broker.URLs[0].String())
	for _, leak := range []string{word, fmt.Sprintf("%x", word), fmt.Sprintf("%X", word)} {
		if strings.Contains(shown.String(), leak) {
			t.Errorf("shows %s", leak)
		}
	}
	if !strings.Contains(shown.String(), redacted) {
		t.Error("shows no placeholder")
	}
}

func TestASecretFromAFileIsReadAfreshWithoutItsNewline(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	s := Secret{file: path}
	if got, err := s.Read(); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a missing file reads as %q, %v", got, err)
	}
	for text, want := range map[string]string{"one": "one", "two\n": "two", "three\r\n": "three", "four\n\n": "four\n", " five ": " five ",
		strings.Repeat("6", maxSecretBytes): strings.Repeat("6", maxSecretBytes)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Read(); got != want || err != nil {
			t.Errorf("%q reads as %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "\n", strings.Repeat("s3cr3t", maxSecretBytes)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Read(); got != "" || err == nil || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%.10q reads as %.10q, %v", text, got, err)
		}
	}
}

func TestASecretThatIsNotGivenReadsAsNothing(t *testing.T) {
	var s Secret
	if got, err := s.Read(); got != "" || err != nil || s.IsSet() || s.String() != "" {
		t.Errorf("got %q, %v, %v", got, err, s.IsSet())
	}
}
