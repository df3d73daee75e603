package deploy

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/towpath/towpath/configs"
)

// What the files that start Towpath name must be there: ports, paths, variables,
// commands and flags. No container is started by these tests.

// kubernetes is what kustomization.yaml lists, by kind, and the configuration in it.
func kubernetes(t *testing.T) (all map[string]map[string]any, c *configs.Config, text string) {
	t.Helper()
	all = map[string]map[string]any{}
	for _, r := range at(t, documents(t, "kubernetes/kustomization.yaml")[0], "resources").([]any) {
		for _, doc := range documents(t, filepath.Join("kubernetes", r.(string))) {
			all[at(t, doc, "kind").(string)] = doc
		}
	}
	text = at(t, all["ConfigMap"], "data", "towpath.yaml").(string)
	c, err := configs.Parse("towpath.yaml", []byte(text), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	return all, c, text
}

func port(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }

func TestThePortsInKubernetesAreThoseOfTheConfiguration(t *testing.T) {
	all, c, _ := kubernetes(t)
	listens := port(c.HTTP.Listen)
	template := at(t, all["Deployment"], "spec", "template").(map[string]any)
	container := at(t, template, "spec", "containers").([]any)[0].(map[string]any)
	named := at(t, container, "ports").([]any)[0].(map[string]any)
	service := at(t, all["Service"], "spec", "ports").([]any)[0].(map[string]any)
	policy := func(direction string, rule int) (ports []string) {
		for _, p := range at(t, at(t, all["NetworkPolicy"], "spec", direction).([]any)[rule], "ports").([]any) {
			ports = append(ports, fmt.Sprint(at(t, p, "port")))
		}
		return ports
	}
	for what, got := range map[string]any{
		"containerPort": named["containerPort"], "the service": service["port"], "ingress": policy("ingress", 0)[0],
		"prometheus.io/port": at(t, template, "metadata", "annotations", "prometheus.io/port"),
	} {
		if fmt.Sprint(got) != listens {
			t.Errorf("%s is %v, the relay listens on %s", what, got, listens)
		}
	}
	for what, got := range map[string]any{"the service": service["targetPort"],
		"livenessProbe": at(t, container, "livenessProbe", "httpGet", "port"), "readinessProbe": at(t, container, "readinessProbe", "httpGet", "port")} {
		if got != named["name"] {
			t.Errorf("%s asks port %v, the container has %v", what, got, named["name"])
		}
	}
	out := policy("egress", 1)
	for _, address := range []string{c.Source.Address, c.Broker.URLs[0].Address} {
		if !slices.Contains(out, port(address)) {
			t.Errorf("egress to %v does not reach %s", out, address)
		}
	}
}

func TestTheSecretsAndTheCommandInKubernetesAreTheOnesThatAreThere(t *testing.T) {
	all, _, text := kubernetes(t)
	container := at(t, all["Deployment"], "spec", "template", "spec", "containers").([]any)[0].(map[string]any)
	created := regexp.MustCompile(`--from-literal=(\w+)=`).FindAllStringSubmatch(read(t, "kubernetes/kustomization.yaml"), -1)
	var keys, files []string
	for _, m := range created {
		keys = append(keys, m[1])
	}
	for _, m := range regexp.MustCompile(`(?:password|token)_file: (\S+)`).FindAllStringSubmatch(text, -1) {
		files = append(files, filepath.Base(m[1]))
	}
	if slices.Sort(keys); len(keys) != 3 || !slices.Equal(keys, slices.Sorted(slices.Values(files))) {
		t.Errorf("the secret is created with %v, the configuration reads %v", keys, files)
	}
	args := container["args"].([]any)
	config := args[len(args)-1].(string)
	if !slices.ContainsFunc(container["volumeMounts"].([]any), func(m any) bool { return m.(map[string]any)["mountPath"] == config }) {
		t.Errorf("the container is started with %s, where nothing is mounted", config)
	}
	limit := at(t, container, "resources", "limits", "memory")
	env := container["env"].([]any)[0].(map[string]any)
	if env["name"] != "GOMEMLIMIT" || mebibytes(t, env["value"]) >= mebibytes(t, limit) {
		t.Errorf("%v %v leaves nothing of the limit %v", env["name"], env["value"], limit)
	}
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Log("kubectl is not here: kustomize itself has not built the files")
		return
	}
	out, err := exec.Command(kubectl, "kustomize", "kubernetes").CombinedOutput()
	if n := strings.Count(string(out), "\nkind: "); err != nil || n != len(all) || strings.Count(string(out), "namespace: towpath\n") < n-1 {
		t.Errorf("kubectl kustomize: %v: %d objects, want %d:\n%s", err, n, len(all), out)
	}
}

func mebibytes(t *testing.T, v any) (n int) {
	t.Helper()
	if _, err := fmt.Sscanf(fmt.Sprint(v), "%dMi", &n); err != nil {
		t.Fatalf("%v is not in MiB", v)
	}
	return n
}

func TestThePortsVariablesAndFilesInComposeAreThoseThatAreThere(t *testing.T) {
	services := at(t, documents(t, "compose.yaml")[0], "services").(map[string]any)
	c := composeConfig(t)
	scraped := at(t, documents(t, "compose/prometheus.yml")[0], "scrape_configs").([]any)[0]
	target := at(t, scraped, "dns_sd_configs").([]any)[0].(map[string]any)
	if fmt.Sprint(target["port"]) != port(c.HTTP.Listen) || services[target["names"].([]any)[0].(string)] == nil {
		t.Errorf("Prometheus scrapes %v, the relay listens on %s", target, c.HTTP.Listen)
	}
	if exposed := regexp.MustCompile(`(?m)^EXPOSE (\d+)$`).FindStringSubmatch(read(t, "Dockerfile")); exposed == nil || exposed[1] != port(c.HTTP.Listen) {
		t.Errorf("the image exposes %v, the relay listens on %s", exposed, c.HTTP.Listen)
	}
	mounted := func(service, path string) bool {
		return slices.ContainsFunc(at(t, services, service, "volumes").([]any), func(v any) bool {
			parts := strings.Split(v.(string), ":")
			return path == parts[1] || strings.HasPrefix(path, parts[1]+"/")
		})
	}
	for service, paths := range map[string][]string{
		"towpath":    {"/etc/towpath/towpath.yaml"},
		"prometheus": {at(t, documents(t, "compose/prometheus.yml")[0], "rule_files").([]any)[0].(string), "/etc/prometheus/prometheus.yml"},
		"rabbitmq":   {regexp.MustCompile(`definitions\.local\.path = (\S+)`).FindStringSubmatch(read(t, "compose/rabbitmq.conf"))[1]},
		"grafana": {at(t, services, "grafana", "environment", "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH").(string),
			at(t, at(t, documents(t, "compose/grafana-dashboards.yaml")[0], "providers").([]any)[0], "options", "path").(string) + "/towpath.json"},
	} {
		for _, path := range paths {
			if !mounted(service, path) {
				t.Errorf("service %s reads %s, where nothing is mounted", service, path)
			}
		}
	}
	// What the configuration takes without a default, compose sets, and nothing else.
	taken := map[string]bool{}
	for _, m := range regexp.MustCompile(`\$\{(\w+)\}`).FindAllStringSubmatch(read(t, "compose/towpath.yaml"), -1) {
		taken[m[1]] = true
	}
	for name := range at(t, services, "towpath", "environment").(map[string]any) {
		if !taken[name] {
			t.Errorf("compose sets %s, which the configuration does not take", name)
		}
		delete(taken, name)
	}
	if len(taken) > 0 {
		t.Errorf("compose does not set %v", taken)
	}
	if cmd := regexp.MustCompile(`(?m)^CMD (.*)$`).FindStringSubmatch(read(t, "Dockerfile")); cmd == nil || cmd[1] != `["run", "-c", "/etc/towpath/towpath.yaml"]` {
		t.Errorf("the image runs %v", cmd)
	}
}
