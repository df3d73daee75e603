package rabbit

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/zap"

	"github.com/towpath/towpath/deploy/lab/labtest"
)

const benchWindow = 256

// BenchmarkPublish sets a lane beside a plain publisher of the AMQP library
// (same window, deferred confirms, no coalescing), on quorum queues with
// 300-byte bodies. The two take turns in rounds, so that what else the machine
// does hits both. cpu-ratio and rate-ratio are lane / plain of one run: the
// first should be at most 1, the second at least 0.95.
func BenchmarkPublish(b *testing.B) {
	for _, kind := range kinds {
		b.Run(string(kind), func(b *testing.B) {
			v := labtest.Vhost(b, shared(b, kind))
			ch := admin(b, v)
			declare(b, ch, "plain", "quorum", nil)
			declare(b, ch, "lane", "quorum", nil)
			plain := newPlain(b, v.URL(), "plain")
			lane := newLaneLoop(b, v.URL(), "lane")
			for _, p := range []func(int){plain, lane} {
				p(2000) // warm
			}
			var p, l usage
			b.ResetTimer()
			for round := 0; b.Loop(); round++ {
				const n = 5000
				first, second := func() { p.add(n, plain) }, func() { l.add(n, lane) }
				if round%2 == 1 {
					first, second = second, first
				}
				first()
				second()
			}
			b.ReportMetric(p.rate(), "plain-msg/s")
			b.ReportMetric(l.rate(), "lane-msg/s")
			b.ReportMetric(l.rate()/p.rate(), "rate-ratio")
			b.ReportMetric(p.perMessage(p.cpu), "plain-cpu-ns/msg")
			b.ReportMetric(l.perMessage(l.cpu), "lane-cpu-ns/msg")
			b.ReportMetric(l.perMessage(l.cpu)/p.perMessage(p.cpu), "cpu-ratio")
			b.ReportMetric(float64(p.mallocs)/float64(p.n), "plain-allocs/msg")
			b.ReportMetric(float64(l.mallocs)/float64(l.n), "lane-allocs/msg")
		})
	}
}

// usage is what publishing n messages took of this process.
type usage struct {
	n         int
	wall, cpu time.Duration
	mallocs   uint64
}

func (u *usage) add(n int, publish func(int)) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, start := processCPU(), time.Now()
	publish(n)
	u.wall += time.Since(start)
	u.cpu += processCPU() - cpu
	runtime.ReadMemStats(&after)
	u.mallocs += after.Mallocs - before.Mallocs
	u.n += n
}

func (u *usage) rate() float64 { return float64(u.n) / u.wall.Seconds() }

func (u *usage) perMessage(d time.Duration) float64 { return float64(d.Nanoseconds()) / float64(u.n) }

func processCPU() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(fmt.Sprintf("read resource usage: %v", err))
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// newPlain returns a publisher as one writes it with the library alone.
func newPlain(b *testing.B, url, queue string) func(n int) {
	c, err := amqp.Dial(url)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	ch, err := c.Channel()
	if err != nil {
		b.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		b.Fatal(err)
	}
	body := make([]byte, 300)
	return func(n int) {
		confirms := make(chan *amqp.DeferredConfirmation, benchWindow-1)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for c := range confirms {
				if !c.Wait() {
					b.Error("not confirmed")
				}
			}
		}()
		for i := range n {
			c, err := ch.PublishWithDeferredConfirm("", queue, true, false, amqp.Publishing{
				MessageId: strconv.Itoa(i), DeliveryMode: amqp.Persistent, ContentType: "application/json", Body: body,
			})
			if err != nil {
				b.Fatal(err)
			}
			confirms <- c
		}
		close(confirms)
		<-done
	}
}

// newLaneLoop returns the same by a lane, with a caller that keeps its window full.
func newLaneLoop(b *testing.B, url, queue string) func(n int) {
	opt := options(url)
	opt.InFlight = benchWindow
	opt.Logger = zap.NewNop()
	free := make(chan int, benchWindow)
	lane := NewLane(opt, func(outcomes []Outcome) {
		for _, o := range outcomes {
			if o.Result != Delivered {
				b.Error("not delivered")
			}
		}
		free <- len(outcomes)
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = lane.Run(ctx)
	}()
	b.Cleanup(func() { cancel(); <-done })
	body := make([]byte, 300)
	return func(n int) {
		tickets := make([]Ticket, 0, benchWindow)
		for sent, settled := 0, 0; settled < n; {
			for sent < n && sent-settled < benchWindow {
				tickets = append(tickets, Ticket{uint64(sent), &Message{
					ID: strconv.Itoa(sent), RoutingKey: queue, ContentType: "application/json",
					Persistent: true, Mandatory: true, Body: body,
				}})
				sent++
			}
			if len(tickets) > 0 {
				lane.Send(tickets)
				tickets = tickets[:0]
			}
			settled += <-free
		}
	}
}
