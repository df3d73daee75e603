package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/towpath/towpath/deploy/lab"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(tidy{m}) }

// tidy is a test run after which the temporary folder must be empty.
type tidy struct{ m *testing.M }

func (t tidy) Run() int {
	temp, err := os.MkdirTemp("", "towpath-demo-test-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(temp)
	os.Setenv("TMPDIR", temp)
	code := t.m.Run()
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		fmt.Println("left behind in the temporary folder:", left, err)
		return 1
	}
	return code
}

// figureOf reads one line of a printed account.
func figureOf(t *testing.T, account, name string) int {
	t.Helper()
	m := regexp.MustCompile(`(?m)^  ` + name + ` +(\d+) `).FindStringSubmatch(account)
	if m == nil {
		t.Fatalf("no line %q in:\n%s", name, account)
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestTheDemoKillsRestartsAndPurgesAndAccountsForEveryRow(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	o := options{database: lab.MySQL97, broker: lab.Rabbit43, duration: 8 * time.Second, rate: 100}
	err := perform(t.Context(), o, &lines{out: &out}, &out, make(chan byte), func() func() { return func() {} })
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	text := out.String()
	for name, want := range map[string]int{"lost": 0, "ghosts": 0, "applied twice": 0, "out of order": 0, "unsent": 0} {
		if got := figureOf(t, text, name); got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
	committed := figureOf(t, text, "committed")
	if applied := figureOf(t, text, "applied"); committed == 0 || committed != applied {
		t.Errorf("%d rows committed, %d applied", committed, applied)
	}
	if figureOf(t, text, "rolled back") == 0 {
		t.Error("nothing was rolled back: ghosts could not show")
	}
	if !strings.Contains(text, "1 kill, 1 broker restart, 1 purge") || !strings.Contains(text, "after the kill") {
		t.Errorf("the script was not played to its end:\n%s", text)
	}
}

func TestTheDemoFailsWhenItsAccountShowsALoss(t *testing.T) {
	d := newDemo(&stage{}, &lines{out: io.Discard}, nil)
	fails := func(want string, effects map[uint64]int) {
		t.Helper()
		r := result{audit: d.ledger.audit(effects)}
		if err := d.verdict(r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the verdict is %v, want %s", err, want)
		}
	}
	if err := d.verdict(result{}); err != nil {
		t.Errorf("an empty account is an error: %v", err)
	}
	d.ledger.open(rowsOf("k", 1))
	d.ledger.commit(rowsOf("k", 1), epoch)
	fails("1 lost", nil)
	if a := d.account(result{audit: d.ledger.audit(nil)}); !strings.Contains(a, "message ids 1\n") {
		t.Errorf("the account does not name the lost row:\n%s", a)
	}
	deliverAll(d.ledger, 1)
	fails("1 lost", nil) // received is not applied
	fails("1 applied twice", map[uint64]int{1: 2})
	fails("1 ghosts", map[uint64]int{1: 1, 2: 1})
	deliverAll(d.ledger, 2)
	fails("1 ghosts", map[uint64]int{1: 1})
}

func TestASignalDuringTheSetUpEndsTheDemoAndLeavesNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	notice := writerFunc(func(p []byte) (int, error) {
		if strings.Contains(string(p), "start MySQL") {
			cancel()
		}
		return out.Write(p)
	})
	o := options{database: lab.MySQL97, broker: lab.Rabbit43, duration: time.Second, rate: 1}
	if err := perform(ctx, o, &lines{out: notice}, notice, make(chan byte), func() func() { return func() {} }); err == nil {
		t.Errorf("it ended as if nothing had happened:\n%s", out.String())
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestOnATerminalTheDemoObeysKeysAndGivesTheTerminalBack(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "demo")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	terminal, side := openTerminal(t, 80, 24)
	c := exec.CommandContext(t.Context(), binary, "--rate", "50", "--database", "mariadb1011", "--broker", "rabbit310")
	c.Env = append(os.Environ(), "TERM=xterm")
	c.Stdin, c.Stdout, c.Stderr = side, side, side
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	side.Close()
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()

	var seen strings.Builder
	past := 0 // what was awaited before
	await := func(what string) {
		t.Helper()
		if err := terminal.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, 4096)
		for {
			if i := strings.Index(seen.String()[past:], what); i >= 0 {
				past += i + len(what)
				return
			}
			n, err := terminal.Read(buffer)
			seen.Write(buffer[:n])
			if err != nil {
				t.Fatalf("wait for %q: %v; the terminal shows:\n%q", what, err, seen.String()[max(0, seen.Len()-4000):])
			}
		}
	}
	await("k\x1b[0m kill the leader")
	await("  0:01") // the shop is open
	fmt.Fprint(terminal, "k")
	await("after the kill")
	fmt.Fprint(terminal, "\x03") // Ctrl-C
	await("\x1b[?1049l")         // the terminal as it was
	await("account\r\n")
	await("to the consumer")
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	text := strings.ReplaceAll(seen.String(), "\r\n", "\n")
	if lost, ghosts := figureOf(t, text, "lost"), figureOf(t, text, "ghosts"); lost != 0 || ghosts != 0 {
		t.Errorf("%d lost, %d ghosts", lost, ghosts)
	}
}

// openTerminal makes a pseudo-terminal of a size, and its side for a program.
func openTerminal(t *testing.T, width, height uint16) (terminal, side *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	terminal = os.NewFile(uintptr(fd), "ptmx")
	t.Cleanup(func() { terminal.Close() })
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: height, Col: width}); err != nil {
		t.Fatal(err)
	}
	if side, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	return terminal, side
}
