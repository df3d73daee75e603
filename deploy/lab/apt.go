package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// apt downloads packages without the machine's own package database: it sees a
// machine without any package (so it takes everything down to the C library),
// has its own lists and its own cache, and of the machine's configuration it
// keeps only how to reach the network.
type apt struct {
	mirror mirror
	dir    string
}

// download fetches a recipe's packages and what they depend on into debs.
func (a apt) download(ctx context.Context, r recipe, debs string, bar *progress) ([]string, error) {
	dir := filepath.Join(a.dir, r.suite)
	conf := filepath.Join(dir, "apt.conf")
	if _, err := os.Stat(conf); err != nil { // two recipes of one suite share its lists
		if err := a.layOut(ctx, dir, r.suite); err != nil {
			return nil, err
		}
		bar.stage("lists", 0, 15)
		if err := aptGet(ctx, conf, bar, "update"); err != nil {
			return nil, err
		}
	}
	bar.stage("download", 15, 70)
	if err := os.MkdirAll(filepath.Join(debs, "partial"), 0o755); err != nil {
		return nil, err
	}
	// patchelf is a tool of relocate, taken from the same suite as what it patches.
	args := append([]string{"install", "--download-only", "-o", "Dir::Cache::archives=" + debs, "patchelf"}, r.packages...)
	if err := aptGet(ctx, conf, bar, args...); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(debs, "*.deb"))
	if err == nil && len(files) == 0 {
		err = errors.New("apt downloaded nothing")
	}
	return files, err
}

// layOut writes apt's own world for one suite into dir.
func (a apt) layOut(ctx context.Context, dir, suite string) error {
	for _, sub := range []string{"lists/partial", "cache", "sources", "empty"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	arch, err := exec.CommandContext(ctx, "dpkg", "--print-architecture").Output()
	if err != nil {
		return fmt.Errorf("ask dpkg for the architecture: %w", err)
	}
	network, err := exec.CommandContext(ctx, "apt-config", "dump", "Acquire").Output()
	if err != nil {
		return fmt.Errorf("read apt's configuration: %w", err)
	}
	conf := fmt.Sprintf(`Dir::State %[1]q;
Dir::State::status "%[1]s/status";
Dir::State::lists "%[1]s/lists";
Dir::Cache "%[1]s/cache";
Dir::Log %[1]q;
Dir::Etc::main "/dev/null";
Dir::Etc::parts "%[1]s/empty";
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "%[1]s/sources";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "%[1]s/empty";
APT::Architecture %[2]q;
APT::Architectures { %[2]q; };
APT::Install-Recommends "false";
APT::Sandbox::User "root";
APT::Get::Assume-Yes "true";
Acquire::Languages "none";
`, dir, strings.TrimSpace(string(arch)))
	for line := range strings.Lines(string(network)) {
		if !strings.HasPrefix(line, "Acquire::IndexTargets") && !strings.HasPrefix(line, "Acquire::Languages") {
			conf += line
		}
	}
	src := fmt.Sprintf("Types: deb\nURIs: %s\nSuites: %s\nComponents: main\n", a.mirror.uri, suite)
	if a.mirror.signedBy != "" {
		src += "Signed-By: " + a.mirror.signedBy + "\n"
	}
	files := map[string]string{"apt.conf": conf, "status": "", "sources/lab.sources": src}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// aptGet runs apt-get and moves the bar by what apt reports on its status pipe.
func aptGet(ctx context.Context, conf string, bar *progress, args ...string) error {
	status, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer status.Close()
	var output strings.Builder
	// A connection that stalls must end in an error, not in silence.
	options := []string{"-q", "-o", "APT::Status-Fd=3", "-o", "Acquire::Retries=3", "-o", "Acquire::http::Timeout=30", "-o", "Acquire::https::Timeout=30"}
	cmd := exec.CommandContext(ctx, "apt-get", append(options, args...)...)
	cmd.Env = append(os.Environ(), "APT_CONFIG="+conf, "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.ExtraFiles = []*os.File{theirs}
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return fmt.Errorf("start apt-get: %w", err)
	}
	lines := bufio.NewScanner(status)
	for lines.Scan() { // dlstatus:1:12.5:Retrieving file 3 of 60
		if f := strings.SplitN(lines.Text(), ":", 4); len(f) == 4 && f[0] == "dlstatus" {
			if percent, err := strconv.ParseFloat(f[2], 64); err == nil {
				bar.part(percent / 100)
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("apt-get %s: %w (is the network up? TOWPATH_LAB_MIRROR names another Debian mirror):\n%s", args[0], err, complaints(output.String()))
	}
	// apt-get update ends well even when it reached nothing.
	if strings.Contains(output.String(), "\nW: Failed to fetch") {
		return fmt.Errorf("apt-get %s reached no mirror (is the network up? TOWPATH_LAB_MIRROR names another Debian mirror):\n%s", args[0], complaints(output.String()))
	}
	return nil
}

// complaints picks apt's errors and warnings out of what it said.
func complaints(output string) string {
	var said []string
	for line := range strings.Lines(output) {
		if strings.HasPrefix(line, "E:") || strings.HasPrefix(line, "W:") || strings.HasPrefix(line, "Err:") {
			said = append(said, strings.TrimSpace(line))
		}
	}
	if len(said) == 0 {
		return lastLines(output, 5)
	}
	return lastLines(strings.Join(said, "\n"), 8)
}
