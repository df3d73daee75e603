package canal

import (
	"slices"
	"testing"

	"github.com/go-mysql-org/go-mysql/replication"
)

func TestRowsOfAGroupThatEndsInARollbackAreForgottenAndItsEndIsTold(t *testing.T) {
	bothFlavors(t, func(p *tape) {
		p.begin()
		p.rows()
		p.query("ROLLBACK")
		p.want(0)
		if n := len(p.batches); n != 1 || p.batches[0].End.Offset != p.offset || p.batches[0].End.GTID.Seq != 1 {
			p.Errorf("the rolled back group gave %+v", p.batches)
		}
		p.group()
		p.want(1)
	})
}

func TestNoPlaceInsideOfAGroupIsTold(t *testing.T) {
	bothFlavors(t, func(p *tape) {
		p.event(200, flagIgnorable, []byte("whatever"))
		between := p.offset
		p.begin()
		p.event(200, flagIgnorable, []byte("whatever"))
		p.rows()
		p.event(byte(replication.IGNORABLE_EVENT), 0, []byte("whatever"))
		p.xid()
		p.want(1)
		var marks []uint64
		for _, b := range p.batches {
			marks = append(marks, b.End.Offset)
			if b.End.Created != 1_700_000_000 {
				p.Errorf("a mark is of a file created at %d", b.End.Created)
			}
		}
		if !slices.Equal(marks, []uint64{between, p.offset}) {
			p.Errorf("marks at %v, want %d and %d", marks, between, p.offset)
		}
	})
}

func TestRowsOutsideOfAGroupHalt(t *testing.T) {
	bothFlavors(t, func(p *tape) {
		p.rows()
		p.wantHalt(HaltUndecodable)
	})
}

func TestATableIDThatComesAgainIsReadByItsNewMap(t *testing.T) {
	bothFlavors(t, func(p *tape) {
		p.group()
		p.tableMap = p.tableMap[:24] // of the same id and name, and not to be read
		p.group()
		p.wantHalt(HaltUndecodable)
		if got := len(ids(p.batches)); got != 1 {
			p.Errorf("got %d rows, want those of the first map alone", got)
		}
	})
}

func TestAnEncryptedFileOfMariaDBIsReadOn(t *testing.T) {
	p := newTape(t, "mariadb")
	p.event(byte(replication.MARIADB_START_ENCRYPTION_EVENT), 0, make([]byte, 17))
	p.group()
	p.want(1)
}

func TestAPreparedXAGroupThatWasCommittedWithItIsCommitted(t *testing.T) {
	bothFlavors(t, func(p *tape) {
		for onePhase, want := range []Kind{Prepared, Committed} {
			p.batches = nil
			p.begin()
			p.rows()
			p.event(byte(replication.XA_PREPARE_LOG_EVENT), 0, []byte{byte(onePhase), 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 'a'})
			if p.want(1); len(p.batches) != 1 || p.batches[0].Kind != want {
				p.Errorf("one phase %d: got %+v", onePhase, p.batches)
			}
		}
	})
}

func TestASweepThatACutOffGroupAskedForIsNotForgotten(t *testing.T) {
	bothFlavors(t, func(p *tape) {
		p.begin()
		p.query("INSERT INTO outbox VALUES (1)")
		p.rotate("binlog.000002")
		p.group()
		p.want(1)
		if got := swept(p.batches); !slices.Equal(got, []TableName{shopOutbox}) {
			p.Errorf("sweeps of %v", got)
		}
	})
}

func TestAHaltIsPassedInItsOwnFileAlone(t *testing.T) {
	bothFlavors(t, func(p *tape) {
		p.event(byte(replication.INCIDENT_EVENT), 0, []byte{1, 0, 0})
		mark := p.wantHalt(HaltIncident).Mark
		mark.Created++
		q := newTape(p.T, p.reader.flavor)
		q.reader.skip = &mark
		q.event(byte(replication.INCIDENT_EVENT), 0, []byte{1, 0, 0})
		q.wantHalt(HaltIncident)
	})
}

func TestTableIDsThatGrowWithoutEndTakeBoundedMemory(t *testing.T) {
	bothFlavors(t, func(p *tape) {
		for id := range 2*maxMaps + 1 {
			p.tableMap, p.insert = slices.Clone(p.tableMap), slices.Clone(p.insert)
			p.tableMap[0], p.tableMap[1] = byte(id), byte(id>>8)
			p.insert[0], p.insert[1] = byte(id), byte(id>>8)
			p.group()
		}
		p.want(2*maxMaps + 1)
		if n := len(p.reader.rows.maps); n > maxMaps {
			p.Errorf("%d table maps are kept", n)
		}
	})
}
