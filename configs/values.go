package configs

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// The functions here read or check one value and know nothing of YAML. A check
// returns what is wrong and what to write instead, both empty when all is well;
// neither repeats the value, because it may come from the environment.

type check func(text string) (message, remedy string)

// maxIdentifier is the servers' limit for names of schemas, tables and columns.
const maxIdentifier = 64

func isIdentifierByte(c byte) bool {
	return isAlnum(c) || c == '_' || c == '$' || c == '-'
}

func isAlnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// checkIdentifier is for names of columns and schemas.
func checkIdentifier(s string) (message, remedy string) {
	switch {
	case s == "":
		return "is empty", "write a name"
	case len(s) > maxIdentifier:
		return "is longer than 64 characters", "write the name as the server has it"
	}
	for i := range len(s) {
		if !isIdentifierByte(s[i]) {
			return "is not a plain name", "use letters, digits, _, $ and - alone, without quotes"
		}
	}
	return "", ""
}

// checkLabel is for the names of streams and tables in metrics and logs.
func checkLabel(s string) (message, remedy string) {
	if len(s) > 64 {
		return "is longer than 64 characters", "choose a shorter name"
	}
	for i := range len(s) {
		inner := i > 0 && strings.IndexByte("_.-", s[i]) >= 0
		if !isAlnum(s[i]) && !inner {
			return "is not a plain name", "use letters, digits, _, . and -, beginning with a letter or digit"
		}
	}
	return "", ""
}

func checkHostPort(s string) (message, remedy string) {
	host, port, err := net.SplitHostPort(s)
	if err != nil || host == "" {
		return "is not host:port", "write an address as 127.0.0.1:3306 or [::1]:3306"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "has no valid port", "write a port from 1 to 65535 behind the colon"
	}
	return "", ""
}

// checkListen takes an address without a host, and port 0, too.
func checkListen(s string) (message, remedy string) {
	_, port, err := net.SplitHostPort(s)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return "is not an address to listen on", "write it as 127.0.0.1:8973 or :8973"
	}
	return "", ""
}

func checkAbsolute(s string) (message, remedy string) {
	if !filepath.IsAbs(s) {
		return "is not an absolute path", "begin it with /"
	}
	return "", ""
}

// checkStatus is for values that are compared in SQL: a text that ends in a
// space equals the one without it.
func checkStatus(s string) (message, remedy string) {
	switch {
	case s == "":
		return "is empty", "write the value as SELECT shows it, or leave the key out"
	case len(s) > 255:
		return "is longer than 255 bytes", "write the value as SELECT shows it"
	case strings.TrimSpace(s) != s || strings.ContainsFunc(s, unicode.IsControl):
		return "has spaces around it or control characters in it", "write the value as SELECT shows it"
	}
	return "", ""
}

// loopback tells whether an address to listen on is reached from this machine alone.
func loopback(listen string) bool {
	host, _, _ := net.SplitHostPort(listen)
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}

func parseDuration(s string) (d time.Duration, message, remedy string) {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, "is not a duration", "write a number with its unit, as 200ms, 30s, 5m or 168h"
	}
	return d, "", ""
}

// parseSize reads bytes: a whole number, or one with KiB, MiB or GiB.
func parseSize(s string) (n int64, message, remedy string) {
	digits, unit := s, int64(1)
	for suffix, factor := range map[string]int64{"KiB": kib, "MiB": mib, "GiB": gib} {
		if rest, found := strings.CutSuffix(s, suffix); found {
			digits, unit = strings.TrimSuffix(rest, " "), factor
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit || !isDecimal(digits) {
		return 0, "is not a size", "write bytes as a whole number, or as 512KiB, 8MiB or 1GiB"
	}
	return n * unit, "", ""
}

func formatSize(n int64) string {
	switch {
	case n >= gib && n%gib == 0:
		return fmt.Sprintf("%dGiB", n/gib)
	case n >= mib && n%mib == 0:
		return fmt.Sprintf("%dMiB", n/mib)
	case n >= kib && n%kib == 0:
		return fmt.Sprintf("%dKiB", n/kib)
	}
	return strconv.FormatInt(n, 10)
}

// isDecimal tells that a number is written as SELECT shows it: no 0x10, no
// 1_000, no +1, no 007.
func isDecimal(s string) bool {
	n, err := strconv.ParseInt(s, 10, 64)
	return err == nil && strconv.FormatInt(n, 10) == s
}

func parsePattern(s string) (p Pattern, message, remedy string) {
	const remedyText = "write schema.table, where * stands for any characters, as shop.outbox_event or shop_*.outbox"
	schema, table, _ := strings.Cut(s, ".")
	for _, part := range []string{schema, table} {
		if message, _ := checkIdentifier(strings.ReplaceAll(part, "*", "_")); message != "" {
			return Pattern{}, "is not the name of a table", remedyText
		}
	}
	return Pattern{Schema: schema, Table: table}, "", ""
}

// BrokerURL is the address of one node of the cluster.
type BrokerURL struct {
	TLS      bool   // amqps
	Address  string // host:port
	Vhost    string // decoded; "/" when the URL names none
	User     string // empty: the user and password of Broker apply
	Password Secret
}

// String shows the URL without its login.
func (u BrokerURL) String() string {
	scheme := "amqp"
	if u.TLS {
		scheme = "amqps"
	}
	return scheme + "://" + u.Address + "/" + url.PathEscape(u.Vhost)
}

func parseBrokerURL(s string) (u BrokerURL, message, remedy string) {
	const form = "write it as amqp://host:5672/vhost or amqps://host:5671/vhost"
	parsed, err := url.Parse(s)
	if err != nil || parsed.Opaque != "" || parsed.Hostname() == "" {
		// What url.Parse says would repeat the URL with its password.
		return BrokerURL{}, "is not the URL of a broker", form + "; a % or / in a user, password or vhost is written as %25 or %2F"
	}
	port := "5672"
	switch parsed.Scheme {
	case "amqp":
	case "amqps":
		u.TLS, port = true, "5671"
	default:
		return BrokerURL{}, "is neither amqp nor amqps", form
	}
	if p := parsed.Port(); p != "" {
		port = p
	}
	u.Address = net.JoinHostPort(strings.ToLower(parsed.Hostname()), port)
	if message, _ := checkHostPort(u.Address); message != "" {
		return BrokerURL{}, message, form
	}
	if parsed.RawQuery != "" || parsed.Fragment != "" {
		return BrokerURL{}, "carries options behind ? or #", "remove them; heartbeat, tls and the rest are keys of broker"
	}
	u.Vhost = "/"
	if path := strings.TrimPrefix(parsed.EscapedPath(), "/"); path != "" {
		if strings.Contains(path, "/") {
			return BrokerURL{}, "has a second / in its path", "write a / in the name of a vhost as %2F"
		}
		u.Vhost = strings.TrimPrefix(parsed.Path, "/")
	}
	if parsed.User != nil {
		password, given := parsed.User.Password()
		if u.User = parsed.User.Username(); u.User == "" || !given {
			return BrokerURL{}, "carries half a login", "write user:password@ in it, or neither and use broker.user and broker.password"
		}
		u.Password = Secret{value: &password}
	}
	return u, "", ""
}
