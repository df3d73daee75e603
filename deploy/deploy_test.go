package deploy

import (
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/relay"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// statements is a script without its comments at the top.
func statements(script string) string {
	for strings.HasPrefix(script, "--") {
		_, script, _ = strings.Cut(script, "\n")
	}
	return script
}

func composeConfig(t *testing.T) *configs.Config {
	t.Helper()
	set := map[string]string{"TOWPATH_MYSQL_PASSWORD": "x", "TOWPATH_AMQP_PASSWORD": "x", "TOWPATH_TOKEN": "x"}
	c, err := configs.Parse("towpath.yaml", []byte(read(t, "compose/towpath.yaml")), func(name string) (string, bool) {
		value, ok := set[name]
		return value, ok
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTheSQLFilesAreWhatTheProgramPrints(t *testing.T) {
	if got, want := statements(read(t, "sql/state.sql")), checkpoint.DDL("towpath"); got != want {
		t.Errorf("sql/state.sql differs from towpath init --print: print it anew")
	}
	for file, flavor := range map[string]checkpoint.Flavor{"sql/grants-mysql.sql": checkpoint.MySQL, "sql/grants-mariadb.sql": checkpoint.MariaDB} {
		want := strings.Join(checkpoint.Grants(flavor, "'towpath'@'%'", "towpath", relay.OutboxGrants(composeConfig(t))), ";\n") + ";\n"
		if got := statements(read(t, file)); got != want {
			t.Errorf("%s is\n%s\nwant\n%s", file, got, want)
		}
	}
}

// documents reads a YAML file, every document of it, and fails on a key that is given twice.
func documents(t *testing.T, path string) (all []map[string]any) {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(read(t, path)))
	for {
		var doc map[string]any
		err := d.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all = append(all, doc)
	}
}

// at follows keys into a document.
func at(t *testing.T, doc any, path ...string) any {
	t.Helper()
	for _, key := range path {
		m, ok := doc.(map[string]any)
		if !ok || m[key] == nil {
			t.Fatalf("there is no %s", strings.Join(path, "."))
		}
		doc = m[key]
	}
	return doc
}

func TestEveryYAMLFileCanBeRead(t *testing.T) {
	var files []string
	for _, pattern := range []string{"*.yaml", "*/*.yaml", "*/*.yml"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) < 12 {
		t.Errorf("only %v", files)
	}
	for _, f := range files {
		documents(t, f)
	}
}

func TestComposeNamesFilesThatExistAndServicesThatItHas(t *testing.T) {
	compose := documents(t, "compose.yaml")[0]
	services := at(t, compose, "services").(map[string]any)
	for name, s := range services {
		service := s.(map[string]any)
		volumes, _ := service["volumes"].([]any)
		for _, v := range volumes {
			source, _, _ := strings.Cut(v.(string), ":")
			if !strings.HasPrefix(source, "./") {
				at(t, compose, "volumes") // a named one
				continue
			}
			if _, err := os.Stat(source); err != nil {
				t.Errorf("service %s: %v", name, err)
			}
		}
		if name != "towpath" && service["image"] == nil {
			t.Errorf("service %s has no image", name)
		}
	}
	for _, name := range []string{"mysql", "rabbitmq"} {
		if at(t, services, name, "hostname") != name {
			t.Errorf("service %s has no host name that stays", name)
		}
	}
	c := composeConfig(t)
	for _, address := range []string{c.Source.Address, c.Broker.URLs[0].Address} {
		if host, _, _ := strings.Cut(address, ":"); services[host] == nil {
			t.Errorf("the configuration names %s, which is no service", address)
		}
	}
	grace, err := time.ParseDuration(at(t, services, "towpath", "stop_grace_period").(string))
	if err != nil || grace <= c.DrainTimeout {
		t.Errorf("stop_grace_period %v is not above drain_timeout %v", grace, c.DrainTimeout)
	}
}

func TestTheKubernetesManifestsHoldWhatTheyPromise(t *testing.T) {
	all, c, text := kubernetes(t)
	files, err := filepath.Glob("kubernetes/*.yaml")
	if err != nil || len(files) != len(all)+1 { // each has one object
		t.Errorf("kustomization.yaml lists %d of %d files", len(all), len(files)-1)
	}

	if at(t, all["Deployment"], "spec", "replicas") != 2 {
		t.Error("there are not two replicas")
	}
	pod := at(t, all["Deployment"], "spec", "template", "spec").(map[string]any)
	if grace := time.Duration(pod["terminationGracePeriodSeconds"].(int)) * time.Second; grace <= c.DrainTimeout {
		t.Errorf("the grace period %v is not above drain_timeout %v", grace, c.DrainTimeout)
	}
	container := pod["containers"].([]any)[0].(map[string]any)
	for probe, path := range map[string]string{"livenessProbe": "/healthz", "readinessProbe": "/readyz"} {
		if got := at(t, container, probe, "httpGet", "path"); got != path {
			t.Errorf("%s asks %v", probe, got)
		}
	}
	for _, want := range []struct {
		of   any
		path []string
		is   any
	}{
		{container, []string{"securityContext", "readOnlyRootFilesystem"}, true},
		{container, []string{"securityContext", "allowPrivilegeEscalation"}, false},
		{pod, []string{"securityContext", "runAsNonRoot"}, true},
		{all["PodDisruptionBudget"], []string{"spec", "unhealthyPodEvictionPolicy"}, "AlwaysAllow"},
		{all["PodDisruptionBudget"], []string{"spec", "minAvailable"}, 1},
	} {
		if got := at(t, want.of, want.path...); got != want.is {
			t.Errorf("%v is %v, want %v", want.path, got, want.is)
		}
	}
	mounts := map[string]bool{}
	for _, m := range container["volumeMounts"].([]any) {
		mounts[m.(map[string]any)["mountPath"].(string)] = true
	}
	for _, path := range regexp.MustCompile(`(?:password|token)_file: (\S+)/`).FindAllStringSubmatch(text, -1) {
		if !mounts[path[1]] {
			t.Errorf("the configuration reads secrets from %s, where nothing is mounted", path[1])
		}
	}
	if !mounts["/tmp"] {
		t.Error("there is no room to spool in")
	}
	labels := at(t, all["Deployment"], "spec", "template", "metadata", "labels", "app.kubernetes.io/name")
	for kind, path := range map[string][]string{
		"Deployment": {"spec", "selector", "matchLabels"}, "PodDisruptionBudget": {"spec", "selector", "matchLabels"},
		"NetworkPolicy": {"spec", "podSelector", "matchLabels"}, "Service": {"spec", "selector"},
	} {
		if got := at(t, all[kind], append(path, "app.kubernetes.io/name")...); got != labels {
			t.Errorf("%s selects %v, the pods are %v", kind, got, labels)
		}
	}
}

func TestTheSystemdUnitIsSound(t *testing.T) {
	unit := read(t, "systemd/towpath.service")
	keys := map[string]string{}
	for line := range strings.Lines(unit) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "[") {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			t.Errorf("%q is no assignment", line)
		}
		keys[key] += value + " "
	}
	for key, want := range map[string]string{"Type": "notify", "NoNewPrivileges": "yes", "ProtectSystem": "strict", "DynamicUser": "yes", "CapabilityBoundingSet": "", "TimeoutStartSec": "infinity"} {
		if got, given := keys[key]; !given || strings.TrimSpace(got) != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if stop, err := time.ParseDuration(strings.TrimSpace(keys["TimeoutStopSec"]) + "s"); err != nil || stop <= 10*time.Second {
		t.Errorf("TimeoutStopSec %v is not above the default drain_timeout", stop)
	}
	for _, command := range []string{keys["ExecStartPre"], keys["ExecStart"]} {
		if !regexp.MustCompile(`^/usr/local/bin/towpath (check --offline|run) -c /etc/towpath/towpath\.yaml $`).MatchString(command) {
			t.Errorf("%q is no command of the program", command)
		}
	}
	verify, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("systemd-analyze is not here: systemd itself has not looked at the unit")
		return
	}
	// systemd wants the program to be where the unit says.
	path := filepath.Join(t.TempDir(), "towpath.service")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(unit, "/usr/local/bin/towpath", "/bin/true")), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(verify, "verify", path).CombinedOutput()
	if said := string(out); err != nil || strings.Contains(said, "towpath.service") {
		t.Errorf("systemd-analyze verify: %v: %s", err, said)
	}
}

func TestTheImageHoldsAStaticProgramThatIsNotRoot(t *testing.T) {
	file := read(t, "Dockerfile")
	for _, want := range []string{"CGO_ENABLED=0 go build", "USER 65532:65532", "gcr.io/distroless/static", `ENTRYPOINT ["/towpath"]`} {
		if !strings.Contains(file, want) {
			t.Errorf("the Dockerfile has no %q", want)
		}
	}
	wanted := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "../go.mod"))[1]
	if !strings.Contains(file, "FROM golang:"+wanted+" ") {
		t.Errorf("the Dockerfile does not build with Go %s", wanted)
	}
	program := filepath.Join(t.TempDir(), "towpath")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -X main.release=v0.0.0-image", "-o", program, "../cmd/towpath")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	bin, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer bin.Close()
	if slices.ContainsFunc(bin.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Error("the program needs a loader")
	}
	if out, err := exec.Command(program, "version").Output(); err != nil || !bytes.Contains(out, []byte("v0.0.0-image")) {
		t.Errorf("version: %v: %s", err, out)
	}
}

func TestTheAlertsAreWhatPromtoolAcceptsAndEachIsTested(t *testing.T) {
	promtool, err := lab.Promtool()
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", "rules", "--lint-fatal", "prometheus/alerts.yaml"}, {"test", "rules", "prometheus/alerts_test.yaml"}} {
		if out, err := exec.Command(promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
	tests := read(t, "prometheus/alerts_test.yaml")
	anchors := map[string]bool{}
	for line := range strings.Lines(read(t, "troubleshooting.md")) {
		if title, ok := strings.CutPrefix(strings.TrimSpace(line), "## "); ok {
			anchors[anchor(title)] = true
		}
	}
	rules := at(t, documents(t, "prometheus/alerts.yaml")[0], "groups").([]any)[0].(map[string]any)["rules"].([]any)
	for _, r := range rules {
		name := at(t, r, "alert").(string)
		if !strings.Contains(tests, "- alertname: "+name+"\n") || !strings.Contains(tests, "alertname: "+name+", eval_time") {
			t.Errorf("alert %s is not tested both ways", name)
		}
		page, at, _ := strings.Cut(at(t, r, "annotations", "runbook_url").(string), "#")
		if !strings.HasSuffix(page, "/deploy/troubleshooting.md") || !anchors[at] {
			t.Errorf("alert %s: its runbook has no section %q", name, at)
		}
	}
}

// anchor is what GitHub makes of a title.
func anchor(title string) string {
	title = strings.ToLower(strings.TrimSpace(title))
	title = regexp.MustCompile(`[^\p{L}\p{N}_ -]`).ReplaceAllString(title, "")
	return strings.ReplaceAll(title, " ", "-")
}

func TestTheLinksOfThePagesLeadSomewhere(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	if err != nil || len(pages) < 3 {
		t.Fatalf("pages: %v, %v", pages, err)
	}
	for _, page := range pages {
		for _, m := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(read(t, page), -1) {
			target, section, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			if target == "" {
				target = page
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %v", page, err)
				continue
			}
			if section != "" && !slices.ContainsFunc(strings.Split(read(t, target), "\n"), func(l string) bool {
				return strings.HasPrefix(l, "#") && anchor(strings.TrimLeft(l, "#")) == section
			}) {
				t.Errorf("%s: %s has no section %q", page, target, section)
			}
		}
	}
}
