package lab

import (
	"fmt"
	"os"
	"path/filepath"
)

const keyring = "component_keyring_file"

// withKeyring gives a MySQL server a file for its keys. The server looks for what
// it loads beside its own program and among its plugins: it runs from a copy of
// both in dir, so the unpacked folder stays as it is.
func (p program) withKeyring(dir string) (program, []string, error) {
	if p.kind != MySQL97 || p.root == "" {
		return p, nil, fmt.Errorf("give %s a keyring: only the unpacked MySQL has the lab's", p.title)
	}
	dir = filepath.Join(dir, "keyring")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return p, nil, err
	}
	library := filepath.Join(dir, keyring+".so")
	if err := linkOrCopy(filepath.Join(p.root, "usr/lib/mysql/plugin", keyring+".so"), library); err != nil {
		return p, nil, err
	}
	path := filepath.Join(dir, filepath.Base(p.path))
	if err := linkOrCopy(p.path, path); err != nil {
		return p, nil, err
	}
	p.path = path
	for name, text := range map[string]string{
		"mysqld.my":      fmt.Sprintf(`{"components": "file://%s"}`, keyring),
		keyring + ".cnf": fmt.Sprintf(`{"path": %q, "read_only": false}`, filepath.Join(dir, "keys")),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return p, nil, err
		}
	}
	return p, []string{"--plugin-dir=" + dir}, nil
}

// linkOrCopy spares the copy where both are on one disk.
func linkOrCopy(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}
