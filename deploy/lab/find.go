package lab

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// program is a server that can be started.
type program struct {
	recipe
	path string // of the server's program
	root string // the unpacked folder; "" when the machine's own server is used
}

// find says which program is started for kind: the one named by the
// environment, else a fitting one on PATH, else the unpacked one.
func find(kind Kind) (program, error) {
	r, err := kind.recipe()
	if err != nil {
		return program{}, err
	}
	if path := os.Getenv(kind.Env()); strings.HasPrefix(path, "/") {
		if !executable(path) {
			return program{}, fmt.Errorf("%s=%s is not a program", kind.Env(), path)
		}
		return program{recipe: r, path: path}, nil
	}
	for _, name := range r.names {
		if path := onPath(r, name); path != "" {
			return program{recipe: r, path: path}, nil
		}
	}
	root, err := r.root()
	if err != nil {
		return program{}, err
	}
	if !r.unpacked(root) {
		return program{}, fmt.Errorf("%s is not set up: run `go run github.com/towpath/towpath/deploy/lab/cmd/lab setup %s`, or set %s", r.title, kind, kind.Env())
	}
	path, err := r.programIn(root)
	return program{recipe: r, path: path, root: root}, err
}

// onPath returns the machine's own program if it is of the recipe's version.
func onPath(r recipe, name string) string {
	path, err := exec.LookPath(name)
	if err != nil {
		return ""
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	if !r.kind.IsRabbit() {
		if out, err := exec.Command(path, r.versionArgs()...).Output(); err == nil && strings.Contains(string(out), r.version) {
			return path
		}
		return ""
	}
	// The program on PATH may be a wrapper that switches user; the server's own
	// script lies in the folder that carries its version.
	candidates, _ := filepath.Glob("/" + rabbitProgram)
	for _, c := range append(candidates, path) {
		if strings.Contains(c, r.version) && executable(c) {
			return c
		}
	}
	return ""
}

// programIn returns the recipe's program inside an unpacked folder.
func (r recipe) programIn(root string) (string, error) {
	found, err := filepath.Glob(filepath.Join(root, r.program))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("find %s in %s: %d matches; remove the folder and set the lab up again", r.program, root, len(found))
	}
	return found[0], nil
}

// root is the folder that the recipe's packages are unpacked in.
func (r recipe) root() (string, error) {
	cache, err := CacheDir()
	return filepath.Join(cache, string(r.kind)), err
}

// stampFile is written last, so a folder with the right stamp is complete.
const stampFile = "lab-ready"

// stamp holds all that a folder depends on. Its own place is part of it,
// because the programs in it carry the absolute path of their loader.
func (r recipe) stamp(root string) []byte {
	return fmt.Appendf(nil, "revision %d\nfolder %s\nsuite %s\npackages %s\n", revision, root, r.suite, strings.Join(r.packages, " "))
}

func (r recipe) unpacked(root string) bool {
	have, err := os.ReadFile(filepath.Join(root, stampFile))
	return err == nil && bytes.Equal(have, r.stamp(root))
}

// CacheDir is where Setup keeps what it downloads: TOWPATH_LAB_CACHE, or
// towpath/lab in the user's cache folder.
func CacheDir() (string, error) {
	if dir := os.Getenv("TOWPATH_LAB_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a cache folder (set TOWPATH_LAB_CACHE): %w", err)
	}
	return filepath.Join(base, "towpath", "lab"), nil
}

func executable(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
}
