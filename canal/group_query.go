package canal

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"

	"github.com/go-mysql-org/go-mysql/replication"
)

// statement is the content of a QUERY event.
type statement struct {
	status []byte // the event's status variables
	schema []byte // default database
	text   []byte
}

// parseQuery reads QUERY, MariaDB's compressed QUERY, and EXECUTE_LOAD_QUERY.
func parseQuery(e event) (statement, error) {
	b := e.body()
	head := 13
	if e.kind == replication.EXECUTE_LOAD_QUERY_EVENT {
		head += 13
	}
	if len(b) < head {
		return statement{}, errShortEvent
	}
	schema, status := int(b[8]), int(binary.LittleEndian.Uint16(b[11:]))
	if len(b) < head+status+schema+1 {
		return statement{}, errShortEvent
	}
	s := statement{status: b[head : head+status], schema: b[head+status : head+status+schema], text: b[head+status+schema+1:]}
	if e.kind == replication.MARIADB_QUERY_COMPRESSED_EVENT {
		text, err := inflate(s.text)
		if err != nil {
			return statement{}, err
		}
		s.text = text
	}
	return s, nil
}

// verb is what a statement means for the stream.
type verb uint8

const (
	verbWrite      verb = iota // anything that may write rows, as far as its first word tells
	verbNone                   // changes no row and no definition
	verbBegin                  // BEGIN, START TRANSACTION
	verbCommit                 // COMMIT, alone
	verbRollback               // ROLLBACK, alone
	verbSave                   // SAVEPOINT
	verbRollbackTo             // ROLLBACK TO SAVEPOINT
	verbDefine                 // changes definitions
	verbXAStart                // XA START, XA BEGIN
	verbXAEnd                  // XA END, XA PREPARE
	verbXACommit               // XA COMMIT
	verbXARollback             // XA ROLLBACK
)

// Statements by their first word; what is not here counts as a write (P2).
var verbs = map[string]verb{
	"BEGIN": verbBegin, "START": verbBegin,
	"ALTER": verbDefine, "CREATE": verbDefine, "DROP": verbDefine, "RENAME": verbDefine, "TRUNCATE": verbDefine,
	"SAVEPOINT": verbSave,
	"RELEASE":   verbNone, "SET": verbNone, "USE": verbNone, "FLUSH": verbNone,
	"GRANT": verbNone, "REVOKE": verbNone, "ANALYZE": verbNone, "OPTIMIZE": verbNone, "REPAIR": verbNone,
	"INSTALL": verbNone, "UNINSTALL": verbNone, "LOCK": verbNone, "UNLOCK": verbNone, "KILL": verbNone,
}

// verb classifies the statement. The common ones cost no allocation.
func (s statement) verb() verb {
	switch string(s.text) {
	case "BEGIN":
		return verbBegin
	case "COMMIT":
		return verbCommit
	case "ROLLBACK":
		return verbRollback
	}
	if bytes.HasPrefix(s.text, []byte("# Dum")) {
		return verbNone // MariaDB: stands for an event that is not for us
	}
	words := firstWords(s.text, 2)
	if len(words) == 0 {
		return verbNone // a comment alone
	}
	second := ""
	if len(words) > 1 {
		second = words[1]
	}
	switch words[0] {
	case "COMMIT":
		return verbCommit
	case "ROLLBACK":
		if second == "TO" {
			return verbRollbackTo
		}
		return verbRollback
	case "XA":
		switch second {
		case "START", "BEGIN":
			return verbXAStart
		case "END", "PREPARE":
			return verbXAEnd
		case "COMMIT":
			return verbXACommit
		case "ROLLBACK":
			return verbXARollback
		}
	}
	if v, ok := verbs[words[0]]; ok {
		return v
	}
	return verbWrite
}

// firstWords returns up to n leading words in upper case, comments left out
// and the content of executable comments (/*! ... */, /*M! ... */) taken in.
// A character that belongs to no word ends the list.
func firstWords(text []byte, n int) []string {
	var words []string
	for len(words) < n {
		text = skipComments(text)
		i := 0
		for i < len(text) && isWord(text[i]) {
			i++
		}
		if i == 0 {
			break
		}
		words = append(words, strings.ToUpper(string(text[:i])))
		text = text[i:]
	}
	return words
}

func skipComments(text []byte) []byte {
	for {
		text = bytes.TrimLeft(text, " \t\r\n\v\f;(\x00")
		switch {
		case bytes.HasPrefix(text, []byte("/*!")), bytes.HasPrefix(text, []byte("/*M!")):
			text = bytes.TrimLeft(text[bytes.IndexByte(text, '!')+1:], "0123456789")
		case bytes.HasPrefix(text, []byte("*/")): // end of an executable one
			text = text[2:]
		case bytes.HasPrefix(text, []byte("/*")):
			end := bytes.Index(text[2:], []byte("*/"))
			if end < 0 {
				return nil
			}
			text = text[2+end+2:]
		case bytes.HasPrefix(text, []byte("-- ")), bytes.HasPrefix(text, []byte("#")):
			end := bytes.IndexByte(text, '\n')
			if end < 0 {
				return nil
			}
			text = text[end+1:]
		default:
			return text
		}
	}
}

func isWord(c byte) bool {
	return c == '_' || c == '$' || c >= 0x80 || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// savepoint is the name in SAVEPOINT or ROLLBACK TO, in a form that is equal for
// equal names.
func (s statement) savepoint() string {
	text := bytes.TrimSpace(s.text)
	i := bytes.LastIndexAny(text, " \t\n")
	if quote := bytes.IndexByte(text, '`'); quote >= 0 {
		i = quote - 1
	}
	return strings.ToLower(strings.Trim(string(text[i+1:]), "`"))
}

// names reports whether the text has name as a word of its own, in any case
// and quoting. It errs on the side of yes: in strings and comments, and for
// names beyond ASCII, whose bytes depend on the session's character set.
func (s statement) names(name string) bool {
	for _, c := range []byte(name) {
		if c >= 0x80 {
			return true
		}
		if !isWord(c) { // only in quotes, where doubling and escapes differ
			return true
		}
	}
	text, lower := bytes.ToLower(s.text), []byte(strings.ToLower(name))
	for {
		i := bytes.Index(text, lower)
		if i < 0 {
			return false
		}
		end := i + len(lower)
		if (i == 0 || !isWord(text[i-1])) && (end == len(text) || !isWord(text[end])) {
			return true
		}
		text = text[i+1:]
	}
}

// defines reports whether a statement of verbDefine may change a table's
// definition, and whether it may bring it rows that no row event shows.
func (s statement) defines(t TableName) (shape, rows bool) {
	words := firstWords(s.text, 6)
	action, object := words[0], ""
	for _, w := range words[1:] {
		switch w {
		case "OR", "REPLACE", "TEMPORARY", "ONLINE", "OFFLINE", "IGNORE", "UNIQUE", "FULLTEXT", "SPATIAL", "AGGREGATE":
			continue
		}
		object = w
		break
	}
	switch object {
	case "DATABASE", "SCHEMA":
		return action == "DROP" && s.names(t.Schema), false
	case "VIEW", "TRIGGER", "PROCEDURE", "FUNCTION", "EVENT", "USER", "ROLE", "SERVER", "ALGORITHM", "DEFINER", "SQL":
		return false, false
	}
	if action == "TRUNCATE" || !s.names(t.Name) || s.elsewhere(t.Schema) {
		return false, false
	}
	text := bytes.ToUpper(s.text)
	has := func(word string) bool { return bytes.Contains(text, []byte(word)) }
	if object != "TABLE" {
		return true, false // CREATE INDEX ... ON, RENAME TABLES, and what is not known
	}
	switch action {
	case "ALTER":
		// Names behind the first are other tables', but for RENAME and EXCHANGE.
		return s.target(t.Name) || has("RENAME") || has("EXCHANGE"), has("EXCHANGE") || has("IMPORT")
	case "CREATE":
		// Row by row it is START TRANSACTION (MySQL), or without SELECT (MariaDB).
		created := s.target(t.Name)
		return created, created && has("SELECT")
	}
	return true, false
}

// elsewhere reports whether the statement cannot reach a schema: it ran in
// another one, and what it names without a schema is there.
func (s statement) elsewhere(schema string) bool {
	return len(s.schema) > 0 && !strings.EqualFold(string(s.schema), schema) && !s.names(schema)
}

// target reports whether name may be the first name behind TABLE. Its schema is
// not looked at.
func (s statement) target(name string) bool {
	_, rest, found := bytes.Cut(bytes.ToUpper(s.text), []byte("TABLE"))
	if !found {
		return true
	}
	rest = skipComments(rest)
	for _, word := range []string{"IF", "NOT", "EXISTS"} {
		if words := firstWords(rest, 1); len(words) > 0 && words[0] == word {
			rest = skipComments(rest[len(word):])
		}
	}
	// The name ends at what cannot be in it; a quoted one may hold anything.
	end := bytes.IndexAny(rest, " \t\r\n(/;")
	if end < 0 || bytes.IndexByte(rest[:end], '`') >= 0 || bytes.IndexByte(rest[:end], '"') >= 0 {
		end = len(rest)
		if i := bytes.IndexAny(rest, " \t\r\n("); i >= 0 && bytes.Count(rest[:i], []byte("`"))%2 == 0 && bytes.Count(rest[:i], []byte(`"`))%2 == 0 {
			end = i
		}
	}
	return statement{text: rest[:end]}.names(name)
}

// schemas lists the schemas that the statement wrote to, with what triggers
// and functions wrote; all is true when the event does not tell (MariaDB, or
// too many).
func (s statement) schemas() (names []string, all bool) {
	b := s.status
	for len(b) > 0 {
		code := b[0]
		b = b[1:]
		skip := 0
		switch code {
		case 12: // UPDATED_DB_NAMES
			return updatedSchemas(b)
		case 0, 10:
			skip = 4
		case 1, 9, 17:
			skip = 8
		case 3:
			skip = 4
		case 4:
			skip = 6
		case 7, 8, 18:
			skip = 2
		case 13:
			skip = 3
		case 16, 19, 20:
			skip = 1
		case 2: // CATALOG, with its zero byte
			if len(b) < 1 {
				return nil, true
			}
			skip = int(b[0]) + 2
		case 5, 6: // TIME_ZONE, CATALOG
			if len(b) < 1 {
				return nil, true
			}
			skip = int(b[0]) + 1
		case 11: // INVOKER: user and host
			if len(b) < 1 || len(b) < int(b[0])+2 {
				return nil, true
			}
			skip = int(b[0]) + 1
			skip += int(b[skip]) + 1
		default:
			return nil, true
		}
		if skip > len(b) {
			return nil, true
		}
		b = b[skip:]
	}
	return nil, true
}

func updatedSchemas(b []byte) (names []string, all bool) {
	const tooMany = 254
	if len(b) < 1 || b[0] == tooMany {
		return nil, true
	}
	n := int(b[0])
	b = b[1:]
	for range n {
		name, rest, found := bytes.Cut(b, []byte{0})
		if !found {
			return nil, true
		}
		names, b = append(names, string(name)), rest
	}
	return names, false
}

// xid reads the name in XA COMMIT or XA ROLLBACK, as servers log it:
// X'gtrid',X'bqual',format.
func (s statement) xid() ([]byte, error) {
	bad := errors.New("name of an XA transaction makes no sense")
	_, rest, found := bytes.Cut(s.text, []byte("X'"))
	if !found {
		return nil, bad
	}
	gtrid, rest, found := bytes.Cut(rest, []byte("',X'"))
	if !found {
		return nil, bad
	}
	bqual, rest, found := bytes.Cut(rest, []byte("',"))
	if !found {
		return nil, bad
	}
	digits := bytes.TrimSpace(rest)
	if i := bytes.IndexByte(digits, ' '); i >= 0 { // ... ONE PHASE
		digits = digits[:i]
	}
	format, err := strconv.ParseUint(string(digits), 10, 32)
	if err != nil {
		return nil, bad
	}
	g, err1 := hex.DecodeString(string(gtrid))
	q, err2 := hex.DecodeString(string(bqual))
	if err1 != nil || err2 != nil || len(g) > 64 || len(q) > 64 {
		return nil, bad
	}
	return makeXID(uint32(format), g, q), nil
}
