package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
	"github.com/towpath/towpath/relay"
)

func newStatus() *cobra.Command {
	c := &cobra.Command{
		Use:   "status -c FILE",
		Short: "Show how the stream stands: leader, position, lag, what waits and why",
		Long: `Reads the state tables and the source, and asks the leader over HTTP for what only it knows: how far it is behind,
what is in hand, which destinations are closed. A leader whose HTTP side cannot be reached from here is said to be
unseen; all else is shown all the same. It exits with 1 when nobody leads, or when the leader is not at work.

Where the leader listens is written in the state tables, which others may be able to change. So http.token goes by itself
only to this machine, at the port of http.listen; anywhere else you name the address with --leader.`,
		Example: "  towpath status -c shop.yaml\n  towpath status -c shop.yaml --leader relay2.internal:8973\n  towpath status -c shop.yaml --json | jq .saved.bytes_behind",
		Args:    noArguments,
	}
	load := configFlag(c)
	leader := c.Flags().String("leader", "", "HOST:PORT at which the leader is asked, with http.token [from the state tables]")
	asJSON := c.Flags().Bool("json", false, "print JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if _, _, err := net.SplitHostPort(*leader); *leader != "" && err != nil {
			return &usageError{fmt.Errorf("--leader %q is not HOST:PORT", *leader)}
		}
		return withState(c, load, func(config *configs.Config, db *sql.DB, store *checkpoint.Store) error {
			o, err := relay.Look(c.Context(), config, db, store)
			if err != nil {
				return err
			}
			askLeader(c.Context(), config.HTTP, o, *leader)
			if *asJSON {
				encoder := json.NewEncoder(c.OutOrStdout())
				encoder.SetIndent("", "  ")
				err = encoder.Encode(o)
			} else {
				err = printOverview(c.OutOrStdout(), o)
			}
			if err == nil && (!o.Lease.Held || o.Leader != nil && o.Leader.Problem != "") {
				return errReported
			}
			return err
		})
	}
	return c
}

// askLeader asks the leader's HTTP side: at the address that a person gave, or
// else where the state tables say that it is.
func askLeader(ctx context.Context, c configs.HTTP, o *relay.Overview, given string) {
	if !o.Lease.Held {
		return
	}
	o.NoReply = "it is not in the list of members"
	for _, m := range o.Members {
		if m.Holder != o.Lease.Holder {
			continue
		}
		address := given
		if address == "" {
			address = m.HTTP
			if own, ours := ownAddress(c.Listen, address); ours {
				address = own
			} else if c.Token.IsSet() {
				o.NoReply = fmt.Sprintf("the state tables say that it listens on %s, and http.token is not sent there unasked: if that is the leader, repeat with --leader %[1]s", address)
				continue
			}
		}
		status, err := fetchStatus(ctx, c.Token, address)
		switch {
		case err != nil:
			o.NoReply = err.Error()
		case status.Holder != m.Holder: // a loopback address of another machine, or a later process
			o.NoReply = fmt.Sprintf("another process answers at %s", address)
		default:
			o.Leader, o.NoReply = status, ""
		}
	}
}

// ownAddress is where this machine is asked, if that is what an address means:
// loopback or http.listen itself, or the machine's name where it listens on all
// addresses, each at the port of http.listen. Names are compared and not looked
// up: who answers to a name may be somebody else.
func ownAddress(listen, address string) (string, bool) {
	at, own, err := net.SplitHostPort(listen)
	if err != nil {
		return "", false
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || port != own {
		return "", false
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsLoopback() || address == listen {
		return address, true
	}
	all, err := netip.ParseAddr(at)
	name, unnamed := os.Hostname()
	if everywhere := at == "" || err == nil && all.IsUnspecified(); everywhere && unnamed == nil && host == name {
		return net.JoinHostPort("127.0.0.1", port), true
	}
	return "", false
}

// maxStatus bounds an answer, bytes.
const maxStatus = 4 << 20

func fetchStatus(ctx context.Context, secret configs.Secret, address string) (*relay.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/api/v1/status", nil)
	if err != nil {
		return nil, err
	}
	if secret.IsSet() {
		token, err := secret.Read()
		if err != nil {
			return nil, err
		}
		request.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("it redirects") }}
	defer client.CloseIdleConnections()
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", address, answer.Status)
	}
	status := new(relay.Status)
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxStatus)).Decode(status); err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", address, err)
	}
	return status, nil
}

func printOverview(w io.Writer, o *relay.Overview) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(table, name+"\t"+format+"\n", args...) }
	line("stream", "%s", o.Stream)
	if o.Lease.Held {
		line("leader", "%s, term %d, lease for another %s", o.Lease.Holder, o.Lease.Term, span(o.Lease.Left))
	} else {
		line("leader", "NOBODY; last term %d", o.Lease.Term)
	}
	printLeader(line, o)
	printSaved(line, &o.Saved)
	if o.Gap != nil {
		line("last gap", "%s %s", o.Gap.At, o.Gap.Detail)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	section := func(rows int, columns ...string) bool {
		if rows > 0 {
			fmt.Fprintf(table, "\n%s\n", strings.Join(columns, "\t"))
		}
		return rows > 0
	}
	section(len(o.Tables), "TABLE", "UNSENT", "NOTE")
	for _, t := range o.Tables {
		unsent := "-"
		if t.Unsent != nil {
			unsent = fmt.Sprint(*t.Unsent)
		}
		if t.More {
			unsent = "more than " + unsent
		}
		note := t.Note
		if s := t.Sweep; s != nil {
			note = fmt.Sprintf("swept because of %s: %d found, %d sent", s.Cause, s.Found, s.Sent)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", t.Table, unsent, note)
	}
	section(len(o.Parked), "PARKED IN", "STATE", "CLASS", "ROWS", "OLDEST")
	for _, p := range o.Parked {
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\n", p.Table, p.State, p.Class, p.Rows, span(p.Since))
	}
	section(len(o.Waits), "WAITS IN", "KEY", "ROWS", "FOR")
	for _, k := range o.Waits {
		fmt.Fprintf(table, "%s\t%q\t%d\t%s\n", k.Table, k.Key, k.Rows, span(k.For))
	}
	if l := leading(o); l != nil && section(len(l.ClosedDestinations), "CLOSED EXCHANGE", "ROUTING KEY", "FAILURES", "NEXT PROBE", "WAITING") {
		for _, d := range l.ClosedDestinations {
			fmt.Fprintf(table, "%q\t%q\t%d\t%s\t%d\n", d.Exchange, d.RoutingKey, d.Failures, span(d.NextProbe), d.Waiting)
		}
	}
	section(len(o.Members), "MEMBER", "HOLDER", "VERSION", "CONFIG", "HTTP", "SEEN")
	for _, m := range o.Members {
		config := m.Config
		if config != o.Config {
			config += " (differs)"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s ago\n", m.Role, m.Holder, m.Version, config, m.HTTP, span(m.Seen))
	}
	return table.Flush()
}

func leading(o *relay.Overview) *relay.Leading {
	if o.Leader == nil {
		return nil
	}
	return o.Leader.Leading
}

// printLeader prints what the leader says of itself.
func printLeader(line func(name, format string, args ...any), o *relay.Overview) {
	l := leading(o)
	switch {
	case !o.Lease.Held:
	case o.Leader == nil:
		line("", "not asked: %s", o.NoReply)
	case o.Leader.Problem != "":
		line("", "NOT AT WORK: %s", o.Leader.Problem)
	}
	if l == nil {
		return
	}
	line("settled", "%s", l.Position)
	if l.Behind != nil {
		line("behind", "%s, %s", span(l.Behind.Seconds), size(l.Behind.Bytes))
	}
	polling := ""
	if l.Polling {
		polling = "; THE BINLOG CANNOT BE READ, tables are polled"
	}
	line("in hand", "%d rows, %d write-backs (%d locked by others)%s", l.Window, l.Writes, l.Locked, polling)
	var lanes []string
	for _, n := range l.Lanes {
		lanes = append(lanes, n.Phase)
	}
	line("lanes", "%s; %d closed destinations", strings.Join(lanes, ", "), l.Closed)
}

func printSaved(line func(name, format string, args ...any), s *relay.SavedOverview) {
	if s.Position == nil {
		line("saved", "no position yet")
	} else {
		line("saved", "%s, %s ago", s.Position, span(s.Age))
	}
	if s.Problem != "" {
		line("", "PROBLEM: %s", s.Problem)
	}
	if s.Behind != nil {
		line("binlog ends", "%s, %s behind the saved position", s.End, size(*s.Behind))
	}
	if s.Ahead != nil {
		keeps := "for ever"
		if s.Keeps > 0 {
			keeps = "for " + span(float64(s.Keeps))
		}
		line("purge", "oldest file %s, %d files and %s before the position; files are kept %s", s.Oldest, s.Files, size(*s.Ahead), keeps)
	}
}

// span is a number of seconds for people.
func span(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d < 10*time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d < 48*time.Hour:
		return d.Round(time.Second).String()
	}
	return fmt.Sprintf("%.0f days", seconds/86400)
}

// size is a number of bytes for people.
func size(bytes uint64) string {
	switch n := float64(bytes); {
	case bytes < 1<<10:
		return fmt.Sprintf("%d bytes", bytes)
	case bytes < 1<<20:
		return fmt.Sprintf("%.1f KiB", n/(1<<10))
	case bytes < 1<<30:
		return fmt.Sprintf("%.1f MiB", n/(1<<20))
	default:
		return fmt.Sprintf("%.1f GiB", n/(1<<30))
	}
}

// dash stands for nothing.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
