package lab

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSourcesOfBothFormatsAreRead(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("sources.list", "# deb http://old.test/debian bookworm main\ndeb-src http://src.test/debian bookworm main\ndeb [arch=amd64 signed-by=/a.gpg,/b.gpg] http://one.test/debian bookworm main contrib # why\n")
	write("sources.list.d/x.list", "deb http://two.test/debian bookworm-updates main\n")
	write("sources.list.d/y.sources", "Types: deb deb-src\n# a comment\nURIs: http://three.test/debian http://four.test/debian\nSuites: trixie\n trixie-updates\nComponents: main\nSigned-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n\nEnabled: no\nTypes: deb\nURIs: http://off.test\nSuites: sid\nComponents: main\n")
	got, err := readSources(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []source{
		{"http://one.test/debian", []string{"bookworm"}, []string{"main", "contrib"}, "/a.gpg /b.gpg"},
		{"http://two.test/debian", []string{"bookworm-updates"}, []string{"main"}, ""},
		{"http://three.test/debian", []string{"trixie", "trixie-updates"}, []string{"main"}, "\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc"},
		{"http://four.test/debian", []string{"trixie", "trixie-updates"}, []string{"main"}, "\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc"},
	}
	if !slices.EqualFunc(got, want, func(a, b source) bool {
		return a.uri == b.uri && slices.Equal(a.suites, b.suites) && slices.Equal(a.components, b.components) && a.signedBy == b.signedBy
	}) {
		t.Errorf("sources\n%q\nwant\n%q", got, want)
	}
}

func TestTheMirrorIsTheOneOfTheMachinesOwnRelease(t *testing.T) {
	sources := []source{
		{uri: "http://other.test", suites: []string{"nodistro"}, components: []string{"main"}},
		{uri: "http://security.test", suites: []string{"bookworm-security"}, components: []string{"main"}},
		{uri: "http://right.test", suites: []string{"bookworm", "bookworm-updates"}, components: []string{"main"}, signedBy: "/k.gpg"},
	}
	m, err := chooseMirror(sources, "bookworm")
	if err != nil || m.uri != "http://right.test" || m.signedBy != "/k.gpg" {
		t.Errorf("mirror %+v, %v", m, err)
	}
	if _, err := chooseMirror(sources[:2], "bookworm"); err == nil || !strings.Contains(err.Error(), "TOWPATH_LAB_MIRROR") {
		t.Errorf("error %v, want one with the remedy", err)
	}
}

func FuzzSources(f *testing.F) {
	f.Add("deb [signed-by=/a] http://a.test b c")
	f.Add("Types: deb\nURIs: http://a.test\nSuites: x\nComponents: main\nSigned-By:\n a\n")
	f.Add("deb [")
	f.Fuzz(func(t *testing.T, text string) {
		for _, s := range append(parseOneLine(text), parseDeb822(text)...) {
			if strings.ContainsAny(s.uri, " \n") {
				t.Errorf("address %q", s.uri)
			}
		}
	})
}

func TestSetUpAgainDoesNothing(t *testing.T) {
	var here []Kind // those that this machine has from a set-up, and not of its own
	var roots []string
	for _, r := range recipes {
		root, err := r.root()
		if err != nil {
			t.Fatal(err)
		}
		if r.unpacked(root) {
			here, roots = append(here, r.kind), append(roots, root)
			t.Setenv(r.kind.Env(), "")
		}
	}
	if len(here) == 0 {
		return
	}
	t.Setenv("PATH", "/none") // neither apt-get nor a server of the machine's own
	var out bytes.Buffer
	if err := Setup(t.Context(), &out, here...); err != nil {
		t.Fatal(err)
	}
	for _, root := range roots {
		if !strings.Contains(out.String(), root) {
			t.Errorf("the list lacks %s:\n%s", root, &out)
		}
	}
}

func TestSetUpSaysWhatToDoWhenItCannot(t *testing.T) {
	cases := []struct {
		name, variable, value string
		kind                  Kind
		want                  []string
	}{
		{"without apt", "PATH", "/none", MySQL97, []string{"apt-get", "Debian and Ubuntu", "TOWPATH_LAB_MYSQL97"}},
		{"without network", "TOWPATH_LAB_MIRROR", "http://127.0.0.1:1/debian", MariaDB1011, []string{"MariaDB 10.11", "network", "TOWPATH_LAB_MIRROR"}},
		{"with a program that is none", "TOWPATH_LAB_RABBIT43", "/none/rabbitmq-server", Rabbit43, []string{"TOWPATH_LAB_RABBIT43", "not a program"}},
		{"with a cache that cannot be made", "TOWPATH_LAB_CACHE", "/dev/null/cache", Rabbit310, []string{"TOWPATH_LAB_CACHE"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cache := t.TempDir()
			t.Setenv("TOWPATH_LAB_CACHE", cache)
			t.Setenv(c.variable, c.value)
			err := Setup(t.Context(), &bytes.Buffer{}, c.kind)
			if err == nil {
				t.Fatal("it went well")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error lacks %q: %v", want, err)
				}
			}
			if left, _ := filepath.Glob(filepath.Join(cache, ".setup-*")); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

func TestAServerThatIsNotSetUpNamesTheCommand(t *testing.T) {
	t.Setenv("TOWPATH_LAB_CACHE", t.TempDir())
	t.Setenv("PATH", "/none")
	t.Setenv(MySQL97.Env(), "")
	if _, err := StartMySQL(t.Context(), MySQLOptions{Kind: MySQL97}); err == nil || !strings.Contains(err.Error(), "lab setup mysql97") {
		t.Errorf("error %v, want the command to run", err)
	}
}

func TestAFolderThatWasMovedOrNotFinishedIsNotUsed(t *testing.T) {
	r, err := MySQL97.recipe()
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(t.TempDir(), "a")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if r.unpacked(root) {
		t.Error("a folder without a stamp counts as complete")
	}
	if err := os.WriteFile(filepath.Join(root, stampFile), r.stamp(root), 0o644); err != nil {
		t.Fatal(err)
	}
	if !r.unpacked(root) {
		t.Error("a complete folder does not count")
	}
	if err := os.Rename(root, root+"moved"); err != nil {
		t.Fatal(err)
	}
	if r.unpacked(root + "moved") {
		t.Error("a moved folder counts as complete, and its programs look for their loader elsewhere")
	}
}

func TestScriptsFindErlangInTheirNewFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "erl")
	old := "#!/bin/sh\nROOTDIR=/usr/lib/erlang\nX=\"/usr/lib/rabbitmq/bin\" Y=${Z}/usr/lib/erlang W=/opt/usr/lib/erlang\n"
	if err := os.WriteFile(path, []byte(old), 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a second time changes nothing
		if err := relocateScript(path, "/cache"); err != nil {
			t.Fatal(err)
		}
	}
	got, _ := os.ReadFile(path)
	want := "#!/bin/sh\nROOTDIR=/cache/usr/lib/erlang\nX=\"/cache/usr/lib/rabbitmq/bin\" Y=${Z}/usr/lib/erlang W=/opt/usr/lib/erlang\n"
	if string(got) != want {
		t.Errorf("script\n%swant\n%s", got, want)
	}
}

func TestASecondSetUpWaitsForTheFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lockFile(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*pollEvery)
	defer cancel()
	if _, err := lockFile(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a held lock gave %v", err)
	}
	got := make(chan error, 1)
	go func() {
		again, err := lockFile(context.Background(), path)
		if err == nil {
			again()
		}
		got <- err
	}()
	unlock()
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the lock was given back and nobody got it")
	}
}

func TestPortsAreNeverGivenTwice(t *testing.T) {
	seen := map[int]bool{}
	for range 200 {
		p, err := takePort()
		if err != nil {
			t.Fatal(err)
		}
		defer p.release()
		if seen[p.number] || p.number < firstPort || p.number >= lastPort {
			t.Fatalf("port %d", p.number)
		}
		seen[p.number] = true
	}
}

func TestAddressesAreReadWithoutTellingTheirSecret(t *testing.T) {
	a, err := parseAddress("u:p@ss:w@127.0.0.1:3306")
	if err != nil || a != (address{"u", "p@ss:w", "127.0.0.1:3306"}) {
		t.Errorf("%+v, %v", a, err)
	}
	for _, bad := range []string{"u:secret", "u:secret@host", "secret"} {
		if _, err := parseAddress(bad); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: error %v", bad, err)
		}
	}
}
