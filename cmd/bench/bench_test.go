package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
)

func TestMain(m *testing.M) { labtest.Main(m) }

// In each, what arrived is counted by the benchmark itself: it fails when a
// message is missing or too many.
func TestEveryBenchmarkMeasuresPairsOnRealServers(t *testing.T) {
	b, err := makeBed(t.Context(), lab.MySQL97, t.Output())
	t.Cleanup(b.close)
	if err != nil {
		t.Fatal(err)
	}
	small := shape{after: "keep", ordering: "strict", queue: "classic", size: 200, keys: 50, tables: 1}
	for _, c := range []struct {
		name  string
		of    measure
		lines int
	}{
		{"drain", &drain{shape: small, rows: 300, rounds: 1, against: "keep"}, 7},
		{"latency", &latency{shape: small, rates: []int{400}, seconds: 1, rounds: 1}, 5},
		{"polling", &polling{rows: 300, rounds: 1, seconds: 1, every: 500 * time.Millisecond}, 12},
		{"takeover", &takeover{rounds: 1}, 20},
		{"matrix", &matrix{after: []string{"mark", "delete"}, ordering: []string{"fast"}, queues: []string{"quorum"}, sizes: []int{200}, keys: []int{16}, rows: 200, rounds: 1}, 9},
		{"growth", &growth{shape: small, base: 100, backlogs: []int{300}, tables: 3, rounds: 1}, 9},
		{"foreign", &foreign{megabytes: 1, rounds: 1}, 2},
		{"consume", &consume{messages: 50, rounds: 1}, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			found, err := c.of.run(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			if len(found.Rows) != c.lines {
				t.Errorf("%d lines, want %d", len(found.Rows), c.lines)
			}
			for _, l := range found.Rows {
				if math.IsNaN(l.Ours) || l.Ours < 0 || l.What == "" || l.Unit == "" {
					t.Errorf("no figure: %+v", l)
				}
			}
			if err := found.print(t.Output()); err != nil {
				t.Error(err)
			}
			path := filepath.Join(t.TempDir(), "bench.json")
			if err := save(path, []table{found}); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var read []table
			if err := json.Unmarshal(text, &read); err != nil || len(read) != 1 || len(read[0].Rows) != c.lines {
				t.Errorf("the JSON file has %d tables: %v", len(read), err)
			}
		})
	}
}

func TestASpreadTellsItsPercentilesByRank(t *testing.T) {
	var s spread
	for n := 1000; n > 0; n-- {
		s = append(s, time.Duration(n)*time.Millisecond)
	}
	for share, want := range map[float64]float64{0.5: 500, 0.99: 990, 0.999: 999, 1: 1000} {
		if got := s.at(share); got != want {
			t.Errorf("at %v: %v ms, want %v", share, got, want)
		}
	}
}

func TestALineHasTheMedianOfThePairsRatios(t *testing.T) {
	same := func(v float64) float64 { return v }
	l := pair("rate", "/s", []float64{10, 20, 60}, []float64{10, 10, 10}, same, "")
	if l.Ours != 20 || l.Other != 10 || l.Ratio != 2 {
		t.Errorf("%+v", l)
	}
	if l := pair("nothing", "/s", []float64{1}, []float64{0}, same, ""); l.Ratio != 0 {
		t.Errorf("a ratio to nothing: %v", l.Ratio)
	}
}
