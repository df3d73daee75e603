package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/relay"
)

// tailFlags are what `tail` is told on the command line.
type tailFlags struct {
	from, table, id, key string
	limit                int
	body, asJSON         bool
}

func newTail() *cobra.Command {
	c := &cobra.Command{
		Use:   "tail -c FILE",
		Short: "Print the messages as they would be published, publishing nothing",
		Long: `Reads the binlog from now, or from a position, and prints each row that the configuration would publish, as the
message that it maps to. It publishes nothing, moves no position, takes no lease, and disturbs no running relay.
Bodies are shown only with --body.`,
		Example: "  towpath tail -c shop.yaml\n  towpath tail -c shop.yaml --from binlog.000042:4 --table shop.outbox_event --limit 10 --body",
		Args:    noArguments,
	}
	load := configFlag(c)
	var f tailFlags
	c.Flags().StringVar(&f.from, "from", "", "position to begin at: FILE:OFFSET, or a position as `position show --json` prints it [the binlog's end]")
	c.Flags().StringVar(&f.table, "table", "", "only this table, by its name in the configuration")
	c.Flags().StringVar(&f.id, "id", "", "only this message id")
	c.Flags().StringVar(&f.key, "key", "", "only this ordering key")
	c.Flags().IntVar(&f.limit, "limit", 0, "stop after so many messages [never]")
	c.Flags().BoolVar(&f.body, "body", false, "show bodies, too")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print one JSON object a line")
	c.RunE = func(c *cobra.Command, _ []string) error {
		config, err := load()
		if err != nil {
			return err
		}
		from, err := parsePosition(f.from)
		if err != nil {
			return &usageError{err}
		}
		shown := 0
		o := relay.TailOptions{From: from, Started: func(p checkpoint.Position) {
			fmt.Fprintf(c.ErrOrStderr(), "reading from %s:%d, Ctrl-C ends it\n", p.File, p.Offset)
		}}
		return relay.Tail(c.Context(), config, o, func(t relay.Tailed) error {
			if !f.wants(t) {
				return nil
			}
			if err := f.print(c.OutOrStdout(), t); err != nil {
				return err
			}
			if shown++; f.limit > 0 && shown >= f.limit {
				return relay.ErrTailed
			}
			return nil
		})
	}
	return c
}

func (f tailFlags) wants(t relay.Tailed) bool {
	return (f.table == "" || f.table == t.Table) && (f.id == "" || f.id == t.Message.ID) && (f.key == "" || f.key == t.Key)
}

func (f tailFlags) print(w io.Writer, t relay.Tailed) error {
	if f.asJSON {
		return json.NewEncoder(w).Encode(f.fields(t))
	}
	m := &t.Message
	fmt.Fprintf(w, "%s  %s  id=%s key=%s exchange=%q routing_key=%q type=%q bytes=%d", t.Commit.UTC().Format(time.RFC3339Nano),
		t.Table, m.ID, t.Key, m.Exchange, m.RoutingKey, m.Type, len(m.Body))
	for _, h := range m.Headers {
		fmt.Fprintf(w, " %s=%v", h.Name, h.Value)
	}
	if t.Fault != "" {
		fmt.Fprintf(w, "  WOULD FAIL: %s", t.Fault)
	}
	fmt.Fprintln(w)
	if f.body {
		fmt.Fprintf(w, "%s\n", m.Body)
	}
	return nil
}

// fields is a message as JSON shows it; a body that is not text is quoted by Go's rules.
func (f tailFlags) fields(t relay.Tailed) map[string]any {
	m := &t.Message
	headers := map[string]any{}
	for _, h := range m.Headers {
		headers[h.Name] = h.Value
	}
	all := map[string]any{
		"table": t.Table, "committed_at": t.Commit.UTC(), "id": m.ID, "key": t.Key, "exchange": m.Exchange, "routing_key": m.RoutingKey,
		"type": m.Type, "content_type": m.ContentType, "headers": headers, "bytes": len(m.Body),
	}
	if t.Fault != "" {
		all["fault"] = t.Fault
	}
	if f.body {
		all["body"] = string(m.Body)
	}
	return all
}

// parsePosition reads FILE:OFFSET, or a position's JSON; "" is the zero position.
func parsePosition(text string) (p checkpoint.Position, err error) {
	if text == "" {
		return p, nil
	}
	if strings.HasPrefix(text, "{") {
		err = json.Unmarshal([]byte(text), &p)
		return p, err
	}
	file, offset, found := strings.Cut(text, ":")
	p.File = file
	if p.Offset, err = strconv.ParseUint(offset, 10, 64); err != nil || !found || file == "" {
		return p, fmt.Errorf("%q is not a position: write FILE:OFFSET, as binlog.000042:4", text)
	}
	return p, nil
}
