package lab_test

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
)

// processesOf returns the processes whose command line or environment names dir.
func processesOf(dir string) []string {
	var found []string
	pids, _ := filepath.Glob("/proc/[0-9]*")
	for _, pid := range pids {
		for _, file := range []string{"cmdline", "environ"} {
			text, err := os.ReadFile(filepath.Join(pid, file))
			if err == nil && bytes.Contains(text, []byte(dir)) {
				found = append(found, pid+" "+string(bytes.ReplaceAll(text[:min(len(text), 200)], []byte{0}, []byte{' '})))
			}
		}
	}
	return found
}

func expectNothingLeft(t *testing.T, dir string) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := os.Stat(dir)
		left := processesOf(dir)
		if os.IsNotExist(err) && len(left) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("left: folder %s (%v), processes %q", dir, err, left)
		}
	}
}

func TestAClosedServerLeavesNeitherProcessNorFolder(t *testing.T) {
	for _, kind := range databases {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := labtest.OwnMySQL(t, lab.MySQLOptions{Kind: kind})
			closeAndLook(t, s)
			if err := s.Start(t.Context()); err == nil {
				t.Error("a closed server started")
			}
		})
	}
	t.Run(string(lab.Rabbit310), func(t *testing.T) {
		t.Parallel()
		closeAndLook(t, labtest.OwnRabbit(t, lab.RabbitOptions{Kind: lab.Rabbit310}))
	})
}

func closeAndLook(t *testing.T, s interface {
	Dir() string
	Close() error
}) {
	t.Helper()
	if len(processesOf(s.Dir())) == 0 {
		t.Fatal("the test cannot see the server's processes")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	expectNothingLeft(t, s.Dir())
}

func TestServersDieWithAProcessThatIsKilled(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(self)
	child.Env = append(os.Environ(), childOf+"=1")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	dirs := strings.Fields(line)
	if err != nil || len(dirs) != 2 {
		child.Process.Kill()
		t.Fatalf("the child said %q, %v", line, err)
	}
	for _, dir := range dirs {
		if len(processesOf(dir)) == 0 {
			t.Errorf("no server in %s", dir)
		}
	}
	child.Process.Kill()
	child.Wait()
	for _, dir := range dirs {
		expectNothingLeft(t, dir)
	}
}
