package configs

import (
	"fmt"
	"slices"
	"strings"
)

// Problem is one fault of a configuration.
type Problem struct {
	Path    string // of the key, as tables[0].columns.id; empty: the file
	Line    int    // from 1
	Message string // what is wrong
	Remedy  string // what to write instead
}

// Error is every fault of one file, sorted by line.
type Error struct {
	File     string
	Problems []Problem // at least one
}

// Error gives one line for each problem: file:line: path: message; remedy.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		where := fmt.Sprintf("%s:%d: ", e.File, p.Line)
		if p.Path != "" {
			where += p.Path + ": "
		}
		lines[i] = where + p.Message + "; " + p.Remedy
	}
	return strings.Join(lines, "\n")
}

func (e *Error) sort() {
	slices.SortStableFunc(e.Problems, func(a, b Problem) int { return a.Line - b.Line })
}
