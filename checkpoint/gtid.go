package checkpoint

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	gomysql "github.com/go-mysql-org/go-mysql/mysql"
	"github.com/google/uuid"
)

// maxSeq is the largest group number that MySQL assigns.
const maxSeq = math.MaxInt64 - 1

// mariaDB tells the two kinds apart: no MySQL server has the nil UUID.
func (g GTID) mariaDB() bool { return g.SID == [16]byte{} }

// IsZero reports whether the group has no GTID.
func (g GTID) IsZero() bool { return g.Seq == 0 }

// String is the GTID in its server's syntax, "" for none.
func (g GTID) String() string {
	switch {
	case g.IsZero():
		return ""
	case g.mariaDB():
		return fmt.Sprintf("%d-%d-%d", g.Domain, g.Server, g.Seq)
	case g.Tag != "":
		return fmt.Sprintf("%s:%s:%d", uuid.UUID(g.SID), g.Tag, g.Seq)
	default:
		return fmt.Sprintf("%s:%d", uuid.UUID(g.SID), g.Seq)
	}
}

// ParseGTID reads what String writes.
func ParseGTID(flavor Flavor, text string) (GTID, error) {
	if text == "" {
		return GTID{}, nil
	}
	set, err := ParseGTIDSet(flavor, text)
	if err != nil {
		return GTID{}, err
	}
	if len(set.domains) == 1 {
		return set.domains[0], nil
	}
	if len(set.sources) == 1 && len(set.sources[0].runs) == 1 {
		if s := set.sources[0]; s.runs[0].first == s.runs[0].last {
			return GTID{SID: s.sid, Tag: s.tag, Seq: s.runs[0].first}, nil
		}
	}
	return GTID{}, fmt.Errorf("parse GTID %q: want exactly one", text)
}

// GTIDSet says which groups are behind a position: for MySQL a set of group
// numbers per source and tag, for MariaDB the last GTID of each domain. The
// zero value is the empty set. A plain copy shares memory: use Clone.
type GTIDSet struct {
	sources []source // MySQL: sorted by UUID, then tag
	recent  int      // index of the source that Add met last: nearly always the next one too
	domains []GTID   // MariaDB: sorted by domain
}

type source struct {
	sid  [16]byte
	tag  string
	runs []run // sorted, apart from each other by at least one missing number, never empty
}

// run is first..last, both inside.
type run struct{ first, last uint64 }

func (s source) compare(sid [16]byte, tag string) int {
	if c := bytes.Compare(s.sid[:], sid[:]); c != 0 {
		return c
	}
	return strings.Compare(s.tag, tag)
}

// IsZero reports whether the set is empty.
func (s GTIDSet) IsZero() bool { return len(s.sources) == 0 && len(s.domains) == 0 }

// Clone returns an independent copy.
func (s GTIDSet) Clone() GTIDSet {
	c := GTIDSet{sources: slices.Clone(s.sources), recent: s.recent, domains: slices.Clone(s.domains)}
	for i := range c.sources {
		c.sources[i].runs = slices.Clone(c.sources[i].runs)
	}
	return c
}

// Add takes one group in, in place; the zero GTID changes nothing. In commit
// order, which is the usual one, it costs a comparison and an increment.
// A MariaDB GTID replaces its domain's, whatever the numbers are: the domain's
// place in the binlog is what counts there.
func (s *GTIDSet) Add(g GTID) {
	switch {
	case g.IsZero():
	case g.mariaDB():
		s.addDomain(g)
	default:
		s.addRun(g.SID, g.Tag, run{g.Seq, g.Seq})
	}
}

// Union takes in every group of o, in place; MariaDB domains of o replace those
// of s, as in Add.
func (s *GTIDSet) Union(o GTIDSet) {
	for _, e := range o.sources {
		for _, r := range e.runs {
			s.addRun(e.sid, e.tag, r)
		}
	}
	for _, g := range o.domains {
		s.addDomain(g)
	}
}

func (s *GTIDSet) addDomain(g GTID) {
	i, found := slices.BinarySearchFunc(s.domains, g.Domain, func(d GTID, domain uint32) int {
		return cmp.Compare(d.Domain, domain)
	})
	if found {
		s.domains[i] = g
	} else {
		s.domains = slices.Insert(s.domains, i, g)
	}
}

func (s *GTIDSet) addRun(sid [16]byte, tag string, r run) {
	if s.recent >= len(s.sources) || s.sources[s.recent].compare(sid, tag) != 0 {
		i, found := s.find(sid, tag)
		if !found {
			s.sources = slices.Insert(s.sources, i, source{sid: sid, tag: tag})
		}
		s.recent = i
	}
	s.sources[s.recent].add(r)
}

func (s GTIDSet) find(sid [16]byte, tag string) (int, bool) {
	return slices.BinarySearchFunc(s.sources, tag, func(e source, tag string) int { return e.compare(sid, tag) })
}

func (s *source) add(r run) {
	if n := len(s.runs); n > 0 && r.first == s.runs[n-1].last+1 {
		s.runs[n-1].last = r.last
		return
	}
	// lo..hi are the runs that r touches: they become one with it.
	lo, _ := slices.BinarySearchFunc(s.runs, r.first, func(e run, first uint64) int { return cmp.Compare(e.last+1, first) })
	hi := lo
	for hi < len(s.runs) && s.runs[hi].first <= r.last+1 {
		r.first, r.last = min(r.first, s.runs[hi].first), max(r.last, s.runs[hi].last)
		hi++
	}
	s.runs = slices.Replace(s.runs, lo, hi, r)
}

// Has reports whether the group is behind the set.
func (s GTIDSet) Has(g GTID) bool {
	var one GTIDSet
	one.Add(g)
	return s.Contains(one)
}

// Contains reports whether every group of o is in s. Between MariaDB sets that
// means: no domain of o is further on. MariaDB numbers of different servers
// compare by sequence number alone, which tells nothing after a failover that
// lost transactions; there only the server itself can say.
func (s GTIDSet) Contains(o GTIDSet) bool { return o.Subtract(s).IsZero() }

// Subtract returns the groups of s that are not in o; for MariaDB, the domains
// of s that are further on than in o.
func (s GTIDSet) Subtract(o GTIDSet) GTIDSet {
	var rest GTIDSet
	for _, e := range s.sources {
		runs := e.runs
		if i, found := o.find(e.sid, e.tag); found {
			runs = subtract(runs, o.sources[i].runs)
		}
		if len(runs) > 0 {
			rest.sources = append(rest.sources, source{sid: e.sid, tag: e.tag, runs: slices.Clone(runs)})
		}
	}
	for _, g := range s.domains {
		i := slices.IndexFunc(o.domains, func(d GTID) bool { return d.Domain == g.Domain })
		if i < 0 || o.domains[i].Seq < g.Seq {
			rest.domains = append(rest.domains, g)
		}
	}
	return rest
}

func subtract(from, take []run) []run {
	var rest []run
	for _, r := range from {
		for len(take) > 0 && take[0].last < r.first {
			take = take[1:]
		}
		for _, t := range take {
			if t.first > r.last {
				break
			}
			if t.first > r.first {
				rest = append(rest, run{r.first, t.first - 1})
			}
			r.first = t.last + 1
		}
		if r.first <= r.last {
			rest = append(rest, r)
		}
	}
	return rest
}

// String is the set in its server's syntax: what gtid_executed or
// gtid_binlog_pos would show, on one line.
func (s GTIDSet) String() string {
	var b []byte
	for i, e := range s.sources {
		if i == 0 || s.sources[i-1].sid != e.sid {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, uuid.UUID(e.sid).String()...)
		}
		if e.tag != "" {
			b = append(append(b, ':'), e.tag...)
		}
		for _, r := range e.runs {
			b = strconv.AppendUint(append(b, ':'), r.first, 10)
			if r.last > r.first {
				b = strconv.AppendUint(append(b, '-'), r.last, 10)
			}
		}
	}
	for _, g := range s.domains {
		if len(b) > 0 {
			b = append(b, ',')
		}
		b = append(b, g.String()...)
	}
	return string(b)
}

// ParseGTIDSet reads a set in its server's syntax; white space around its
// parts is allowed, as MySQL prints line breaks.
func ParseGTIDSet(flavor Flavor, text string) (GTIDSet, error) {
	var set GTIDSet
	if strings.TrimSpace(text) == "" {
		return set, nil
	}
	parse := (*GTIDSet).parseMySQL
	if flavor == MariaDB {
		parse = (*GTIDSet).parseMariaDB
	}
	for part := range strings.SplitSeq(text, ",") {
		if err := parse(&set, strings.TrimSpace(part)); err != nil {
			return GTIDSet{}, fmt.Errorf("parse GTID set: %w", err)
		}
	}
	return set, nil
}

// parseMySQL takes in uuid[:tag]:run[:run...][:tag:run...].
func (s *GTIDSet) parseMySQL(part string) error {
	fields := strings.Split(part, ":")
	if len(fields[0]) != 36 { // the package takes other spellings, the server does not
		return fmt.Errorf("%q does not begin with a server_uuid", part)
	}
	id, err := uuid.Parse(fields[0])
	if err != nil || id == uuid.Nil {
		return fmt.Errorf("%q does not begin with a server_uuid", part)
	}
	tag, runs := "", 0
	for i, field := range fields[1:] {
		field = strings.TrimSpace(field)
		if t := strings.ToLower(field); isTag(t) {
			if i > 0 && runs == 0 {
				return fmt.Errorf("tag %q in %q has no numbers", tag, part)
			}
			tag, runs = t, 0
			continue
		}
		r, err := parseRun(field)
		if err != nil {
			return fmt.Errorf("%w in %q", err, part)
		}
		s.addRun(id, tag, r)
		runs++
	}
	if runs == 0 {
		return fmt.Errorf("%q has no numbers", part)
	}
	return nil
}

func isTag(s string) bool {
	if s == "" || len(s) > 32 || s[0] >= '0' && s[0] <= '9' {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return r != '_' && (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
}

func parseRun(s string) (run, error) {
	first, last, isRange := strings.Cut(s, "-")
	if !isRange {
		last = first
	}
	a, errA := strconv.ParseUint(strings.TrimSpace(first), 10, 64)
	b, errB := strconv.ParseUint(strings.TrimSpace(last), 10, 64)
	if errA != nil || errB != nil || a == 0 || b < a || b > maxSeq {
		return run{}, fmt.Errorf("bad numbers %q", s)
	}
	return run{a, b}, nil
}

// parseMariaDB takes in domain-server-sequence.
func (s *GTIDSet) parseMariaDB(part string) error {
	fields := strings.Split(part, "-")
	if len(fields) != 3 {
		return fmt.Errorf("%q is not domain-server-sequence", part)
	}
	domain, errD := strconv.ParseUint(fields[0], 10, 32)
	server, errS := strconv.ParseUint(fields[1], 10, 32)
	seq, errN := strconv.ParseUint(fields[2], 10, 64)
	if errD != nil || errS != nil || errN != nil || seq == 0 {
		return fmt.Errorf("%q is not domain-server-sequence", part)
	}
	if slices.ContainsFunc(s.domains, func(g GTID) bool { return g.Domain == uint32(domain) }) {
		return fmt.Errorf("domain %d occurs twice", domain)
	}
	s.Add(GTID{Domain: uint32(domain), Server: uint32(server), Seq: seq})
	return nil
}

// Library returns the set in the replication library's type, of its own memory.
func (s GTIDSet) Library(flavor Flavor) (gomysql.GTIDSet, error) {
	if flavor == MariaDB {
		return gomysql.ParseMariadbGTIDSet(s.String())
	}
	return gomysql.ParseMysqlGTIDSet(s.String())
}
