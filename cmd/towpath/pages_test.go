package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestThePagesNameCommandsAndFlagsThatExist looks up each towpath command of the
// pages in deploy/, flags included.
func TestThePagesNameCommandsAndFlagsThatExist(t *testing.T) {
	pages, err := filepath.Glob("../../deploy/*.md")
	if err != nil || len(pages) < 3 {
		t.Fatalf("pages: %v, %v", pages, err)
	}
	named := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		// In code spans, which may break over a line, and in indented lines.
		for _, m := range regexp.MustCompile("`towpath ([^`]+)`|(?m:^\\s{4,}towpath ([^\n#|>;]+))").FindAllStringSubmatch(string(text), -1) {
			words := strings.Fields(m[1] + m[2])
			command, rest, err := newRoot().Find(words)
			if err != nil || !command.HasParent() {
				t.Errorf("%s: towpath %s: no such command", filepath.Base(page), strings.Join(words, " "))
				continue
			}
			named++
			command.InitDefaultHelpFlag()
			if len(rest) > 0 && command.HasSubCommands() {
				t.Errorf("%s: towpath %s: no such command", filepath.Base(page), strings.Join(words, " "))
			}
			for _, word := range rest {
				flag, isLong := strings.CutPrefix(word, "--")
				if flag = strings.TrimRight(flag, ",.)"); isLong && command.Flags().Lookup(flag) == nil {
					t.Errorf("%s: towpath %s: no flag --%s", filepath.Base(page), strings.Join(words, " "), flag)
				}
			}
		}
	}
	if named < 25 {
		t.Errorf("only %d commands were looked up", named)
	}
}
