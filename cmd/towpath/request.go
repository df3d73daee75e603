package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
	"github.com/towpath/towpath/relay"
)

// withState loads the configuration, opens the state tables that it names, and
// has a command use them.
func withState(c *cobra.Command, load func() (*configs.Config, error), use func(*configs.Config, *sql.DB, *checkpoint.Store) error) error {
	config, err := load()
	if err != nil {
		return err
	}
	db := checkpoint.Connect(relay.Endpoint(config), checkpoint.Session{IdleTimeout: config.Lease.TTL})
	defer db.Close()
	store, err := checkpoint.Open(c.Context(), db, config.State.Schema)
	if err != nil {
		return err
	}
	return use(config, db, store)
}

// author is who changes something, and why.
type author struct{ operator, reason *string }

func authorFlags(c *cobra.Command) author {
	return author{
		operator: c.Flags().String("operator", "", "who does this, for the audit (required)"),
		reason:   c.Flags().String("reason", "", "why, for the audit (required)"),
	}
}

func (a author) check() error {
	if *a.operator == "" || *a.reason == "" {
		return &usageError{errors.New("--operator and --reason are required: what is changed is audited")}
	}
	return nil
}

// change is what every command is told that has the leader change something.
type change struct {
	author
	patience *time.Duration
}

func changeFlags(c *cobra.Command) change {
	return change{authorFlags(c), c.Flags().Duration("wait", 15*time.Second, "how long to wait for a leader to take the request")}
}

// ask has the leader carry out a request and waits for its outcome, into result.
func (c change) ask(ctx context.Context, store *checkpoint.Store, stream, kind string, args, result any) error {
	text, err := json.Marshal(args)
	if err != nil {
		return err
	}
	id, err := store.Ask(ctx, stream, checkpoint.Request{Kind: kind, Args: text, Operator: *c.operator, Reason: *c.reason})
	if err != nil {
		return err
	}
	err = c.await(ctx, store, stream, id, result)
	if ctx.Err() != nil {
		return c.abandon(store, id, errors.New("interrupted"))
	}
	return err
}

func (c change) await(ctx context.Context, store *checkpoint.Store, stream string, id uint64, result any) error {
	show := newProgress()
	defer show.end()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for began := time.Now(); ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
		r, err := store.Asked(ctx, id)
		if err != nil {
			return err
		}
		answer := relay.Answer{Result: result}
		if r.Result != nil {
			if err := json.Unmarshal(r.Result, &answer); err != nil {
				return fmt.Errorf("read the outcome of request %d: %w", id, err)
			}
		}
		switch r.State {
		case checkpoint.RequestDone:
			return nil
		case checkpoint.RequestFailed:
			return fmt.Errorf("the leader could not do it: %s", answer.Error)
		case checkpoint.RequestTaken:
			show.at(answer.Progress, answer.Total)
			began = time.Now() // it is at work, or its successor will be
		case checkpoint.RequestNew:
			if time.Since(began) < *c.patience {
				continue
			}
			lease, err := store.Lease(ctx, stream)
			if err != nil {
				return err
			}
			why := fmt.Errorf("no relay leads stream %s: start one with towpath run, then repeat the command", stream)
			if lease.Held() {
				why = fmt.Errorf("the leader of stream %s, %s, did not take the request within %s", stream, lease.Holder, *c.patience)
			}
			return c.abandon(store, id, why)
		}
	}
}

// abandon takes the request back, so that it is not carried out later unseen.
func (c change) abandon(store *checkpoint.Store, id uint64, why error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	back, err := store.TakeBack(ctx, id)
	switch {
	case err != nil:
		return fmt.Errorf("%w; request %d could not be taken back and may be carried out: %w", why, id, err)
	case !back:
		return fmt.Errorf("%w; the leader has request %d and carries it out", why, id)
	}
	return fmt.Errorf("%w; nothing was changed", why)
}

// progress is a bar on a terminal, and nothing elsewhere.
type progress struct{ bar *progressbar.ProgressBar }

func newProgress() *progress { return &progress{} }

func (p *progress) at(done, total uint64) {
	if total == 0 || !term.IsTerminal(int(os.Stderr.Fd())) {
		return
	}
	if p.bar == nil {
		p.bar = progressbar.NewOptions64(int64(total), progressbar.OptionSetWriter(os.Stderr), progressbar.OptionShowCount(),
			progressbar.OptionSetDescription("rows"), progressbar.OptionClearOnFinish())
	}
	p.bar.ChangeMax64(int64(total))
	_ = p.bar.Set64(int64(done)) // a terminal that is gone is no reason to stop
}

func (p *progress) end() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}
