package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Setup makes kinds startable (none named: all of them, and [Prometheus]): it lists what is
// missing, downloads it and unpacks it into CacheDir. It shows its progress on
// out, does nothing where nothing is missing, and may run in several processes
// at once.
func Setup(ctx context.Context, out io.Writer, kinds ...Kind) error {
	if len(kinds) == 0 {
		for _, r := range recipes {
			kinds = append(kinds, r.kind)
		}
	}
	cache, err := CacheDir()
	if err != nil {
		return err
	}
	missing, err := list(out, kinds)
	if err != nil || len(missing) == 0 {
		return err
	}
	unlock, err := lockFile(ctx, filepath.Join(cache, "setup.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if err := checkTools(); err != nil {
		return err
	}
	if err := checkSpace(cache, int64(len(missing))*spacePerServer); err != nil {
		return err
	}
	work, err := workFolder(cache)
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	m, err := findMirror(ctx, work)
	if err != nil {
		return err
	}
	packages := apt{mirror: m, dir: filepath.Join(work, "apt")}
	for _, r := range missing {
		root, err := r.root()
		if err != nil {
			return err
		}
		if r.unpacked(root) { // by another process, while this one waited for the lock
			continue
		}
		bar := newProgress(out, r.title)
		if err := install(ctx, r, root, packages, filepath.Join(work, string(r.kind)), bar); err != nil {
			bar.stop()
			return fmt.Errorf("set up %s: %w", r.title, err)
		}
		bar.done("ready in " + root)
	}
	return nil
}

// workFolder makes this set-up's temporary folder, on the cache's own disk, and
// removes what a set-up that was killed left behind. The lock is held.
func workFolder(cache string) (string, error) {
	const pattern = ".setup-*"
	stale, _ := filepath.Glob(filepath.Join(cache, pattern))
	for _, dir := range stale {
		if err := os.RemoveAll(dir); err != nil {
			return "", err
		}
	}
	return os.MkdirTemp(cache, pattern)
}

// list prints where each kind comes from and returns those that are missing.
func list(out io.Writer, kinds []Kind) ([]recipe, error) {
	var missing []recipe
	for _, kind := range kinds {
		r, err := kind.recipe()
		if err != nil {
			return nil, err
		}
		if kind.RunningAddress() != "" {
			fmt.Fprintf(out, "%-14s running server given by %s\n", r.title, kind.Env())
			continue
		}
		p, err := find(kind)
		switch {
		case err == nil:
			fmt.Fprintf(out, "%-14s %s\n", r.title, p.path)
		case os.Getenv(kind.Env()) != "":
			return nil, err
		default:
			fmt.Fprintf(out, "%-14s missing: packages %s of Debian %s\n", r.title, strings.Join(r.packages, ", "), r.suite)
			missing = append(missing, r)
		}
	}
	return missing, nil
}

// install downloads and unpacks one server. Everything happens in a temporary
// folder; the finished one takes its place with a rename, and its stamp is
// written after its program was seen to run.
func install(ctx context.Context, r recipe, root string, packages apt, work string, bar *progress) error {
	debs, err := packages.download(ctx, r, filepath.Join(work, "debs"), bar)
	if err != nil {
		return err
	}
	tree := filepath.Join(work, "root")
	bar.stage("unpack", 70, 90)
	if err := unpack(ctx, debs, tree, bar); err != nil {
		return err
	}
	bar.stage("relocate", 90, 100)
	if err := relocate(ctx, tree, root, bar); err != nil {
		return fmt.Errorf("fit the programs to their folder: %w", err)
	}
	if err := os.RemoveAll(root); err != nil {
		return err
	}
	if err := os.Rename(tree, root); err != nil {
		return err
	}
	if err := tryProgram(ctx, r, root); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, stampFile), r.stamp(root), 0o644)
}

// tryProgram starts the unpacked program once, to ask for its version.
func tryProgram(ctx context.Context, r recipe, root string) error {
	path, err := r.programIn(root)
	if err != nil {
		return err
	}
	said := path
	cmd := exec.CommandContext(ctx, path, r.versionArgs()...)
	if r.kind.IsRabbit() {
		cmd = exec.CommandContext(ctx, filepath.Join(root, "usr/lib/erlang/bin/erl"), "-noshell", "-eval", "crypto:info_lib(), halt().")
		cmd.Env = append(os.Environ(), "HOME="+root)
	}
	cmd.Dir = root
	answer, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("run %s: %w: %s", cmd.Path, err, lastLines(string(answer), 5))
	}
	if !r.kind.IsRabbit() {
		said = string(answer)
	}
	if !strings.Contains(said, r.version) {
		return fmt.Errorf("the suite %s now holds another version (%s): set %s to a fitting program", r.suite, strings.TrimSpace(said), r.kind.Env())
	}
	return nil
}

func checkTools() error {
	for _, tool := range []string{"apt-get", "apt-config", "dpkg", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is not on PATH: the lab downloads its servers on Debian and Ubuntu only; elsewhere set %s and the like to programs or running servers (see deploy/lab/README.md)", tool, MySQL97.Env())
		}
	}
	return nil
}

// spacePerServer is what the largest server needs, packages and folder.
const spacePerServer = 700 << 20

func checkSpace(dir string, need int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("look at %s: %w", dir, err)
	}
	if free := int64(st.Bavail) * st.Bsize; free < need {
		return fmt.Errorf("%s has %d MiB free, the lab needs up to %d MiB: make room or set TOWPATH_LAB_CACHE to another disk", dir, free>>20, need>>20)
	}
	return nil
}

// lockFile waits for the lock on path, which ends with the process at the latest.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make the cache folder (set TOWPATH_LAB_CACHE to one you may write): %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the lock (set TOWPATH_LAB_CACHE to a folder you may write): %w", err)
	}
	err = poll(ctx, func() (bool, error) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("wait for %s, held by another process: %w", path, err)
	}
	return func() { f.Close() }, nil
}
