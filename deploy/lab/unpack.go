package lab

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// unpack lays the content of all packages into one folder.
func unpack(ctx context.Context, debs []string, tree string, bar *progress) error {
	for i, deb := range debs {
		if out, err := exec.CommandContext(ctx, "dpkg-deb", "-x", deb, tree).CombinedOutput(); err != nil {
			return fmt.Errorf("unpack %s: %w: %s", filepath.Base(deb), err, lastLines(string(out), 3))
		}
		bar.part(float64(i+1) / float64(len(debs)))
	}
	return nil
}

// relocate makes the programs in tree run from root, where tree is going to
// be, on any C library: each gets root's own loader and library folders, and
// shell scripts get root before the absolute paths of Erlang and RabbitMQ.
// Children that a program starts (beam.smp by erl) then need no environment.
func relocate(ctx context.Context, tree, root string, bar *progress) error {
	programs, scripts, err := findPrograms(tree)
	if err != nil {
		return err
	}
	for _, path := range scripts {
		if err := relocateScript(path, root); err != nil {
			return err
		}
	}
	loader, libraries, err := findLoader(tree)
	if err != nil {
		return err
	}
	args := []string{
		"--library-path", strings.Join(within(tree, libraries), ":"), filepath.Join(tree, "usr/bin/patchelf"),
		"--set-interpreter", filepath.Join(root, loader),
		"--force-rpath", "--set-rpath", strings.Join(within(root, libraries), ":"),
	}
	for i, path := range programs {
		if filepath.Base(path) == "patchelf" { // a running program cannot be written
			continue
		}
		out, err := exec.CommandContext(ctx, filepath.Join(tree, loader), append(args, path)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("patchelf %s: %w: %s", path, err, lastLines(string(out), 3))
		}
		bar.part(float64(i+1) / float64(len(programs)))
	}
	return nil
}

// findPrograms returns the dynamically linked programs and the scripts in the
// folders that servers are started from.
func findPrograms(tree string) (programs, scripts []string, err error) {
	for _, dir := range []string{"usr/bin", "usr/sbin", "usr/lib/erlang", "usr/lib/rabbitmq"} {
		err := filepath.WalkDir(filepath.Join(tree, dir), func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			info, err := e.Info()
			if err != nil || info.Mode()&0o111 == 0 {
				return err
			}
			kind, err := classify(path)
			switch kind {
			case elfProgram:
				programs = append(programs, path)
			case script:
				scripts = append(scripts, path)
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, err
		}
	}
	return programs, scripts, nil
}

type fileClass int

const (
	otherFile fileClass = iota
	elfProgram
	script
)

func classify(path string) (fileClass, error) {
	f, err := os.Open(path)
	if err != nil {
		return otherFile, err
	}
	defer f.Close()
	head := make([]byte, 4)
	if _, err := f.ReadAt(head, 0); err != nil { // shorter than any program
		return otherFile, nil
	}
	if bytes.HasPrefix(head, []byte("#!")) {
		return script, nil
	}
	if string(head) != elf.ELFMAG {
		return otherFile, nil
	}
	bin, err := elf.NewFile(f)
	if err != nil {
		return otherFile, nil
	}
	for _, p := range bin.Progs {
		if p.Type == elf.PT_INTERP { // libraries have none, and find theirs through the program
			return elfProgram, nil
		}
	}
	return otherFile, nil
}

var absolutePath = regexp.MustCompile(`(^|[^\w/.}-])(/usr/lib/(?:erlang|rabbitmq))`)

func relocateScript(path, root string) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if bytes.IndexByte(old, 0) >= 0 { // an escript with an archive behind its first line
		return nil
	}
	changed := absolutePath.ReplaceAll(old, []byte("${1}"+strings.ReplaceAll(root, "$", "$$")+"${2}"))
	if bytes.Equal(old, changed) {
		return nil
	}
	return os.WriteFile(path, changed, 0o755)
}

// findLoader returns the loader and the library folders, relative to tree.
func findLoader(tree string) (loader string, libraries []string, err error) {
	for _, pattern := range []string{"lib*/ld-linux*.so.*", "usr/lib*/ld-linux*.so.*"} {
		if found, _ := filepath.Glob(filepath.Join(tree, pattern)); loader == "" && len(found) > 0 {
			loader, _ = filepath.Rel(tree, found[0])
		}
	}
	for _, pattern := range []string{"usr/lib/*-linux-gnu*", "lib/*-linux-gnu*", "usr/lib/mysql/private"} {
		found, _ := filepath.Glob(filepath.Join(tree, pattern))
		for _, dir := range found {
			rel, _ := filepath.Rel(tree, dir)
			libraries = append(libraries, rel)
		}
	}
	if loader == "" || len(libraries) == 0 {
		return "", nil, errors.New("the packages hold no C library")
	}
	return loader, libraries, nil
}

func within(root string, paths []string) []string {
	var abs []string
	for _, p := range paths {
		abs = append(abs, filepath.Join(root, p))
	}
	return abs
}
