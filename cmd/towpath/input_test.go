package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
)

// edited writes the configuration with a text replaced, and returns its path.
func (r *rig) edited(old, new string) string {
	r.t.Helper()
	path := r.config()
	text, err := os.ReadFile(path)
	if err != nil {
		r.t.Fatal(err)
	}
	if !strings.Contains(string(text), old) {
		r.t.Fatalf("the configuration has no %q", old)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), old, new, 1)), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path
}

func TestBadInputEndsTheStartWithAClearErrorAndNothingBegun(t *testing.T) {
	r := oneServer(t)
	good := r.config()
	if code, out := towpath(t, "run", "-c", good); code != 1 || !strings.Contains(out, "run towpath init") {
		t.Errorf("no state tables: exit code %d: %s", code, out)
	}
	r.init(good)
	reader, err := r.mysql.NewUser(t.Context(), fmt.Sprintf("SELECT ON %s.*", r.schema))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, old, new, want string }{
		{"missing table", r.schema + ".outbox", r.schema + ".outbax", "does not exist"},
		{"missing column", "body: payload", "body: pyload", "has no column pyload"},
		{"missing status column", "{column: status,", "{column: state,", "has no column state"},
		{"wrong password", "user: root", "user: root, password: wrong-secret", "Access denied"},
		{"unknown user", "user: root", "user: nobody-here", "Access denied"},
		{"unknown key", "name: shop", "name: shop\nnmae: shop", "nmae"},
		{"malformed YAML", "name: shop", "name: [shop", "line"},
		{"no privilege", "user: root", fmt.Sprintf("user: %s, password: %q", reader.Name, reader.Password), "denied"},
		{"no file", "", "", "no such file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := r.t.TempDir() + "/missing.yaml"
			if c.old != "" {
				path = r.edited(c.old, c.new)
			}
			code, out := towpath(t, "run", "-c", path)
			if code != 1 || !strings.Contains(out, c.want) {
				t.Errorf("exit code %d, want 1 and %q:\n%s", code, c.want, out)
			}
			if strings.Contains(out, "wrong-secret") || strings.Contains(out, reader.Password) {
				t.Errorf("a password is shown:\n%s", out)
			}
			if strings.Contains(out, "\tleading\t") {
				t.Errorf("it led for a moment:\n%s", out)
			}
		})
	}
}

func TestAServerWhoseBinlogCannotServeIsRefused(t *testing.T) {
	for _, c := range []struct {
		name, arg, want string
	}{
		{"binlog off", "--disable-log-bin", "set log_bin"},
		{"statement format", "--binlog-format=STATEMENT", "SET PERSIST binlog_format = 'ROW'"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := lab.MySQLOptions{Kind: lab.MySQL97, Args: []string{c.arg}}
			r := newRig(t, labtest.OwnMySQL(t, o), labtest.Rabbit(t, lab.RabbitOptions{Kind: lab.Rabbit43}))
			config := r.config()
			if c.name == "binlog off" { // in statement format the server itself refuses READ COMMITTED writes
				r.init(config)
			}
			for _, command := range []string{"run", "check"} {
				if code, out := towpath(t, command, "-c", config); code != 1 || !strings.Contains(out, c.want) {
					t.Errorf("%s: exit code %d, want 1 and %q:\n%s", command, code, c.want, out)
				}
			}
		})
	}
}

func TestWrongUseOfTheCommandLineIsToldFromFailure(t *testing.T) {
	for _, args := range [][]string{{"run"}, {"nonsense"}, {"run", "--nonsense"}, {"run", "-c", "x.yaml", "more"}, {"grants", "-c"}} {
		if code, out := towpath(t, args...); code != 2 {
			t.Errorf("towpath %v: exit code %d, want 2: %s", args, code, out)
		}
	}
	for _, args := range [][]string{{"version"}, {"version", "--json"}, {"help"}, {"run", "--help"}} {
		if code, out := towpath(t, args...); code != 0 || out == "" {
			t.Errorf("towpath %v: exit code %d: %s", args, code, out)
		}
	}
}

func TestABrokerThatIsAwayAtTheStartIsWaitedFor(t *testing.T) {
	r := oneServer(t)
	proxy := proxied(t, r.rabbit.Addr())
	proxy.Set(lab.Fault{Refuse: true})
	r.broker = proxy.Addr()
	config := r.config()
	r.init(config)
	p := start(t, config)
	p.says("lane down", 1)
	if code, text := p.get("/readyz"); code != 503 || !strings.Contains(text, "broker") {
		t.Errorf("/readyz is %d: %s", code, text)
	}
	if code, text := p.get("/healthz"); code != 200 {
		t.Errorf("/healthz is %d during an outage: %s", code, text)
	}
	s := r.trade(1)
	s.traded(20)
	committed := s.stop()
	proxy.Set(lab.Fault{})
	p.publishing()
	r.inbox.holds(committed)
	r.inbox.account(committed)
	p.stop()
}

func TestADatabaseThatIsAwayAtTheStartIsWaitedFor(t *testing.T) {
	r := oneServer(t)
	r.init(r.config())
	proxy := proxied(t, r.mysql.Addr())
	proxy.Set(lab.Fault{Refuse: true})
	r.source = proxy.Addr()
	p := start(t, r.config())
	p.says("waiting for the database", 1)
	proxy.Set(lab.Fault{})
	p.publishing()
	p.stop()
}

func TestASecondStreamOfTheSameNameStandsByAndSaysWhoLeads(t *testing.T) {
	r := oneServer(t)
	config := r.config()
	leader := r.running(config)
	second := r.standby()
	if !strings.Contains(second.text(), fmt.Sprintf("/%d/", leader.cmd.Process.Pid)) {
		t.Error("it does not say which process leads")
	}
	second.stop()
	leader.stop()
}

func TestAnAddressThatIsTakenEndsTheStart(t *testing.T) {
	r := oneServer(t)
	config := r.config()
	p := r.running(config)
	if code, out := towpath(t, "run", "-c", config); code != 1 || !strings.Contains(out, "http.listen") {
		t.Errorf("exit code %d: %s", code, out)
	}
	p.stop()
}
