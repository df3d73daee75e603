package lab

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress shows one server's set-up: a bar on a terminal, else a line a stage.
type progress struct {
	out      io.Writer
	title    string
	bar      *progressbar.ProgressBar // nil without a terminal
	from, to float64                  // this stage's share of the whole, in percent
}

func newProgress(out io.Writer, title string) *progress {
	p := &progress{out: out, title: title}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.bar = progressbar.NewOptions(100,
			progressbar.OptionSetWriter(out),
			progressbar.OptionSetWidth(30),
			progressbar.OptionSetPredictTime(false),
			progressbar.OptionThrottle(50*time.Millisecond),
			progressbar.OptionClearOnFinish())
	}
	return p
}

// stage begins a part of the work that takes the bar from one percentage to another.
func (p *progress) stage(name string, from, to float64) {
	p.from, p.to = from, to
	if p.bar == nil {
		fmt.Fprintf(p.out, "%-14s %s\n", p.title, name)
		return
	}
	p.bar.Describe(fmt.Sprintf("%-14s %-9s", p.title, name))
	p.part(0)
}

// part says how much of the stage is done, 0 to 1.
func (p *progress) part(done float64) {
	if p.bar != nil {
		_ = p.bar.Set(int(p.from + (p.to-p.from)*min(done, 1)))
	}
}

func (p *progress) done(message string) {
	p.stop()
	fmt.Fprintf(p.out, "%-14s %s\n", p.title, message)
}

func (p *progress) stop() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
