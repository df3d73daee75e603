package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report is what a run showed.
type report struct {
	Seed    uint64  `json:"seed"`
	Source  string  `json:"source"`
	Broker  string  `json:"broker"`
	Seconds float64 `json:"seconds"`
	Broken  string  `json:"broken,omitempty"`

	Account    account        `json:"account"`
	QuietAfter float64        `json:"quiet_after_seconds"` // until all had arrived and was marked
	Left       map[string]int `json:"left"`                // rows not marked or deleted, by table; "parked": open entries
	Ready      []string       `json:"ready"`               // what each relay said at the end
	Terms      uint64         `json:"terms"`
	Late       []string       `json:"late_saves"` // by a relay that did not lead any more
	Intruders  []string       `json:"intruders"`  // published by a relay that did not lead any more
	Inherited  int            `json:"duplicates_of_takeovers"`
	Kept       int            `json:"duplicates_of_takeovers_without_row_state"`
	Repeated   int            `json:"duplicates_of_reopened_lanes"`
	LanesUp    int            `json:"lanes_up"`
	Excess     []string       `json:"excess_duplicates"` // more than windows and unsaved tails
	Failures   []string       `json:"failures"`          // processes that ended by themselves, or did not end
	Faults     []*harm        `json:"faults"`
	Peak       []usage        `json:"peak"` // of each relay, over all its processes
	Last       []usage        `json:"last"` // of each relay's last process, before it was stopped
	Schedule   []string       `json:"schedule"`
	Logs       string         `json:"logs"`
}

// harm is what one kind of fault did.
type harm struct {
	Name    string `json:"name"`
	Done    int    `json:"done"`
	NotDone int    `json:"not_done"`
	// Time from the end of the fault until a row arrived that was committed after it.
	Alone       times `json:"recovery_alone"`
	Overlapping times `json:"recovery_overlapping"` // another fault was on meanwhile
}

// times are a distribution, in seconds.
type times struct {
	N   int     `json:"n"`
	P50 float64 `json:"p50_seconds"`
	Max float64 `json:"max_seconds"`
}

func distribution(all []time.Duration) times {
	if len(all) == 0 {
		return times{}
	}
	slices.Sort(all)
	return times{N: len(all), P50: all[len(all)/2].Seconds(), Max: all[len(all)-1].Seconds()}
}

func (t times) String() string {
	if t.N == 0 {
		return "\t\t"
	}
	return fmt.Sprintf("%d\t%.2f s\t%.2f s", t.N, t.P50, t.Max)
}

// What a relay may take at most: it is to stay flat whatever happens.
const (
	maxMemory     = 200 // MiB resident
	maxGoroutines = 150
)

// verdict lists what is wrong.
func (r *report) verdict() (wrong []string) {
	a := &r.Account
	for _, f := range []struct {
		what string
		ids  []string
	}{
		{"lost", a.Lost}, {"ghosts", a.Ghosts}, {"order breaks in strict", a.Disorder}, {"body differences", a.Bodies},
		{"duplicates that are not equal", a.Unequal}, {"withdrawn sent", a.Withdrawn}, {"sent before their time", a.Early},
		{"saved by a relay that led no more", r.Late}, {"published by a relay that led no more", r.Intruders},
	} {
		if n := len(f.ids); n > 0 {
			wrong = append(wrong, fmt.Sprintf("%s: %d, as %s", f.what, n, strings.Join(f.ids[:min(n, 10)], ", ")))
		}
	}
	for what, n := range r.Left {
		wrong = append(wrong, fmt.Sprintf("left undone in %s: %d", what, n))
	}
	wrong = append(wrong, r.Excess...)
	wrong = append(wrong, r.Failures...)
	for n, u := range r.Peak {
		if u.Memory > maxMemory || u.Goroutines > maxGoroutines {
			wrong = append(wrong, fmt.Sprintf("relay %d took %.0f MiB and %.0f goroutines", n, u.Memory, u.Goroutines))
		}
	}
	return wrong
}

// print writes the table.
func (r *report) print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\nfault\tdone\tnot possible\trecovered alone\tp50\tmax\tamid others\tp50\tmax\n")
	for _, h := range r.Faults {
		if h.Done+h.NotDone > 0 {
			fmt.Fprintf(w, "%s\t%d\t%d\t%v\t%v\n", h.Name, h.Done, h.NotDone, h.Alone, h.Overlapping)
		}
	}
	a := &r.Account
	fmt.Fprintf(w, "\nrows committed\t%d\n", a.Committed)
	fmt.Fprintf(w, "rows rolled back\t%d\n", a.RolledBack)
	fmt.Fprintf(w, "deliveries\t%d\n", a.Deliveries)
	fmt.Fprintf(w, "lost\t%d\n", len(a.Lost))
	fmt.Fprintf(w, "ghosts\t%d\n", len(a.Ghosts))
	fmt.Fprintf(w, "order breaks in strict\t%d\n", len(a.Disorder))
	fmt.Fprintf(w, "body differences\t%d\n", len(a.Bodies)+len(a.Unequal))
	fmt.Fprintf(w, "withdrawn sent\t%d\n", len(a.Withdrawn))
	fmt.Fprintf(w, "sent before their time\t%d\n", len(a.Early))
	fmt.Fprintf(w, "saved or published without the lease\t%d\n", len(r.Late)+len(r.Intruders))
	fmt.Fprintf(w, "leaderships\t%d\n", r.Terms)
	fmt.Fprintf(w, "duplicates\t%d\n", a.Duplicates)
	fmt.Fprintf(w, "  sent again by another leader\t%d\n", r.Inherited)
	fmt.Fprintf(w, "  of these, of tables without row state\t%d\n", r.Kept)
	fmt.Fprintf(w, "  sent again on a reopened lane\t%d\t(lanes were opened %d times)\n", r.Repeated, r.LanesUp)
	fmt.Fprintf(w, "  more than windows, what was not saved and what was not marked\t%d\n", len(r.Excess))
	fmt.Fprintf(w, "order breaks in fast\t%d\n", a.FastBreaks)
	fmt.Fprintf(w, "withdrawn on their way\t%d\n", a.OnTheWay)
	fmt.Fprintf(w, "quiet after\t%.1f s\n", r.QuietAfter)
	for n := range r.Peak {
		fmt.Fprintf(w, "relay %d\tpeak %.0f MiB, %.0f goroutines\tlast %.0f MiB, %.0f goroutines\n", n,
			r.Peak[n].Memory, r.Peak[n].Goroutines, r.Last[n].Memory, r.Last[n].Goroutines)
	}
	_ = w.Flush() // a terminal that is gone wants no table
	wrong := r.verdict()
	if len(wrong) == 0 {
		fmt.Fprintf(out, "\nevery promise was kept (seed %d)\n", r.Seed)
		return
	}
	fmt.Fprintf(out, "\nFAILED with seed %d on %s and %s\n  %s\n", r.Seed, r.Source, r.Broker, strings.Join(wrong, "\n  "))
	for n, state := range r.Ready {
		fmt.Fprintf(out, "  relay %d: %s\n", n, state)
	}
	fmt.Fprintf(out, "logs and configurations: %s\n", r.Logs)
}

// write puts the report into a file.
func (r *report) write(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
