package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func someView(events int) view {
	v := view{
		title: "MySQL 9.7 -> Towpath -> RabbitMQ 4.3", elapsed: 83 * time.Second,
		transactions: 1234, committed: 12345, confirmed: 12340, applied: 12340, waiting: 5, oldest: 30 * time.Millisecond,
		rate: 301, p50: 3 * time.Millisecond, p99: 20 * time.Millisecond, broker: "up", lanes: "2 lanes up",
		position: "binlog.000002:123456", saved: 100 * time.Millisecond,
		relays: []relayView{{"relay 1", "leads", 3, 4711}, {"relay 2", "stands by", 0, 4712}},
	}
	for i := range events {
		v.events = append(v.events, fmt.Sprintf("event %d of a length that no narrow terminal can show without cutting it short somewhere", i))
	}
	return v
}

func TestAFrameFitsEveryTerminal(t *testing.T) {
	for width := 1; width <= 200; width += 7 {
		for height := 1; height <= 60; height += 3 {
			ls := someView(50).render(width, height)
			if len(ls) != height {
				t.Fatalf("%dx%d: %d lines", width, height, len(ls))
			}
			for _, l := range ls {
				if n := utf8.RuneCountInString(l.text(width, false)); n > width {
					t.Fatalf("%dx%d: a line of %d", width, height, n)
				}
			}
		}
	}
}

func frame(v view, width, height int) string {
	var b strings.Builder
	for _, l := range v.render(width, height) {
		b.WriteString(l.text(width, false) + "\n")
	}
	return b.String()
}

func TestWideAndNarrowFramesShowTheSameFigures(t *testing.T) {
	for _, width := range []int{44, 80, 140} {
		f := frame(someView(3), width, 30)
		for _, want := range []string{"committed", "12,345", "confirmed", "12,340", "lag p50", "3.0 ms", "lag p99", "lost 0", "ghosts 0", "duplicates 0",
			"leads", "term 3", "stands by", "binlog.000002:123456", "event 2", "q quit"} {
			if !strings.Contains(f, want) {
				t.Errorf("width %d: %q is missing in\n%s", width, want, f)
			}
		}
	}
}

func TestTheOldestEventsGiveWayInALowTerminal(t *testing.T) {
	f := frame(someView(50), 100, 24)
	if strings.Contains(f, "event 0 ") || !strings.Contains(f, "event 49 ") || !strings.Contains(f, "position") {
		t.Errorf("the frame is\n%s", f)
	}
}

func TestWhatMustBeZeroStandsOutWhenItIsNot(t *testing.T) {
	v := someView(0)
	v.lost = 2
	var b bytes.Buffer
	s := &screen{out: &b, color: true, size: func() (int, int) { return 100, 30 }}
	s.show(v)
	if !strings.Contains(b.String(), "\x1b["+string(bad)+"mlost 2\x1b[0m") || !strings.Contains(b.String(), "\x1b["+string(good)+"mghosts 0\x1b[0m") {
		t.Errorf("the frame is %q", b.String())
	}
}

func TestALineIsPrintedAtMostOnceASecond(t *testing.T) {
	var b bytes.Buffer
	l := &lines{out: &b}
	for range 5 {
		l.show(someView(0))
	}
	if n := strings.Count(b.String(), "\n"); n != 1 || !strings.Contains(b.String(), "relay 1 leads, term 3") {
		t.Errorf("%d lines: %s", n, b.String())
	}
}
