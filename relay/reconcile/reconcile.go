package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/towpath/towpath/relay"
	"github.com/towpath/towpath/relay/inbox"
)

// Class is a kind of difference.
type Class string

// The classes.
const (
	Missing   Class = "missing"   // sent, and not processed within the settle time
	Unknown   Class = "unknown"   // processed, and in no row of the outbox
	Different Class = "different" // processed with other content than the row has
)

// Difference is one message that is not as it should be.
type Difference struct {
	Class     Class  `json:"class"`
	MessageID string `json:"message_id"`
}

// Options say what is compared. Times are UTC.
type Options struct {
	From, To time.Time     // when rows were written; the zero To is now
	Settle   time.Duration // how long a consumer may take; nothing younger is looked at
	// CompleteSince says that the inbox has every record since then. Zero: since
	// its oldest one; rows before that are counted as unjudged.
	CompleteSince time.Time
	SpoolDir      string // "" for the system's
	// Done is given the keys of rows that were processed, some thousand at once,
	// and returns how many have the application's status for done now; nil for
	// none. Rows that the application has moved on already are left out.
	Done func(keys []string) (int64, error)
	// Replay is given missing messages, some hundred at once, with the keys of
	// their rows, and returns how many were sent again; nil for none.
	Replay func(ids, keys []string) (int64, error)

	Progress func(step string, n int64) // called now and then with how much was read; nil for none
}

// Summary is the result. Counts are messages.
type Summary struct {
	From      time.Time `json:"from"`
	To        time.Time `json:"to"`
	Sent      int64     `json:"sent"`      // that had to be processed
	Processed int64     `json:"processed"` // of those, with the same content
	Missing   int64     `json:"missing"`
	Unknown   int64     `json:"unknown"`
	Different int64     `json:"different"`
	Unjudged  int64     `json:"unjudged"` // older than the inbox's oldest record
	Unsent    int64     `json:"unsent"`   // rows that were not sent (they wait, failed, are withdrawn or filtered)
	Marked    int64     `json:"marked"`   // rows set to done
	Replayed  int64     `json:"replayed"` // missing rows that were sent again
	// UnknownJudged is false when records cannot be looked up in the outbox: its
	// message id is made of several columns.
	UnknownJudged bool `json:"unknown_judged"`
}

// Clean says that nothing asks for a person.
func (s Summary) Clean() bool { return s.Missing+s.Unknown+s.Different+s.Unjudged == 0 }

const (
	lookup      = 500       // ids in one look-up, rows in one replay
	clockSkew   = time.Hour // between the two servers, at most
	progressRow = 1000
)

// Run compares and calls found for each difference, in the order of ids.
func Run(ctx context.Context, out *relay.Sent, in Inbox, o Options, found func(Difference) error) (s Summary, err error) {
	now, err := out.Now(ctx)
	if err != nil {
		return s, err
	}
	s.From, s.To = o.From, now.Add(-o.Settle)
	if !o.To.IsZero() && o.To.Before(s.To) {
		s.To = o.To
	}
	if !s.From.Before(s.To) {
		return s, fmt.Errorf("nothing to compare between %s and %s (the settle time of %v counts)", s.From.Format(time.RFC3339), s.To.Format(time.RFC3339), o.Settle)
	}
	judged, err := judgedSince(ctx, out, in, o, &s)
	if err != nil {
		return s, err
	}
	sp, err := newSpool(o.SpoolDir)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, sp.close()) }()
	c := &comparison{Options: o, ctx: ctx, out: out, in: in, summary: &s, found: found}
	if s.UnknownJudged = out.Lookup(); s.UnknownJudged {
		c.unknownFrom, c.unknownTo = s.From, s.To
		if kept := out.KeptFor(); kept > 0 && now.Add(-kept/2).After(s.From) {
			c.unknownFrom = now.Add(-kept / 2) // a row may be gone by then, however late it was processed
		}
	}
	if judged.Before(s.To) {
		if err := c.gather(sp, judged); err != nil {
			return s, err
		}
	}
	return s, c.compare(sp)
}

// judgedSince is the time from which on a missing record means something.
func judgedSince(ctx context.Context, out *relay.Sent, in Inbox, o Options, s *Summary) (time.Time, error) {
	since := o.CompleteSince
	if since.IsZero() {
		oldest, err := in.oldest(ctx)
		if err != nil {
			return since, err
		}
		if since = oldest; since.IsZero() {
			since = s.To // an empty inbox proves nothing
		}
	}
	if !since.After(s.From) {
		return s.From, nil
	}
	if since.After(s.To) {
		since = s.To
	}
	n, err := out.Count(ctx, s.From, since)
	s.Unjudged = n
	return since, err
}

// comparison is one run.
type comparison struct {
	Options
	ctx     context.Context
	out     *relay.Sent
	in      Inbox
	summary *Summary
	found   func(Difference) error

	unknownFrom, unknownTo time.Time
	unknown                []string // records that have to be looked up
	done                   []string // keys of rows to mark
	missing, missingKeys   []string // messages to replay, and their rows
}

func (c *comparison) progress(step string, n int64, last bool) {
	if c.Progress != nil && (last || n%progressRow == 0) {
		c.Progress(step, n)
	}
}

// gather sorts what was sent.
func (c *comparison) gather(sp *spool, from time.Time) error {
	n := int64(0)
	err := c.out.Rows(c.ctx, from, c.summary.To, func(r relay.SentRow) error {
		n++
		c.progress("read the outbox", n, false)
		if !r.Sent {
			c.summary.Unsent++
			return nil
		}
		c.summary.Sent++
		return sp.add(entry{id: r.ID, content: inbox.Content(r.Type, r.Body), key: r.Key, done: r.Done})
	})
	c.progress("read the outbox", n, true)
	return err
}

// compare walks along both sides in the order of ids.
func (c *comparison) compare(sp *spool) error {
	sent, err := sp.sorted()
	if err != nil {
		return err
	}
	records := c.in.records(c.ctx, c.summary.From.Add(-clockSkew))
	e, more, err := sent()
	if err != nil {
		return err
	}
	n := int64(0)
	for {
		r, moreRecords, err := records()
		if err != nil {
			return err
		}
		if moreRecords {
			n++
			c.progress("compare with the inbox", n, false)
		}
		for more && (!moreRecords || e.id < r.id) {
			if err := c.miss(e); err != nil {
				return err
			}
			if e, more, err = sent(); err != nil {
				return err
			}
		}
		if !moreRecords {
			break
		}
		matched := false
		for ; more && e.id == r.id; matched = true {
			if err := c.match(e, r); err != nil {
				return err
			}
			if e, more, err = sent(); err != nil {
				return err
			}
		}
		if !matched {
			if err := c.stray(r); err != nil {
				return err
			}
		}
	}
	c.progress("compare with the inbox", n, true)
	return errors.Join(c.lookUp(), c.mark(), c.replay())
}

func (c *comparison) miss(e entry) error {
	if err := c.report(Missing, e.id); err != nil || c.Replay == nil {
		return err
	}
	c.missing, c.missingKeys = append(c.missing, e.id), append(c.missingKeys, e.key)
	if len(c.missing) < lookup {
		return nil
	}
	return c.replay()
}

func (c *comparison) replay() error {
	if len(c.missing) == 0 {
		return nil
	}
	n, err := c.Replay(c.missing, c.missingKeys)
	c.summary.Replayed += n
	c.missing, c.missingKeys = nil, nil
	return err
}

func (c *comparison) report(class Class, id string) error {
	switch class {
	case Missing:
		c.summary.Missing++
	case Unknown:
		c.summary.Unknown++
	case Different:
		c.summary.Different++
	}
	return c.found(Difference{class, id})
}

// match compares a row with its record.
func (c *comparison) match(e entry, r record) error {
	if e.content != r.content {
		return c.report(Different, e.id)
	}
	c.summary.Processed++
	if c.Done == nil || e.done {
		return nil
	}
	c.done = append(c.done, e.key)
	if len(c.done) < relay.MaxDoneKeys {
		return nil
	}
	return c.mark()
}

func (c *comparison) mark() error {
	if len(c.done) == 0 {
		return nil
	}
	n, err := c.Done(c.done)
	c.summary.Marked += n
	c.done = c.done[:0]
	return err
}

// stray is a record without a row in the range: perhaps its row is older, or
// was not marked as sent yet.
func (c *comparison) stray(r record) error {
	if r.processed.Before(c.unknownFrom) || !r.processed.Before(c.unknownTo) {
		return nil
	}
	c.unknown = append(c.unknown, r.id)
	if len(c.unknown) < lookup {
		return nil
	}
	return c.lookUp()
}

func (c *comparison) lookUp() error {
	if len(c.unknown) == 0 {
		return nil
	}
	known, err := c.out.Known(c.ctx, c.unknown)
	if err != nil {
		return err
	}
	for _, id := range c.unknown {
		if !known[id] {
			if err := c.report(Unknown, id); err != nil {
				return err
			}
		}
	}
	c.unknown = c.unknown[:0]
	return nil
}
