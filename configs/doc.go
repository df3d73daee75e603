// Package configs is the configuration of a stream: its types, its defaults,
// its strict loading and its validation, and example files that the tests load.
//
// What it promises:
//
//   - Nothing is accepted that does nothing. An unknown key, a key given twice,
//     a wrong type or a bad value is a [Problem] with its path, its line and
//     its remedy, and one [Error] holds all of them, sorted by line.
//   - A [Config] that Load or Parse returned is complete: every default is
//     filled in (they stand in one place, defaults.go) and every rule between
//     keys holds. Its readers check nothing again.
//   - P5, as far as a file can show it: no template, filter or deliver_at of a
//     table reads a column that the relay or a former poller writes.
//   - A secret is never printed: see [Secret]. Errors show a value as it stands
//     in the file, so ${NAME} and never what the variable held.
//
// The order of work is: YAML nodes (decode.go, yaml.go) are matched against the
// keys (schema.go), each value is read and checked alone (values.go,
// template.go), and then the rules between keys (validate.go, validate_table.go).
//
// Non-obvious: column names are compared without letter case, as the servers
// compare them, and table names with it. A key without a value ("ca:") counts
// as not given. An alias or a merge key is resolved where it stands, so a fault
// in an anchor is reported once for each use, at the line of the anchor.
package configs
