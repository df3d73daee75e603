package relay

import (
	"database/sql"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
)

func TestXATransactionsKeepTheirVerdictOverARestartOfTheServer(t *testing.T) {
	onOwn(t, func(t *testing.T, server *lab.MySQLServer) {
		s := newShop(t, server, markBills, createBill)
		stop := s.run()
		s.begun()
		prepare := func(name string, id int) {
			xa := s.session()
			for _, statement := range []string{"XA START '" + name + "'", fmt.Sprintf("INSERT INTO bill (id) VALUES (%d)", id), "XA END '" + name + "'", "XA PREPARE '" + name + "'", ""} {
				xa(statement)
			}
		}
		prepare("a", 10)
		prepare("b", 11)
		s.exec("INSERT INTO bill (id) VALUES (1)")
		s.waitFor(1)
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		decide := s.session()
		decide("XA COMMIT 'a'")
		decide("XA ROLLBACK 'b'")
		s.waitFor(2)
		prepare("c", 12)
		prepare("d", 13)
		stop() // its rows are stored; the verdict falls while nobody reads
		if err := server.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		decide = s.session()
		decide("XA COMMIT 'c'")
		decide("XA ROLLBACK 'd'")
		stop = s.run()
		s.waitFor(3)
		s.exec("INSERT INTO bill (id) VALUES (2)")
		s.waitFor(4)
		s.wait("all is marked", func() bool { return s.value("SELECT COUNT(*) FROM bill WHERE status='PENDING'") == "0" })
		stop()
		for _, id := range []string{"1", "10", "12", "2"} {
			if s.times[id] == 0 {
				t.Errorf("row %s was committed and is lost", id)
			}
		}
		if s.times["11"]+s.times["13"] > 0 {
			t.Errorf("rows that were rolled back were sent (P1): %v", s.times)
		}
	})
}

func TestAHistoryThatWasResetHaltsAKeepTableUntilAPersonDecides(t *testing.T) {
	onOwn(t, func(t *testing.T, server *lab.MySQLServer) {
		s := newShop(t, server, keepNotes+markBills, createNote, createBill)
		stop := s.run()
		s.begun()
		s.exec("INSERT INTO note (id) VALUES (1)")
		s.waitFor(1)
		stop()
		s.exec("INSERT INTO note (id) VALUES (2)")
		s.exec("INSERT INTO bill (id) VALUES (3)")
		s.endDumps()
		s.resetBinlog()
		s.exec("INSERT INTO note (id) VALUES (4)")
		stop = s.run()
		s.waitLog("halted")
		s.mu.Lock()
		early := len(s.times)
		s.mu.Unlock()
		if early != 1 {
			t.Errorf("%d ids arrived while it was halted, want the first alone", early)
		}
		s.resume(Resumption{AcceptLoss: true})
		s.wait("bill 3, which its table shows", func() bool { return s.times["3"] == 1 })
		s.exec("INSERT INTO note (id) VALUES (5)")
		s.wait("note 5", func() bool { return s.times["n5"] == 1 })
		stop()
		if s.times["n2"]+s.times["n4"] > 0 {
			t.Errorf("what was given up was sent: %v", s.times)
		}
	})
}

// pair is a source and a replica that has all of it, and one address that leads
// to the first of them.
type pair struct {
	*shop
	first, second *lab.MySQLServer
	replica       *sql.DB
	address       *movingAddress
}

// movingAddress forwards connections to a server, from some moment on to another.
type movingAddress struct {
	listener net.Listener
	mu       sync.Mutex
	target   string
	open     []net.Conn
}

func (m *movingAddress) forward() {
	for {
		client, err := m.listener.Accept()
		if err != nil {
			return
		}
		m.mu.Lock()
		server, err := net.Dial("tcp", m.target)
		if err != nil {
			client.Close()
		} else {
			m.open = append(m.open, client, server)
			go func() { io.Copy(server, client); server.Close() }()
			go func() { io.Copy(client, server); client.Close() }()
		}
		m.mu.Unlock()
	}
}

func (m *movingAddress) moveTo(target string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.target = target
	for _, c := range m.open {
		c.Close()
	}
	m.open = nil
}

// onPairs runs a test on a source with a replica, of MySQL and of MariaDB.
func onPairs(t *testing.T, test func(t *testing.T, p pair)) {
	for name, options := range map[string]lab.MySQLOptions{
		"mysql":   {Kind: lab.MySQL97, GTID: true, RowMetadata: "FULL"},
		"mariadb": {Kind: lab.MariaDB1011, GTID: true, RowMetadata: "FULL", Args: []string{"--log-slave-updates=ON"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pair{first: labtest.OwnMySQL(t, options), second: labtest.OwnMySQL(t, options)}
			p.replica = p.second.RootDB()
			host, port, _ := strings.Cut(p.first.Addr(), ":")
			follow := []string{fmt.Sprintf("CHANGE REPLICATION SOURCE TO SOURCE_HOST='%s', SOURCE_PORT=%s, SOURCE_USER='root', SOURCE_AUTO_POSITION=1", host, port), "START REPLICA"}
			if p.first.Kind().IsMariaDB() {
				follow = []string{fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='%s', MASTER_PORT=%s, MASTER_USER='root', MASTER_USE_GTID=slave_pos", host, port), "START SLAVE"}
			}
			for _, statement := range follow {
				if _, err := p.replica.Exec(statement); err != nil {
					t.Fatal(err)
				}
			}
			p.shop = newShop(t, p.first, markBills, createBill)
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			p.address = &movingAddress{listener: listener, target: p.first.Addr()}
			p.source = listener.Addr().String()
			go p.address.forward()
			t.Cleanup(func() { listener.Close(); p.address.moveTo("") })
			test(t, p)
		})
	}
}

// failOver kills the first server once the replica has a bill, and moves the address.
func (p *pair) failOver(bill int) {
	p.Helper()
	p.wait("the replica has all", func() bool { return p.replicaHas(fmt.Sprintf("id = %d", bill)) })
	if err := p.first.Kill(); err != nil {
		p.Fatal(err)
	}
	stop := "STOP REPLICA"
	if p.first.Kind().IsMariaDB() {
		stop = "STOP SLAVE"
	}
	if _, err := p.replica.Exec(stop); err != nil {
		p.Fatal(err)
	}
	p.address.moveTo(p.second.Addr())
}

func (p *pair) replicaHas(condition string) bool {
	n := 0
	_ = p.replica.QueryRow("SELECT COUNT(*) FROM " + p.schema + ".bill WHERE " + condition).Scan(&n)
	return n > 0
}

func (p *pair) insertAtReplica(bill int) {
	p.Helper()
	if _, err := p.replica.Exec("INSERT INTO "+p.schema+".bill (id) VALUES (?)", bill); err != nil {
		p.Fatal(err)
	}
}

// The saved position is replicated with the rows, and its GTIDs mean the same on
// a replica.
func TestAfterAFailoverNoRowThatTheReplicaHasIsLost(t *testing.T) {
	for what, running := range map[string]bool{"while the relay is down": false, "under a running relay": true} {
		t.Run(what, func(t *testing.T) {
			onPairs(t, func(t *testing.T, p pair) {
				stop := p.run()
				p.begun()
				p.exec("INSERT INTO bill (id) VALUES (1), (2)")
				p.waitFor(2)
				if !running {
					stop()
				}
				p.exec("INSERT INTO bill (id) VALUES (3), (4)")
				p.failOver(4)
				p.insertAtReplica(5)
				if !running {
					stop = p.run()
				}
				p.waitFor(5)
				p.insertAtReplica(6)
				p.waitFor(6)
				p.wait("the last is marked", func() bool { return p.replicaHas("id = 6 AND status = 'SENT'") })
				gaps := p.metric("gaps_total")
				if running {
					p.waitLog("the leadership failed, beginning again")
				}
				stop()
				for id := range 6 {
					if p.times[fmt.Sprint(id+1)] == 0 {
						t.Errorf("row %d is lost", id+1)
					}
				}
				if gaps != 0 {
					t.Errorf("%v gaps were reported: the replica has the whole history", gaps)
				}
			})
		})
	}
}

func TestAPrivilegeThatIsTakenAwayIsNamedAndNothingIsLost(t *testing.T) {
	onOwn(t, func(t *testing.T, server *lab.MySQLServer) {
		s := newShop(t, server, markBills, createBill)
		user, err := server.NewUser(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		account := "'" + user.Name + "'@'%'"
		flavor := checkpoint.MySQL
		if server.Kind().IsMariaDB() {
			flavor = checkpoint.MariaDB
		}
		s.user = user.Name + ", password: " + user.Password
		c, err := configs.Parse("test.yaml", []byte(s.config()), func(string) (string, bool) { return "", false })
		if err != nil {
			t.Fatal(err)
		}
		grants := checkpoint.Grants(flavor, account, s.state, OutboxGrants(c))
		for _, grant := range grants {
			s.exec(grant)
		}
		stop := s.run()
		s.begun()
		id := 0
		for _, grant := range grants {
			_, on, _ := strings.Cut(strings.TrimSuffix(grant, " TO "+account), " ON ")
			table := strings.Trim(on[strings.LastIndex(on, ".")+1:], "`")
			if !slices.Contains([]string{"bill", "checkpoint", "lease", "*"}, table) {
				continue
			}
			seen := s.log.Len()
			s.exec(strings.Replace(strings.TrimSuffix(grant, " TO "+account), "GRANT ", "REVOKE ", 1) + " FROM " + account)
			if table == "*" { // of the whole server: sessions that are there keep it
				s.endDumps()
			}
			id++
			s.exec("INSERT INTO bill (id) VALUES (?)", id)
			s.wait("a warning that names "+on, func() bool {
				return slices.ContainsFunc(s.log.All()[seen:], func(e observer.LoggedEntry) bool {
					text := fmt.Sprint(e.Message, e.ContextMap())
					return e.Level >= zap.WarnLevel && (table == "*" && strings.Contains(text, "REPLICATION SLAVE") || strings.Contains(text, "denied") && strings.Contains(text, table))
				})
			})
			s.exec(grant)
			s.wait(fmt.Sprintf("row %d", id), func() bool { return s.times[fmt.Sprint(id)] > 0 })
			s.wait("marked", func() bool { return s.value("SELECT COUNT(*) FROM bill WHERE status='PENDING'") == "0" })
			s.wait("streaming again", func() bool { return s.metric("streaming") == 1 })
		}
		stop()
		if id != 4 || len(s.times) != id {
			t.Errorf("%d privileges were taken away, %v arrived", id, s.times)
		}
	})
}

// A gap lock on the index of the status makes the write-back wait though the
// row itself is free.
func TestARowStateThatWaitsForAGapLockHoldsUpNeitherOtherTablesNorThePosition(t *testing.T) {
	onEach(t, func(t *testing.T, server *lab.MySQLServer) {
		s := newShop(t, server, markBills+deleteSlips, createBill, createSlip)
		s.level = zap.DebugLevel
		stop := s.run()
		s.begun()
		s.exec("INSERT INTO bill (id, status) VALUES (4, 'QUIET'), (1, 'SENT'), (5, 'TAKEN')") // in the index 2 stands before them, and will behind 1
		app := s.session()
		app("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
		app("START TRANSACTION")
		app("SELECT id FROM bill FORCE INDEX (status) WHERE status='SENT' FOR UPDATE")
		s.exec("INSERT INTO bill (id) VALUES (2)")
		s.waitFor(1)
		began := time.Now()
		for id := range 8 { // each by a job of its own
			s.exec("INSERT INTO slip (id) VALUES (?)", id+10)
			s.wait("the slip is deleted", func() bool { return s.value("SELECT COUNT(*) FROM slip") == "0" })
		}
		waits := s.log.FilterMessageSnippet("waits for a lock").Len()
		if most := 1 + int(time.Since(began)/asideFor); waits < 1 || waits > most {
			t.Errorf("%d jobs waited for the lock in %s, want 1 to %d", waits, time.Since(began), most)
		}
		if status := s.value("SELECT status FROM bill WHERE id=2"); status != "PENDING" {
			t.Fatalf("bill 2 is %s: nothing has held it", status)
		}
		app("COMMIT")
		s.wait("the bill is marked", func() bool { return s.value("SELECT status FROM bill WHERE id=2") == "SENT" })
		stop()
		if twice := s.twice(); len(twice) > 0 {
			t.Errorf("%v came twice", twice)
		}
	})
}
