package inbox

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// Run processes deliveries until their channel is closed or ctx ends. Then it
// takes no more, gives transactions in progress StopWithin to end, and returns.
// What it has not acknowledged by then belongs to the broker again once the
// caller closes the channel that it came from.
func (in *Inbox) Run(ctx context.Context, deliveries <-chan Delivery, publisher Publisher) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stopped := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(in.StopWithin)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-work.Done():
		}
	})
	defer stopped()
	intake := make(chan *waiting, in.Prefetch())
	var all sync.WaitGroup
	all.Go(func() {
		defer close(intake)
		in.receive(ctx, deliveries, intake)
	})
	for range in.Workers {
		all.Go(func() {
			w := worker{Inbox: in, stop: ctx, work: work, publisher: publisher}
			w.run(intake)
		})
	}
	all.Wait()
}

// receive takes deliveries in, so that their age is known while they wait.
func (in *Inbox) receive(ctx context.Context, deliveries <-chan Delivery, intake chan<- *waiting) {
	for {
		select {
		case <-ctx.Done():
			return
		case d, open := <-deliveries:
			if !open {
				return
			}
			w := in.metrics.waiting.add(d)
			select {
			case intake <- w:
			case <-ctx.Done():
				in.metrics.waiting.remove(w)
				return
			}
		}
	}
}

// worker processes deliveries one batch after the other.
type worker struct {
	*Inbox
	stop      context.Context // ended: take no more, wait for nothing
	work      context.Context // ended: give up what is in progress
	publisher Publisher
}

func (w *worker) run(intake <-chan *waiting) {
	batch := make([]*waiting, 0, w.Batch)
	for first := range intake {
		batch = append(batch[:0], first)
		batch = w.fill(batch, intake)
		if w.stop.Err() == nil {
			w.process(batch)
		}
		w.metrics.waiting.remove(batch...)
	}
}

// fill takes what waits already, up to a batch.
func (w *worker) fill(batch []*waiting, intake <-chan *waiting) []*waiting {
	for len(batch) < w.Batch {
		select {
		case more, open := <-intake:
			if !open {
				return batch
			}
			batch = append(batch, more)
		default:
			return batch
		}
	}
	return batch
}

// process tries the whole batch in one transaction, and otherwise each delivery
// in one of its own.
func (w *worker) process(batch []*waiting) {
	w.metrics.inProgress.Add(float64(len(batch)))
	defer w.metrics.inProgress.Sub(float64(len(batch)))
	if len(batch) > 1 && w.together(batch) {
		return
	}
	for _, d := range batch {
		w.single(d.Delivery)
	}
}

func (w *worker) together(batch []*waiting) bool {
	ds := make([]Delivery, len(batch))
	for i := range batch {
		ds[i] = batch[i].Delivery
	}
	started := time.Now()
	ctx, cancel := context.WithTimeout(w.work, w.Timeout)
	defer cancel()
	if w.all(ctx, ds) != nil {
		return false
	}
	for i := range ds {
		w.done(ds[i], Applied, started)
	}
	return true
}

// immediately is how often a transaction that met contention, or lost its
// connection to a database that answers, is tried at once, before the delivery
// goes the long way through the broker: the message may be the cause.
const immediately = 3

// single brings one delivery to an end: acknowledged after its commit, or after
// its copy is safe in a retry queue or in isolation. It gives up, and leaves it
// to the broker, only when the consumer stops.
func (w *worker) single(d Delivery) {
	var pause backoff
	for try := 1; ; {
		started := time.Now()
		outcome, err := w.attempt(d)
		var permanent *permanentError
		var lost *lostError
		switch {
		case err == nil:
			w.done(d, outcome, started)
			return
		case w.work.Err() != nil:
			return
		case errors.As(err, &permanent):
			w.isolate(d, reasonOf(err), err)
			return
		case isContention(err) && try < immediately:
			try++
			w.metrics.contentions.Inc()
		case w.isOutage(w.work, err): // burns no try
			if pause.waits == 0 {
				w.Log.Warn("waiting for the database", "consumer", w.Consumer, "error", err)
			}
			w.metrics.databaseWaits.Inc()
		case errors.As(err, &lost) && try < immediately: // the database is back already
			try++
			w.metrics.databaseWaits.Inc()
		default:
			w.retry(d, err)
			return
		}
		if !pause.wait(w.stop) {
			return
		}
	}
}

func (w *worker) attempt(d Delivery) (Outcome, error) {
	ctx, cancel := context.WithTimeout(w.work, w.Timeout)
	defer cancel()
	return w.Once(ctx, d.Message)
}

func reasonOf(err error) string {
	switch {
	case errors.Is(err, ErrDifferentContent):
		return ReasonContent
	case errors.Is(err, errNoID):
		return ReasonNoID
	}
	return ReasonPermanent
}

// done acknowledges what is committed. An acknowledgement that fails needs no
// remedy: the delivery comes again and is found to be a duplicate.
func (w *worker) done(d Delivery, outcome Outcome, started time.Time) {
	w.metrics.processed(d, outcome, time.Since(started))
	_ = d.Acknowledger.Ack(d.Tag, false)
}

// retry sends a copy to wait in the broker, or isolates what was tried enough.
func (w *worker) retry(d Delivery, cause error) {
	m, delay, reason := w.next(d, time.Now())
	if reason != "" {
		w.isolate(d, reason, cause)
		return
	}
	failed, _ := failures(m.Headers)
	if w.move(d, w.RetryQueue(w.Delays[failed-1]), m, delay) {
		w.metrics.retried.Inc()
	}
}

func (w *worker) isolate(d Delivery, reason string, cause error) {
	if w.move(d, w.IsolationQueue(), w.isolated(d, reason, cause, time.Now()), 0) {
		w.metrics.isolated.WithLabelValues(reason).Inc()
		w.Log.Warn("message isolated", "consumer", w.Consumer, "message_id", d.ID, "reason", reason, "queue", w.IsolationQueue())
	}
}

// move acknowledges a delivery only after its copy is confirmed. While the
// broker does not take the copy the delivery waits here, unacknowledged.
func (w *worker) move(d Delivery, queue string, m Message, expiration time.Duration) bool {
	var pause backoff
	for {
		err := w.publisher.Publish(w.work, queue, m, expiration)
		if err == nil {
			return d.Acknowledger.Ack(d.Tag, false) == nil
		}
		if pause.waits == 0 {
			w.Log.Warn("waiting for a queue to take a message", "consumer", w.Consumer, "queue", queue, "error", err)
		}
		w.metrics.brokerWaits.Inc()
		if !pause.wait(w.stop) {
			return false
		}
	}
}

// backoff is a pause that doubles from 20 ms to 10 s, with full jitter.
type backoff struct{ waits int }

func (b *backoff) wait(ctx context.Context) bool {
	pause := min(20*time.Millisecond<<min(b.waits, 10), 10*time.Second)
	b.waits++
	timer := time.NewTimer(pause/2 + rand.N(pause/2))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
