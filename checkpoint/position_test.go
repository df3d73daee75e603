package checkpoint

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestAdvanceMovesToTheGroupsEndAndTakesItsGTIDIn(t *testing.T) {
	p := Position{Flavor: MySQL, Server: sidA.String(), File: "binlog.000007", Offset: 400, Created: 9}
	p.Advance(Mark{File: "binlog.000007", Offset: 900, Created: 9, GTID: GTID{SID: sidA, Seq: 1}})
	p.Advance(Mark{File: "binlog.000008", Offset: 157, Created: 11}) // between groups
	if p.File != "binlog.000008" || p.Offset != 157 || p.Created != 11 || p.Server != sidA.String() {
		t.Fatalf("got %+v", p)
	}
	if p.GTIDs.String() != sidA.String()+":1" || p.Last.Seq != 1 {
		t.Fatalf("got GTIDs %s, last %s", p.GTIDs, p.Last)
	}
}

func TestPositionsAreOrderedByFileNumberThenOffset(t *testing.T) {
	ascending := []Position{
		{}, {File: "binlog.000001", Offset: 4}, {File: "binlog.000001", Offset: 1 << 33}, {File: "binlog.000002", Offset: 4},
		{File: "binlog.999999", Offset: 4}, {File: "binlog.1000000", Offset: 4}, {File: "binlog.1000001", Offset: 3},
	}
	for i, a := range ascending {
		for j, b := range ascending {
			if got, want := a.Compare(b), compare(i, j); got != want {
				t.Errorf("%s against %s: got %d, want %d", a, b, got, want)
			}
			if got := a.Reached(b.File, b.Offset); got != (i >= j) {
				t.Errorf("%s reached %s: %v", a, b, got)
			}
		}
	}
	if !ascending[2].After(ascending[1]) || ascending[2].After(ascending[2]) {
		t.Error("after is strict")
	}
}

func compare(i, j int) int {
	switch {
	case i < j:
		return -1
	case i > j:
		return 1
	default:
		return 0
	}
}

func TestPositionsSurviveJSON(t *testing.T) {
	for _, p := range []Position{
		{Flavor: MySQL},
		{Flavor: MySQL, Server: sidA.String(), File: "a.b.000001", Offset: 1 << 40, Created: 1<<32 - 1,
			GTIDs: mustParse(t, MySQL, sidA.String()+":1-5:9:app:3,"+sidB.String()+":1"), Last: GTID{SID: sidA, Tag: "app", Seq: 3}},
		{Flavor: MariaDB, Server: "1@host:3306", File: "mariadb-bin.000002", Offset: 4,
			GTIDs: mustParse(t, MariaDB, "0-1-7,3-2-9"), Last: GTID{Domain: 3, Server: 2, Seq: 9}},
	} {
		data, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var got Position
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		got.GTIDs.recent, p.GTIDs.recent = 0, 0
		if !reflect.DeepEqual(got, p) {
			t.Errorf("%s became %+v, was %+v", data, got, p)
		}
	}
}

const goodJSON = `{"version":1,"flavor":"mysql","server":"s","file":"b.000001","offset":4,"created":5,"gtids":"","last":""}`

func TestDoubtfulPositionsAreRefused(t *testing.T) {
	for change, want := range map[string]string{
		`"version":1 => "version":2`:                      "version 2 is not known",
		`"version":1, => `:                                "version 0",
		`"offset":4 => "offset":4,"lane":1`:               "unknown field",
		`"offset":4 => "offset":-4`:                       "cannot unmarshal",
		`"flavor":"mysql" => "flavor":"oracle"`:           `"oracle" is neither`,
		`"file":"b.000001" => "file":""`:                  "not the name of a binlog file",
		`"file":"b.000001" => "file":"b"`:                 "not the name of a binlog file",
		`"gtids":"" => "gtids":"0-1-1"`:                   "server_uuid",
		`"last":"" => "last":"x"`:                         "last group",
		`"created":5 => "created":4294967296`:             "cannot unmarshal",
		`"flavor":"mysql" => "flavor":"mysql"} {"a": "b"`: "",
	} {
		from, to, _ := strings.Cut(change, " => ")
		var p Position
		err := p.UnmarshalJSON([]byte(strings.Replace(goodJSON, from, to, 1)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", change, err, want)
		}
	}
	var p Position
	if err := p.UnmarshalJSON([]byte(goodJSON)); err != nil {
		t.Fatal(err)
	}
}

func FuzzPositionJSON(f *testing.F) {
	f.Add([]byte(goodJSON))
	f.Add([]byte(`{"version":1,"flavor":"mariadb","server":"1@h:1","file":"b.1","offset":4,"created":5,"gtids":"0-1-5","last":"0-1-5"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var p, again Position
		if p.UnmarshalJSON(data) != nil {
			return
		}
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &again); err != nil {
			t.Fatalf("%s was read and written as %s: %v", data, text, err)
		}
		if again.Compare(p) != 0 || again.GTIDs.String() != p.GTIDs.String() || again.Last != p.Last || again.Server != p.Server {
			t.Fatalf("%s became %s", data, text)
		}
	})
}
