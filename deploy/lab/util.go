package lab

import (
	"context"
	"crypto/rand"
	"strings"
	"time"
)

// pollEvery is how long poll rests between two looks.
const pollEvery = 20 * time.Millisecond

// poll looks until ready says true or fails, or ctx ends.
func poll(ctx context.Context, ready func() (bool, error)) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		ok, err := ready()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// lastLines returns the last n lines of s, for an error message.
func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// unique returns a name that starts with prefix and was not used before.
func unique(prefix string) string {
	return prefix + "_" + strings.ToLower(rand.Text()[:12])
}
