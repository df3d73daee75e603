package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// display shows the demo. The loop calls it.
type display interface {
	show(view)                              // often
	event(since time.Duration, text string) // once for each
}

// lines is the display without a terminal: a line a second, and the events.
type lines struct {
	out  io.Writer
	last time.Time
}

func (l *lines) event(since time.Duration, text string) {
	fmt.Fprintf(l.out, "%6.1f  %s\n", since.Seconds(), text)
}

func (l *lines) show(v view) {
	if time.Since(l.last) < time.Second || v.elapsed == 0 {
		return
	}
	l.last = time.Now()
	fmt.Fprintf(l.out, "%6.1f  committed %d  confirmed %d  applied %d  %d/s  lag p50 %s p99 %s  lost %d  ghosts %d  duplicates %d  %s\n",
		v.elapsed.Seconds(), v.committed, v.confirmed, v.applied, v.rate, brief(v.p50), brief(v.p99), v.lost, v.ghosts, v.duplicates, v.leader())
}

// leader says who leads.
func (v view) leader() string {
	for _, r := range v.relays {
		if strings.HasPrefix(r.role, "leads") {
			return fmt.Sprintf("%s %s, term %d", r.name, r.role, r.term)
		}
	}
	return "nobody leads"
}

// screen is the display on a terminal. Each frame is one write that overwrites
// the last one in place, so that nothing flickers.
type screen struct {
	out   io.Writer
	size  func() (width, height int)
	color bool
}

// enter takes the terminal's other screen, and leave gives it back.
func (s *screen) enter() { io.WriteString(s.out, "\x1b[?1049h\x1b[?25l\x1b[?7l") }
func (s *screen) leave() { io.WriteString(s.out, "\x1b[?7h\x1b[?25h\x1b[?1049l") }

func (s *screen) event(time.Duration, string) {} // the next frame shows it

func (s *screen) show(v view) {
	width, height := s.size()
	var b strings.Builder
	b.WriteString("\x1b[?2026h\x1b[H") // terminals that know it show the frame at once
	for i, l := range v.render(width, height) {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(l.text(width, s.color))
		b.WriteString("\x1b[K")
	}
	b.WriteString("\x1b[J\x1b[?2026l")
	io.WriteString(s.out, b.String())
}

// style is how a part of a line looks, as the parameters of an SGR sequence.
type style string

const (
	normal style = ""
	bold   style = "1"
	dim    style = "2"
	good   style = "1;32"
	bad    style = "1;37;41"
	notice style = "33"
)

// line is text in parts.
type line []part

type part struct {
	style style
	text  string
}

// text is the line cut to a width.
func (l line) text(width int, color bool) string {
	var b strings.Builder
	for _, p := range l {
		t := p.text
		if n := utf8.RuneCountInString(t); n > width {
			t = string([]rune(t)[:max(width, 0)])
		}
		width -= utf8.RuneCountInString(t)
		if color && p.style != normal && t != "" {
			t = "\x1b[" + string(p.style) + "m" + t + "\x1b[0m"
		}
		b.WriteString(t)
	}
	return b.String()
}

// narrow is the width below which figures stand in one column.
const narrow = 76

// render lays the view out in at most height lines. What matters least, the
// oldest events, gives way first.
func (v view) render(width, height int) []line {
	top := []line{{{bold, "Towpath demo"}, {normal, "  " + v.title}, {dim, "  " + clock(v.elapsed)}}}
	if v.phase != "" {
		top = append(top, line{{notice, v.phase + " ..."}})
	} else {
		top = append(top, line{})
	}
	top = append(top, columns(v.figures(), width)...)
	top = append(top, line{})
	top = append(top, v.verdicts(width)...)
	top = append(top, line{})
	for _, r := range v.relays {
		top = append(top, r.line())
	}
	broker := normal
	if v.broker != "up" {
		broker = notice
	}
	saved := ""
	if v.saved >= 0 {
		saved = "  saved " + brief(v.saved) + " ago"
	}
	top = append(top,
		line{{normal, fmt.Sprintf("%-10s", "broker")}, {broker, v.broker}, {dim, "  " + v.lanes}},
		line{{normal, fmt.Sprintf("%-10s%s", "position", v.position)}, {dim, saved}},
		line{})
	help := line{{bold, "k"}, {normal, " kill the leader  "}, {bold, "b"}, {normal, " restart the broker  "},
		{bold, "p"}, {normal, " purge the binlog  "}, {bold, "q"}, {normal, " quit"}}
	if width < narrow {
		help = line{{bold, "k"}, {normal, " kill  "}, {bold, "b"}, {normal, " broker  "}, {bold, "p"}, {normal, " purge  "}, {bold, "q"}, {normal, " quit"}}
	}
	room := height - 1
	top = top[:min(len(top), max(room, 0))]
	room -= len(top)
	if events := v.events[max(0, len(v.events)-max(room-1, 0)):]; len(events) > 0 {
		for _, e := range events {
			top = append(top, line{{dim, e}})
		}
	}
	for len(top) < height-1 {
		top = append(top, line{})
	}
	return append(top, help)
}

type figure struct{ name, value, note string }

func (v view) figures() []figure {
	return []figure{
		{"committed", thousands(v.committed), "rows in " + thousands(v.transactions) + " orders"},
		{"confirmed", thousands(v.confirmed), "as the relays counted"},
		{"applied", thousands(v.applied), "effects at the consumer"},
		{"rolled back", thousands(v.rolledBack), "rows"},
		{"waiting", thousands(v.waiting), "oldest " + brief(v.oldest)},
		{"rate", fmt.Sprint(v.rate), "received/s"},
		{"lag p50", brief(v.p50), "whole run " + brief(v.allP50)},
		{"lag p99", brief(v.p99), "whole run " + brief(v.allP99)},
	}
}

// columns sets figures in two columns, or in one where the width is small.
func columns(figures []figure, width int) []line {
	cell := func(f figure) line {
		return line{{normal, fmt.Sprintf("%-12s", f.name)}, {bold, fmt.Sprintf("%9s", f.value)}, {dim, fmt.Sprintf("  %-*s", noteWidth, f.note)}}
	}
	var ls []line
	if width < narrow {
		for _, f := range figures {
			ls = append(ls, cell(f))
		}
		return ls
	}
	half := (len(figures) + 1) / 2
	for i := range half {
		l := cell(figures[i])
		if half+i < len(figures) {
			l = append(l, cell(figures[half+i])...)
		}
		ls = append(ls, l)
	}
	return ls
}

const noteWidth = 24

// verdicts are the figures that must stay zero, and duplicates, which need not.
func (v view) verdicts(width int) []line {
	must := func(name string, n int) part {
		s := good
		if n > 0 {
			s = bad
		}
		return part{s, fmt.Sprintf("%s %d", name, n)}
	}
	gap := part{normal, "   "}
	first := line{must("lost", v.lost), gap, must("ghosts", v.ghosts), gap, must("out of order", v.disorder)}
	duplicates := part{bold, "duplicates " + thousands(v.duplicates)}
	if width < narrow {
		return []line{first, {duplicates}}
	}
	return []line{append(first, gap, duplicates)}
}

func (r relayView) line() line {
	s := normal
	switch {
	case r.role == "leads":
		s = good
	case r.role == "halted":
		s = bad
	case r.role != "stands by":
		s = notice
	}
	l := line{{normal, fmt.Sprintf("%-10s", r.name)}, {s, r.role}}
	more := ""
	if r.term > 0 {
		more += fmt.Sprintf("  term %d", r.term)
	}
	if r.pid > 0 {
		more += fmt.Sprintf("  pid %d", r.pid)
	}
	return append(l, part{dim, more})
}

// thousands writes a number in groups of three digits.
func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func clock(d time.Duration) string {
	s := int(d.Seconds())
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}
