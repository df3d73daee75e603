package configs

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what the package says now into testdata/bad.txt")

// badCase is one scenario of testdata/bad.txt, whose first lines explain it.
type badCase struct {
	name, edits, want string
}

func readBadCases(t *testing.T) (intro string, cases []badCase) {
	t.Helper()
	text, err := os.ReadFile("testdata/bad.txt")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "\n=== ")
	for _, block := range blocks[1:] {
		name, rest, _ := strings.Cut(block, "\n")
		edits, want, found := strings.Cut(rest, "\n---\n")
		if !found {
			t.Fatalf("%s: no --- line", name)
		}
		cases = append(cases, badCase{name, edits, strings.TrimSpace(want)})
	}
	return blocks[0], cases
}

// edit applies a case to the base: a line with - is taken out (by its text, the
// first such line), and the + lines after it come in its place; + lines before
// any - come at the end.
func edit(t *testing.T, base, edits string) string {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(base, "\n"), "\n")
	at := len(lines)
	for _, e := range strings.Split(strings.TrimSuffix(edits, "\n"), "\n") {
		switch {
		case e == "":
		case e[0] == '-':
			for at = 0; at < len(lines) && lines[at] != e[1:]; at++ {
			}
			if at == len(lines) {
				t.Fatalf("the base has no line %q", e[1:])
			}
			lines = append(lines[:at:at], lines[at+1:]...)
		case e[0] == '+':
			lines = append(lines[:at:at], append([]string{e[1:]}, lines[at:]...)...)
			at++
		default:
			t.Fatalf("neither + nor -: %q", e)
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

func TestEachBadFileIsRefusedWithItsExactErrors(t *testing.T) {
	base, err := os.ReadFile("testdata/base.yaml")
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"SECRET": "s3cr3t", "EMPTY": "", "BYTES": "\xff"}
	if _, err := parse(string(base), env); err != nil {
		t.Fatalf("the base is refused: %v", err)
	}
	intro, cases := readBadCases(t)
	if len(cases) < 100 {
		t.Errorf("only %d cases", len(cases))
	}
	var out strings.Builder
	out.WriteString(intro)
	for _, c := range cases {
		got := "accepted"
		t.Run(c.name, func(t *testing.T) {
			if _, err := parse(edit(t, string(base), c.edits), env); err != nil {
				got = err.Error()
			}
			if got != c.want && !*update {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			if strings.Contains(got, "s3cr3t") {
				t.Errorf("the error shows a secret: %s", got)
			}
		})
		out.WriteString("\n=== " + c.name + "\n" + c.edits + "\n---\n" + got + "\n")
	}
	if *update {
		if err := os.WriteFile("testdata/bad.txt", []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
