package lab

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"
)

// address is where a running server is, and who may use it.
type address struct{ user, password, host string }

// parseAddress reads user:password@host:port.
func parseAddress(s string) (address, error) {
	at := strings.LastIndex(s, "@")
	if at < 0 {
		return address{}, errors.New("the value is neither a path nor user:password@host:port")
	}
	user, password, _ := strings.Cut(s[:at], ":")
	if _, _, err := net.SplitHostPort(s[at+1:]); err != nil {
		return address{}, fmt.Errorf("the part after @ is not host:port: %w", err)
	}
	return address{user, password, s[at+1:]}, nil
}

// unique returns a name that starts with prefix and was not used before.
func unique(prefix string) string {
	return prefix + "_" + strings.ToLower(rand.Text()[:12])
}
