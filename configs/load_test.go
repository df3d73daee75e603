package configs

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func column(name string) Template {
	return Template{Source: name, Parts: []Part{{Column: name}}}
}

func mustTemplate(t *testing.T, source string) Template {
	t.Helper()
	v, err := ParseTemplate(source)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func secretOf(value string) Secret { return Secret{value: &value} }

func TestEveryKeyComesToItsPlace(t *testing.T) {
	text, err := os.ReadFile("testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, err := parse(string(text), map[string]string{"SERVER_ID": "77", "PASSWORD": "{$x}"})
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		Name: "shop-eu",
		Source: Source{
			Socket: "/run/mysqld.sock", User: "towpath$", Password: Secret{file: "secret.txt"}, ServerID: 77,
			TLS:              SourceTLS{Mode: TLSVerify, CA: "ca.pem", Cert: "cert.pem", Key: "key.pem", ServerName: "db"},
			TransactionBytes: 512 << 10, SpoolDir: "/var/spool",
		},
		State: State{Schema: "relay"},
		Broker: Broker{
			URLs: []BrokerURL{
				{TLS: true, Address: "rabbit-1:5671", Vhost: "shop/eu"},
				{TLS: true, Address: "[::1]:5673", Vhost: "shop/eu", User: "carrier", Password: secretOf("p@ss")},
			},
			User: "relay", Password: secretOf("{$x}"), TLS: BrokerTLS{CA: "rabbit.pem", ServerName: "rabbit"},
			Connections: 4, InFlight: 100, InFlightBytes: 1_000_000, MaxMessageSize: 1 << 20,
			Heartbeat: 5 * time.Second, ConfirmTimeout: 90 * time.Second,
		},
		Checkpoint:   Checkpoint{Every: time.Second, Idle: time.Minute},
		Lease:        Lease{TTL: 20 * time.Second, FastTakeover: false, YieldAfter: 2 * time.Minute},
		DrainTimeout: 3 * time.Second,
		HTTP:         HTTP{Listen: ":9000", Token: secretOf("t0ken")},
		Log:          Log{Level: LogWarn, Format: LogConsole},
		Tables: []Table{{
			Tables:  []Pattern{{"shop", "outbox"}, {"shop_*", "outbox"}},
			Name:    "outbox",
			Columns: Columns{ID: mustTemplate(t, "{id:uuid_swapped}"), Key: mustTemplate(t, "{@table}/{customer}"), Body: "payload"},
			Publish: Publish{
				Exchange: mustTemplate(t, "{@schema}"), RoutingKey: mustTemplate(t, "a.{type}"), Type: mustTemplate(t, "{type}"),
				ContentType: mustTemplate(t, "application/json"), CorrelationID: mustTemplate(t, "{trace:hex}"),
				ReplyTo: mustTemplate(t, "replies"), AppID: mustTemplate(t, "shop"), Priority: mustTemplate(t, "5"),
				Expiration: mustTemplate(t, "{ttl}"), HeadersFrom: "meta", Timestamp: "made_at",
				Headers: []Header{{"a", mustTemplate(t, "{{x}}")}, {"z", mustTemplate(t, "{tenant}")}},
			},
			Where: []Filter{
				{Column: "region", In: []Value{{Text: "eu"}, {Null: true}, {Text: "7"}}},
				{Column: "type", Not: []Value{{Text: "Debug"}}},
			},
			Start: StartNow, Ordering: OrderFast, AfterPublish: Mark,
			Status: Status{
				Column: "state", Pending: "0", Sent: "1", Failed: "9", Withdrawn: []StatusValue{"-1", "gone"},
				Processing: "busy", LockedUntil: "lease_until", SentAt: "sent_at", Attempts: "tries",
				NextAttemptAt: "next_at", LastError: "fault",
			},
			DeliverAt: "due",
			Retry:     Retry{Base: time.Second, Factor: 1.5, Max: 2 * time.Minute, Attempts: 3, Jitter: 0},
			MaxParked: 10, Fallback: Fallback{Every: 5 * time.Second, Batch: 10}, OnGap: GapHalt,
			Retention: Retention{SentFor: 24 * time.Hour},
		}, {
			Tables:  []Pattern{{"shop", "log"}},
			Columns: Columns{ID: column("id"), Body: "payload"},
			Publish: Publish{RoutingKey: mustTemplate(t, "log"), Persistent: true, Mandatory: true},
			Start:   StartAll, Ordering: OrderStrict, AfterPublish: Keep,
			Retry:     Retry{Base: 30 * time.Second, Factor: 2, Max: 480 * time.Second, Attempts: 5, Jitter: 0.2},
			MaxParked: 100_000, Fallback: Fallback{Every: 30 * time.Second, Batch: 500}, OnGap: GapHalt,
		}},
	}
	if !reflect.DeepEqual(got, want) {
		g, _ := json.MarshalIndent(got, "", " ")
		w, _ := json.MarshalIndent(want, "", " ")
		t.Errorf("got\n%s\nwant\n%s", g, w)
	}
}

func TestStartAndOnGapFollowFromAfterPublish(t *testing.T) {
	for after, want := range map[AfterPublish]Table{
		Mark:   {Start: StartTable, OnGap: GapSweep},
		Delete: {Start: StartTable, OnGap: GapSweep},
		Keep:   {Start: "", OnGap: GapHalt},
	} {
		got := Table{AfterPublish: after}
		if got.settle(); got.Start != want.Start || got.OnGap != want.OnGap {
			t.Errorf("%s: start %q on_gap %q, want %q and %q", after, got.Start, got.OnGap, want.Start, want.OnGap)
		}
	}
}

func TestAMissingFileIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.yaml")
	if _, err := Load(path); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
}

func TestAnErrorHoldsItsProblemsSortedByLine(t *testing.T) {
	_, err := parse("tables: {}\nname: 1\nlog: {level: x}\n", nil)
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v", err)
	}
	for i, p := range e.Problems {
		if i > 0 && p.Line < e.Problems[i-1].Line || p.Message == "" || p.Remedy == "" {
			t.Errorf("problem %d: %+v", i, p)
		}
	}
	if e.File != "towpath.yaml" || len(e.Problems) < 5 {
		t.Errorf("%+v", e)
	}
}

func TestAFileThatIsTooLargeIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "large.yaml")
	if err := os.WriteFile(path, []byte(strings.Repeat("#\n", maxFileBytes/2)+"#"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "larger than 1 MiB") {
		t.Errorf("got %v", err)
	}
}

func TestAliasesThatMultiplyAreBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString("x-0: &x0 {a: 1}\n")
	for _, c := range "123456789" {
		prev := string(c - 1)
		b.WriteString("x-" + string(c) + ": &x" + string(c) + " {<<: [" + strings.Repeat("*x"+prev+", ", 30) + "]}\n")
	}
	b.WriteString("http: *x9\n")
	_, err := parse(b.String(), nil)
	if err == nil || !strings.Contains(err.Error(), "has more than 10000 keys, aliases counted") {
		t.Errorf("got %v", err)
	}
	empty := "x: &e {}\nhttp: {<<: [" + strings.Repeat("*e, ", 20_000) + "]}\n"
	if _, err := parse(strings.Replace(empty, "x:", "x-e:", 1), nil); err == nil || !strings.Contains(err.Error(), "10000 keys") {
		t.Errorf("got %.200v", err)
	}
}

func TestMergedKeysGiveWayToOwnKeysAndToEarlierMerges(t *testing.T) {
	base, err := os.ReadFile("testdata/base.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := parse(`
x-a: &a {ttl: 11s, yield_after: 61s}
x-b: &b {ttl: 12s, yield_after: 62s, fast_takeover: false}
lease: {<<: [*a, *b], ttl: 10s}
`+string(base), nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Lease{TTL: 10 * time.Second, YieldAfter: 61 * time.Second}); c.Lease != want {
		t.Errorf("got %+v, want %+v", c.Lease, want)
	}
}

func TestExpansionFillsInTheEnvironment(t *testing.T) {
	env := map[string]string{"A": "1", "EMPTY": "", "NESTED": "${A}"}
	lookup := func(name string) (string, bool) { v, set := env[name]; return v, set }
	for in, want := range map[string]string{
		"":                "",
		"plain {a}":       "plain {a}",
		"${A}":            "1",
		"x${A}y${A}":      "x1y1",
		"$$":              "$",
		"$${A}":           "${A}",
		"$$$$":            "$$",
		"${B:-two}":       "two",
		"${B:-}":          "",
		"${B:-a:-b}":      "a:-b",
		"${EMPTY:-three}": "",
		"${NESTED}":       "${A}",
	} {
		if got, message, _ := expand(in, lookup); got != want || message != "" {
			t.Errorf("%q: got %q %q, want %q", in, got, message, want)
		}
	}
	for _, in := range []string{"${B}", "$A", "${A", "${}", "${1A}", "${A-x}", "a$", "$$$"} {
		if got, message, remedy := expand(in, lookup); message == "" || remedy == "" {
			t.Errorf("%q: accepted as %q", in, got)
		}
	}
}

func TestSizesAreReadAndShownAlike(t *testing.T) {
	for in, want := range map[string]int64{"0": 0, "17": 17, "1KiB": 1024, "8MiB": 8 << 20, "8 MiB": 8 << 20, "1GiB": 1 << 30, "8191GiB": 8191 << 30} {
		got, message, _ := parseSize(in)
		if message != "" || got != want {
			t.Errorf("%q: got %d %q", in, got, message)
		}
		if again, _, _ := parseSize(formatSize(got)); again != got {
			t.Errorf("%d is shown as %s", got, formatSize(got))
		}
	}
	for _, in := range []string{"", "KiB", "1kib", "1KB", "1.5MiB", "0x10", "1_000", "+1", "-1", "1MiBKiB", "9007199254740992MiB"} {
		if got, message, _ := parseSize(in); message == "" {
			t.Errorf("%q: accepted as %d", in, got)
		}
	}
}

func TestTheHashCountsTheEffectAndNoSecret(t *testing.T) {
	base, err := os.ReadFile("testdata/base.yaml")
	if err != nil {
		t.Fatal(err)
	}
	hash := func(text string) string {
		t.Helper()
		c, err := parse(text, map[string]string{"P": "other"})
		if err != nil {
			t.Fatal(err)
		}
		return c.Hash()
	}
	text := string(base)
	want := hash(text)
	if len(want) != 16 {
		t.Errorf("hash %q", want)
	}
	swap := func(old, with string) string {
		t.Helper()
		if !strings.Contains(text, old) {
			t.Fatalf("the base has no %q", old)
		}
		return strings.ReplaceAll(text, old, with)
	}
	for what, same := range map[string]string{
		"a comment":             "# hello\n" + text,
		"another secret":        swap("s3cr3t", "${P}"),
		"a default written out": text + "lease: {ttl: 10s}\nx-more: {}\n",
		"braces around an id":   swap("id: event_id", `id: "{event_id}"`),
		"another size spelling": swap("  user: towpath", "  user: towpath\n  transaction_bytes: 8388608"),
	} {
		if hash(same) != want {
			t.Errorf("%s changes the hash", what)
		}
	}
	for what, other := range map[string]string{
		"a duration":         text + "lease: {ttl: 11s}\n",
		"a template":         swap(`"{event_type}"`, `"x{event_type}"`),
		"a status value":     swap("SENT", "DONE"),
		"a file as a secret": strings.Replace(text, "password: s3cr3t", "password_file: /run/x", 1),
		"a url":              swap("5672", "5673"),
		"a filter":           text + "    where: {a: {in: [null]}}\n",
	} {
		// A secret from a file is as set as one from a value.
		if same := hash(other) == want; same != (what == "a file as a secret") {
			t.Errorf("%s: same hash %v", what, same)
		}
	}
}

func TestLoopbackNeedsNoToken(t *testing.T) {
	for _, listen := range []string{"localhost:8973", "[::1]:0", "127.0.0.2:8973"} {
		c, err := parse(string(readFile(t, "testdata/base.yaml"))+"http: {listen: \""+listen+"\"}\n", nil)
		if err != nil || c.HTTP.Listen != listen {
			t.Errorf("%s: %v", listen, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"testdata/full.yaml", "testdata/base.yaml", "towpath.example.yaml", "orders.yaml"} {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("x-a: &a {<<: [*a, *a]}\nhttp: {<<: *a}\ntables: &t [*t]\n"))
	f.Add([]byte("tables: [{table: [[a]], where: {a: {in: {b}}}, publish: {headers: {? [a] : b}}}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse("f", text, func(name string) (string, bool) { return "v4lue", len(name)%2 == 0 })
		if err == nil {
			for i := range c.Tables {
				c.Tables[i].Reads()
			}
			if c.Hash() == "" || len(c.Tables) == 0 {
				t.Errorf("accepted without a table: %+v", c)
			}
			return
		}
		var e *Error
		if !errors.As(err, &e) || len(e.Problems) == 0 {
			t.Fatalf("not an *Error with problems: %v", err)
		}
		for _, p := range e.Problems {
			if p.Line < 1 || p.Line > 2+strings.Count(string(text), "\n")+strings.Count(string(text), "\r") || p.Message == "" || p.Remedy == "" {
				t.Errorf("%+v", p)
			}
		}
	})
}

func TestABrokerHasExactlyOneLogin(t *testing.T) {
	const certificate, bare, login = "tls: {cert: c, key: k}", `urls: ["amqps://b/v"]`, `urls: ["amqps://u:p@b/v"]`
	base := string(readFile(t, "testdata/base.yaml"))
	_, tables, _ := strings.Cut(base, "tables:")
	for broker, good := range map[string]bool{
		bare + ", user: u, password: p":                     true,
		bare + ", user: u, password_file: p":                true,
		bare + ", user: u":                                  false,
		bare + ", password: p":                              false,
		login:                                               true,
		bare + ", " + certificate:                           true,
		bare + ", " + certificate + ", user: u":             false,
		bare + ", " + certificate + ", password: p":         false,
		bare + ", " + certificate + ", password_file: p":    false,
		login + ", " + certificate:                          false,
		`urls: ["amqps://u:p@b/v", "amqps://c/v"]`:          false,
		`urls: ["amqps://u:p@b/v", "amqps://u:p@c/v"]`:      true,
		`urls: ["amqps://c/v"], tls: {ca: ca}, user: u`:     false,
		`urls: ["amqps://u:p@c/v"], tls: {server_name: ca}`: true,
	} {
		text := "name: x\nsource: {socket: /s, user: u}\nbroker: {" + broker + "}\ntables:" + tables
		if _, err := parse(text, nil); (err == nil) != good {
			t.Errorf("%s: %v", broker, err)
		}
	}
}

func TestALimitThatIsJustMetIsAccepted(t *testing.T) {
	base := string(readFile(t, "testdata/base.yaml"))
	for old, with := range map[string]string{
		"name: shop":           "name: shop\ncheckpoint: {every: 5s, idle: 5s}\nlease: {ttl: 20s, yield_after: 20s}",
		"  user: relay":        "  user: relay\n  heartbeat: 10s",
		"exchange: orders":     "exchange: " + strings.Repeat("e", maxExchange),
		`"{event_type}"`:       `"{event_type}` + strings.Repeat("r", maxShortString) + `"`,
		"after_publish: mark":  "after_publish: mark\n    retry: {base: 5m, max: 5m, attempts: 1, factor: 1, jitter: 1}",
		"  - table":            "  - max_parked: 1\n    table",
		"      exchange: orde": "      headers: {" + strings.Repeat("h", maxShortString) + ": x}\n      priority: 255\n      expiration: 4294967295\n      exchange: orde",
	} {
		if !strings.Contains(base, old) {
			t.Fatalf("the base has no %q", old)
		}
		if _, err := parse(strings.Replace(base, old, with, 1), nil); err != nil {
			t.Errorf("%.60s: %v", with, err)
		}
	}
}
