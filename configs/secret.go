package configs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// maxSecretBytes bounds what is read from a secret's file.
const maxSecretBytes = 64 * kib

const redacted = "[redacted]"

// Secret is a password or a token, given as a value or as a file. It shows
// itself as "[redacted]" to every verb of fmt and to every encoder that asks.
type Secret struct {
	// A pointer, because fmt reads a struct in an unexported field by
	// reflection, past the methods below, and prints a pointer as an address.
	value *string
	file  string
}

// IsSet tells whether a value or a file was given.
func (s Secret) IsSet() bool { return s.value != nil || s.file != "" }

// Read returns the secret, without one trailing newline. A file is read afresh,
// so call it at each connect. The zero Secret reads as "".
func (s Secret) Read() (string, error) {
	if s.file == "" {
		if s.value == nil {
			return "", nil
		}
		return *s.value, nil
	}
	f, err := os.Open(s.file)
	if err != nil {
		return "", fmt.Errorf("read secret: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSecretBytes+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read secret: %w", err)
	case len(data) > maxSecretBytes:
		return "", fmt.Errorf("read secret: %s is larger than 64 KiB; name the file that holds the secret alone", s.file)
	}
	text := strings.TrimSuffix(string(data), "\n")
	if text = strings.TrimSuffix(text, "\r"); text == "" {
		return "", fmt.Errorf("read secret %s: %w", s.file, errEmptySecret)
	}
	return text, nil
}

var errEmptySecret = errors.New("the file is empty; write the secret into it")

// String returns a placeholder, or "" for a secret that was not given.
func (s Secret) String() string {
	if !s.IsSet() {
		return ""
	}
	return redacted
}

// Format redacts as String does, for every verb, %#v and %x too.
func (s Secret) Format(f fmt.State, _ rune) { io.WriteString(f, s.String()) }

// MarshalText redacts as String does, for JSON and other encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
