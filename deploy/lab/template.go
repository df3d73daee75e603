package lab

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// administrator may do everything from everywhere, which is 127.0.0.1 only.
const administrator = `SET sql_log_bin=0;
DROP USER IF EXISTS ''@'localhost';
CREATE USER IF NOT EXISTS 'root'@'%' IDENTIFIED BY '';
GRANT ALL ON *.* TO 'root'@'%' WITH GRANT OPTION;
`

// mysqlTemplate returns a data folder, initialised once a program and kept in
// the cache, that each server starts from a copy of.
func mysqlTemplate(ctx context.Context, p program) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	key, err := p.templateKey()
	if err != nil {
		return "", err
	}
	base := filepath.Join(cache, "templates")
	template := filepath.Join(base, string(p.kind)+"-"+key)
	if _, err := os.Stat(template); err == nil {
		return template, nil
	}
	unlock, err := lockFile(ctx, filepath.Join(base, string(p.kind)+".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(template); err == nil { // made by another process meanwhile
		return template, nil
	}
	work := filepath.Join(base, "."+string(p.kind))
	defer os.RemoveAll(work)
	if err := os.RemoveAll(work); err != nil { // what a killed process left behind
		return "", err
	}
	if err := os.Mkdir(work, 0o755); err != nil {
		return "", err
	}
	data := filepath.Join(work, "data")
	if err := p.initialise(ctx, work, data); err != nil {
		return "", err
	}
	return template, os.Rename(data, template)
}

// templateKey changes with the program and with how it is initialised.
func (p program) templateKey() (string, error) {
	st, err := os.Stat(p.path)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(fmt.Append(nil, revision, st.Size(), st.ModTime().UnixNano(), p.mysqldArgs(""), administrator))
	return fmt.Sprintf("%x", sum[:8]), nil
}

// initialise fills a data folder, then starts the server once: it makes its
// keys and the administrator, and is stopped in good order.
func (p program) initialise(ctx context.Context, work, data string) error {
	argv := p.mysqldArgs(data, "--initialize-insecure", "--skip-log-bin")
	if p.kind.IsMariaDB() {
		argv = p.installDB(data)
	}
	if out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, lastLines(string(out), 10))
	}
	script := filepath.Join(work, "administrator.sql")
	if err := os.WriteFile(script, []byte(administrator), 0o644); err != nil {
		return err
	}
	g, err := newGuard(filepath.Join(work, "none"))
	if err != nil {
		return err
	}
	defer g.close()
	proc, err := startProcess(work, filepath.Join(work, "log"), nil, p.mysqldArgs(data, "--init-file="+script, "--skip-networking", "--skip-log-bin")...)
	if err != nil {
		return err
	}
	if err := g.watch(proc.pid()); err != nil {
		return err
	}
	// MariaDB's socket takes connections before the init file was run, and a
	// server that is told to stop while it starts may hang: what its log says counts.
	err = proc.awaitReady(ctx, func(context.Context) error {
		text, err := os.ReadFile(proc.log)
		if err == nil && !strings.Contains(string(text), ": ready for connections") {
			err = errors.New("it has not said that it is ready for connections")
		}
		return errors.Join(err, dialUnix(data, socketName))
	})
	if err != nil {
		proc.kill()
		return err
	}
	if err := proc.stop(ctx); err != nil {
		return err
	}
	// Without it each copy gives itself a server UUID of its own.
	if err := os.RemoveAll(filepath.Join(data, "auto.cnf")); err != nil {
		return err
	}
	return g.watch()
}

// installDB is MariaDB's way to fill a data folder.
func (p program) installDB(data string) []string {
	argv := []string{"mariadb-install-db"}
	if p.root != "" {
		argv = []string{filepath.Join(p.root, "usr/bin/mariadb-install-db")}
	}
	argv = append(argv, "--no-defaults", "--datadir="+data, "--skip-test-db", "--auth-root-authentication-method=normal", "--innodb-log-file-size=16M", "--innodb-doublewrite=OFF")
	if p.root != "" {
		argv = append(argv, "--basedir="+filepath.Join(p.root, "usr"), "--lc-messages-dir="+filepath.Join(p.root, "usr/share/mysql"))
	}
	if os.Geteuid() == 0 {
		argv = append(argv, "--user=root")
	}
	return argv
}

// dialUnix connects to a socket by a path relative to dir, of any length.
func dialUnix(dir, name string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Connect(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name)})
}

// copyTree copies a folder, by reference where the file system can.
func copyTree(from, to string) error {
	cmd := exec.Command("cp", "-a", "--reflink=auto", "--sparse=always", from, to)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s: %w: %s", from, err, strings.TrimSpace(string(out)))
	}
	return nil
}
