package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestEveryCommandSaysWhatItDoesAndShowsAnExampleThatItTakes(t *testing.T) {
	root := newRoot()
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			visit(sub)
		}
		if c == root || c.HasSubCommands() {
			return
		}
		name := c.CommandPath()
		if c.Short == "" || !strings.Contains(c.Example, "  "+name) {
			t.Errorf("%s: short %q, example %q", name, c.Short, c.Example)
		}
		c.InitDefaultHelpFlag()
		for line := range strings.Lines(c.Example) {
			for _, word := range strings.Fields(line) {
				if flag, long := strings.CutPrefix(word, "--"); long && flag != "" && !strings.Contains(line, "| mysql --"+flag) {
					if name, _, _ := strings.Cut(flag, "="); c.Flags().Lookup(name) == nil {
						t.Errorf("%s: its example has --%s, which it does not take", c.CommandPath(), name)
					}
				}
			}
		}
	}
	visit(root)
}

func TestTheShellsTakeTheirCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		code, script := towpath(t, "completion", shell)
		if code != 0 || !strings.Contains(script, "towpath") {
			t.Errorf("%s: exit code %d: %.200s", shell, code, script)
		}
		if path, err := exec.LookPath(shell); err == nil && (shell == "bash" || shell == "zsh") {
			parse := exec.Command(path, "-n")
			parse.Stdin = strings.NewReader(script)
			if out, err := parse.CombinedOutput(); err != nil {
				t.Errorf("%s -n: %v: %s", shell, err, out)
			}
		}
	}
	// What is completed: commands, and configuration files behind -c.
	if code, out := towpath(t, "__complete", "parked", ""); code != 0 || !strings.Contains(out, "discard\t") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if code, out := towpath(t, "__complete", "run", "-c", ""); code != 0 || !strings.Contains(out, "yaml\nyml") {
		t.Errorf("exit code %d: %s", code, out)
	}
}
