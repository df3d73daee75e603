package lab

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// mirror is a Debian archive and the keys that its lists are signed with.
type mirror struct {
	uri      string
	signedBy string // as in a deb822 source: paths, or a key block; "" trusts apt's own keys
}

// debianKeyring is where Debian's package of that name puts it.
const debianKeyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// findMirror takes the Debian archive that this machine is set up with, or
// TOWPATH_LAB_MIRROR. On another distribution the keys come from its package
// of Debian's keys.
func findMirror(ctx context.Context, work string) (mirror, error) {
	system, err := readOSRelease("/etc/os-release")
	if err != nil {
		return mirror{}, err
	}
	m := mirror{uri: os.Getenv("TOWPATH_LAB_MIRROR")}
	if m.uri == "" {
		if system["ID"] != "debian" {
			return mirror{}, fmt.Errorf("this machine runs %s, whose mirror does not hold Debian's suites: set TOWPATH_LAB_MIRROR to the address of a Debian mirror", system["ID"])
		}
		sources, err := readSources("/etc/apt")
		if err != nil {
			return mirror{}, err
		}
		if m, err = chooseMirror(sources, system["VERSION_CODENAME"]); err != nil {
			return mirror{}, err
		}
	}
	keyring := debianKeyring
	if _, err := os.Stat(keyring); err != nil {
		if system["ID"] == "debian" {
			return m, nil
		}
		if keyring, err = fetchKeyring(ctx, work); err != nil {
			return mirror{}, err
		}
	}
	switch {
	case m.signedBy == "":
		m.signedBy = keyring
	case strings.HasPrefix(m.signedBy, "/") && !slices.Contains(strings.Fields(m.signedBy), keyring):
		m.signedBy += " " + keyring
	}
	return m, nil
}

// chooseMirror takes the source that serves the machine's own release, whose
// archive holds the other suites too.
func chooseMirror(sources []source, codename string) (mirror, error) {
	for _, s := range sources {
		for _, suite := range s.suites {
			if slices.Contains([]string{codename, "stable", "testing", "sid", "unstable"}, suite) && slices.Contains(s.components, "main") {
				return mirror{uri: s.uri, signedBy: s.signedBy}, nil
			}
		}
	}
	return mirror{}, fmt.Errorf("no apt source of this machine serves Debian %s main: set TOWPATH_LAB_MIRROR to the address of a Debian mirror", codename)
}

// fetchKeyring unpacks Debian's keys from this distribution's own package.
func fetchKeyring(ctx context.Context, work string) (string, error) {
	dir := filepath.Join(work, "keyring")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "apt-get", "-o", "APT::Sandbox::User=root", "download", "debian-archive-keyring")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("download Debian's keys (run apt-get update, or install debian-archive-keyring): %w: %s", err, lastLines(string(out), 3))
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, debianKeyring), unpack(ctx, debs, dir, &progress{out: io.Discard})
}

func readOSRelease(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("find out the distribution: %w", err)
	}
	values := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			values[key] = strings.Trim(value, `"'`)
		}
	}
	return values, nil
}

// source is one address of an apt source for binary packages.
type source struct {
	uri                string
	suites, components []string
	signedBy           string
}

// readSources reads an apt folder's sources, of both formats.
func readSources(dir string) ([]source, error) {
	lists, _ := filepath.Glob(filepath.Join(dir, "sources.list.d", "*.list"))
	var sources []source
	for _, path := range append([]string{filepath.Join(dir, "sources.list")}, lists...) {
		text, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		sources = append(sources, parseOneLine(string(text))...)
	}
	stanzas, _ := filepath.Glob(filepath.Join(dir, "sources.list.d", "*.sources"))
	for _, path := range stanzas {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		sources = append(sources, parseDeb822(string(text))...)
	}
	return sources, nil
}

// parseOneLine reads `deb [options] uri suite component...` lines.
func parseOneLine(text string) []source {
	var sources []source
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "deb ")
		if !ok {
			continue
		}
		var s source
		rest = strings.TrimSpace(rest)
		if strings.HasPrefix(rest, "[") {
			options, after, ok := strings.Cut(rest[1:], "]")
			if !ok {
				continue
			}
			for _, option := range strings.Fields(options) {
				if paths, ok := strings.CutPrefix(option, "signed-by="); ok {
					s.signedBy = strings.ReplaceAll(paths, ",", " ")
				}
			}
			rest = after
		}
		fields := strings.Fields(rest)
		if len(fields) < 3 {
			continue
		}
		s.uri, s.suites, s.components = fields[0], fields[1:2], fields[2:]
		sources = append(sources, s)
	}
	return sources
}

// parseDeb822 reads stanzas of `Field: value` lines with continuations.
func parseDeb822(text string) []source {
	var sources []source
	fields := map[string]string{}
	last := ""
	flush := func() {
		enabled := !slices.Contains([]string{"no", "false", "0"}, strings.ToLower(fields["enabled"]))
		if enabled && slices.Contains(strings.Fields(fields["types"]), "deb") {
			for _, uri := range strings.Fields(fields["uris"]) {
				sources = append(sources, source{
					uri: uri, suites: strings.Fields(fields["suites"]),
					components: strings.Fields(fields["components"]), signedBy: fields["signed-by"],
				})
			}
		}
		fields, last = map[string]string{}, ""
	}
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.TrimSpace(line) == "":
			flush()
		case line[0] == ' ' || line[0] == '\t':
			if last != "" {
				fields[last] += "\n" + line
			}
		default:
			if key, value, ok := strings.Cut(line, ":"); ok {
				last = strings.ToLower(strings.TrimSpace(key))
				fields[last] = strings.TrimSpace(value)
			}
		}
	}
	flush()
	return sources
}
