package configs

import (
	"fmt"
	"slices"
	"strings"
)

// validate checks what no value shows alone: required keys and the rules
// between keys. A rule is not applied to a value that was refused already.
func (d *decoder) validate(c *Config) {
	d.require("name", "write a name for the stream, as shop")
	d.sourceRules(&c.Source)
	d.brokerRules(&c.Broker)
	d.timingRules(c)
	d.httpRules(&c.HTTP)
	d.require("tables", "list at least one table: - table: shop.outbox_event")
	if d.given("tables") && len(c.Tables) == 0 && d.fine("tables") {
		d.fault("tables", "is an empty list", "list at least one table: - table: shop.outbox_event")
	}
	for i := range c.Tables {
		d.tableRules(fmt.Sprintf("tables[%d]", i), &c.Tables[i], c.State.Schema)
	}
	d.distinctTables(c.Tables)
	d.archives(c.Tables)
}

// fault reports a broken rule at the line of the key, or of the nearest key
// around it that is there.
func (d *decoder) fault(path, message, remedy string) {
	line, at := d.lines[path], path
	for line == 0 && at != "" {
		at = parentOf(at)
		line = d.lines[at]
	}
	d.problem(path, max(line, 1), message, remedy)
}

// require reports a key that is missing or has no value, unless the mapping
// that should hold it was refused.
func (d *decoder) require(path, remedy string) {
	if d.given(path) {
		return
	}
	for parent := parentOf(path); parent != ""; parent = parentOf(parent) {
		if !d.fine(parent) {
			return
		}
	}
	d.fault(path, "is required", remedy)
}

// parentOf returns the path of the mapping or list around a key, or "".
func parentOf(path string) string {
	return path[:max(strings.LastIndexAny(path, ".["), 0)]
}

// fine tells that none of the keys has a problem so far.
func (d *decoder) fine(paths ...string) bool {
	return !slices.ContainsFunc(d.problems, func(p Problem) bool {
		return p.Path != "" && slices.Contains(paths, p.Path)
	})
}

// oneSecret refuses a secret that is given as a value and as a file.
func (d *decoder) oneSecret(parent, key string) {
	value, file := join(parent, key), join(parent, key+"_file")
	if d.given(value) && d.given(file) {
		d.fault(file, fmt.Sprintf("is given beside %s", key), "keep one of the two")
	}
}

// certAndKey refuses one without the other.
func (d *decoder) certAndKey(tls, cert, key string) {
	switch {
	case cert != "" && key == "":
		d.fault(tls+".cert", "is given without key", "name the file of its private key in key, or remove cert")
	case cert == "" && key != "":
		d.fault(tls+".key", "is given without cert", "name the file of its certificate in cert, or remove key")
	}
}

func (d *decoder) sourceRules(s *Source) {
	switch address, socket := d.given("source.address"), d.given("source.socket"); {
	case address && socket:
		d.fault("source.socket", "is given beside address", "keep one of the two")
	case !address && !socket:
		d.require("source.address", "write host:port of the primary that holds the tables, or socket: /path")
	}
	d.require("source.user", "write the relay's user on the source")
	d.oneSecret("source", "password")
	d.certAndKey("source.tls", s.TLS.Cert, s.TLS.Key)
	if !d.fine("source.tls.mode") {
		return
	}
	for _, f := range []struct{ key, value string }{{"ca", s.TLS.CA}, {"server_name", s.TLS.ServerName}} {
		if f.value != "" && s.TLS.Mode != TLSVerify {
			d.fault("source.tls."+f.key, fmt.Sprintf("is not used with mode %s, which checks no certificate", s.TLS.Mode), "write mode: verify, or remove it")
		}
	}
	if s.TLS.Cert != "" && s.TLS.Mode == TLSDisabled {
		d.fault("source.tls.cert", "is not used with mode disabled", "write mode: verify or required, or remove it")
	}
}

func (d *decoder) brokerRules(b *Broker) {
	d.require("broker.urls", "write the broker's address: [amqp://127.0.0.1:5672/vhost]")
	d.oneSecret("broker", "password")
	d.certAndKey("broker.tls", b.TLS.Cert, b.TLS.Key)
	d.brokerLogin(b)
	seen := map[string]bool{}
	for i, u := range b.URLs {
		path := fmt.Sprintf("broker.urls[%d]", i)
		switch {
		case seen[u.String()]:
			d.fault(path, "is given twice", "write each node once")
		case u.Vhost != b.URLs[0].Vhost:
			d.fault(path, "names another vhost than the first", "write the nodes of one cluster, all with one vhost")
		case !u.TLS && b.TLS != BrokerTLS{}:
			d.fault(path, "is amqp, where broker.tls is not used", "write amqps://, or remove broker.tls")
		}
		seen[u.String()] = true
	}
}

// brokerLogin wants exactly one login for each URL.
func (d *decoder) brokerLogin(b *Broker) {
	given := d.given("broker.password") || d.given("broker.password_file")
	if b.TLS.External() {
		loggedIn := slices.ContainsFunc(b.URLs, func(u BrokerURL) bool { return u.User != "" })
		if d.given("broker.user") || given || loggedIn {
			d.fault("broker.tls.cert", "is the login (EXTERNAL), and a user or password is given as well", "keep one of the two")
		}
		return
	}
	bare := slices.ContainsFunc(b.URLs, func(u BrokerURL) bool { return u.User == "" })
	if !bare {
		return
	}
	d.require("broker.user", "write the relay's user on the broker, or a login in each url")
	if !given {
		d.require("broker.password", "write password: ${NAME} or password_file: /path, or a login in each url")
	}
}

// timingRules holds the rules between durations.
func (d *decoder) timingRules(c *Config) {
	if c.Checkpoint.Idle < c.Checkpoint.Every && d.fine("checkpoint.idle", "checkpoint.every") {
		d.fault("checkpoint.idle", fmt.Sprintf("is shorter than checkpoint.every, %v", c.Checkpoint.Every), "write idle at least as long as every")
	}
	// A standby waits up to three heartbeats for a dead leader's connections to
	// be closed; that wait is to stay in proportion to the lease.
	if c.Broker.Heartbeat > c.Lease.TTL && d.fine("broker.heartbeat", "lease.ttl") {
		path := "broker.heartbeat"
		if !d.given(path) {
			path = "lease.ttl"
		}
		d.fault(path, fmt.Sprintf("makes broker.heartbeat, %v, longer than lease.ttl, %v", c.Broker.Heartbeat, c.Lease.TTL), "write a heartbeat of at most the ttl")
	}
	if c.Lease.YieldAfter < c.Lease.TTL && d.fine("lease.yield_after", "lease.ttl") {
		path := "lease.yield_after"
		if !d.given(path) {
			path = "lease.ttl"
		}
		d.fault(path, fmt.Sprintf("makes lease.yield_after, %v, shorter than lease.ttl, %v", c.Lease.YieldAfter, c.Lease.TTL), "write yield_after at least as long as ttl")
	}
}

func (d *decoder) httpRules(h *HTTP) {
	d.oneSecret("http", "token")
	if !loopback(h.Listen) && !h.Token.IsSet() && d.fine("http.listen", "http.token", "http.token_file") {
		d.fault("http.listen", "is reached from other machines, and no token is set", "write token_file: /path, or listen on 127.0.0.1:8973")
	}
}

// distinctTables wants each table to fall under one entry, each entry to have a
// label of its own, and no pattern to repeat another.
func (d *decoder) distinctTables(tables []Table) {
	type place struct {
		path    string
		pattern Pattern
	}
	var seen []place
	labels := map[string]int{}
	for i, t := range tables {
		path := fmt.Sprintf("tables[%d]", i)
		for _, p := range t.Tables {
			for _, other := range seen {
				if p.overlaps(other.pattern) {
					d.fault(path+".table", fmt.Sprintf("%s can match a table that %s of %s matches", p, other.pattern, other.path), "let each table match one pattern")
				}
			}
			seen = append(seen, place{path, p})
		}
		if first, twice := labels[t.Name]; twice && t.Name != "" {
			d.fault(path+".name", fmt.Sprintf("is the name of tables[%d] too", first), "give each entry a name of its own")
		}
		labels[t.Name] = i
	}
}

// archives refuses a history table whose new rows would be sent.
func (d *decoder) archives(tables []Table) {
	for i, t := range tables {
		to := t.Retention.ArchiveTo
		for j := range tables {
			if to != (Pattern{}) && tables[j].Matches(to.Schema, to.Table) {
				d.fault(fmt.Sprintf("tables[%d].retention.archive_to", i), fmt.Sprintf("is a table that tables[%d] relays", j), "write a table that no entry matches")
			}
		}
	}
}
