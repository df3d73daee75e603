package configs

import "strings"

// Pattern names a table, or every table whose schema and name match, where *
// stands for any run of characters.
type Pattern struct{ Schema, Table string }

func (p Pattern) String() string { return p.Schema + "." + p.Table }

// Literal tells that the pattern is one table's name.
func (p Pattern) Literal() bool { return !strings.Contains(p.Schema+p.Table, "*") }

// Matches tells whether the pattern covers the table. Letter case counts.
func (p Pattern) Matches(schema, table string) bool {
	return globsMeet(p.Schema, schema) && globsMeet(p.Table, table)
}

// overlaps tells whether one table could match both.
func (p Pattern) overlaps(q Pattern) bool {
	return globsMeet(p.Schema, q.Schema) && globsMeet(p.Table, q.Table)
}

// globsMeet tells whether some text matches both globs; a glob without * is
// matched by itself alone. Table-driven, because backtracking over two globs
// would take exponential time.
func globsMeet(a, b string) bool {
	// meet[j] tells, for the prefix of a done so far, whether it meets b[:j].
	meet := make([]bool, len(b)+1)
	meet[0] = true
	for j := 0; j < len(b) && b[j] == '*'; j++ {
		meet[j+1] = true
	}
	for i := range len(a) {
		next := make([]bool, len(b)+1)
		next[0] = meet[0] && a[i] == '*'
		for j := range len(b) {
			switch {
			case a[i] == '*' || b[j] == '*':
				next[j+1] = next[j] || meet[j+1]
			default:
				next[j+1] = meet[j] && a[i] == b[j]
			}
		}
		meet = next
	}
	return meet[len(b)]
}
