package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// release is set by the linker for released binaries.
var release = "devel"

type versionInfo struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Go      string `json:"go"`
}

func version() versionInfo {
	v := versionInfo{Version: release, Commit: "unknown", Go: runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Commit = s.Value
			}
		}
	}
	return v
}

func newVersion() *cobra.Command {
	c := &cobra.Command{Use: "version", Short: "Print version, commit and Go version", Example: "  towpath version --json", Args: noArguments}
	asJSON := c.Flags().Bool("json", false, "print JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		v := version()
		if *asJSON {
			return json.NewEncoder(c.OutOrStdout()).Encode(v)
		}
		fmt.Fprintf(c.OutOrStdout(), "towpath %s, commit %s, %s\n", v.Version, v.Commit, v.Go)
		return nil
	}
	return c
}
