package canal

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/deploy/lab"
)

// own runs a test on servers that it may spoil.
func onOwn(t *testing.T, variants []variant, test func(t *testing.T, f *rig)) {
	t.Helper()
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			srv, err := lab.StartMySQL(t.Context(), v.opts)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { srv.Close() })
			test(t, newRig(t, srv))
		})
	}
}

func wantGap(t *testing.T, err error, kinds ...GapKind) {
	t.Helper()
	var gap *GapError
	if !errors.As(err, &gap) {
		t.Errorf("ended with %v, want a gap (%v)", err, kinds)
		return
	}
	for _, k := range kinds {
		if gap.Kind == k {
			return
		}
	}
	t.Errorf("ended with %v, want a gap of %v", err, kinds)
}

func TestAPurgedPositionIsAGap(t *testing.T) {
	onEach(t, allVariants, func(t *testing.T, f *rig) {
		start := f.start()
		f.insert(1, 1)
		f.exec("FLUSH BINARY LOGS")
		f.insert(2, 2)
		f.purge()
		err := f.refusal(f.source(), start)
		wantGap(t, err, GapPurged)
	})
}

func TestAPurgedFileIsNoGapIfNothingThatFollowsIsMissing(t *testing.T) {
	onEach(t, []variant{mysqlGTID, mariaFull}, func(t *testing.T, f *rig) {
		f.insert(1, 1)
		start := f.start()
		f.exec("FLUSH BINARY LOGS")
		f.purge()
		f.insert(2, 2)
		wantIDs(t, f.read(f.source(), start), "2")
	})
}

func TestAPositionAheadOfTheServerIsAGap(t *testing.T) {
	onEach(t, allVariants, func(t *testing.T, f *rig) {
		start := f.start()
		f.insert(1, 1)
		later := f.here()
		for name, p := range map[string]func(*checkpoint.Position){
			"in the file":           func(p *checkpoint.Position) { p.Offset += 1000 },
			"in a file to come":     func(p *checkpoint.Position) { p.File = strings.TrimSuffix(p.File, "1") + "9" },
			"in its GTIDs":          func(p *checkpoint.Position) { bump(p) },
			"in GTIDs without file": func(p *checkpoint.Position) { bump(p); p.File, p.Offset = "", 0 },
		} {
			s := start
			s.Position = later.Clone()
			p(&s.Position)
			if strings.Contains(name, "GTIDs") && later.GTIDs.IsZero() {
				continue
			}
			err := f.refusal(f.source(), s)
			t.Run(name, func(t *testing.T) { wantGap(t, err, GapAhead, GapHistory) })
		}
	})
}

// bump adds a group that the server has not executed.
func bump(p *checkpoint.Position) {
	text := p.GTIDs.String()
	if p.Flavor == checkpoint.MySQL {
		text += ":1000000"
	} else {
		text += "0000"
	}
	p.GTIDs, _ = checkpoint.ParseGTIDSet(p.Flavor, text)
}

func TestAServerThatWasResetIsAnotherHistory(t *testing.T) {
	onEach(t, allVariants, func(t *testing.T, f *rig) {
		f.insert(1, 2)
		// Seconds tell files apart, and this one may have been made in the same
		// one as its namesake to come.
		created := f.created() - 1
		start := f.start()
		start.Position.Created = created
		reset := "RESET MASTER"
		if start.Position.Flavor == checkpoint.MySQL {
			reset = "RESET BINARY LOGS AND GTIDS"
		}
		f.exec(reset)
		f.exec("DELETE FROM outbox")
		err := f.refusal(f.source(), start)
		wantGap(t, err, GapAhead, GapHistory)
		// The new history grows past the position: only the file's creation
		// stamp, and on MariaDB the GTID's place, tell it.
		f.insert(10, 60)
		err = f.refusal(f.source(), start)
		wantGap(t, err, GapHistory, GapAhead)
	})
}

// created is the creation stamp of the server's last file.
func (f *rig) created() uint32 {
	f.Helper()
	start := Start{Position: f.here()}
	f.insert(900, 900)
	all := f.read(f.source(), start)
	return all[len(all)-1].End.Created
}

func TestAnotherServerIsAGap(t *testing.T) {
	onEach(t, allVariants, func(t *testing.T, f *rig) {
		start := f.start()
		f.insert(1, 1)
		start.Position.Server = "0f0e0d0c-0b0a-0908-0706-050403020100"
		if start.Position.GTIDs.IsZero() {
			err := f.refusal(f.source(), start)
			wantGap(t, err, GapOtherServer)
			return
		}
		// With GTIDs another server can go on, if it has all that the position has.
		start.Position.File, start.Position.Offset = "elsewhere.000007", 12345
		wantIDs(t, f.read(f.source(), start), "1")
		bump(&start.Position)
		err := f.refusal(f.source(), start)
		wantGap(t, err, GapOtherServer, GapHistory)
	})
}

func TestAPositionOfTheOtherFlavorIsAGap(t *testing.T) {
	onEach(t, []variant{mysqlGTID, mariaFull}, func(t *testing.T, f *rig) {
		start := f.start()
		f.insert(1, 1)
		p := checkpoint.Position{Flavor: checkpoint.MariaDB, Server: start.Position.Server, File: start.Position.File, Offset: 4}
		if start.Position.Flavor == checkpoint.MariaDB {
			p.Flavor = checkpoint.MySQL
		}
		err := f.refusal(f.source(), Start{Position: p})
		wantGap(t, err, GapOtherServer)
	})
}

func TestAPositionInsideAnEventIsAGap(t *testing.T) {
	onEach(t, []variant{mysqlPlain}, func(t *testing.T, f *rig) {
		start := f.start()
		f.insert(1, 3)
		start.Position.Offset += 5
		err := f.refusal(f.source(), start)
		wantGap(t, err, GapHistory)
	})
}

func TestAPositionWithoutGTIDsIsContinuedByFile(t *testing.T) {
	onEach(t, []variant{mysqlGTID, mariaFull}, func(t *testing.T, f *rig) {
		start := f.start()
		start.Position.GTIDs = checkpoint.GTIDSet{}
		f.insert(1, 3)
		batches := f.read(f.source(), start)
		wantIDs(t, batches, numbers(1, 3)...)
		for _, b := range batches {
			if !b.End.GTID.IsZero() {
				t.Errorf("mark with GTID %v would make a set that is not whole", b.End.GTID)
			}
		}
	})
}

func TestARefusedAccountIsToldApart(t *testing.T) {
	onEach(t, []variant{mysqlGTID, mariaFull}, func(t *testing.T, f *rig) {
		start := f.start()
		f.insert(1, 1)
		wrong := f.source(func(o *Options) { o.Password = func() (string, error) { return "not it", nil } })
		if err := f.refusal(wrong, start); !errors.Is(err, ErrAccess) {
			t.Errorf("wrong password: %v", err)
		}
		for _, grants := range [][]string{{"SELECT ON *.*"}, {"REPLICATION CLIENT ON *.*"}, {"REPLICATION SLAVE ON *.*"}} {
			user, err := f.srv.NewUser(t.Context(), grants...)
			if err != nil {
				t.Fatal(err)
			}
			poor := f.source(func(o *Options) {
				o.User, o.Password = user.Name, func() (string, error) { return user.Password, nil }
			})
			if err := f.refusal(poor, start); !errors.Is(err, ErrPrivilege) {
				t.Errorf("with %v: %v", grants, err)
			}
		}
		grants := []string{"REPLICATION SLAVE, REPLICATION CLIENT ON *.*"}
		if start.Position.Flavor == checkpoint.MariaDB {
			grants = []string{"REPLICATION SLAVE, BINLOG MONITOR ON *.*"}
		}
		user, err := f.srv.NewUser(t.Context(), grants...)
		if err != nil {
			t.Fatal(err)
		}
		least := f.source(func(o *Options) {
			o.User, o.Password = user.Name, func() (string, error) { return user.Password, nil }
		})
		wantIDs(t, f.read(least, start), "1")
	})
}

func TestAServerWithoutBinlogIsToldApart(t *testing.T) {
	off := mysqlPlain
	off.opts.Args = append([]string{"--skip-log-bin"}, off.opts.Args...)
	onOwn(t, []variant{off}, func(t *testing.T, f *rig) {
		s, err := Inspect(t.Context(), f.db)
		if err != nil || s.Binlog {
			t.Fatalf("inspected %+v, %v", s, err)
		}
		p := checkpoint.Position{Flavor: s.Flavor, Server: s.Identity, File: "binlog.000001", Offset: 4}
		err = f.source().Stream(t.Context(), Start{Position: p}, nil)
		if !errors.Is(err, ErrBinlogOff) {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestTLSIsUsedAsAsked(t *testing.T) {
	secure := mysqlGTID
	secure.opts.TLS = true
	onOwn(t, []variant{secure, {"MariaDB with TLS", lab.MySQLOptions{Kind: lab.MariaDB1011, TLS: true, Args: []string{ownTemporaries}}}}, func(t *testing.T, f *rig) {
		start := f.start()
		f.insert(1, 1)
		p := f.proxy()
		verified := func() (*tls.Config, error) { return f.srv.Certificates().ClientConfig() }
		for _, c := range []struct {
			mode TLSMode
			tls  func() (*tls.Config, error)
			fail bool
		}{
			{TLSDisabled, nil, false}, {TLSPreferred, nil, false}, {TLSRequired, nil, false},
			{TLSVerify, verified, false}, {TLSVerify, nil, true}, {TLSRequired, verified, false},
		} {
			s := f.source(func(o *Options) { o.Address, o.TLSMode, o.TLS = p.Addr(), c.mode, c.tls })
			batches, err := f.tryRead(s, start)
			if c.fail != !errors.Is(err, errEnough) {
				t.Errorf("mode %s, own CA %t: %v", c.mode, c.tls != nil, err)
			}
			if !c.fail {
				wantIDs(t, batches, "1")
			}
		}
	})
	bare := variant{"MariaDB without TLS", lab.MySQLOptions{Kind: lab.MariaDB1011, Args: []string{ownTemporaries, "--skip-ssl"}}}
	onOwn(t, []variant{bare}, func(t *testing.T, f *rig) {
		start := f.start()
		f.insert(1, 1)
		if err := f.refusal(f.source(func(o *Options) { o.TLSMode = TLSRequired }), start); !errors.Is(err, ErrTLS) {
			t.Errorf("required, not offered: %v", err)
		}
		wantIDs(t, f.read(f.source(func(o *Options) { o.TLSMode = TLSPreferred }), start), "1")
	})
}

func TestASocketIsReached(t *testing.T) {
	onEach(t, []variant{mysqlGTID, mariaFull}, func(t *testing.T, f *rig) {
		start := f.start()
		f.insert(1, 1)
		wantIDs(t, f.read(f.source(func(o *Options) { o.Address = f.srv.Socket() }), start), "1")
	})
}

func TestInspectTellsWhatTheServerHas(t *testing.T) {
	onEach(t, allVariants, func(t *testing.T, f *rig) {
		g := f.follow(f.source(func(o *Options) { o.ServerID = 4242 }), f.start())
		f.insert(1, 1)
		g.awaitRow(t, "1")
		s, err := Inspect(t.Context(), f.db)
		if err != nil {
			t.Fatal(err)
		}
		if !s.Binlog || s.Format != "ROW" || s.RowImage != "FULL" || s.SyncBinlog != 1 || s.FlushLog != 1 || !s.OrderCommits || s.MaxPacket == 0 || s.ReadOnly {
			t.Errorf("inspected %+v", s)
		}
		if len(s.Logs) == 0 || s.Logs[len(s.Logs)-1].Name != s.Position.File || s.Position.Server != s.Identity || s.Identity == "" {
			t.Errorf("inspected %+v", s)
		}
		if want := fmt.Sprint([]Replica{{4242, ReplicaHost}}); fmt.Sprint(s.Replicas) != want {
			t.Errorf("replicas %v, want %s", s.Replicas, want)
		}
		if gtid := s.GTIDMode == "ON"; gtid == s.Position.GTIDs.IsZero() {
			t.Errorf("GTID mode %s and GTIDs %q", s.GTIDMode, s.Position.GTIDs)
		}
	})
}
