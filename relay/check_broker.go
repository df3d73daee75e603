package relay

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/configs"
	"github.com/towpath/towpath/relay/rabbit"
)

// route is where a row of the source would go; keyed is false where the exchange
// alone is known.
type route struct {
	exchange, key, table string
	keyed                bool
}

const (
	recentRows = 100 // of each table, the newest
	maxRoutes  = 200 // asked for in all
)

// recentRoutes maps the newest rows of a table, as they are, and says where
// they would go. Of an empty table only what has no column in it is known.
func recentRoutes(ctx context.Context, fs *findings, t *table, shape *canal.Shape, db *sql.DB) []route {
	name := t.name.String()
	m, err := compileMapping(t.config, shape.Describe(), t.number)
	if err != nil {
		return nil // said already
	}
	tail := fmt.Sprintf("LIMIT %d", recentRows)
	if len(m.rowKey) > 0 {
		tail = "ORDER BY " + m.keyOrder(" DESC") + " " + tail
	}
	rows, err := canal.SelectRows(ctx, db, shape, interest(t.config), tail)
	if err != nil {
		fs.fail(name, "", "its newest rows cannot be read: %v", err)
		return nil
	}
	var routes []route
	faults := map[string]int{}
	for i := range rows {
		var e entry
		if m.entry(&rows[i], &e); e.fault != nil {
			faults[e.fault.reason]++
		} else if m.passes(&rows[i]) {
			routes = append(routes, route{e.message.Exchange, e.message.RoutingKey, name, true})
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(faults)) {
		fs.warn(name, "mend the rows or the configuration", "%d of its %d newest rows could not be sent: %s", faults[reason], len(rows), reason)
	}
	if p := t.config.Publish; len(rows) == 0 && len(p.Exchange.Columns()) == 0 {
		r := route{p.Exchange.String(), p.RoutingKey.String(), name, len(p.RoutingKey.Columns()) == 0}
		if r.keyed || r.exchange != "" { // the default exchange is always there
			routes = append(routes, r)
		}
	}
	return distinct(routes)
}

func distinct(routes []route) []route {
	slices.SortFunc(routes, func(a, b route) int {
		return cmp.Or(cmp.Compare(a.exchange, b.exchange), cmp.Compare(a.key, b.key), cmp.Compare(a.table, b.table))
	})
	return slices.Compact(routes)
}

// checkBroker connects to every URL, compares them, and asks the first that
// answers for permissions and destinations.
func checkBroker(ctx context.Context, fs *findings, c *configs.Config, routes []route) {
	all := Broker(c, "towpath/"+c.Name+"/check")
	var first *rabbit.Probe
	name := "towpath.check." + rand.Text()[:16] // nobody's fence, under the same permission
	for i, u := range c.Broker.URLs {
		one := all
		one.URLs = all.URLs[i : i+1]
		probe, err := one.Probe(ctx)
		if err != nil {
			fs.fail(u.String(), "start the node, or correct broker.urls, user, password and tls", "%v", err)
			continue
		}
		defer probe.Close()
		fs.ok(u.String(), "RabbitMQ %s, cluster %s", probe.Peer().Version, probe.Peer().Cluster)
		if first == nil {
			first = probe
			checkPermissions(fs, probe, name)
			continue
		}
		same, err := first.SameCluster(probe, name)
		switch {
		case err != nil:
			fs.warn("broker.urls", "", "whether all of them are one cluster could not be seen: %v", err)
		case !same:
			fs.fail("broker.urls", "write the nodes of one cluster alone",
				"%s is not in the cluster of %s: a relay on each would publish at the same time, and messages go to either", u, first.Peer().Address)
		}
	}
	if first != nil {
		checkRoutes(fs, first, distinct(routes))
	}
}

func checkPermissions(fs *findings, p *rabbit.Probe, name string) {
	if err := p.MayFence(name); err != nil {
		fs.fail("fence", `rabbitmqctl set_permissions -p VHOST USER '^towpath\..*' WRITE '^towpath\..*'`,
			"%v: a lane holds such a queue, so that two relays never publish at once", err)
		return
	}
	fs.ok("fence", "a lane may hold its exclusive queue")
}

// checkRoutes asks for each destination, and for the queues that can be named.
func checkRoutes(fs *findings, p *rabbit.Probe, routes []route) {
	left := max(0, len(routes)-maxRoutes)
	exchanges := map[string]bool{}
	good := 0
	for _, r := range routes[:len(routes)-left] {
		if !r.keyed {
			checkExchange(fs, p, r)
			continue
		}
		where := fmt.Sprintf("%s -> exchange %q, routing key %q", r.table, r.exchange, r.key)
		if err := p.MayPublish(r.exchange, r.key); err != nil {
			fs.fail(where, "declare the exchange, or grant the permission write on it", "%v: the row would be parked until that is mended", err)
			continue
		}
		good++
		if r.exchange == "" {
			checkQueue(fs, p, r)
		} else {
			exchanges[r.exchange] = true
		}
	}
	if good > 0 {
		fs.ok("routes", "%d destinations of the newest rows take messages", good)
	}
	if left > 0 {
		fs.ok("routes", "not seen: %d further destinations", left)
	}
	if len(exchanges) > 0 {
		fs.ok("bindings", "not seen: AMQP does not tell whether a queue is bound to exchanges and what limits it has; a message that no queue takes comes back, and its row is parked")
	}
}

// checkExchange looks at the exchange of a table that has no row to tell the
// routing key.
func checkExchange(fs *findings, p *rabbit.Probe, r route) {
	where := fmt.Sprintf("%s -> exchange %q", r.table, r.exchange)
	exists, err := p.ExchangeExists(r.exchange)
	switch {
	case err != nil:
		fs.warn(where, "grant the permission write on it, if it is missing", "%v", err)
	case !exists:
		fs.fail(where, "declare the exchange", "there is none: rows would be parked until there is")
	default:
		fs.ok(where, "it is there; no row tells a routing key")
	}
}

// checkQueue looks at the queue that the default exchange delivers to.
func checkQueue(fs *findings, p *rabbit.Probe, r route) {
	what := "queue " + r.key
	exists, known, err := p.QueueExists(r.key)
	if err == nil && known && !exists {
		fs.fail(what, "declare it: rows of "+r.table+" go there", "it does not exist: the row would come back and be parked")
		return
	}
	var q rabbit.Queue
	if err == nil {
		q, known, err = p.QueueDeclaration(r.key)
	}
	switch {
	case err != nil:
		fs.warn(what, "", "%v", err)
	case !known:
		fs.ok(what, "not seen: its arguments take the permission configure on it")
	default:
		if reasons := q.Losing(); len(reasons) > 0 {
			fs.warn(what, "declare it durable, without limits or with x-overflow reject-publish; and look at its policies, which cannot be seen from here",
				"it loses messages that the broker has confirmed: %s", strings.Join(reasons, "; "))
			return
		}
		fs.ok(what, "its declaration loses no message; policies cannot be seen from here")
	}
}
